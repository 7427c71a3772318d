/* SPDX-License-Identifier: Apache-2.0 */
/* Listening unix sockets; see listen.h. */
#include "plugin/listen.h"

#include <string.h>
#include <sys/stat.h>

#include "base/log.h"

#define BACKLOG 128

static int bind_private(int fd, const struct sockaddr_un *sa)
{
	mode_t old = umask(0177);
	int r = bind(fd, (const struct sockaddr *)sa, sizeof(*sa));
	int saved = errno;

	(void)umask(old);
	return r < 0 ? -saved : 0;
}

/*
 * 0 when nobody listens behind the file @sa names, so that it may go. Only
 * ECONNREFUSED proves that: with a full backlog the answer is EAGAIN, and a
 * socket of another type is not ours to judge.
 */
static int probe_dead(const struct sockaddr_un *sa, struct err *e)
{
	owned(fd) int fd =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return err_sys(e, -errno, "make a socket");
	if (lstat(sa->sun_path, &st) < 0)
		return errno == ENOENT ? 0
				       : err_sys(e, -errno, "look at '%s'",
						 sa->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INVALID,
			       "'%s' is in the way and is not a socket",
			       sa->sun_path);
	if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0 &&
	    (errno == ECONNREFUSED || errno == ENOENT))
		return 0;
	return err_set(e, ERR_EXISTS, "another process listens on '%s'",
		       sa->sun_path);
}

int listen_unix(const char *path, struct listener *ret, struct err *e)
{
	owned(fd) int fd =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct stat st;
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make a socket");
	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(
			e, ERR_INVALID,
			"socket path '%.60s...' is longer than %zu bytes", path,
			sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	r = bind_private(fd, &sa);
	if (r == -EADDRINUSE) {
		if (probe_dead(&sa, e) < 0)
			return -1;
		log_info("stale socket replaced: path='%s'", path);
		if (unlink(path) < 0 && errno != ENOENT)
			return err_sys(e, -errno, "remove '%s'", path);
		r = bind_private(fd, &sa);
	}
	if (r < 0)
		return err_sys(e, r, "bind '%s'", path);
	if (listen(fd, BACKLOG) < 0 || lstat(path, &st) < 0) {
		r = -errno;
		(void)unlink(path);
		return err_sys(e, r, "listen on '%s'", path);
	}
	ret->fd = take_fd(&fd);
	memcpy(ret->path, sa.sun_path, sizeof(ret->path));
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	return 0;
}

void listener_release(struct listener *l)
{
	struct stat st;

	if (l->fd >= 0)
		(void)close(take_fd(&l->fd));
	if (l->path[0] && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
	    st.st_ino == l->ino)
		(void)unlink(l->path);
	l->path[0] = '\0';
}
