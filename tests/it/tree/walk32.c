/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk32 DIR: reads a directory and the attributes of what is in it, with the
 * system calls of old i386 programs, whose inode numbers have 32 bits. Prints
 * "N entries, N errors". Without a C library: a 32-bit one is rarely there.
 */
enum {
	SYS_EXIT = 1,
	SYS_WRITE = 4,
	SYS_OPEN = 5,
	SYS_CHDIR = 12,
	SYS_LSTAT = 107,
	SYS_GETDENTS = 141,
};

struct dirent32 {
	unsigned ino, off;
	unsigned short len;
	char name[];
};

static int call(int n, long a, long b, long c)
{
	int r;

	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(n), "b"(a), "c"(b), "d"(c)
			 : "memory");
	return r;
}

static void print(unsigned v, const char *text)
{
	char buf[12], *p = buf + sizeof(buf);
	unsigned n = 0;

	do {
		*--p = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	(void)call(SYS_WRITE, 1, (long)p, buf + sizeof(buf) - p);
	while (text[n])
		n++;
	(void)call(SYS_WRITE, 1, (long)text, n);
}

static int walk(const char *dir)
{
	static char buf[8192], st[256];
	unsigned n = 0, errors = 0;
	int fd = call(SYS_OPEN, (long)dir, 0, 0), got;

	if (fd < 0 || call(SYS_CHDIR, (long)dir, 0, 0) < 0)
		return 2;
	while ((got = call(SYS_GETDENTS, fd, (long)buf, sizeof(buf))) > 0)
		for (int at = 0; at < got;) {
			struct dirent32 *d = (void *)(buf + at);

			n++;
			errors +=
				call(SYS_LSTAT, (long)d->name, (long)st, 0) < 0;
			at += d->len;
		}
	print(n, " entries, ");
	print(errors + (got < 0), " errors\n");
	return errors || got < 0;
}

__attribute__((used)) static void start(long *sp)
{
	(void)call(SYS_EXIT, sp[0] == 2 ? walk((char *)sp[2]) : 3, 0, 0);
}

__asm__(".globl _start\n_start:\tmov %esp, %eax\n\tpush %eax\n\tcall start");
