/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened DIR COMMAND...: runs the command and prints the number of different
 * regular files on DIR's mount that were opened meanwhile, and on a line of its
 * own the sum of their sizes. The kernel tells (fanotify), so it works for a
 * command in a chroot and for libraries alike.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/htab.h"

struct seen {
	ino_t ino; /* key; the files are those of one mount */
	UT_hash_handle hh;
};

static struct seen *files;
static uint64_t n_bytes;

static void note_file(const struct stat *st)
{
	struct seen *s;

	HASH_FIND(hh, files, &st->st_ino, sizeof(st->st_ino), s);
	if (s)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		return;
	s->ino = st->st_ino;
	HASH_ADD(hh, files, ino, sizeof(s->ino), s);
	n_bytes += (uint64_t)st->st_size;
}

static void take_events(int fd)
{
	union {
		struct fanotify_event_metadata first;
		char bytes[8192];
	} u;
	ssize_t n;

	while ((n = read(fd, &u, sizeof(u))) > 0) {
		const struct fanotify_event_metadata *m = &u.first;

		for (; FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
			owned(fd) int file = m->fd;
			struct stat st;

			if (file >= 0 && fstat(file, &st) == 0 &&
			    S_ISREG(st.st_mode))
				note_file(&st);
		}
	}
}

static int run_command(char **argv)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)dup2(2, 1);
		(void)execvp(argv[0], argv);
		perror(argv[0]);
		_exit(127);
	}
	return pid;
}

int main(int argc, char **argv)
{
	owned(fd) int fd =
		fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK |
				      FAN_UNLIMITED_QUEUE,
			      O_RDONLY | O_CLOEXEC | O_LARGEFILE);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int status = 0;
	pid_t pid;

	if (argc < 3 || fd < 0 ||
	    fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_MOUNT,
			  FAN_OPEN | FAN_OPEN_EXEC, AT_FDCWD, argv[1]) < 0) {
		perror("opened");
		return 2;
	}
	pid = run_command(argv + 2);
	if (pid < 0)
		return 2;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		(void)poll(&p, 1, 20);
		take_events(fd);
	}
	take_events(fd);
	printf("%u\n%" PRIu64 "\n", HASH_COUNT(files), n_bytes);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
