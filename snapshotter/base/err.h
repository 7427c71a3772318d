/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the outer folders (snapshotter, plugin) report with: a kind that the
 * caller can act on, an optional errno, and a message for people.
 *
 * A struct err lives with the caller and has a fixed size, so that reporting
 * never allocates. The first failure sets it, callers only wrap it. Every
 * function accepts e == NULL and returns -1, for `return err_set(e, ...)`.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "cleanup.h"

enum err_kind {
	ERR_NONE,
	ERR_INVALID, /* the caller's argument is wrong */
	ERR_NOT_FOUND, /* a *named* snapshot does not exist; nothing else */
	ERR_EXISTS, /* the name is taken, or the layer is there already */
	ERR_PRECONDITION, /* right request, wrong state */
	ERR_CORRUPT, /* bytes do not have the digest they must have */
	ERR_UNAVAILABLE, /* a registry, the network or a deadline; try again */
	ERR_DENIED, /* a registry refuses our credentials, or wants some */
	ERR_UNSUPPORTED, /* the image, kernel or file system lacks a feature */
	ERR_NO_SPACE, /* disk, inodes or quota */
	ERR_CANCELLED, /* the caller went away, or the daemon is stopping */
	ERR_INTERNAL, /* everything else */
};

struct err {
	enum err_kind kind;
	int sys; /* errno > 0, or 0 */
	char msg[240];
};

#define ERR_INIT                 \
	{                        \
		.kind = ERR_NONE \
	}

printf_like(3, 4) int err_set(struct err *e, enum err_kind kind,
			      const char *fmt, ...);

/*
 * err_sys() - report a failed system call; @neg_errno is -errno
 *
 * ENOSPC, EDQUOT and EMFILE-like exhaustion of disk give ERR_NO_SPACE, all
 * others ERR_INTERNAL: never ERR_NOT_FOUND, however plausible ENOENT looks.
 */
printf_like(3, 4) int err_sys(struct err *e, int neg_errno, const char *fmt,
			      ...);

/* err_wrap() - put "fmt: " before the message that is there already */
printf_like(2, 3) int err_wrap(struct err *e, const char *fmt, ...);

const char *err_kind_name(enum err_kind kind);

/* err_errno() - the negative errno nearest to @e, for the inner folders */
int err_errno(const struct err *e);

#endif
