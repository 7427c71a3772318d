/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scrubber inside its process; see scrubber.h. One thread: a file at a time,
 * in order, slowly.
 *
 * A page of a mapping that cannot be read, because the disk says so or because
 * fs-verity does, is a SIGBUS in the thread that touches it. It is caught around
 * the copy of one block, and around nothing else, so that no library is left in
 * the middle of something.
 */
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/io.h"
#include "verity/kernel.h"
#include "verity/leaves.h"
#include "verity/scrubber_priv.h"
#include "verity/stream.h"

static sigjmp_buf bad_page;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(bad_page, 1);
}

/* What is not expected here is deadly, as without a handler. */
static void set_sigbus(void (*handler)(int))
{
	struct sigaction sa = { .sa_handler = handler };

	(void)sigemptyset(&sa.sa_mask);
	(void)sigaction(SIGBUS, &sa, NULL);
}

/* A helper begins with all signals blocked; this one would be deadly then. */
static void unblock_sigbus(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGBUS);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* false: it cannot be read. */
static bool copy_block(void *to, const void *from, size_t len)
{
	if (sigsetjmp(bad_page, 1)) {
		set_sigbus(SIG_DFL);
		return false;
	}
	set_sigbus(on_sigbus);
	memcpy(to, from, len);
	set_sigbus(SIG_DFL); /* a call, so that the copy is done by then */
	return true;
}

struct pass {
	const struct scrub_request *rq;
	struct scrub_answer *a;
	struct leaf_tree *tree; /* NULL: the kernel compares */
	int sock;
	uint64_t began_ms;
};

/* Until the bytes so far are not more than the rate allows. -EPIPE: the daemon
 * has gone, or wants no more. */
static int keep_rate(const struct pass *s)
{
	struct pollfd p = { .fd = s->sock, .events = POLLRDHUP };
	uint64_t due = 0, now = now_ms();
	int wait_ms = 0, n;

	if (s->rq->rate)
		due = s->began_ms + (uint64_t)((double)s->a->bytes * 1000 /
					       (double)s->rq->rate);
	if (due > now)
		wait_ms = due - now < 60000 ? (int)(due - now) : 60000;
	n = poll(&p, 1, wait_ms);
	return n > 0 ? -EPIPE : 0;
}

static int take_block(struct pass *s, const uint8_t *p, size_t len,
		      uint64_t off)
{
	uint8_t block[LEAF_BLOCK];
	struct digest leaf;
	int r;

	if (!copy_block(block, p, len)) {
		if (s->a->n_unreadable++ == 0)
			s->a->first_unreadable = off / LEAF_BLOCK;
		return 0;
	}
	if (!s->tree || s->a->n_unreadable)
		return 0; /* it will not be the digest any more */
	r = leaf_hash(block, len, &leaf);
	return r < 0 ? r : leaf_tree_add(s->tree, &leaf, 1);
}

static int take_piece(void *ctx, const void *p, size_t len, uint64_t off)
{
	struct pass *s = ctx;
	int r = fault_point("scrub_piece");

	for (size_t at = 0; r == 0 && at < len; at += LEAF_BLOCK)
		r = take_block(s, (const uint8_t *)p + at,
			       len - at < LEAF_BLOCK ? len - at : LEAF_BLOCK,
			       off + at);
	s->a->bytes += len;
	return r < 0 ? r : keep_rate(s);
}

static int compare(struct pass *s)
{
	struct digest d;
	int r;

	if (s->a->n_unreadable)
		return -EBADMSG;
	if (!s->tree)
		return 0;
	r = leaf_tree_end(s->tree, &d);
	if (r == 0 && !digest_equal(&d, &s->rq->want))
		r = -EBADMSG;
	return r;
}

static int look_at_all(int fd, struct pass *s)
{
	owned(leaf_tree) struct leaf_tree *tree = NULL;
	int r = 0;

	if (!s->a->sealed) {
		r = leaf_tree_new(s->rq->size, &tree);
		s->tree = tree;
	}
	if (r == 0)
		r = stream_map(fd, s->rq->size, take_piece, s);
	return r < 0 ? r : compare(s);
}

void scrub_file(int fd, const struct scrub_request *rq, int sock,
		struct scrub_answer *a)
{
	struct pass s = {
		.rq = rq, .a = a, .sock = sock, .began_ms = now_ms()
	};
	struct digest d;

	unblock_sigbus();
	stream_hint(fd);
	if (kernel_measure(fd, &d) == 0) {
		a->sealed = true;
		if (!digest_equal(&d, &rq->want)) {
			a->err = -EBADMSG;
			return;
		}
	}
	a->err = look_at_all(fd, &s);
}

/* Of another size it is another file; and a mapping ends with its file. */
static void scrub(int fd, const struct scrub_request *rq, int sock,
		  struct scrub_answer *a)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		a->err = -errno;
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != rq->size)
		a->err = -EBADMSG;
	else
		scrub_file(fd, rq, sock, a);
}

int scrub_serve(int sock, uint64_t memory)
{
	(void)memory; /* for its cgroup: at most a piece is read at a time */
	for (;;) {
		struct scrub_request rq;
		struct scrub_answer a = { 0 };
		owned(fd) int fd = -1;
		int n = helper_receive(sock, &rq, sizeof(rq), &fd);

		if (n <= 0)
			return n;
		if (n != sizeof(rq) || rq.h.m.type != SCRUB_REQUEST || fd < 0)
			return -EPROTO;
		a.h = rq.h;
		a.h.m.type = SCRUB_ANSWER;
		a.err = fault_point("scrub_asked");
		if (a.err == 0)
			scrub(fd, &rq, sock, &a);
		if (send(sock, &a, sizeof(a), MSG_NOSIGNAL) < 0)
			return -errno;
	}
}
