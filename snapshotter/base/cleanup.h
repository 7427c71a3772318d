/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope guards and the attributes that every header uses.
 *
 * A guarded variable is initialised where it is declared. Ownership leaves it
 * only through take_ptr() or take_fd(), so a transfer can be seen at both ends.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define must_check __attribute__((warn_unused_result))
#define printf_like(f, a) __attribute__((format(printf, f, a)))
#define unused_arg __attribute__((unused))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) \
	((type *)((char *)(p)-offsetof(type, member)))

/* DEFINE_OWNED(layer, struct layer *, layer_free) makes owned(layer) work. */
#define DEFINE_OWNED(name, type, func)                                   \
	static inline __attribute__((unused)) void owned_##name(type *p) \
	{                                                                \
		if (*p)                                                  \
			func(*p);                                        \
	}
#define owned(name) __attribute__((cleanup(owned_##name)))

static inline __attribute__((unused)) void owned_fd(int *fd)
{
	if (*fd >= 0) {
		int e = errno;

		(void)close(*fd);
		errno = e;
	}
}

static inline __attribute__((unused)) void owned_mem(void *p)
{
	free(*(void **)p);
}

DEFINE_OWNED(file, FILE *, fclose)
DEFINE_OWNED(dir, DIR *, closedir)

/* take_ptr(&p): the value of p; p becomes NULL. */
#define take_ptr(pp)                              \
	__extension__({                           \
		__typeof__(*(pp)) taken_ = *(pp); \
		*(pp) = NULL;                     \
		taken_;                           \
	})

/* take_fd(&fd): the value of fd; fd becomes -1. */
static inline int take_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

#endif
