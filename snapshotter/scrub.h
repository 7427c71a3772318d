/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trust at rest: what lies on the disk is read again, in the helper process
 * "scrub" (verity/scrubber.h), by a thread ("vs-scrub") that asks for one file
 * after the other and heals what is bad:
 *
 *	body           good blocks are copied into another file, the others fetched
 *	leaf log       written anew from the good file
 *	index, map     the layer is replaced (layer_open.c); where only the name
 *	               has another file, by a copy of the one that is open
 *
 * Who asks: an operator (verityctl scrub), the calendar, and the kernel's log,
 * when fs-verity has found a bad block (verity/kmsg.h).
 */
#ifndef SNAPSHOTTER_SCRUB_H
#define SNAPSHOTTER_SCRUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"

struct body;
struct layer;
struct layers;
struct scrubbing;

/* Uses scrubber, scrub_rate and scrub_interval_s of layers_opts. 0 or -errno. */
int scrubbing_new(struct layers *ls, struct scrubbing **ret) must_check;
/* Ends within a moment, in the middle of a file, too. Both accept NULL. */
void scrubbing_stop(struct scrubbing *q);
void scrubbing_free(struct scrubbing *q);

/* How often the calendar is looked at, and the shortest pause between two runs
 * that the kernel's log asks for; tests shorten both. */
extern unsigned scrubbing_look_ms, scrubbing_pause_ms;

#define SCRUB_ALL UINT32_MAX

/*
 * scrubbing_ask() - have a layer looked at, or SCRUB_ALL of them
 *
 * A number: done when the member "finished" of status has come to it. 0: there
 * is no scrubber, or no memory. Never blocks; any thread.
 */
uint64_t scrubbing_ask(struct scrubbing *q, uint32_t seq);

/* The kernel has found a bad block in a file with the inode number @ino; 0: in
 * some file. It is looked at first, then all of the layers that are open.
 * As above. */
void scrubbing_alarm(struct scrubbing *q, uint64_t ino);

/* The member "scrub" of status. */
void scrubbing_json(struct scrubbing *q, struct buf *out);

/* layer_scrub.c: the files of a layer. @what as in seal.h. */
struct scrub_target {
	int fd;
	uint64_t size;
	struct digest want;
	struct body *body; /* NULL: index or map */
	bool leaves_bad; /* of a sealed body */
};

/* How many bodies there are; they have the numbers below that. */
uint32_t layer_n_bodies(const struct layer *l);
/* The digest that names body @i for all layers that share it; zero: a pack. */
struct digest layer_body_name(struct layer *l, uint32_t i);
/* @only_ino: 0, or the inode number that is of interest. 0; 1: there is nothing
 * to look at; -EBADMSG: bad without a look; -errno. The fd is the caller's. */
int layer_scrub_begin(struct layer *l, uint32_t what, uint64_t only_ino,
		      struct scrub_target *ret) must_check;
/* The file is good: so is its leaf log from now on. 0; 1: it was not; -errno */
int layer_scrub_beside(struct layer *l, uint32_t what,
		       const struct scrub_target *t) must_check;

enum healed {
	HEALED, /* another file has its place */
	HEALED_FETCHING, /* what is missing is being fetched */
	HEALED_NEW_LAYER, /* the next pull makes another layer */
};
/* -errno: not healed. Blocks on the disk for as long as reading it takes. */
int layer_scrub_heal(struct layer *l, uint32_t what, enum healed *ret)
	must_check;

#endif
