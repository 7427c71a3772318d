/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a layer is made: resolve the blob, read its table of contents, build
 * index and map, make them durable, record them. One job per layer key; who
 * wants the same layer joins it. Jobs wait for the network in threads of their
 * own; nobody waits for a job, everybody is told.
 *
 * Order with the database: files first, row second. A folder without a row is
 * garbage that the next start removes.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/formats/estargz.h"
#include "snapshotter/layer_priv.h"
#include "verity/sha256.h"

#define TAIL_BYTES (64u << 10) /* footer and, for most layers, the whole TOC */

struct layer_key {
	struct digest blob, toc;
	uint32_t format;
};

struct layer_job {
	struct host_job job;
	struct layers *ls;
	struct layer_key key;
	struct layer_want want;
	struct snap_link *below; /* copy of want.below */
	bool needs_below; /* the layer implies directories */
	struct list waiters;
	/* Where else the blob lies, say those who joined; under layers.lock. */
	struct image_ref *others;
	unsigned n_others;
	UT_hash_handle hh;

	struct blob *blob;
	uint64_t deadline_ms;
	uint8_t *tail;
	size_t tail_len;
	struct buf before_tail; /* what was read just before it: of the table */
};

/* ---- the key ---- */

/* What lies below, as a name: seqs and ids of this store, hashed. They cannot
 * be forged by an image, as a chain id could. */
static int chain_name(const struct layer_want *lw, char *out, size_t cap)
{
	owned(sha256) struct sha256 *h = NULL;
	struct digest d;
	int r = sha256_new(&h);

	for (size_t i = 0; r == 0 && i < lw->n_below; i++) {
		char part[32];
		const struct snap_link *k = &lw->below[i];
		int n = k->seq != NO_LAYER
				? snprintf(part, sizeof(part), "L%u/", k->seq)
				: snprintf(part, sizeof(part), "S%llu/",
					   (unsigned long long)k->id);

		r = sha256_update(h, part, (size_t)n);
	}
	if (r == 0)
		r = sha256_end(h, &d);
	if (r < 0)
		return r;
	if (cap < DIGEST_HEX_LEN + 1)
		return -ENOSPC;
	hex_encode(d.b, DIGEST_LEN, out);
	return 0;
}

static void make_key(const struct layer_want *lw, struct layer_key *k)
{
	memset(k, 0, sizeof(*k));
	k->blob = lw->desc.blob;
	k->toc = lw->desc.toc;
	k->format = (uint32_t)lw->desc.format;
}

static int find_with_chain(struct layers *ls, const struct layer_want *lw,
			   const char *chain, struct layer_row *ret,
			   struct err *e)
{
	int r = store_find_layer(ls->o.store, &lw->desc.blob, &lw->desc.toc,
				 (uint32_t)lw->desc.format, BUILDER_VERSION,
				 chain, ret, e);

	/* A blob whose content is no tree that can be served stays refused. The
	 * other bad ones are replaced: the files were damaged, or somebody made
	 * false claims about a sound layer, which spoils it for nobody else. */
	return r == 1 && ret->bad && ret->proof != PROOF_FAILED ? 0 : r;
}

/* The layer as it is on its own, else as it was built above what lies below. */
static int find_row(struct layers *ls, const struct layer_want *lw,
		    struct layer_row *ret, struct err *e)
{
	char chain[72];
	int r = find_with_chain(ls, lw, "", ret, e);

	if (r != 0 || !lw->below_known)
		return r;
	r = chain_name(lw, chain, sizeof(chain));
	if (r < 0)
		return err_sys(e, r, "name of the parent chain");
	return find_with_chain(ls, lw, chain, ret, e);
}

bool layer_row_fits(const struct layer_row *row, const struct layer_want *lw)
{
	char chain[72];

	if (!row->parent_chain[0])
		return true;
	return lw->below_known && chain_name(lw, chain, sizeof(chain)) == 0 &&
	       !strcmp(chain, row->parent_chain);
}

/* ---- reading the blob ---- */

static unsigned left_ms(const struct layer_job *j)
{
	uint64_t now = now_ms();

	return j->deadline_ms > now ? (unsigned)(j->deadline_ms - now) : 1;
}

static int open_blob(struct layer_job *j, struct err *e)
{
	const struct digest *d = &j->want.desc.blob;
	int r;

	if (j->tail_len)
		return 0; /* another try of the job */
	r = j->blob ? 0
		    : blob_new(j->ls->o.registry, &j->want.ref, d, &j->blob);
	if (r < 0)
		return err_sys(e, r, "blob %.19s", digest_str(d).s);
	if (!j->tail)
		j->tail = malloc(TAIL_BYTES);
	if (!j->tail)
		return err_sys(e, -ENOMEM, "blob %.19s", digest_str(d).s);
	if (blob_read_tail(j->blob, j->tail, TAIL_BYTES, &j->tail_len,
			   left_ms(j), e) < 0)
		return -1;
	j->want.desc.size = blob_size(j->blob);
	return 0;
}

/* The parser's view of the blob; the tail is here already. */
static int read_blob(void *ctx, uint64_t off, void *p, size_t len,
		     struct err *e)
{
	struct layer_job *j = ctx;
	uint64_t size = j->want.desc.size, tail_off = size - j->tail_len;
	size_t head;

	if (off > size || len > size - off)
		return err_set(e, ERR_CORRUPT,
			       "layer refers to bytes behind its end");
	head = off < tail_off ? (size_t)(tail_off - off) : 0;
	if (head > len)
		head = len;
	if (head && blob_read(j->blob, off, p, head, left_ms(j), e) < 0)
		return -1;
	if (head && off + head == tail_off) {
		j->before_tail.len = 0;
		(void)buf_add(&j->before_tail, p, head);
	}
	if (len > head)
		memcpy((uint8_t *)p + head, j->tail + (off + head - tail_off),
		       len - head);
	return 0;
}

/* ---- attributes of implied directories ---- */

static int implied(void *ctx, const char *path, struct implied_attr *ret)
{
	struct layer_job *j = ctx;

	j->needs_below = true;
	if (!j->want.below_known)
		return -EAGAIN;
	return layer_implied(j->ls, j->below, j->want.n_below, path, ret);
}

/* ---- building ---- */

static int write_files(struct layer_job *j, struct builder *b, int dirfd,
		       struct layer_row *row, struct err *e)
{
	struct builder_result res;
	int r;

	if (builder_write(b, dirfd, &res, e) < 0)
		return -1;
	(void)fault_point("layer_files_written");
	r = vfile_create(dirfd, "index", &row->index_digest);
	if (r == 0)
		r = vfile_create(dirfd, "map", &row->map_digest);
	if (r == 0 && fsync(dirfd) < 0)
		r = -errno;
	if (r == 0)
		r = fsync_dir(j->ls->o.rootfd, "layer");
	if (r < 0)
		return err_sys(e, r, "index and map of layer %u", row->seq);
	(void)fault_point("layer_files_durable");
	row->payload = res.payload;
	row->usage = res.usage;
	row->n_inodes = res.n_inodes;
	/* Only a tree that asked what lies below is tied to it. */
	r = j->needs_below ? chain_name(&j->want, row->parent_chain,
					sizeof(row->parent_chain))
			   : 0;
	return r < 0 ? err_sys(e, r, "name of the parent chain") : 0;
}

static int list_ckeys(int dirfd, const struct digest *map_digest,
		      struct digest **ret, size_t *ret_n, struct err *e)
{
	struct vfile *v = NULL;
	struct map *m = NULL;
	uint32_t n;
	int r = vfile_open(dirfd, "map", map_digest, &v);

	if (r < 0)
		return err_sys(e, r, "map just written");
	if (map_open(v, &m, e) < 0)
		return -1;
	/* The only time that all of it is looked at together. */
	if (map_check(m, e) < 0) {
		map_close(m);
		return -1;
	}
	n = map_n_bodies(m);
	*ret_n = 0;
	*ret = calloc(n ? n : 1, sizeof(**ret));
	r = *ret ? 0 : -ENOMEM;
	for (uint32_t i = 1; r == 0 && i < n; i++) {
		struct map_body b;

		r = map_body(m, i, &b);
		if (r == 0)
			(*ret)[(*ret_n)++] = b.ckey;
	}
	map_close(m);
	return r < 0 ? err_sys(e, r, "map just written") : 0;
}

/* A proof will need the table as it lies in the blob, and it is here now. */
static int table_off(int dirfd, const struct digest *map_digest,
		     uint32_t *ret_n_units, uint64_t *ret_off)
{
	struct vfile *v = NULL;
	struct map *m = NULL;
	struct unit u = { 0 };
	int r = vfile_open(dirfd, "map", map_digest, &v);

	if (r < 0)
		return r;
	if (map_open(v, &m, NULL) < 0)
		return -EUCLEAN;
	*ret_n_units = map_n_units(m);
	if (*ret_n_units)
		r = map_unit(m, *ret_n_units - 1, &u);
	*ret_off = u.blob_off + u.clen;
	map_close(m);
	return r;
}

static int try_keep_table(struct layer_job *j, int dirfd,
			  const struct layer_row *row)
{
	owned(buf) struct buf toc = { 0 };
	struct residue *res = NULL;
	uint64_t off, begin = j->want.desc.size - j->tail_len;
	uint64_t end = j->want.desc.size - ESTARGZ_FOOTER_LEN;
	uint32_t n_units;
	size_t head;
	int r = table_off(dirfd, &row->map_digest, &n_units, &off);

	if (r < 0)
		return r;
	head = off < begin ? (size_t)(begin - off) : 0;
	if (head > j->before_tail.len || j->before_tail.failed)
		return -ENODATA;
	if (head)
		(void)buf_add(&toc,
			      j->before_tail.p + j->before_tail.len - head,
			      head);
	off += head;
	(void)buf_add(&toc, j->tail + (off - begin), (size_t)(end - off));
	if (toc.failed)
		return -ENOMEM;
	r = residue_open(dirfd, n_units + 1, &res);
	if (r == 0)
		r = residue_add(res, n_units, toc.p, toc.len);
	residue_close(res);
	return r;
}

static void keep_table(struct layer_job *j, int dirfd,
		       const struct layer_row *row)
{
	int r = try_keep_table(j, dirfd, row);

	if (r < 0)
		log_warn("a proof will fetch the table again: seq=%u err='%s'",
			 row->seq, strerror(-r));
}

static int build_into(struct layer_job *j, int dirfd, struct layer_row *row,
		      struct err *e)
{
	const struct format *f = format_find(j->want.desc.format);
	struct blob_reader rd = { .read = read_blob,
				  .ctx = j,
				  .size = j->want.desc.size };
	struct builder_opts bo = { .implied = implied,
				   .ctx = j,
				   .userxattr = j->ls->o.userxattr };
	struct builder *b = NULL;
	int r;

	if (!f)
		return err_set(e, ERR_UNSUPPORTED, "unknown layer format");
	memcpy(bo.uuid, j->want.desc.toc.b, sizeof(bo.uuid));
	r = builder_new(&bo, &b);
	if (r < 0)
		return err_sys(e, r, "builder");
	r = f->parse(&rd, &j->want.desc, &builder_sink, b, e);
	if (r == 0)
		r = write_files(j, b, dirfd, row, e);
	builder_free(b);
	if (r == 0)
		keep_table(j, dirfd, row);
	return r;
}

static void fill_row(const struct layer_job *j, uint32_t seq,
		     struct layer_row *row)
{
	memset(row, 0, sizeof(*row));
	row->seq = seq;
	row->blob = j->want.desc.blob;
	row->toc = j->want.desc.toc;
	row->format = (uint32_t)j->want.desc.format;
	row->writer = BUILDER_VERSION;
	row->size = j->want.desc.size;
	row->diff_id = j->want.desc.diff_id;
	(void)snprintf(row->chain_id, sizeof(row->chain_id), "%s",
		       j->want.chain_id);
	(void)snprintf(row->image, sizeof(row->image), "%s", j->want.image);
}

static void drop_folder(struct layers *ls, const char *path)
{
	int r = remove_tree(ls->o.rootfd, path);

	if (r < 0)
		log_warn("folder left for the next start: path=%s err='%s'",
			 path, strerror(-r));
}

static int make_layer(struct layer_job *j, struct layer_row *row, struct err *e)
{
	struct layers *ls = j->ls;
	owned(mem) struct digest *ckeys = NULL;
	owned(fd) int dirfd = -1;
	size_t n_ckeys = 0;
	char path[32];
	uint32_t seq;
	int r;

	if (open_blob(j, e) < 0)
		return -1;
	if (store_next_seq(ls->o.store, &seq, e) < 0)
		return -1;
	fill_row(j, seq, row);
	(void)snprintf(path, sizeof(path), "layer/%u", seq);
	r = mkdir_exact(ls->o.rootfd, path, 0700);
	dirfd = r < 0 ? r : open_dir(ls->o.rootfd, path);
	if (dirfd < 0)
		return err_sys(e, dirfd, "folder of layer %u", seq);
	(void)fault_point("layer_folder_made");
	if (build_into(j, dirfd, row, e) < 0 ||
	    list_ckeys(dirfd, &row->map_digest, &ckeys, &n_ckeys, e) < 0 ||
	    store_add_layer(ls->o.store, row, ckeys, n_ckeys, e) < 0) {
		drop_folder(ls, path);
		return -1;
	}
	if (layers_insert(ls, row, e) < 0)
		return -1;
	if (ls->o.prove_before_run && layers_prove(ls, &j->want, seq, NULL) < 0)
		log_warn("proof not begun: seq=%u", seq);
	log_info(
		"layer ready: layer=%s seq=%u image='%s' inodes=%llu payload=%llu",
		digest_str(&row->blob).s, seq, row->image,
		(unsigned long long)row->n_inodes,
		(unsigned long long)row->payload);
	return 0;
}

/* ---- jobs ---- */

static void job_free(struct layer_job *j)
{
	if (!j)
		return;
	blob_unref(j->blob);
	free(j->tail);
	buf_release(&j->before_tail);
	free(j->below);
	free(j->others);
	free(j);
}

static void tell_all(struct list *l, const struct layer_row *row,
		     const struct err *e)
{
	lock_assert_none();
	while (!list_empty(l)) {
		struct layer_waiter *w =
			list_first(l, struct layer_waiter, node);

		list_remove(&w->node);
		w->done(w, row, e);
	}
}

/*
 * Somebody who knows what lies below has joined meanwhile: a job that was
 * started ahead of it, and that failed for want of it, can go on.
 */
static bool learned_below(struct layer_job *j)
{
	bool known;

	lock_take(&j->ls->lock);
	known = j->needs_below && !j->want.below_known && j->below;
	if (known) {
		j->want.below = j->below;
		j->want.below_known = true;
	}
	lock_drop(&j->ls->lock);
	return known;
}

static bool is_closing(struct layers *ls)
{
	bool r;

	lock_take(&ls->lock);
	r = ls->closing;
	lock_drop(&ls->lock);
	return r;
}

static int job_try(struct layer_job *j, struct layer_row *row, struct err *e)
{
	/* Another job may have ended between the question and this one. */
	int r = find_row(j->ls, &j->want, row, e);

	if (r == 1 && !row->bad)
		r = layers_check(j->ls, &j->want, row->seq, e);
	else if (r == 1)
		r = err_set(e, ERR_CORRUPT, "layer is in quarantine");
	if (r != 0)
		return r;
	if (is_closing(j->ls))
		return err_set(e, ERR_CANCELLED, "the daemon is stopping");
	return make_layer(j, row, e);
}

/* A mirror may have told lies: is there somebody else to ask? */
static bool doubts(struct layer_job *j, const struct err *e)
{
	if (e->kind != ERR_CORRUPT && e->kind != ERR_UNSUPPORTED &&
	    e->kind != ERR_INVALID)
		return false;
	if (!j->blob || (j->needs_below && !j->want.below_known) ||
	    !blob_distrust(j->blob))
		return false;
	j->tail_len = 0;
	j->before_tail.len = 0;
	return true;
}

static void job_run(struct host_job *job)
{
	struct layer_job *j = container_of(job, struct layer_job, job);
	struct layers *ls = j->ls;
	struct layer_row row;
	struct err e = ERR_INIT;
	struct list told, *p;
	int r;

	list_init(&told);
	j->deadline_ms = now_ms() + ls->o.job_deadline_s * 1000ull;
	do {
		r = job_try(j, &row, &e);
	} while (r < 0 && (learned_below(j) || doubts(j, &e)));
	if (r < 0)
		log_limited(
			LOG_LEVEL_INFO, digest_str(&j->want.desc.blob).s,
			"layer not lazy: layer=%s image='%s' host=%s error_kind='%s' err='%s'",
			digest_str(&j->want.desc.blob).s, j->want.image,
			j->want.ref.host, err_kind_name(e.kind), e.msg);
	else
		e.kind = ERR_NONE;
	lock_take(&ls->lock);
	HASH_DEL(ls->jobs, j);
	list_each (p, &j->waiters)
		list_entry(p, struct layer_waiter, node)->job = NULL;
	list_splice(&told, &j->waiters);
	cond_broadcast(&ls->changed);
	lock_drop(&ls->lock);
	for (unsigned i = 0; r >= 0 && i < j->n_others; i++)
		layer_learn_repo(ls, &row, &j->others[i]);
	tell_all(&told, r < 0 ? NULL : &row, &e);
	job_free(j);
}

static int copy_below(struct layer_job *j, const struct layer_want *lw)
{
	j->below = calloc(lw->n_below + 1, sizeof(*j->below));
	if (!j->below)
		return -ENOMEM;
	if (lw->n_below)
		memcpy(j->below, lw->below, lw->n_below * sizeof(*j->below));
	j->want.n_below = lw->n_below;
	return 0;
}

static int job_new(struct layers *ls, const struct layer_key *key,
		   const struct layer_want *lw, struct layer_job **ret)
{
	struct layer_job *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->ls = ls;
	j->key = *key;
	j->want = *lw;
	j->job.run = job_run;
	list_init(&j->waiters);
	if (lw->below_known && copy_below(j, lw) < 0) {
		free(j);
		return -ENOMEM;
	}
	j->want.below = j->below;
	*ret = j;
	return 0;
}

/* Of more than a few repositories, the others do not matter. */
static int note_other(struct layer_job *j, const struct image_ref *ref)
{
	struct image_ref *v;

	if ((!strcmp(ref->host, j->want.ref.host) &&
	     !strcmp(ref->repo, j->want.ref.repo)) ||
	    j->n_others == LAYER_REPOS_MAX)
		return 0;
	v = realloc(j->others, (j->n_others + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	j->others = v;
	v[j->n_others++] = *ref;
	return 0;
}

/* With the lock held: joins the job for @key, or makes one. */
static int join_locked(struct layers *ls, const struct layer_key *key,
		       const struct layer_want *lw, struct layer_waiter *w)
{
	struct layer_job *j;
	int r;

	HASH_FIND(hh, ls->jobs, key, sizeof(*key), j);
	if (j && lw->below_known && !j->below && copy_below(j, lw) < 0)
		return -ENOMEM;
	if (j && note_other(j, &lw->ref) < 0)
		return -ENOMEM;
	if (!j) {
		r = job_new(ls, key, lw, &j);
		if (r < 0)
			return r;
		HASH_ADD(hh, ls->jobs, key, sizeof(j->key), j);
		if (!HTAB_ADDED(j)) {
			job_free(j);
			return -ENOMEM;
		}
		r = layers_add_job(ls, lw->ref.host, &j->job);
		if (r < 0) {
			HASH_DEL(ls->jobs, j);
			job_free(j);
			return r;
		}
	}
	if (w) {
		list_push(&j->waiters, &w->node);
		w->job = j;
	}
	return 0;
}

int layers_want(struct layers *ls, const struct layer_want *lw,
		struct layer_waiter *w, struct layer_row *row, struct err *e)
{
	struct layer_key key;
	int r = find_row(ls, lw, row, e);

	if (w) {
		list_init(&w->node);
		w->job = NULL;
	}
	if (r < 0)
		return -1;
	if (r == 1 && row->bad)
		return err_set(e, ERR_CORRUPT, "layer is in quarantine");
	if (r == 1)
		r = layers_check(ls, lw, row->seq, e);
	if (r != 0)
		return r;
	make_key(lw, &key);
	lock_take(&ls->lock);
	r = ls->closing ? -ECANCELED : join_locked(ls, &key, lw, w);
	lock_drop(&ls->lock);
	return r < 0 ? err_sys(e, r, "layer job") : 0;
}

bool layers_cancel(struct layers *ls, struct layer_waiter *w)
{
	bool mine;

	lock_take(&ls->lock);
	mine = w->job != NULL;
	if (mine)
		list_remove(&w->node);
	w->job = NULL;
	lock_drop(&ls->lock);
	return mine;
}

int layers_add_job(struct layers *ls, const char *host, struct host_job *j)
{
	return host_jobs_add(ls->host_jobs, host, j);
}

/* Jobs see ls->closing or the fetcher's end; all waiters are told. */
void layer_jobs_cancel(struct layers *ls)
{
	lock_take(&ls->lock);
	while (ls->jobs)
		cond_wait(&ls->changed, &ls->lock);
	lock_drop(&ls->lock);
}
