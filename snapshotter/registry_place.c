/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places: each host of each repository that may have a blob; see
 * registry_priv.h. Which of them is asked next, and what is remembered of those
 * that failed. Nothing is remembered for good, and a place that failed is not
 * excluded: it comes behind the others.
 */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/registry_run.h"

#define LACKS_MS 60000u
#define LIES_MS 600000u
#define HOST_BAD_MS 10000u
#define HOST_BAD_MAX_MS 300000u
#define PROBE_MS 5000u

/* ---- their life ---- */

struct place *place_ref(struct place *p)
{
	p->refs++;
	return p;
}

void place_put(struct place *p)
{
	if (!p || --p->refs > 0)
		return;
	hosts_unref(p->list);
	url_release(&p->url);
	free(p->final_url);
	free(p);
}

static int place_new(struct blob *b, struct source *s, struct host_list *l,
		     struct host *h, struct place **ret)
{
	struct place *p = calloc(1, sizeof(*p));
	struct buf text = { 0 };
	int r;

	if (!p)
		return -ENOMEM;
	p->refs = 1;
	p->src = s;
	p->list = hosts_ref(l);
	p->host = h;
	list_init(&p->waiters);
	(void)buf_addf(&text, "%s/%s/%s/%s", h->base, s->ref.repo, s->kind,
		       s->by_tag ? s->ref.tag : digest_str(&b->digest).s);
	if (h->is_mirror) {
		(void)buf_adds(&text, "?ns=");
		url_add_encoded(&text, s->ref.host, strlen(s->ref.host));
	}
	r = text.failed ? -ENOMEM
			: url_parse(NULL, (const char *)text.p, &p->url);
	buf_release(&text);
	if (r < 0) {
		place_put(p);
		return r;
	}
	*ret = p;
	return 0;
}

static void places_free(struct place **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		place_put(v[i]);
	free(v);
}

void source_free(struct source *s)
{
	if (!s)
		return;
	places_free(s->places, s->n_places);
	hosts_unref(s->list);
	free(s);
}

int source_set_hosts(struct blob *b, struct source *s, struct host_list *l)
{
	struct place **v, **old = s->places;
	size_t n = 0, n_old = s->n_places;

	if (s->list == l)
		return 0;
	v = calloc(l->n + 1, sizeof(struct place *));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		int r = place_new(b, s, l, &l->v[i], &v[n]);

		if (r == -ENOMEM) {
			places_free(v, n);
			return r;
		}
		n += r ==
		     0; /* else no URL: a repository as long as the limit */
	}
	hosts_unref(s->list);
	s->list = hosts_ref(l);
	lock_take(&b->reg->lock);
	for (size_t i = 0; i < n; i++)
		v[i]->id = ++b->reg->next_place;
	s->places = v;
	s->n_places = n;
	lock_drop(&b->reg->lock);
	places_free(old, n_old);
	return 0;
}

/* ---- choice ---- */

static bool was_tried(const struct run *run, const struct place *p)
{
	for (unsigned i = 0; i < run->n_tried; i++)
		if (run->tried[i].id == p->id)
			return true;
	return false;
}

static uint64_t bad_until_locked(const struct place *p)
{
	uint64_t host = p->host->health.bad_until_ms;

	return host > p->bad_until_ms ? host : p->bad_until_ms;
}

/* The first that is not bad, else the one that may be good again soonest.
 * @ret_src may be NULL. */
static struct place *best_locked(const struct run *run, const struct place *but,
				 unsigned *ret_src)
{
	const struct blob *b = run->blob;
	uint64_t now = now_ms(), best_until = UINT64_MAX;
	struct place *best = NULL;

	for (unsigned k = 0; k < b->n_sources; k++) {
		unsigned n = (b->preferred + k) % b->n_sources;
		const struct source *s = b->sources[n];

		for (size_t i = 0; i < s->n_places; i++) {
			struct place *p = s->places[i];
			uint64_t until = bad_until_locked(p);

			if (p == but || was_tried(run, p))
				continue;
			if (until <= now)
				until = 0;
			/* Of equals the registry itself, which is last. */
			if (until > best_until ||
			    (until == best_until && best && best->src != s))
				continue;
			best = p;
			best_until = until;
			if (ret_src)
				*ret_src = n;
			if (!until)
				return p;
		}
	}
	return best;
}

bool place_choose(struct run *run)
{
	struct host_health *h;
	struct place *p;

	lock_take(&run->reg->lock);
	p = best_locked(run, NULL, &run->src_index);
	if (p) {
		h = &p->host->health;
		/* Its time is over: one finds out, the others stay away. */
		if (h->n_failed && h->bad_until_ms <= now_ms())
			h->bad_until_ms = now_ms() + PROBE_MS;
	}
	lock_drop(&run->reg->lock);
	if (!p)
		return false;
	run->place = place_ref(p);
	run->auth_tries = 0;
	run->resolved_anew = false;
	if (run->phase == PHASE_SIZE)
		run->phase = PHASE_SUFFIX;
	return true;
}

bool place_has_other(const struct run *run)
{
	struct place *p;
	bool other;

	lock_take(&run->reg->lock);
	p = best_locked(run, run->place, NULL);
	other = p && bad_until_locked(p) <= now_ms();
	lock_drop(&run->reg->lock);
	return other;
}

/* ---- what was learned ---- */

static uint64_t host_pause(unsigned n_failed)
{
	uint64_t ms = HOST_BAD_MS;

	for (unsigned i = 1; i < n_failed && ms < HOST_BAD_MAX_MS; i++)
		ms *= 2;
	return ms < HOST_BAD_MAX_MS ? ms : HOST_BAD_MAX_MS;
}

void place_failed(struct registry *r, struct place *p, enum place_fault f,
		  unsigned retry_after_s, const char *why)
{
	struct host_health *h = &p->host->health;
	uint64_t now = now_ms(), pause;
	bool news = false;

	lock_take(&r->lock);
	if (f == FAULT_BLOB) {
		p->bad_until_ms = now + LACKS_MS;
	} else {
		/* Requests that were under way together count once. */
		news = h->n_failed == 0;
		if (news || h->bad_until_ms <= now + PROBE_MS)
			h->n_failed++;
		pause = retry_after_s ? (uint64_t)retry_after_s * 1000
				      : host_pause(h->n_failed);
		if (now + pause > h->bad_until_ms)
			h->bad_until_ms = now + pause;
		(void)snprintf(h->why, sizeof(h->why), "%s", why);
	}
	lock_drop(&r->lock);
	if (news && p->list->n > 1)
		log_warn(
			"host left for others: registry=%s host=%s reason='%s'",
			p->src->ref.host, p->host->name, why);
}

void place_worked(struct registry *r, struct place *p)
{
	struct host_health *h = &p->host->health;
	bool news;

	lock_take(&r->lock);
	news = h->n_failed > 0;
	h->n_failed = 0;
	h->bad_until_ms = 0;
	lock_drop(&r->lock);
	if (news && p->list->n > 1)
		log_info("host is back: registry=%s host=%s", p->src->ref.host,
			 p->host->name);
}

void place_note_part(struct run *run, uint64_t off)
{
	struct blob_req *q = run->q;

	lock_take(&run->reg->lock);
	run->place->served = true;
	if (q->n_parts == BLOB_PARTS_MAX) {
		q->n_parts--;
		memmove(q->parts, q->parts + 1,
			q->n_parts * sizeof(q->parts[0]));
	}
	q->parts[q->n_parts].off = off;
	q->parts[q->n_parts++].place = run->place->id;
	lock_drop(&run->reg->lock);
}

/* ---- who lied; any thread ---- */

/* For the log, which may block: written when no lock is held any more. */
struct culprit {
	char registry[256], host[600], repo[256];
};

static void blame_locked(struct place *p, uint64_t now, struct culprit *ret)
{
	p->bad_until_ms = now + LIES_MS;
	p->served = false;
	p->host->health.n_wrong++;
	(void)snprintf(ret->registry, sizeof(ret->registry), "%s",
		       p->src->ref.host);
	(void)snprintf(ret->host, sizeof(ret->host), "%s", p->host->name);
	(void)snprintf(ret->repo, sizeof(ret->repo), "%s", p->src->ref.repo);
}

static void tell_blamed(const struct culprit *c)
{
	if (c->host[0])
		log_limited(
			LOG_LEVEL_WARN, c->host,
			"host sent wrong bytes: registry=%s host=%s repo=%s",
			c->registry, c->host, c->repo);
}

static struct place *find_locked(const struct blob *b, uint32_t id)
{
	for (unsigned n = 0; n < b->n_sources; n++)
		for (size_t i = 0; i < b->sources[n]->n_places; i++)
			if (b->sources[n]->places[i]->id == id)
				return b->sources[n]->places[i];
	return NULL; /* hosts.toml has changed meanwhile */
}

void blob_blame(struct blob_req *q, uint64_t off, uint64_t len)
{
	struct registry *r = q->blob->reg;
	uint64_t now = now_ms();
	struct culprit c = { 0 };

	metrics_add(METRIC_VERIFICATION_FAILURES, METRIC_BAD_FETCHED, 1);
	lock_take(&r->lock);
	for (unsigned i = 0; i < q->n_parts; i++) {
		uint64_t end =
			i + 1 < q->n_parts ? q->parts[i + 1].off : UINT64_MAX;
		struct place *p = find_locked(q->blob, q->parts[i].place);

		if (p && q->parts[i].off < off + len && end > off)
			blame_locked(p, now, &c);
	}
	lock_drop(&r->lock);
	tell_blamed(&c);
}

bool blob_distrust(struct blob *b)
{
	struct registry *r = b->reg;
	uint64_t now = now_ms();
	bool others = false, blamed = false;
	struct culprit c = { 0 };

	metrics_add(METRIC_VERIFICATION_FAILURES, METRIC_BAD_FETCHED, 1);
	lock_take(&r->lock);
	if (!b->size_was_set)
		b->size = 0;
	for (unsigned n = 0; n < b->n_sources; n++) {
		const struct source *s = b->sources[n];

		for (size_t i = 0; i < s->n_places; i++) {
			if (s->places[i]->served) {
				blame_locked(s->places[i], now, &c);
				blamed = true;
			}
			others =
				others || bad_until_locked(s->places[i]) <= now;
		}
	}
	lock_drop(&r->lock);
	tell_blamed(&c);
	return blamed && others;
}
