/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped FILE: what a program sees of a file through mappings, before and after
 * it becomes its own. Prints sums: by read(2), shared and private mapping, then
 * after a write to the private one, and to a shared one of the opened file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long sum(const unsigned char *p, size_t n)
{
	unsigned long s = 0;

	for (size_t i = 0; i < n; i++)
		s = s * 31 + p[i];
	return s;
}

static unsigned char *map(int fd, size_t n, int prot, int flags)
{
	unsigned char *p = mmap(NULL, n, prot, flags, fd, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		_exit(1);
	}
	return p;
}

int main(int argc, char **argv)
{
	static unsigned char buf[4 << 20];
	int fd = open(argv[argc - 1], O_RDONLY), rw;
	unsigned char *shared, *mine, *own;
	struct stat st;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > (off_t)sizeof(buf))
		return 2;
	/* the mapping first: its pages come by faults */
	shared = map(fd, st.st_size, PROT_READ | PROT_EXEC, MAP_SHARED);
	printf("shared  %lx\n", sum(shared, st.st_size));
	got = read(fd, buf, sizeof(buf));
	printf("read    %lx\n", got == st.st_size ? sum(buf, got) : 0);
	mine = map(fd, st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	mine[5000] ^= 1;
	printf("private %lx\n", sum(mine, st.st_size));
	rw = open(argv[argc - 1], O_RDWR); /* copies the file up */
	if (rw < 0)
		return 3;
	own = map(rw, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED);
	own[7000] ^= 1;
	if (msync(own, st.st_size, MS_SYNC) < 0)
		return 4;
	printf("own     %lx\n", sum(own, st.st_size));
	printf("old     %lx\n", sum(shared, st.st_size));
	got = pread(rw, buf, sizeof(buf), 0);
	printf("written %lx\n", got == st.st_size ? sum(buf, got) : 0);
	return 0;
}
