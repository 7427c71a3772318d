/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot -> mounts, exactly as containerd's overlay snapshotter gives them
 * (plugins/snapshots/overlay/overlay.go, mounts()). Derived at each call, so
 * that it follows the current session and root.
 */
#ifndef SNAPSHOTTER_MOUNTS_H
#define SNAPSHOTTER_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "snapshotter/store.h"

struct mount_entry {
	char *type, *source;
	char **options;
	size_t n_options;
};

struct mount_list {
	struct mount_entry *v;
	size_t n;
};
void mount_list_release(struct mount_list *m);

static inline __attribute__((unused)) void
owned_mount_list(struct mount_list *m)
{
	mount_list_release(m);
}

struct mounts_env {
	const char *root;
	bool index_off; /* the overlay module has a parameter "index" */
};

/* The kernel's answer to @index_off. */
bool mounts_probe_index_off(void);

/* Absolute, and without a character that mount options cannot carry. */
bool mounts_root_is_usable(const char *root);

/*
 * mounts_make() - @chain: the snapshot itself first, then its parents
 * @e: ERR_PRECONDITION: it is committed
 *
 * Touches no file. A lower that occurs twice is listed at its topmost place only (the kernel
 * answers ELOOP to a repetition).
 */
int mounts_make(const struct mounts_env *env, const struct snap_link *chain,
		size_t n, struct mount_list *ret, struct err *e) must_check;

#endif
