/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks for a scrub, and what becomes of what it finds; see scrub.h. Requests
 * are served in order, one file at a time. The end of the last whole run that
 * the calendar asked for is the time of ROOT/scrubbed, so that a restart neither
 * forgets it nor begins anew.
 */
#include "snapshotter/scrub.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/seal.h"
#include "verity/kmsg.h"
#include "verity/scrubber.h"

#define STAMP "scrubbed"
#define QUEUE_MAX 4096u
#define LAST_BAD_MAX 600 /* an image reference and some words */
#define INOS_MAX 8u
#define PAUSE_LAST_MS 600000u
#define HELPER_TRIES 20u /* a second apart: it may be starting */

unsigned scrubbing_look_ms = 600000;
unsigned scrubbing_pause_ms = 5000;

enum kind { ASKED_LAYER, ASKED_ALL, ASKED_CALENDAR, ASKED_ALARM };

struct request {
	struct list node;
	enum kind kind;
	uint32_t seq; /* of ASKED_LAYER */
	uint64_t ticket; /* 0: nobody waits for it */
	uint64_t inos[INOS_MAX]; /* of ASKED_ALARM: these first */
	unsigned n_inos;
};

struct counters {
	uint64_t n_files, n_bytes, n_bad, n_unreadable_blocks;
	uint64_t n_healed, n_fetching, n_new_layers, n_leaf_logs;
	uint64_t n_failed; /* bad, and not healed */
	uint64_t n_skipped; /* could not be looked at */
};

struct scrubbing {
	struct layers *ls;
	struct helper_caller *scrubber;
	uint64_t rate;
	unsigned interval_s; /* 0: never */
	atomic_bool stop;
	pthread_t thread;
	bool runs;
	struct kmsg *kmsg; /* NULL: kmsg_error says why */
	int kmsg_error;

	struct lock lock; /* leaf; guards what follows */
	struct cond wake;
	struct list queue; /* struct request */
	unsigned n_queued;
	uint64_t last_ticket, finished;
	bool running;
	uint64_t alarm_not_before_ms;
	unsigned alarm_pause_ms;
	struct counters count;
	uint64_t n_runs, n_alarms;
	char last_bad[LAST_BAD_MAX];
};

/* ---- asking ---- */

static struct request *add_locked(struct scrubbing *q, enum kind kind)
{
	struct request *rq;

	if (!q->scrubber || atomic_load(&q->stop) || q->n_queued >= QUEUE_MAX)
		return NULL;
	rq = calloc(1, sizeof(*rq));
	if (!rq)
		return NULL;
	rq->kind = kind;
	list_init(&rq->node);
	list_push(&q->queue, &rq->node);
	q->n_queued++;
	cond_signal(&q->wake);
	return rq;
}

uint64_t scrubbing_ask(struct scrubbing *q, uint32_t seq)
{
	uint64_t ticket = 0;
	struct request *rq;

	lock_take(&q->lock);
	rq = add_locked(q, seq == SCRUB_ALL ? ASKED_ALL : ASKED_LAYER);
	if (rq) {
		rq->seq = seq;
		ticket = rq->ticket = ++q->last_ticket;
	}
	lock_drop(&q->lock);
	return ticket;
}

static struct request *find_locked(struct scrubbing *q, enum kind kind)
{
	struct list *p;

	list_each (p, &q->queue) {
		struct request *rq = list_entry(p, struct request, node);

		if (rq->kind == kind)
			return rq;
	}
	return NULL;
}

void scrubbing_alarm(struct scrubbing *q, uint64_t ino)
{
	struct request *rq;

	lock_take(&q->lock);
	q->n_alarms++;
	/* After a long time of peace the first is served at once again. */
	if (now_ms() > q->alarm_not_before_ms + PAUSE_LAST_MS)
		q->alarm_pause_ms = 0;
	rq = find_locked(q, ASKED_ALARM);
	if (!rq)
		rq = add_locked(q, ASKED_ALARM);
	for (unsigned i = 0; rq && ino && i < rq->n_inos; i++)
		if (rq->inos[i] == ino)
			ino = 0; /* one line for each time it was read */
	if (rq && ino && rq->n_inos < INOS_MAX)
		rq->inos[rq->n_inos++] = ino;
	lock_drop(&q->lock);
}

/* The first that may be served. What the kernel's log asks for may have to wait:
 * scrubbing what cannot be healed writes such lines, too. */
static struct request *due_locked(struct scrubbing *q, uint64_t *until)
{
	struct list *p;

	list_each (p, &q->queue) {
		struct request *rq = list_entry(p, struct request, node);

		if (rq->kind != ASKED_ALARM ||
		    q->alarm_not_before_ms <= now_ms())
			return rq;
		if (q->alarm_not_before_ms < *until)
			*until = q->alarm_not_before_ms;
	}
	return NULL;
}

/* ---- the calendar ---- */

static void touch(struct scrubbing *q)
{
	owned(fd) int fd = openat(q->ls->o.rootfd, STAMP,
				  O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : 0;

	if (r == 0 && futimens(fd, NULL) < 0)
		r = -errno;
	if (r == -ENOENT) {
		fd = openat(q->ls->o.rootfd, STAMP,
			    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : 0;
	}
	if (r < 0)
		log_warn("time of the scrub not kept: err='%s'", strerror(-r));
}

static bool is_due(struct scrubbing *q)
{
	time_t now = time(NULL);
	struct stat st;

	/* Where there was none, and after a clock that was ahead, from now. */
	if (fstatat(q->ls->o.rootfd, STAMP, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_mtime > now) {
		touch(q);
		return false;
	}
	return (uint64_t)(now - st.st_mtime) >= q->interval_s;
}

/* ---- one file ---- */

/* What a run has seen of bodies that layers share. */
struct seen {
	struct digest name;
	UT_hash_handle hh;
};

struct run {
	struct scrubbing *q;
	const struct request *rq;
	struct layer *l;
	struct seen *seen;
	struct counters c;
	char last_bad[LAST_BAD_MAX];
	uint64_t only_ino; /* 0: all files */
};

static const char *name_of(uint32_t what, char buf[16])
{
	if (what == SEAL_INDEX || what == SEAL_MAP)
		return what == SEAL_INDEX ? "index" : "map";
	(void)snprintf(buf, 16, "body %u", what);
	return buf;
}

static void heal(struct run *run, uint32_t what, const struct scrub_result *res)
{
	struct layer *l = run->l;
	enum healed healed = HEALED;
	char name[16];
	int r;

	run->c.n_bad++;
	run->c.n_unreadable_blocks += res->n_unreadable;
	(void)snprintf(run->last_bad, sizeof(run->last_bad),
		       "%s of layer %u, image %s", name_of(what, name),
		       l->row.seq, l->row.image);
	log_warn(
		"file is damaged on disk, healing it: file='%s' seq=%u layer=%s image='%s' unreadable_blocks=%" PRIu64,
		name_of(what, name), l->row.seq, digest_str(&l->row.blob).s,
		l->row.image, res->n_unreadable);
	r = layer_scrub_heal(l, what, &healed);
	if (r < 0) {
		run->c.n_failed++;
		log_err("damaged file is not healed: file='%s' seq=%u err='%s'",
			name_of(what, name), l->row.seq, strerror(-r));
		return;
	}
	run->c.n_healed += healed == HEALED;
	run->c.n_fetching += healed == HEALED_FETCHING;
	run->c.n_new_layers += healed == HEALED_NEW_LAYER;
}

/* The helper may have died of this very file, or be starting. */
static int ask_helper(struct run *run, const struct scrub_job *job,
		      struct scrub_result *res)
{
	struct scrubbing *q = run->q;
	int r = -EPIPE;

	for (unsigned i = 0; i < HELPER_TRIES && r == -EPIPE; i++) {
		if (i) {
			lock_take(&q->lock);
			if (!atomic_load(&q->stop))
				(void)cond_wait_until(&q->wake, &q->lock,
						      now_ms() + 1000);
			lock_drop(&q->lock);
		}
		r = scrubber_read(q->scrubber, job, &q->stop, res);
	}
	return r < 0 ? r : res->err;
}

static void beside(struct run *run, uint32_t what, const struct scrub_target *t)
{
	char name[16];
	int r = layer_scrub_beside(run->l, what, t);

	if (r == 0)
		return;
	run->c.n_bad++;
	run->c.n_leaf_logs += r == 1;
	run->c.n_failed += r < 0;
	log_warn("leaf log is damaged on disk: file='%s' seq=%u %s='%s'",
		 name_of(what, name), run->l->row.seq, r < 0 ? "err" : "state",
		 r < 0 ? strerror(-r) : "written anew");
}

static void scrub_file(struct run *run, uint32_t what)
{
	struct scrub_result res = { 0 };
	struct scrub_target t = { .fd = -1 };
	struct scrub_job job;
	char name[16];
	int r = layer_scrub_begin(run->l, what, run->only_ino, &t);

	if (r == 0) {
		job = (struct scrub_job){ .fd = t.fd,
					  .size = t.size,
					  .want = t.want,
					  /* somebody got an error just now */
					  .rate = run->only_ino
							  ? 0
							  : run->q->rate };
		r = ask_helper(run, &job, &res);
		run->c.n_files++;
		run->c.n_bytes += res.bytes;
		if (r == 0)
			beside(run, what, &t);
	}
	if (t.fd >= 0)
		(void)close(t.fd);
	if (r == -EBADMSG)
		heal(run, what, &res);
	else if (r < 0 && r != -ECANCELED) {
		run->c.n_skipped++;
		log_warn("file not looked at: file='%s' seq=%u err='%s'",
			 name_of(what, name), run->l->row.seq, strerror(-r));
	}
}

/* ---- a layer, all layers ---- */

/* false: a layer before had it, too. */
static bool is_first(struct run *run, uint32_t i)
{
	struct digest name = layer_body_name(run->l, i);
	struct seen *s;

	if (digest_is_zero(&name))
		return true;
	HASH_FIND(hh, run->seen, &name, sizeof(name), s);
	if (s)
		return false;
	s = calloc(1, sizeof(*s));
	if (!s)
		return true; /* read twice, then */
	s->name = name;
	HASH_ADD(hh, run->seen, name, sizeof(s->name), s);
	if (!HTAB_ADDED(s))
		free(s);
	return true;
}

static void scrub_files(struct run *run)
{
	for (uint32_t what = SEAL_MAP; what <= SEAL_INDEX; what++)
		if (!atomic_load(&run->q->stop))
			scrub_file(run, what);
	for (uint32_t i = 0; i < layer_n_bodies(run->l); i++)
		if (!atomic_load(&run->q->stop) && is_first(run, i))
			scrub_file(run, i);
}

/* What cannot be opened is damaged, too: a new one takes its place. */
static void scrub_closed(struct run *run)
{
	struct err e = ERR_INIT;

	if (!layer_is_damaged(run->l) || atomic_load(&run->l->damage_recorded))
		return;
	run->c.n_bad++;
	if (layer_record_damage(run->l, &e) < 0) {
		run->c.n_failed++;
		log_err("damage not recorded: seq=%u err='%s'", run->l->row.seq,
			e.msg);
	} else {
		run->c.n_new_layers++;
	}
}

/* Adds what was found so far to what status shows. */
static void publish(struct run *run)
{
	struct scrubbing *q = run->q;
	struct counters *to = &q->count, *c = &run->c;

	lock_take(&q->lock);
	to->n_files += c->n_files;
	to->n_bytes += c->n_bytes;
	to->n_bad += c->n_bad;
	to->n_unreadable_blocks += c->n_unreadable_blocks;
	to->n_healed += c->n_healed;
	to->n_fetching += c->n_fetching;
	to->n_new_layers += c->n_new_layers;
	to->n_leaf_logs += c->n_leaf_logs;
	to->n_failed += c->n_failed;
	to->n_skipped += c->n_skipped;
	if (run->last_bad[0])
		memcpy(q->last_bad, run->last_bad, sizeof(q->last_bad));
	lock_drop(&q->lock);
	memset(c, 0, sizeof(*c));
}

static uint64_t scrub_layer(struct run *run, uint32_t seq)
{
	struct layers *ls = run->q->ls;
	/* The file that the kernel names may be of any layer. */
	bool only_open = run->rq->kind == ASKED_ALARM && !run->only_ino;
	bool was_closed = false;
	uint64_t n_bad;

	run->l = only_open ? layer_look(ls, seq, &was_closed)
			   : layer_use(ls, seq, &was_closed);
	if (!run->l)
		return 0;
	if (layer_state(run->l) == LAYER_OPEN)
		scrub_files(run);
	else if (layer_state(run->l) == LAYER_BROKEN)
		scrub_closed(run);
	layer_unlook(run->l, was_closed);
	run->l = NULL;
	n_bad = run->c.n_bad;
	publish(run);
	return n_bad;
}

static void forget_seen(struct run *run)
{
	struct seen *s, *tmp;

	htab_each (run->seen, s, tmp) {
		HASH_DEL(run->seen, s);
		free(s);
	}
}

/* How many bad files. */
static uint64_t scrub_layers(struct run *run)
{
	owned(mem) uint32_t *seqs = NULL;
	uint64_t n_bad = 0;
	size_t n = 0;

	if (layers_seqs(run->q->ls, &seqs, &n) < 0)
		log_warn("out of memory: no scrub");
	for (size_t i = 0; i < n && !atomic_load(&run->q->stop); i++)
		n_bad += scrub_layer(run, seqs[i]);
	forget_seen(run);
	return n_bad;
}

static uint64_t serve(struct scrubbing *q, const struct request *rq)
{
	struct run run = { .q = q, .rq = rq };
	uint64_t n_bad = 0;

	if (rq->kind == ASKED_LAYER) {
		n_bad = scrub_layer(&run, rq->seq);
		forget_seen(&run);
		return n_bad;
	}
	for (unsigned i = 0; i < rq->n_inos; i++) {
		run.only_ino = rq->inos[i];
		n_bad += scrub_layers(&run);
	}
	run.only_ino = 0;
	n_bad += scrub_layers(&run);
	if (rq->kind == ASKED_CALENDAR && !atomic_load(&q->stop))
		touch(q);
	return n_bad;
}

/* ---- the thread ---- */

static void finish_locked(struct scrubbing *q, const struct request *rq,
			  uint64_t n_bad)
{
	q->running = false;
	q->n_runs++;
	if (rq->ticket)
		q->finished = rq->ticket;
	if (rq->kind != ASKED_ALARM)
		return;
	if (n_bad || !q->alarm_pause_ms)
		q->alarm_pause_ms = scrubbing_pause_ms;
	else if (q->alarm_pause_ms < PAUSE_LAST_MS / 2)
		q->alarm_pause_ms *= 2;
	else
		q->alarm_pause_ms = PAUSE_LAST_MS;
	q->alarm_not_before_ms = now_ms() + q->alarm_pause_ms;
}

static void work(struct scrubbing *q, struct request *rq)
{
	uint64_t n_bad = serve(q, rq);

	lock_take(&q->lock);
	finish_locked(q, rq, n_bad);
	lock_drop(&q->lock);
	free(rq);
}

/* Drops the lock over a look at the disk. */
static void look_at_calendar_locked(struct scrubbing *q)
{
	bool due;

	lock_drop(&q->lock);
	due = is_due(q);
	lock_take(&q->lock);
	if (due)
		(void)add_locked(q, ASKED_CALENDAR);
}

static void wait_locked(struct scrubbing *q, uint64_t until)
{
	if (until == UINT64_MAX)
		cond_wait(&q->wake, &q->lock);
	else
		(void)cond_wait_until(&q->wake, &q->lock, until);
}

static void *scrub_main(void *arg)
{
	struct scrubbing *q = arg;
	uint64_t look_at_ms = q->interval_s ? 0 : UINT64_MAX;

	(void)pthread_setname_np(pthread_self(), "vs-scrub");
	lock_take(&q->lock);
	while (!atomic_load(&q->stop)) {
		uint64_t until;
		struct request *rq;

		if (now_ms() >= look_at_ms) {
			look_at_ms = now_ms() + scrubbing_look_ms;
			look_at_calendar_locked(q);
			continue; /* whatever came meanwhile */
		}
		until = look_at_ms;
		rq = due_locked(q, &until);
		if (!rq) {
			wait_locked(q, until);
			continue;
		}
		list_remove(&rq->node);
		q->n_queued--;
		q->running = true;
		lock_drop(&q->lock);
		work(q, rq);
		lock_take(&q->lock);
	}
	lock_drop(&q->lock);
	return NULL;
}

/* ---- the kernel's log ---- */

static void alarm_from_kernel(void *ctx, uint64_t ino)
{
	log_limited(LOG_LEVEL_WARN, NULL,
		    "the kernel has found a damaged file: inode=%" PRIu64, ino);
	scrubbing_alarm(ctx, ino);
}

/* Without it damage that a reader has met is found by the next scrub. */
static void watch_kernel(struct scrubbing *q)
{
	int fd = kmsg_open();
	int r = fd < 0 ? fd : kmsg_watch(fd, alarm_from_kernel, q, &q->kmsg);

	if (r < 0)
		log_info("the kernel's log is not watched: err='%s'",
			 strerror(-r));
	q->kmsg_error = r;
}

/* ---- the interface ---- */

int scrubbing_new(struct layers *ls, struct scrubbing **ret)
{
	struct scrubbing *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	r = cond_init(&q->wake);
	if (r < 0) {
		free(q);
		return r;
	}
	q->ls = ls;
	q->scrubber = ls->o.scrubber;
	q->rate = ls->o.scrub_rate;
	q->interval_s = ls->o.scrub_interval_s;
	lock_init(&q->lock, RANK_LEAF);
	list_init(&q->queue);
	if (q->scrubber)
		r = -pthread_create(&q->thread, NULL, scrub_main, q);
	if (r < 0) {
		scrubbing_free(q);
		return r;
	}
	q->runs = q->scrubber != NULL;
	if (q->runs)
		watch_kernel(q);
	*ret = q;
	return 0;
}

void scrubbing_stop(struct scrubbing *q)
{
	if (!q)
		return;
	kmsg_unwatch(q->kmsg);
	q->kmsg = NULL;
	lock_take(&q->lock);
	atomic_store(&q->stop, true);
	cond_broadcast(&q->wake);
	lock_drop(&q->lock);
	if (q->runs)
		(void)pthread_join(q->thread, NULL);
	q->runs = false;
}

void scrubbing_free(struct scrubbing *q)
{
	if (!q)
		return;
	scrubbing_stop(q);
	while (!list_empty(&q->queue)) {
		struct request *rq =
			list_first(&q->queue, struct request, node);

		list_remove(&rq->node);
		free(rq);
	}
	cond_release(&q->wake);
	lock_release(&q->lock);
	free(q);
}

static void counters_json(const struct counters *c, struct buf *out)
{
	(void)buf_addf(out,
		       "\"files\":%" PRIu64 ",\"bytes\":%" PRIu64
		       ",\"bad\":%" PRIu64 ",\"unreadable_blocks\":%" PRIu64
		       ",\"healed\":%" PRIu64 ",\"fetching\":%" PRIu64
		       ",\"new_layers\":%" PRIu64 ",\"leaf_logs\":%" PRIu64
		       ",\"not_healed\":%" PRIu64 ",\"skipped\":%" PRIu64,
		       c->n_files, c->n_bytes, c->n_bad, c->n_unreadable_blocks,
		       c->n_healed, c->n_fetching, c->n_new_layers,
		       c->n_leaf_logs, c->n_failed, c->n_skipped);
}

void scrubbing_json(struct scrubbing *q, struct buf *out)
{
	struct helper_status st = { 0 };
	char bad[sizeof(q->last_bad)];
	struct stat stamp = { 0 };

	if (q->scrubber)
		helper_caller_get_status(q->scrubber, &st);
	(void)fstatat(q->ls->o.rootfd, STAMP, &stamp, AT_SYMLINK_NOFOLLOW);
	lock_take(&q->lock);
	(void)buf_addf(out,
		       "\"scrub\":{\"state\":\"%s\",\"interval_s\":%u,"
		       "\"rate\":%" PRIu64 ",\"last\":%lld,\"queued\":%u,"
		       "\"finished\":%" PRIu64 ",\"runs\":%" PRIu64
		       ",\"alarms\":%" PRIu64 ",",
		       !q->scrubber ? "off"
		       : q->running ? "running"
				    : "idle",
		       q->interval_s, q->rate, (long long)stamp.st_mtime,
		       q->n_queued, q->finished, q->n_runs, q->n_alarms);
	counters_json(&q->count, out);
	memcpy(bad, q->last_bad, sizeof(bad));
	lock_drop(&q->lock);
	(void)buf_adds(out, ",\"last_bad\":");
	(void)buf_add_json(out, bad);
	/* "": it is watched */
	(void)buf_adds(out, ",\"no_kernel_log\":");
	(void)buf_add_json(out, !q->runs        ? "there is no scrubber"
				: q->kmsg_error ? strerror(-q->kmsg_error)
						: "");
	(void)buf_adds(out, ",\"helper\":");
	helper_status_json(&st, out);
	(void)buf_adds(out, "}");
}
