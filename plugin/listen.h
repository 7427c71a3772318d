/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening unix sockets with a name in the file system: a socket file that a
 * dead process left is replaced, a live one is refused.
 */
#ifndef PLUGIN_LISTEN_H
#define PLUGIN_LISTEN_H

#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

struct listener {
	int fd; /* -1: none. Whoever takes it sets it to -1. */
	char path[sizeof(
		((struct sockaddr_un *)0)->sun_path)]; /* "": foreign */
	dev_t dev; /* of the file, so that only our own is removed */
	ino_t ino;
};

#define LISTENER_INIT    \
	{                \
		.fd = -1 \
	}

/**
 * listen_unix() - bind @path with mode 0600, and listen
 * @path: absolute; its folder exists
 * @ret:  out: for listener_release()
 * @e:    ERR_INVALID (path too long, or no socket lies there) |
 *        ERR_EXISTS (another process listens) | ERR_INTERNAL
 *
 * Sets the umask of the process for a moment: call it before threads start.
 */
int listen_unix(const char *path, struct listener *ret, struct err *e)
	must_check;

/* Closes the fd unless it was taken, and removes the file if it is ours. */
void listener_release(struct listener *l);

#endif
