/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sealer inside its process; see sealer.h. Two threads take requests from
 * one socket, which is all the queue there is.
 *
 * FS_IOC_ENABLE_VERITY reads 4 KiB at a time, one after the other, with the
 * readahead of a file that is read in order: 128 KiB on most disks. So a second
 * thread reads ahead of it in windows, and no farther than memory allows: how
 * far the kernel has come is the rchar of the thread that waits in the ioctl
 * (__kernel_read() counts there; CONFIG_TASK_XACCT). Where that is not told, the
 * kernel's own readahead has to do.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/io.h"
#include "verity/kernel.h"
#include "verity/sealer_priv.h"
#include "verity/stream.h"

#define WINDOW (1u << 20)
#define DEPTH_MIN (2u << 20)
/* Between two looks at how far the kernel is. */
#define PAUSE_MIN_NS 500000u
#define PAUSE_MAX_NS 4000000u
#define IO_FILE_MAX 1024

/* ---- what a thread has read ---- */

struct io_counters {
	uint64_t rchar, read_bytes;
};

static int read_counters(pid_t tid, struct io_counters *ret)
{
	owned(mem) char *text = NULL;
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/io", (int)tid);
	r = read_file_at(AT_FDCWD, path, IO_FILE_MAX, &text, NULL);
	if (r < 0)
		return r;
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		(void)sscanf(line, "rchar: %" SCNu64, &ret->rchar);
		(void)sscanf(line, "read_bytes: %" SCNu64, &ret->read_bytes);
	}
	return 0;
}

/* ---- reading ahead ---- */

struct ahead {
	int fd;
	uint64_t size, depth;
	pid_t tid; /* of the thread in the ioctl */
	uint64_t rchar; /* of it before the ioctl */
	uint64_t bytes_read; /* by the reader itself */
	atomic_bool stop;
	pthread_t thread;
	bool runs;
};

static void drop_behind(int fd, uint64_t *dropped, uint64_t done)
{
	if (done < *dropped + 2 * WINDOW)
		return;
	done = (done - WINDOW) / WINDOW * WINDOW;
	stream_drop_range(fd, *dropped, done - *dropped);
	*dropped = done;
}

/* Until a quarter of what is read ahead has been used, at the speed so far. A
 * look costs more than one would think. */
static void ahead_pause(const struct ahead *a, uint64_t done, uint64_t begin_ns)
{
	double ns = done ? (double)(now_ns() - begin_ns) / (double)done *
				    (double)(a->depth / 4)
			 : 0;
	const struct timespec pause = { .tv_nsec = ns < PAUSE_MIN_NS
							   ? PAUSE_MIN_NS
						   : ns > PAUSE_MAX_NS
							   ? PAUSE_MAX_NS
							   : (long)ns };

	(void)nanosleep(&pause, NULL);
}

static void *ahead_main(void *arg)
{
	struct ahead *a = arg;
	struct io_counters c = { 0 };
	uint64_t off = 0, dropped = 0, begin = now_ns();

	(void)pthread_setname_np(pthread_self(), "vs-ahead");
	while (!atomic_load(&a->stop) && read_counters(a->tid, &c) == 0) {
		uint64_t done = c.rchar > a->rchar ? c.rchar - a->rchar : 0;

		while (off < a->size && off < done + a->depth) {
			uint64_t end =
				off + WINDOW < a->size ? off + WINDOW : a->size;

			stream_readahead(a->fd, off, end);
			off = end;
		}
		drop_behind(a->fd, &dropped, done < a->size ? done : a->size);
		ahead_pause(a, done, begin);
	}
	if (read_counters(gettid(), &c) == 0)
		a->bytes_read = c.read_bytes;
	return NULL;
}

static void ahead_start(struct ahead *a)
{
	struct io_counters c = { 0 };

	a->tid = gettid();
	if (read_counters(a->tid, &c) < 0 || c.rchar == 0) {
		stream_sequential(a->fd);
		return;
	}
	a->rchar = c.rchar;
	a->runs = pthread_create(&a->thread, NULL, ahead_main, a) == 0;
}

static void ahead_stop(struct ahead *a)
{
	if (!a->runs)
		return;
	atomic_store(&a->stop, true);
	(void)pthread_join(a->thread, NULL);
}

/* ---- one file ---- */

static int enable(int fd, const struct sealer_request *rq, uint64_t depth,
		  uint64_t *bytes_read)
{
	struct ahead a = { .fd = fd, .size = rq->size, .depth = depth };
	int r;

	if (!rq->cached)
		ahead_start(&a);
	r = kernel_enable(fd);
	if (!rq->cached)
		ahead_stop(&a);
	*bytes_read += a.bytes_read;
	return r;
}

static int seal(int fd, const struct sealer_request *rq, uint64_t depth,
		struct sealer_answer *a)
{
	struct digest d;
	/* O(1), and spares reading a file that cannot be sealed. */
	int r = kernel_measure(fd, &d);

	if (r == -ENODATA) {
		r = enable(fd, rq, depth, &a->bytes_read);
		if (r == 0)
			r = fault_point("verity_enabled");
		if (r == 0 && fsync(fd) < 0)
			r = -errno;
		if (r == 0)
			r = kernel_measure(fd, &d);
		/* Not after a failure: the next attempt wants it cached. */
		if (r == 0)
			stream_drop(fd);
	}
	if (r == 0)
		a->digest = d;
	return r;
}

static int answer(int sock, int fd, const struct sealer_request *rq,
		  uint64_t depth)
{
	struct sealer_answer a = { .m = { HELPER_VERSION, SEALER_ANSWER },
				   .id = rq->id };
	struct io_counters before = { 0 }, after = { 0 };
	uint64_t begin = now_ms();

	(void)read_counters(gettid(), &before);
	a.err = fault_point("sealer_asked");
	if (a.err == 0)
		a.err = seal(fd, rq, depth, &a);
	if (read_counters(gettid(), &after) == 0)
		a.bytes_read += after.read_bytes - before.read_bytes;
	a.ms = (uint32_t)(now_ms() - begin);
	return send(sock, &a, sizeof(a), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* ---- the process ---- */

struct server {
	int sock;
	uint64_t depth;
};

static int serve_one(const struct server *s)
{
	struct sealer_request rq;
	owned(fd) int fd = -1;
	int n = helper_receive(s->sock, &rq, sizeof(rq), &fd);

	if (n <= 0)
		return n < 0 ? n : -EPIPE;
	if (n != sizeof(rq) || rq.m.type != SEALER_REQUEST || fd < 0)
		return -EPROTO;
	return answer(s->sock, fd, &rq, s->depth);
}

static void *server_main(void *arg)
{
	const struct server *s = arg;

	while (serve_one(s) == 0)
		;
	/* The socket has ended, or cannot be trusted. What the other thread is
	 * at is rolled back by the kernel, or found sealed later. */
	(void)shutdown(s->sock, SHUT_RDWR);
	_exit(0); /* child of the daemon, nobody waits for its atexit */
}

int sealer_serve(int sock, uint64_t memory)
{
	/* Half of the memory for what was read and not hashed yet. */
	struct server s = { .sock = sock,
			    .depth = memory / 2 / SEALER_PARALLEL };
	pthread_t other;

	if (s.depth < DEPTH_MIN)
		s.depth = DEPTH_MIN;
	for (unsigned i = 1; i < SEALER_PARALLEL; i++) {
		int r = -pthread_create(&other, NULL, server_main, &s);

		if (r < 0)
			return r;
	}
	(void)server_main(&s);
	return 0;
}
