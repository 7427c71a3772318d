/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What containerd is asked: names of namespaces and images, contents by digest,
 * and to tell when they change. A connection belongs to one thread; every call
 * blocks it, for seconds at most.
 *
 * containerd is trusted as root is, images are not: contents are bounded, and
 * are given out only when they have their digest.
 *
 * Source: containerd api/services/{namespaces,images,content,events}/v1.
 */
#ifndef SNAPSHOTTER_CTD_H
#define SNAPSHOTTER_CTD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

struct ctd;

/* Called from within ctd_*(); no calls of this connection from within. */
struct ctd_ops {
	/* An image was created, updated or deleted. */
	void (*image_changed)(void *ctx, const char *ns, const char *name);
	/* A namespace came or went, or an event was not understood. */
	void (*all_changed)(void *ctx);
};

/*
 * ctd_open() - connect, and ask for events
 * @stop_fd: readable: every wait ends with ERR_CANCELLED. Borrowed
 * @ops: must outlive it
 *
 * Events that come after this belong to what is listed afterwards, but for a
 * moment at the start: containerd does not say when it begins to tell.
 * ERR_UNAVAILABLE: nobody listens.
 */
int ctd_open(const char *path, int stop_fd, const struct ctd_ops *ops,
	     void *ctx, struct ctd **ret, struct err *e) must_check;
void ctd_close(struct ctd *c); /* accepts NULL */

/* An error that is not of one question: close, and open another. */
bool ctd_is_broken(const struct ctd *c);

/* The callbacks return 0, or -1 with @e, which ends the call. */
int ctd_namespaces(struct ctd *c,
		   int (*fn)(void *ctx, const char *ns, struct err *e),
		   void *ctx, struct err *e) must_check;

struct ctd_image {
	const char *name; /* not empty */
	const char *target; /* a digest, as containerd writes it */
};
int ctd_images(struct ctd *c, const char *ns,
	       int (*fn)(void *ctx, const struct ctd_image *im, struct err *e),
	       void *ctx, struct err *e) must_check;
/* One of them; ERR_NOT_FOUND. */
int ctd_image(struct ctd *c, const char *ns, const char *name,
	      int (*fn)(void *ctx, const struct ctd_image *im, struct err *e),
	      void *ctx, struct err *e) must_check;

/*
 * ctd_read() - contents of the store, whole
 * @ret: is empty; what it holds on success has digest @d
 *
 * ERR_NOT_FOUND; ERR_INVALID: larger than @max; ERR_CORRUPT: another digest.
 */
int ctd_read(struct ctd *c, const char *ns, const struct digest *d, size_t max,
	     struct buf *ret, struct err *e) must_check;

/* Until an event has come, @fd is readable, or the time is over. */
int ctd_wait(struct ctd *c, int fd, unsigned timeout_ms, struct err *e)
	must_check;

#endif
