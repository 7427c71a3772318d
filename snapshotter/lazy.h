/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that exists for lazy layers, put together: network, registry,
 * filler, bodies, layers, the view, and the sweeper that drops layers nobody
 * uses. Where FUSE is missing there is no such thing, and all is ordinary.
 */
#ifndef SNAPSHOTTER_LAZY_H
#define SNAPSHOTTER_LAZY_H

#include "base/buf.h"
#include "snapshotter/decide.h"
#include "snapshotter/trash.h"

struct lazy;
struct stat;

struct lazy_opts {
	const struct snapshotter_opts *o;
	struct snapshotter *owner; /* for decide_owner() */
	const char *root; /* absolute, resolved */
	int rootfd; /* borrowed */
	struct store *store;
	struct trash *trash;
};

/*
 * lazy_open() - needs no network; detaches what a dead process left mounted
 *
 * -1 only for what makes the daemon useless (memory, the store). When the view
 * cannot be mounted, *ret is set all the same and lazy_is_on() says no.
 */
int lazy_open(const struct lazy_opts *o, struct lazy **ret, struct err *e)
	must_check;
/* Answers what is parked, detaches the view, ends all threads; deletes
 * nothing. Accepts NULL. */
void lazy_close(struct lazy *lz);

bool lazy_is_on(const struct lazy *lz);
uint64_t lazy_view_flags(const struct lazy *lz);
const struct decide_env *lazy_decide_env(const struct lazy *lz);

/* Some lazy rows are gone: look for unused layers soon. Never blocks. */
void lazy_kick(struct lazy *lz);

/* As layers_scrub(). */
uint64_t lazy_scrub(struct lazy *lz, uint32_t seq);

/* Before mounts are handed out, see broken_refresh(). */
void lazy_refresh_broken(struct lazy *lz);

/* names_json(), or an empty list where nobody asks for names. */
int lazy_names_json(struct lazy *lz, struct buf *out) must_check;

/* JSON members "layers", "view", ...; 0 or -ENOMEM */
int lazy_status_json(struct lazy *lz, struct buf *out) must_check;

#endif
