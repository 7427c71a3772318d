/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which image names exist, and what each of them is made of here. Names are
 * containerd's knowledge (a second tag or a rollback never comes to a
 * snapshotter), so one thread asks it: ctd.h. From its answers and from the
 * rows of the store follows, for each name, the list of lazy layers, or the
 * reason why it cannot be shown.
 *
 * Nobody waits for containerd: while it is away, what was known last stays.
 */
#ifndef SNAPSHOTTER_NAMES_H
#define SNAPSHOTTER_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

struct names;
struct store;

/* Of all namespaces together; those beyond are left out, and the log says so. */
#define NAMES_IMAGES_MAX 4096u

/*
 * One name. Immutable, and the same object in all snapshots as long as nothing
 * of it changes. All strings are from outside, but checked: see below.
 */
struct names_image {
	const char
		*ns; /* namespace: letters, digits, '-', '_' and '.' inside */
	const char *name; /* all of it, as containerd has it */
	/*
	 * The name taken apart, "host/repository" + suffix = name. Host and
	 * each component of the repository may stand as a file's name: they
	 * hold no '/', are not "." or ".." and not empty. Of a name that is no
	 * such reference all three are "", and there is a reason.
	 */
	const char *host; /* "docker.io", "localhost:5000" */
	const char *repository; /* "library/alpine" */
	const char *suffix; /* ":3.20", "@sha256:…", or both; no '/' */
	struct digest target; /* what the name stands for; zero: not sha256 */
	struct digest manifest; /* of this node's platform; zero: not known */
	/* n_layers lazy layers, top first; NULL when there is a reason */
	const uint32_t *layers;
	size_t n_layers; /* of the manifest, also when there is a reason */
	const char *reason; /* "": can be shown */
};

/* All names, sorted by namespace and name. Immutable, reference counted. */
struct names_set {
	size_t n;
	const struct names_image *const *images;
};

/* Any thread. NULL is fine. */
const struct names_set *names_set_ref(const struct names_set *set);
void names_set_unref(const struct names_set *set);
/* The image of this name, or NULL. */
const struct names_image *names_set_find(const struct names_set *set,
					 const char *ns, const char *name);

struct names_ops {
	/*
	 * Something changed: a name came, went, or means something else now.
	 * What came within a few milliseconds comes as one set. Called in the
	 * thread of names only, without a lock; may block, and then the next
	 * set waits and holds more. @set: take a reference to keep it.
	 */
	void (*changed)(void *ctx, const struct names_set *set);
};

struct names_opts {
	const char *containerd; /* path of its socket; copied */
	struct store *store; /* borrowed */
	const struct names_ops *ops; /* NULL: nobody is told */
	void *ctx;
};

/* Starts the thread; needs no containerd. */
int names_open(const struct names_opts *o, struct names **ret, struct err *e)
	must_check;
/* Ends it; changed() is not called any more. Accepts NULL. */
void names_close(struct names *n);

/* What was published last, never NULL; for names_set_unref(). Any thread. */
const struct names_set *names_get(struct names *n);

/*
 * names_json() - {"containerd": {...}, "images": [...]} for verityctl ls
 *
 * Any thread. 0 or -ENOMEM.
 */
int names_json(struct names *n, struct buf *out) must_check;

#endif
