/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel features that the daemon uses where they are there: their names for
 * --without, and for status what each absence costs.
 */
#ifndef PLUGIN_FEATURES_H
#define PLUGIN_FEATURES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "fuse/view.h"
#include "snapshotter/snapshotter.h"

/**
 * features_parse() - "NAME[,NAME...]" to SNAPSHOTTER_WITHOUT_* bits
 * @mask: in and out: bits are added
 * @e:    ERR_INVALID, with the list of known names
 */
int features_parse(const char *list, unsigned *mask, struct err *e) must_check;

/* The known names, separated by ", ", for --help. */
size_t features_names(char *out, size_t size);

#define FEATURES_N_PROBED 4
#define FEATURES_VERITY 2 /* in struct features.errnos */

/* For passthrough = false. */
#define FEATURES_PASSTHROUGH \
	(VIEW_WITHOUT_PASSTHROUGH << SNAPSHOTTER_WITHOUT_VIEW_SHIFT)

/* What start-up found out, by trying. */
struct features {
	unsigned without; /* masked by --without */
	unsigned off; /* the same bits, by the configuration */
	/* 0: there. [0] /dev/fuse, [1] RWF_DONTCACHE, [2] fs-verity below ROOT,
	 * [3] FADV_DONTNEED, which every file system has */
	int errnos[FEATURES_N_PROBED];
};

/* @rootfd: the folder that holds the state */
void features_probe(int rootfd, unsigned without, struct features *ret);

/* A JSON array of {"name", "state", "why"}; state is "on", "off" (masked,
 * or by the configuration), "absent" or "auto" (not settled yet).
 * @view_flags: snapshotter_view_flags() */
void features_json(const struct features *f, uint64_t view_flags,
		   struct buf *out);

#endif
