/* SPDX-License-Identifier: Apache-2.0 */
/* See kmsg.h. */
#include "verity/kmsg.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define RECORD_MAX 8192 /* the kernel's own limit for one */
#define FACILITY_SHIFT 3 /* of the priority; 0: the kernel itself */
#define PAUSE_NS 1000000000l /* after an error, so that none is a busy loop */

/* ---- one record ---- */

/* The decimal number that [*p, end) begins with; *p moves behind it. */
static bool take_number(const char **p, const char *end, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v = 0;

	for (; s < end && *s >= '0' && *s <= '9'; s++) {
		uint64_t digit = (uint64_t)(*s - '0');

		if (v > (UINT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	if (s == *p)
		return false;
	*p = s;
	*ret = v;
	return true;
}

static bool take_text(const char **p, const char *end, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(end - *p) < n || memcmp(*p, text, n) != 0)
		return false;
	*p += n;
	return true;
}

/* "fs-verity (DEVICE, inode N): FILE CORRUPTED! ..." */
static bool is_corruption(const char *p, const char *end, uint64_t *ret_ino)
{
	const char *comma;

	if (!take_text(&p, end, "fs-verity ("))
		return false;
	comma = memchr(p, ',', (size_t)(end - p));
	if (!comma)
		return false;
	p = comma;
	return take_text(&p, end, ", inode ") &&
	       take_number(&p, end, ret_ino) &&
	       take_text(&p, end, "): FILE CORRUPTED!");
}

/* "fsverity_msg: N callbacks suppressed": some may have been of ours. */
static bool is_suppression(const char *p, const char *end)
{
	uint64_t n;

	return take_text(&p, end, "fsverity_msg: ") &&
	       take_number(&p, end, &n) &&
	       take_text(&p, end, " callbacks suppressed");
}

int kmsg_parse(const char *p, size_t len, uint64_t *ret_ino)
{
	const char *end = p + len, *text, *line;
	uint64_t priority, ino = 0;

	/* Users may write to the log, too, but not as the kernel. */
	if (!take_number(&p, end, &priority) || priority >> FACILITY_SHIFT)
		return 0;
	text = memchr(p, ';', (size_t)(end - p));
	if (!text)
		return 0;
	text++;
	line = memchr(text, '\n', (size_t)(end - text));
	if (line)
		end = line;
	if (!is_corruption(text, end, &ino)) {
		if (!is_suppression(text, end))
			return 0;
		ino = 0;
	}
	*ret_ino = ino;
	return 1;
}

/* ---- the thread ---- */

struct kmsg {
	int fd, stop_fd;
	pthread_t thread;
	bool runs;
	void (*fn)(void *ctx, uint64_t ino);
	void *ctx;
};

int kmsg_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	/* What an earlier daemon did not see, a scrub will. */
	if (lseek(fd, 0, SEEK_END) < 0) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return fd;
}

/* Until there is no more for now. -errno: it is over. */
static int read_all(struct kmsg *k)
{
	char record[RECORD_MAX];
	ssize_t n;

	for (;;) {
		uint64_t ino;

		n = read(k->fd, record, sizeof(record));
		/* EPIPE: some were overwritten before we came; the next read
		 * goes on behind them. They may have been of interest. */
		if (n < 0 && errno == EPIPE)
			k->fn(k->ctx, 0);
		else if (n < 0 && errno != EINTR)
			return errno == EAGAIN ? 0 : -errno;
		else if (n == 0)
			return -ENODATA;
		else if (n > 0 && kmsg_parse(record, (size_t)n, &ino))
			k->fn(k->ctx, ino);
	}
}

static void *kmsg_main(void *arg)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS - 1 };
	struct kmsg *k = arg;
	struct pollfd p[2] = { { .fd = k->stop_fd, .events = POLLIN },
			       { .fd = k->fd, .events = POLLIN } };

	(void)pthread_setname_np(pthread_self(), "vs-kmsg");
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			(void)nanosleep(&pause, NULL);
		if (p[0].revents)
			return NULL;
		if (p[1].revents && read_all(k) < 0)
			p[1].fd = -1; /* only the stop is of interest now */
	}
}

int kmsg_watch(int fd, void (*fn)(void *ctx, uint64_t ino), void *ctx,
	       struct kmsg **ret)
{
	struct kmsg *k = calloc(1, sizeof(*k));
	int r = k ? 0 : -ENOMEM;

	if (r < 0) {
		(void)close(fd);
		return r;
	}
	*k = (struct kmsg){ .fd = fd, .fn = fn, .ctx = ctx };
	k->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = k->stop_fd < 0 ? -errno
			   : -pthread_create(&k->thread, NULL, kmsg_main, k);
	if (r < 0) {
		kmsg_unwatch(k);
		return r;
	}
	k->runs = true;
	*ret = k;
	return 0;
}

void kmsg_unwatch(struct kmsg *k)
{
	if (!k)
		return;
	if (k->runs && eventfd_write(k->stop_fd, 1) == 0)
		(void)pthread_join(k->thread, NULL);
	if (k->stop_fd >= 0)
		(void)close(k->stop_fd);
	(void)close(k->fd);
	free(k);
}
