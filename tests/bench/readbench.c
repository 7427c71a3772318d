/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readbench HOW FILE [PID]: reads a file once and prints MB/s and the CPU
 * milliseconds per GB, those of process PID included. HOW: seq (read, a MiB at a
 * time), mmap (a byte of each page), random (as many reads of a page as the file
 * has pages). MB and GB are 10^6 and 10^9 bytes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define PIECE (1u << 20)

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* Of a process, as its scheduler counts it. */
static double cpu_of(const char *pid)
{
	unsigned long user = 0, sys = 0;
	char path[64], line[1024];
	const char *s = NULL;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f))
		s = strrchr(line, ')');
	if (f)
		(void)fclose(f);
	if (!s || sscanf(s,
			 ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
			 "%lu %lu",
			 &user, &sys) != 2) {
		(void)fprintf(stderr, "no process %s\n", pid);
		exit(1);
	}
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static double cpu(const char *pid)
{
	struct rusage r;

	(void)getrusage(RUSAGE_SELF, &r);
	return seconds(r.ru_utime) + seconds(r.ru_stime) +
	       (pid ? cpu_of(pid) : 0);
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void read_in_order(int fd, uint64_t size)
{
	char *p = malloc(PIECE);
	ssize_t n;

	if (!p)
		die("memory");
	for (uint64_t off = 0; off < size; off += (uint64_t)n) {
		n = read(fd, p, PIECE);
		if (n <= 0)
			die("read");
	}
	free(p);
}

static void read_mapped(int fd, uint64_t size)
{
	const volatile char *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	for (uint64_t off = 0; off < size; off += PAGE)
		(void)p[off];
}

/* The same order each time. */
static void read_at_random(int fd, uint64_t size)
{
	uint64_t s = 88172645463325252u, n = size / PAGE;
	char p[PAGE];

	for (uint64_t i = 0; i < n; i++) {
		s ^= s << 13;
		s ^= s >> 7;
		s ^= s << 17;
		if (pread(fd, p, PAGE, (off_t)(s % n * PAGE)) != PAGE)
			die("pread");
	}
}

int main(int argc, char **argv)
{
	const char *pid = argc == 4 ? argv[3] : NULL;
	void (*how)(int fd, uint64_t size) = NULL;
	double t, c, mb;
	struct stat st;
	int fd;

	if (argc == 3 || argc == 4)
		how = !strcmp(argv[1], "seq")      ? read_in_order
		      : !strcmp(argv[1], "mmap")   ? read_mapped
		      : !strcmp(argv[1], "random") ? read_at_random
						   : NULL;
	if (!how) {
		(void)fputs("usage: readbench seq|mmap|random FILE [PID]\n",
			    stderr);
		return 2;
	}
	fd = open(argv[2], O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)PAGE)
		die(argv[2]);
	c = cpu(pid);
	t = now();
	how(fd, (uint64_t)st.st_size);
	t = now() - t;
	c = cpu(pid) - c;
	mb = (double)st.st_size / 1e6;
	printf("%.1f %.1f\n", mb / t, c * 1e6 / mb);
	return 0;
}
