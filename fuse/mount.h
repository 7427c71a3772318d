/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounting, and finding what is mounted. Mounts are found in mountinfo by type
 * and path; a path below a mount of ours, or the mount itself, is never looked
 * at: the answer would have to come from ourselves.
 */
#ifndef FUSE_MOUNT_H
#define FUSE_MOUNT_H

#include <stdbool.h>

#include "base/cleanup.h"

#define MOUNT_SOURCE "verity-layers"
#define MOUNT_TYPE "fuse." MOUNT_SOURCE

/*
 * mount_fuse() - mount the session of @fuse_fd at @mountpoint
 *
 * ro,noatime, without nosuid and nodev: the lower directories of containers
 * and a View of one layer must run setuid programs and show devices as they
 * are. The directory above has mode 0700.
 */
int mount_fuse(const char *mountpoint, int fuse_fd) must_check;

/* The device number that mountinfo shows, {0, 0}: not known. */
struct mount_dev {
	unsigned major, minor;
};

/* The mount of ours that is on top at @mountpoint. -ENOENT: there is none. */
int mount_find(const char *mountpoint, struct mount_dev *ret) must_check;

/*
 * mount_detach() - unmount lazily what mount_find() found
 * -ENOENT: something else, or nothing, is mounted there by now.
 */
int mount_detach(const char *mountpoint, const struct mount_dev *dev)
	must_check;

/* mount_detach_dead() - see view_detach_dead() */
int mount_detach_dead(const char *mountpoint) must_check;

/*
 * mount_set_readahead() - let the kernel read ahead @kb in our files
 *
 * The default of 128 KiB bounds what INIT can ask for. Needs a writable /sys.
 */
int mount_set_readahead(const struct mount_dev *dev, unsigned kb) must_check;

struct mount_entry {
	int id, parent;
	unsigned major, minor;
	char *root; /* of the mount, inside its file system */
	char *path, *type, *source;
	char *options; /* of the file system; each value still escaped */
};

/*
 * mount_next() - take one line of mountinfo apart
 * @text: advanced to the next line
 * @ret: its strings are unescaped in place, inside the text, but for options
 * false: no more lines. Lines of another form are skipped.
 */
bool mount_next(char **text, struct mount_entry *ret);

/* In place: "\040" becomes a blank, and so on. */
void mount_unescape(char *s);

#endif
