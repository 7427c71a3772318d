/* SPDX-License-Identifier: Apache-2.0 */
/* A program and its output, which goes to files in memory; see ctl_run.h. */
#include "plugin/ctl_run.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"

#define PATIENCE_MS 30000
#define OUTPUT_MAX (4u << 20)

void ctl_output_release(struct ctl_output *o)
{
	free(o->out);
	free(o->errors);
	o->out = o->errors = NULL;
}

/* A group of its own, so that all of it can be killed. */
static int spawn(const char *path, char *const argv[], int out, int errors,
		 pid_t *ret)
{
	posix_spawn_file_actions_t a;
	posix_spawnattr_t at;
	int r = posix_spawn_file_actions_init(&a);

	if (r)
		return -r;
	r = posix_spawnattr_init(&at);
	if (r) {
		(void)posix_spawn_file_actions_destroy(&a);
		return -r;
	}
	r = posix_spawn_file_actions_addopen(&a, 0, "/dev/null", 0, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&a, out, 1);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&a, errors, 2);
	if (r == 0)
		r = posix_spawnattr_setpgroup(&at, 0);
	if (r == 0)
		r = posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP);
	if (r == 0)
		r = posix_spawn(ret, path, &a, &at, argv, environ);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&a);
	return -r;
}

/* False: it was killed. */
static bool reap(pid_t pid, int *ret_status)
{
	/* No wrapper in glibc before 2.36; Linux 5.3. */
	owned(fd) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	uint64_t until = now_ms() + PATIENCE_MS, now;
	bool ended = false;

	while (!ended && pidfd >= 0 && (now = now_ms()) < until)
		ended = poll(&p, 1, (int)(until - now)) == 1;
	if (!ended)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
		;
	return ended;
}

/* All of a file in memory, with a NUL behind it. */
static int take_text(int fd, char **ret, size_t *ret_len)
{
	off_t len = lseek(fd, 0, SEEK_END);
	owned(mem) char *text = NULL;
	int r;

	if (len < 0)
		return -errno;
	if (len > OUTPUT_MAX)
		return -EFBIG;
	text = malloc((size_t)len + 1);
	if (!text)
		return -ENOMEM;
	r = pread_full(fd, text, (size_t)len, 0);
	if (r < 0)
		return r;
	text[len] = '\0';
	*ret = take_ptr(&text);
	*ret_len = (size_t)len;
	return 0;
}

int ctl_run(const char *path, char *const argv[], struct ctl_output *ret,
	    struct err *e)
{
	owned(fd) int out = memfd_create("stdout", MFD_CLOEXEC);
	owned(fd) int errors = memfd_create("stderr", MFD_CLOEXEC);
	struct ctl_output o = { 0 };
	size_t ignored;
	pid_t pid;
	int r;

	if (out < 0 || errors < 0)
		return err_sys(e, -errno, "files for the output of '%s'", path);
	r = spawn(path, argv, out, errors, &pid);
	if (r < 0)
		return err_set(e, ERR_UNAVAILABLE, "'%s' does not run: %s",
			       path, strerror(-r));
	if (!reap(pid, &o.status))
		return err_set(e, ERR_UNAVAILABLE, "'%s' does not end", path);
	r = take_text(out, &o.out, &o.out_len);
	if (r == 0)
		r = take_text(errors, &o.errors, &ignored);
	if (r < 0) {
		ctl_output_release(&o);
		return r == -EFBIG ? err_set(e, ERR_UNAVAILABLE,
					     "'%s' says too much", path)
				   : err_sys(e, r, "output of '%s'", path);
	}
	*ret = o;
	return 0;
}
