/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind names.h share. All of it belongs to the thread of
 * names, but for the reference counts. */
#ifndef SNAPSHOTTER_NAMES_PRIV_H
#define SNAPSHOTTER_NAMES_PRIV_H

#include <pthread.h>

#include "base/htab.h"
#include "base/lock.h"
#include "snapshotter/ctd.h"
#include "snapshotter/image_parse.h"
#include "snapshotter/names.h"
#include "snapshotter/store.h"

/* ---- what a digest stands for: names_content.c ---- */

/* Of all images that are remembered; each is a hundred bytes. */
#define CONTENT_LAYERS_MAX 131072u

struct content_layer {
	struct digest chain, blob, toc;
};

/* An image's target, followed to the manifest of this node. */
struct content {
	UT_hash_handle hh;
	struct digest target;
	unsigned n_users;
	bool known; /* else ask again: what was missing may come */
	struct digest manifest; /* zero: not found */
	struct content_layer *layers; /* lowest first */
	size_t n_layers;
	char reason[200]; /* "": layers are known */
};

/* Contents that some image has; the same digest is read once. */
struct contents {
	struct content *table;
	size_t n_layers; /* in all of them */
	struct image_platform node;
};

/* Finds or makes the content of @target; for content_put(). NULL: no memory. */
struct content *content_get(struct contents *cs, const struct digest *target);
void content_put(struct contents *cs, struct content *ct); /* accepts NULL */

/*
 * content_resolve() - ask containerd what it is, unless it is known
 *
 * 0 also when it is not here or cannot be shown: there is a reason then. -1:
 * containerd could not be asked.
 */
int content_resolve(struct contents *cs, struct content *ct, struct ctd *c,
		    const char *ns, struct err *e) must_check;

/* ---- immutable results: names_set.c ---- */

struct names_facts {
	const char *ns, *name;
	const struct digest *target; /* NULL: not sha256 */
	const struct content *content; /* NULL: none */
	const struct lazy_chain *chains; /* sorted */
	size_t n_chains;
};
/* NULL: no memory. For names_image_unref(). */
struct names_image *names_image_new(const struct names_facts *f);
void names_image_ref(const struct names_image *im);
void names_image_unref(const struct names_image *im); /* accepts NULL */
bool names_image_equal(const struct names_image *a,
		       const struct names_image *b);

/* A set of @n images, to be filled in by the caller, who adds a reference for
 * each. One reference is the caller's. */
struct names_set *names_set_new(size_t n, const struct names_image ***ret);

/* ---- the thread and its table: names.c, names_look.c ---- */

/* A name; in the table by "ns/name": a namespace has no '/'. */
struct names_entry {
	UT_hash_handle hh;
	struct digest target;
	bool has_target;
	bool dirty; /* to be looked at */
	unsigned look; /* the full look that saw it last */
	struct content *content; /* NULL: has no target */
	const struct names_image *shown; /* NULL: not yet */
	char key[];
};

/* What an event named. */
struct names_pending {
	UT_hash_handle hh;
	char key[];
};

struct names {
	char *address;
	struct store *store;
	const struct names_ops *ops;
	void *ctx;
	int stop_fd, kick_fd;
	pthread_t thread;
	bool runs;

	/* of the thread */
	struct ctd *ctd; /* NULL: not connected */
	struct contents contents;
	struct names_entry *entries;
	struct lazy_chain *chains;
	size_t n_chains;
	struct names_pending *pending;
	bool look_at_all;
	bool changed; /* since the last set */
	unsigned look;
	uint64_t next_look, next_retry; /* now_ms(); 0: none */
	unsigned retry_ms;
	char **namespaces; /* during a full look */
	size_t n_namespaces;

	struct lock lock; /* a leaf; guards what follows */
	const struct names_set *set;
	bool connected;
	char why[256]; /* not */
};

/* What an entry's key says behind the namespace. */
const char *names_entry_name(const struct names_entry *en);
void names_entry_drop(struct names *n, struct names_entry *en);

/* Events of containerd, into the table of what is pending. */
extern const struct ctd_ops names_events;
void names_drop_pending(struct names *n);

/* Each asks containerd, and marks what to look at; -1: it cannot be asked. */
int names_look_at_everything(struct names *n, struct err *e) must_check;
int names_look_at_pending(struct names *n, struct err *e) must_check;

#endif
