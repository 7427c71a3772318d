/* SPDX-License-Identifier: Apache-2.0 */
/* What rows of lazy layers stand for, for the model of image names. */
#include <sys/eventfd.h>

#include "base/log.h"
#include "snapshotter/store_priv.h"

/* A false claim is left out once it is known to be false. */
#define CHAINS                                                     \
	"SELECT DISTINCT s.chain, l.seq, l.blob, l.toc, l.proof"   \
	" FROM snapshot s JOIN layer l ON l.seq = s.seq"           \
	" LEFT JOIN snapshot p ON p.id = s.parent"                 \
	" WHERE s.kind = 3 AND s.chain IS NOT NULL AND l.bad = 0"  \
	" AND (l.proof = 0 OR ifnull(vs_chain(s.parent, p.chain, " \
	"l.diff_id) = s.chain, 1))"

struct chains {
	struct lazy_chain *v;
	size_t n;
};

static int read_chains(struct store *s, struct chains *c, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r;

	if (db_start(s, CHAINS, NO_ARGS, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		const char *chain = (const char *)sqlite3_column_text(st, 0);
		struct lazy_chain *v;

		if (grow((void **)&c->v, c->n, &cap, sizeof(*c->v), e) < 0)
			return -1;
		v = &c->v[c->n];
		*v = (struct lazy_chain){
			.seq = (uint32_t)sqlite3_column_int64(st, 1),
			.proven = sqlite3_column_int(st, 4) == PROOF_PROVEN
		};
		/* What a client calls a ref may be anything. */
		if (!chain || digest_parse(chain, &v->chain) < 0)
			continue;
		if (db_col_digest(st, 2, &v->blob, e) < 0 ||
		    db_col_digest(st, 3, &v->toc, e) < 0)
			return -1;
		c->n++;
	}
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct lazy_chain *x = a, *y = b;
	int r = memcmp(x->chain.b, y->chain.b, DIGEST_LEN);

	if (r)
		return r;
	if (x->proven != y->proven)
		return x->proven ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int store_lazy_chains(struct store *s, struct lazy_chain **ret, size_t *ret_n,
		      struct err *e)
{
	struct chains c = { 0 };
	int r;

	lock_take(&s->lock);
	r = read_chains(s, &c, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(c.v);
		return -1;
	}
	if (c.n)
		qsort(c.v, c.n, sizeof(*c.v), compare);
	*ret = c.v;
	*ret_n = c.n;
	return 0;
}

void store_set_watch(struct store *s, int fd)
{
	lock_take(&s->lock);
	s->watch_fd = fd;
	lock_drop(&s->lock);
}

void notice_lazy_change(struct store *s)
{
	/* Who looks waits for our lock, and so for the end of what changes. It
	 * cannot block: the counter would have to be full. */
	if (s->watch_fd >= 0 && eventfd_write(s->watch_fd, 1) < 0)
		log_debug("change not noticed: errno=%d", errno);
}
