/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes; see io.h. Retries EINTR and short transfers. */
#include "io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

int pread_full(int fd, void *p, size_t len, uint64_t off)
{
	uint8_t *b = p;

	while (len) {
		ssize_t n = pread(fd, b, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		b += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int pwrite_full(int fd, const void *p, size_t len, uint64_t off)
{
	const uint8_t *b = p;

	while (len) {
		ssize_t n = pwrite(fd, b, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		b += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int write_full(int fd, const void *p, size_t len)
{
	const uint8_t *b = p;

	while (len) {
		ssize_t n = write(fd, b, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		b += n;
		len -= (size_t)n;
	}
	return 0;
}

int read_file_at(int dirfd, const char *path, size_t max, char **ret,
		 size_t *ret_len)
{
	owned(fd) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	owned(mem) char *buf = NULL;
	size_t len = 0, cap = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n;

		if (cap - len < 2) {
			size_t want = cap ? cap * 2 : 4096;
			char *p = realloc(buf, want);

			if (!p)
				return -ENOMEM;
			buf = p;
			cap = want;
		}
		n = read(fd, buf + len, cap - len - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max)
			return -EFBIG;
	}
	buf[len] = '\0';
	*ret = take_ptr(&buf);
	if (ret_len)
		*ret_len = len;
	return 0;
}

uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t now_ms(void)
{
	return now_ns() / 1000000u;
}
