/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers view: one FUSE session whose root holds one directory per layer,
 * named by its decimal seq. Immutable, cached for a year, never an epoch.
 *
 * view_open() mounts and starts the threads. The source set must outlive
 * view_close(). Nothing in this process may touch a path below the mount.
 * Source: Linux fs/fuse (6.18); libfuse 3.14 fuse_lowlevel.h.
 */
#ifndef FUSE_VIEW_H
#define FUSE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "fuse/source.h"

struct view;

struct view_opts {
	const char *mountpoint; /* absolute, exists, empty, not yet a mount */
	struct source_set sources;
	const char *store; /* uuid of what is shown, for a take-over; or NULL */
	unsigned n_threads; /* readers of the device; 0: 4 */
	/* 0: 60. The source is expected to give up after it; five seconds later
	 * the view does, with ETIMEDOUT. */
	unsigned read_timeout_s;
	unsigned max_parked; /* per layer, one more answers EIO; 0: 2048 */
	/* kernel features masked by --without, VIEW_WITHOUT_* bits */
	unsigned without;
};

#define VIEW_WITHOUT_READDIRPLUS 1u
#define VIEW_WITHOUT_RESEND 2u
#define VIEW_WITHOUT_PASSTHROUGH 4u
#define VIEW_WITHOUT_BIG_READS 8u

int view_open(const struct view_opts *o, struct view **ret) must_check;

/*
 * view_close() - answer what is parked with an error, detach the mount
 * (MNT_DETACH), join the threads. Accepts NULL.
 */
void view_close(struct view *v);

/* A layer has gone: one inval_entry, from the notifier thread. Never blocks. */
void view_forget_layer(struct view *v, uint32_t seq);

/*
 * view_recheck_files() - some backing file may have been replaced
 *
 * Who opens such a file from now on reads the new one; who holds the old one,
 * or has it mapped, keeps it. Waits for the disk.
 */
void view_recheck_files(struct view *v);

/* Files that would be passed through if they were not open already. Waits for
 * the disk. */
uint32_t view_n_changeable(struct view *v);

/* Files of a layer that somebody still has open, or mapped, with content that
 * has been replaced since. */
uint32_t view_n_healed(struct view *v, uint32_t seq);

/* Counters and what was negotiated, for status. */
struct view_stats {
	uint32_t proto_minor;
	uint64_t init_flags; /* what we answered, flags | flags2 << 32 */
	uint64_t n_requests, n_reads, n_parked_total;
	uint32_t n_parked; /* now */
	uint32_t n_open; /* files that the kernel holds open */
	uint32_t n_passthrough; /* of them, read by the kernel without us */
	uint32_t n_healed; /* of them, with a backing file that was bad */
	uint32_t n_backing; /* files that the kernel holds open for these */
	uint64_t n_passthrough_total;
	int passthrough_error; /* errno that stands against it, or 0 */
	bool mounted; /* false once the session ended by itself */
	uint64_t locked_bytes; /* request and reply buffers under mlock */
};
void view_stats(struct view *v, struct view_stats *ret);

/*
 * view_init_record() - what was agreed with the kernel, as it was on the wire
 * It holds for the life of the mount, and whoever takes the session over needs
 * it. See fuse/init.h.
 */
struct init_record;
const struct init_record *view_init_record(const struct view *v);

/* Parked reads of one layer, for `waiting` in status. */
uint32_t view_n_parked(struct view *v, uint32_t seq);

/*
 * view_detach_dead() - lazily unmount what an earlier process left at
 * @mountpoint, found in /proc/self/mountinfo, never by touching the path
 * Returns the number of mounts detached, or -errno.
 */
int view_detach_dead(const char *mountpoint) must_check;

#endif
