/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parking lot of reads; see read.h.
 *
 * A struct parked has one want() and one done() in its life: a read whose bytes
 * got lost between done() and our own look at the disk is parked anew under a
 * new object, so that cancelling never meets a wait that is being reused.
 * References: one of the provider, given back in done(), one of the thread that
 * parks, one of each thread that cancels.
 *
 * The lock guards the lists and the fields that say so; it is never held while
 * the provider is called, while a reply is written, or over a read of /proc.
 */
#include "fuse/read.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fault.h"
#include "base/htab.h"
#include "base/io.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/metrics.h"
#include "fuse/repeat.h"

/* Bytes that vanish again and again are a broken disk, not bad luck. */
#define MAX_ROUNDS 8

struct parked {
	struct source_wait wait; /* the provider's */
	struct reads *rs;
	struct read_request rq;
	uint64_t deadline_ms;
	unsigned rounds;
	/* guarded by rs->lock */
	unsigned refs;
	bool armed; /* want() has returned, cancel() is allowed */
	int verdict; /* errno > 0 that the answer is going to be */
	struct list node; /* in rs->all, by deadline */
	UT_hash_handle hh; /* in rs->by_unique */
};

/* How many reads of one layer are parked; exists while it is not 0. */
struct layer_count {
	uint32_t seq, n;
	UT_hash_handle hh;
};

struct reads {
	const struct source_set *sources;
	struct buffers *buffers;
	uint64_t timeout_ms;
	unsigned max_parked;
	_Atomic uint64_t n_reads, n_parked_total;
	atomic_uint n_interrupts;
	struct lock lock; /* guards all below */
	struct cond emptied;
	bool closing;
	uint32_t n_parked; /* enlisted */
	uint32_t n_alive; /* objects, also of those being answered */
	struct list all;
	struct parked *by_unique;
	struct layer_count *by_layer;
	struct repeats repeats;
};

int reads_new(const struct reads_opts *o, struct reads **ret)
{
	struct reads *rs = calloc(1, sizeof(*rs));
	int r;

	if (!rs)
		return -ENOMEM;
	r = cond_init(&rs->emptied);
	if (r < 0) {
		free(rs);
		return r;
	}
	lock_init(&rs->lock, RANK_NODE);
	list_init(&rs->all);
	rs->sources = o->sources;
	rs->buffers = o->buffers;
	rs->timeout_ms = o->timeout_ms;
	rs->max_parked = o->max_parked;
	*ret = rs;
	return 0;
}

void reads_free(struct reads *rs)
{
	if (!rs)
		return;
	cond_release(&rs->emptied);
	lock_release(&rs->lock);
	free(rs);
}

/* What an application may see of -errno @r. Never ENOENT: that would be taken
 * for a statement about the name, and kept. */
static int visible_errno(int r)
{
	switch (-r) {
	case ETIMEDOUT:
	case ENOSPC:
	case ENOMEM:
	case ESTALE:
		return -r;
	default:
		return EIO;
	}
}

static unsigned series_of_errno(int error)
{
	switch (error) {
	case EIO:
		return METRIC_ERRNO_EIO;
	case ETIMEDOUT:
		return METRIC_ERRNO_ETIMEDOUT;
	case ENOSPC:
		return METRIC_ERRNO_ENOSPC;
	case ENOMEM:
		return METRIC_ERRNO_ENOMEM;
	case ESTALE:
		return METRIC_ERRNO_ESTALE;
	case EINTR:
		return METRIC_ERRNO_EINTR;
	default:
		return METRIC_ERRNO_OTHER;
	}
}

/* The last thing that happens to a request: nobody knows it any more. A reply
 * that the kernel has no use for is refused with ENOENT, which is fine. */
static void answer_error(const struct read_request *rq, int error)
{
	lock_assert_none();
	metrics_add(METRIC_READ_ERRORS, series_of_errno(error), 1);
	(void)fuse_reply_err(rq->req, error);
}

/* What the provider cannot know: we log nothing ourselves. */
static void tell_why(const struct read_request *rq, const char *why)
{
	lock_assert_none();
	if (rq->src->ops->failed)
		rq->src->ops->failed(rq->src, &rq->file, rq->off, why);
}

/*
 * 0: answered, the request is gone. -errno: it is still to be answered.
 * @source: METRIC_LOCAL or METRIC_FETCHED; @begin_ns: when it came, on now_ns().
 */
static int answer_from_disk(struct reads *rs, const struct read_request *rq,
			    unsigned source, uint64_t begin_ns)
{
	void *p = buffers_get(rs->buffers);
	int r = rq->src->ops->read(rq->src, &rq->file, rq->off, p, rq->len);

	if (r == 0) {
		lock_assert_none();
		if (source == METRIC_LOCAL)
			metrics_add(METRIC_READS, METRIC_HIT, 1);
		metrics_add(METRIC_SERVED_BYTES, source, rq->len);
		metrics_observe(METRIC_READ_DURATION, source,
				now_ns() - begin_ns);
		(void)fuse_reply_buf(rq->req, p, rq->len);
	}
	buffers_put(rs->buffers, p);
	return r;
}

static int count_layer_locked(struct reads *rs, uint32_t seq)
{
	struct layer_count *c;

	HASH_FIND(hh, rs->by_layer, &seq, sizeof(seq), c);
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return -ENOMEM;
		c->seq = seq;
		HASH_ADD(hh, rs->by_layer, seq, sizeof(c->seq), c);
		if (!HTAB_ADDED(c)) {
			free(c);
			return -ENOMEM;
		}
	}
	if (c->n >= rs->max_parked)
		return -EBUSY;
	c->n++;
	return 0;
}

static void uncount_layer_locked(struct reads *rs, uint32_t seq)
{
	struct layer_count *c;

	HASH_FIND(hh, rs->by_layer, &seq, sizeof(seq), c);
	if (--c->n == 0) {
		HASH_DEL(rs->by_layer, c);
		free(c);
	}
}

/* Behind all that end earlier: nearly always at the end, because all have the
 * same timeout. */
static void list_by_deadline_locked(struct reads *rs, struct parked *p)
{
	struct list *at = rs->all.prev;

	while (at != &rs->all &&
	       list_entry(at, struct parked, node)->deadline_ms >
		       p->deadline_ms)
		at = at->prev;
	list_push(at->next, &p->node);
}

static int enlist(struct reads *rs, struct parked *p)
{
	int r;

	lock_take(&rs->lock);
	r = rs->closing ? -ESHUTDOWN : count_layer_locked(rs, p->rq.src->seq);
	if (r == 0) {
		HASH_ADD(hh, rs->by_unique, rq.unique, sizeof(p->rq.unique), p);
		if (!HTAB_ADDED(p)) {
			uncount_layer_locked(rs, p->rq.src->seq);
			r = -ENOMEM;
		}
	}
	if (r == 0) {
		list_by_deadline_locked(rs, p);
		rs->n_parked++;
		metrics_move(METRIC_PARKED_READS, 0, 1);
		rs->n_alive++;
	}
	lock_drop(&rs->lock);
	return r;
}

static struct repeat_range range_of(const struct read_request *rq)
{
	return (struct repeat_range){ .off = rq->off,
				      .len = rq->len,
				      .seq = rq->src->seq,
				      .ino = rq->file.ino,
				      .pid = rq->pid };
}

/* The kernel asks once more for what has just timed out: see repeat.h. */
static bool is_repetition(struct reads *rs, const struct read_request *rq)
{
	struct repeat_range at = range_of(rq);
	bool r;

	lock_take(&rs->lock);
	r = repeats_tell(&rs->repeats, &at, now_ms());
	lock_drop(&rs->lock);
	return r;
}

/* Returns the verdict; @r: what the provider says. From here on nobody new
 * finds it. */
static int delist(struct reads *rs, struct parked *p, int r)
{
	struct repeat_range at = range_of(&p->rq);
	int verdict;

	lock_take(&rs->lock);
	HASH_DEL(rs->by_unique, p);
	list_remove(&p->node);
	uncount_layer_locked(rs, p->rq.src->seq);
	rs->n_parked--;
	metrics_move(METRIC_PARKED_READS, 0, -1);
	verdict = p->verdict;
	if (verdict == ETIMEDOUT || (!verdict && r == -ETIMEDOUT))
		repeats_note(&rs->repeats, &at, now_ms());
	lock_drop(&rs->lock);
	return verdict;
}

static void put(struct parked *p)
{
	struct reads *rs = p->rs;
	bool last;

	lock_take(&rs->lock);
	last = --p->refs == 0;
	lock_drop(&rs->lock);
	if (!last)
		return;
	rs->sources->put(rs->sources->ctx, p->rq.src);
	free(p);
	lock_take(&rs->lock);
	if (--rs->n_alive == 0)
		cond_broadcast(&rs->emptied);
	lock_drop(&rs->lock);
}

/* Consumes one reference. done() is called before this returns, unless the
 * thread that parks has not got so far: then it sees the verdict and cancels. */
static void cancel(struct parked *p, int verdict)
{
	bool armed;

	lock_take(&p->rs->lock);
	if (!p->verdict)
		p->verdict = verdict;
	armed = p->armed;
	lock_drop(&p->rs->lock);
	if (armed)
		p->rq.src->ops->cancel(p->rq.src, &p->wait);
	put(p);
}

/* SIGKILL, also as what the kernel makes of a fatal signal for all threads of
 * a process. Whoever cannot be looked at is taken to live. */
static bool caller_is_dying(int pid)
{
	owned(mem) char *status = NULL;
	char path[32];

	if (pid <= 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	/* long only by the list of groups, which comes first */
	if (read_file_at(AT_FDCWD, path, 1 << 20, &status, NULL) < 0)
		return false;
	/* SigPnd and ShdPnd */
	for (const char *s = status; (s = strstr(s, "Pnd:\t")); s++)
		if (strtoull(s + strlen("Pnd:\t"), NULL, 16) &
		    1u << (SIGKILL - 1))
			return true;
	return false;
}

static void done(struct source_wait *w, int r);

/* Consumes the request, and a reference to its source. */
static void park(struct reads *rs, const struct read_request *rq,
		 uint64_t deadline_ms, unsigned rounds)
{
	struct parked *p = calloc(1, sizeof(*p));
	int verdict, r = -ENOMEM;

	if (p) {
		p->wait.done = done;
		p->rs = rs;
		p->rq = *rq;
		p->deadline_ms = deadline_ms;
		p->rounds = rounds;
		p->refs = 2; /* ours and the provider's */
		list_init(&p->node);
		r = enlist(rs, p);
	}
	if (r < 0) {
		free(p);
		if (r != -ESHUTDOWN)
			tell_why(rq, r == -EBUSY ? "too many reads wait for it"
						 : "out of memory");
		answer_error(rq, visible_errno(r));
		rs->sources->put(rs->sources->ctx, rq->src);
		return;
	}
	atomic_fetch_add(&rs->n_parked_total, 1);
	r = rq->src->ops->want(rq->src, &p->rq.file, rq->off, rq->len,
			       &p->wait);
	if (r < 0) {
		(void)delist(rs, p, r);
		answer_error(rq, visible_errno(r));
		put(p);
		put(p);
		return;
	}
	(void)fault_point("read_parked");
	/* done() may have run; our reference keeps what is used below. */
	lock_take(&rs->lock);
	p->armed = true;
	verdict = p->verdict;
	lock_drop(&rs->lock);
	if (!verdict && atomic_load(&rs->n_interrupts) != rq->n_interrupts &&
	    caller_is_dying(rq->pid))
		verdict = EINTR;
	if (verdict)
		cancel(p, verdict);
	else
		put(p);
}

/* The bytes were there and are gone. A new object needs its own reference to
 * the source, since a cancelling thread may still use the old one. */
static void park_again(struct parked *p)
{
	struct reads *rs = p->rs;
	struct read_request rq = p->rq;

	if (p->rounds + 1 >= MAX_ROUNDS) {
		tell_why(&rq, "its bytes get lost again and again");
		answer_error(&rq, EIO);
		return;
	}
	rq.src = rs->sources->get(rs->sources->ctx, p->rq.src->seq);
	if (!rq.src) {
		tell_why(&p->rq, "the layer is gone");
		answer_error(&rq, ESTALE);
	} else {
		park(rs, &rq, p->deadline_ms, p->rounds + 1);
	}
}

/* Any thread, perhaps inside want(). */
static void done(struct source_wait *w, int r)
{
	struct parked *p = container_of(w, struct parked, wait);
	uint64_t begin_ms = p->deadline_ms - p->rs->timeout_ms;
	int verdict = delist(p->rs, p, r);

	lock_assert_none();
	if (verdict) {
		if (verdict == ETIMEDOUT)
			tell_why(&p->rq, "not all of it came in time");
		answer_error(&p->rq, verdict);
	} else if (r < 0) {
		answer_error(&p->rq, visible_errno(r));
	} else {
		r = answer_from_disk(p->rs, &p->rq, METRIC_FETCHED,
				     begin_ms * 1000000);
		if (r == -EAGAIN)
			park_again(p);
		else if (r < 0)
			answer_error(&p->rq, visible_errno(r));
	}
	put(p);
}

void reads_handle(struct reads *rs, const struct read_request *rq)
{
	int r = answer_from_disk(rs, rq, METRIC_LOCAL, now_ns());

	atomic_fetch_add(&rs->n_reads, 1);
	if (r == -EAGAIN)
		metrics_add(METRIC_READS, METRIC_MISS, 1);
	if (r == -EAGAIN && !is_repetition(rs, rq)) {
		park(rs, rq, now_ms() + rs->timeout_ms, 0);
		return;
	}
	if (r == -EAGAIN)
		r = -ETIMEDOUT;
	if (r < 0)
		answer_error(rq, visible_errno(r));
	rs->sources->put(rs->sources->ctx, rq->src);
}

void reads_interrupt(struct reads *rs, uint64_t unique)
{
	struct parked *p;

	lock_take(&rs->lock);
	HASH_FIND(hh, rs->by_unique, &unique, sizeof(unique), p);
	if (p)
		p->refs++;
	else
		atomic_fetch_add(&rs->n_interrupts, 1);
	lock_drop(&rs->lock);
	if (!p)
		return;
	if (caller_is_dying(p->rq.pid))
		cancel(p, EINTR);
	else
		put(p);
}

unsigned reads_n_interrupts(struct reads *rs)
{
	return atomic_load(&rs->n_interrupts);
}

/* Takes the first one off the list if it ends at @now_ms, with a reference. */
static struct parked *first_expired_locked(struct reads *rs, uint64_t until_ms)
{
	struct parked *p;

	if (list_empty(&rs->all))
		return NULL;
	p = list_first(&rs->all, struct parked, node);
	if (p->deadline_ms > until_ms)
		return NULL;
	list_remove(&p->node);
	p->refs++;
	return p;
}

uint64_t reads_expire(struct reads *rs)
{
	uint64_t now = now_ms(), next = now + rs->timeout_ms;
	struct parked *p;

	lock_take(&rs->lock);
	while ((p = first_expired_locked(rs, now))) {
		lock_drop(&rs->lock);
		cancel(p, ETIMEDOUT);
		lock_take(&rs->lock);
	}
	if (!list_empty(&rs->all))
		next = list_first(&rs->all, struct parked, node)->deadline_ms;
	lock_drop(&rs->lock);
	return next;
}

void reads_close(struct reads *rs)
{
	struct parked *p;

	lock_take(&rs->lock);
	rs->closing = true;
	while ((p = first_expired_locked(rs, UINT64_MAX))) {
		lock_drop(&rs->lock);
		cancel(p, EIO);
		lock_take(&rs->lock);
	}
	while (rs->n_alive)
		cond_wait(&rs->emptied, &rs->lock);
	lock_drop(&rs->lock);
}

void reads_stats(struct reads *rs, struct reads_stats *ret)
{
	lock_take(&rs->lock);
	ret->n_parked = rs->n_parked;
	lock_drop(&rs->lock);
	ret->n_reads = atomic_load(&rs->n_reads);
	ret->n_parked_total = atomic_load(&rs->n_parked_total);
}

uint32_t reads_n_parked(struct reads *rs, uint32_t seq)
{
	struct layer_count *c;
	uint32_t n;

	lock_take(&rs->lock);
	HASH_FIND(hh, rs->by_layer, &seq, sizeof(seq), c);
	n = c ? c->n : 0;
	lock_drop(&rs->lock);
	return n;
}
