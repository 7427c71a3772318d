/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credential helpers; see credhelper.h. The program runs in a process group of
 * its own, with nothing of ours open, and is killed as a group when its time is
 * over: a password prompt that nobody sees must not hold up a pull for ever.
 */
#include "snapshotter/credhelper.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "snapshotter/auth_json.h"

#define OUTPUT_MAX (64 * 1024)

extern char **environ;

static bool name_is_good(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > AUTH_HELPER_MAX || name[0] == '.')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
			return false;
	return true;
}

/* Its stdin: a pipe that holds all it will ever get. Filled while we have both
 * ends, so that a program which does not read cannot send us SIGPIPE. */
static int make_input(const char *server, int *ret_fd)
{
	size_t n = strlen(server);
	owned(fd) int out = -1;
	int p[2], r;

	if (n > 4096)
		return -ENAMETOOLONG;
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	out = p[1];
	r = write_full(out, server, n);
	if (r == 0)
		r = write_full(out, "\n", 1);
	if (r < 0) {
		(void)close(p[0]);
		return r;
	}
	*ret_fd = p[0];
	return 0;
}

static int set_actions(posix_spawn_file_actions_t *a, int in, int out)
{
	int r = posix_spawn_file_actions_adddup2(a, in, 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(a, out, 1);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(a, 2, "/dev/null",
						     O_WRONLY, 0);
#if __GLIBC_PREREQ(2, 34)
	/* Everything of ours is close-on-exec; libraries' may not be. */
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(a, 3);
#endif
	return -r;
}

/* Signals as a new program expects them, and a group that can be killed. */
static int set_attributes(posix_spawnattr_t *at)
{
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	r = posix_spawnattr_setsigmask(at, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(at, &all);
	if (r == 0)
		r = posix_spawnattr_setpgroup(at, 0);
	if (r == 0)
		r = posix_spawnattr_setflags(at, POSIX_SPAWN_SETSIGMASK |
							 POSIX_SPAWN_SETSIGDEF |
							 POSIX_SPAWN_SETPGROUP);
	return -r;
}

static int spawn_helper(const char *name, int in, int out, pid_t *ret_pid)
{
	char prog[AUTH_HELPER_MAX + 32], verb[] = "get";
	char *argv[] = { prog, verb, NULL };
	posix_spawn_file_actions_t a;
	posix_spawnattr_t at;
	int r;

	(void)snprintf(prog, sizeof(prog), "docker-credential-%s", name);
	r = posix_spawn_file_actions_init(&a);
	if (r)
		return -r;
	r = posix_spawnattr_init(&at);
	if (r) {
		(void)posix_spawn_file_actions_destroy(&a);
		return -r;
	}
	r = set_actions(&a, in, out);
	if (r == 0)
		r = set_attributes(&at);
	if (r == 0)
		r = -posix_spawnp(ret_pid, prog, &a, &at, argv, environ);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&a);
	return r;
}

static int wait_readable(int fd, uint64_t until_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now = now_ms();
	int r = poll(&p, 1, until_ms > now ? (int)(until_ms - now) : 0);

	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	return r == 0 ? -ETIMEDOUT : 0;
}

static int read_output(int fd, uint64_t until_ms, char *out, size_t *ret_len)
{
	size_t len = 0;

	for (;;) {
		int r = wait_readable(fd, until_ms);
		ssize_t n;

		if (r < 0)
			return r;
		n = read(fd, out + len, OUTPUT_MAX - len);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
		if (len == OUTPUT_MAX)
			return -EFBIG;
	}
	*ret_len = len;
	return 0;
}

/* Its exit status; killed, with all its children, when time is over. */
static int reap(pid_t pid, uint64_t until_ms)
{
	/* No wrapper in glibc before 2.36; Linux 5.3. */
	owned(fd) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int status = -1;

	if (pidfd < 0 || wait_readable(pidfd, until_ms) < 0)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int credhelper_parse(const char *json, size_t len, struct auth_cred *ret,
		     struct err *e)
{
	owned(json) struct json_object *o = NULL;
	owned(cred) struct auth_cred c = { 0 };
	const char *user, *secret;

	if (auth_json_parse(json, len, &o, e) < 0)
		return -1;
	user = auth_json_string(o, "Username");
	secret = auth_json_string(o, "Secret");
	if (!user || !secret)
		return err_set(e, ERR_INVALID, "no Username and Secret");
	if (!*user && !*secret)
		return 0;
	c.user = strdup(user);
	c.secret = strdup(secret);
	if (!c.user || !c.secret)
		return err_set(e, ERR_INTERNAL, "out of memory");
	c.identity = strcmp(user, "<token>") == 0;
	*ret = c;
	memset(&c, 0, sizeof(c));
	return 1;
}

static int judge(const char *name, int r, int status, const char *out,
		 size_t len, struct auth_cred *ret, struct err *e)
{
	static const char unknown[] = "credentials not found";

	if (r == -ETIMEDOUT)
		return err_set(e, ERR_UNAVAILABLE,
			       "credential helper '%s' does not answer", name);
	if (r == -EFBIG)
		return err_set(e, ERR_INVALID,
			       "credential helper '%s' talks too much", name);
	if (r < 0) {
		(void)err_sys(e, r, "credential helper '%s'", name);
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		r = credhelper_parse(out, len, ret, e);
		return r < 0 ? err_wrap(e, "credential helper '%s'", name) : r;
	}
	/* Every helper says this in the same words, with exit status 1. */
	if (memmem(out, len, unknown, sizeof(unknown) - 1))
		return 0;
	return err_set(
		e, ERR_UNAVAILABLE, "credential helper '%s' failed (%s %d)",
		name, WIFEXITED(status) ? "status" : "signal",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

int credhelper_get(const char *name, const char *server, unsigned limit_ms,
		   struct auth_cred *ret, struct err *e)
{
	uint64_t until = now_ms() + (limit_ms ? limit_ms : CREDHELPER_MS);
	owned(mem) char *out = NULL;
	owned(fd) int in = -1;
	owned(fd) int from = -1;
	size_t len = 0;
	pid_t pid;
	int p[2], r, status;

	if (!name_is_good(name))
		return err_set(e, ERR_INVALID,
			       "'%.64s' cannot name a credential helper", name);
	out = malloc(OUTPUT_MAX);
	if (!out)
		return err_set(e, ERR_INTERNAL, "out of memory");
	r = make_input(server, &in);
	if (r == 0 && pipe2(p, O_CLOEXEC) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, r, "credential helper '%s'", name);
	from = p[0];
	r = spawn_helper(name, in, p[1], &pid);
	(void)close(p[1]);
	if (r < 0)
		return err_set(e, ERR_UNAVAILABLE,
			       "credential helper '%s' does not run: %s", name,
			       strerror(-r));
	r = read_output(from, until, out, &len);
	if (r < 0)
		(void)kill(-pid, SIGKILL);
	status = reap(pid, until);
	if (r == 0 && now_ms() >= until)
		r = -ETIMEDOUT;
	r = judge(name, r, status, out, len, ret, e);
	explicit_bzero(out, OUTPUT_MAX);
	return r;
}
