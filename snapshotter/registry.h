/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registries seen as places where blobs lie: hosts, credentials, tokens,
 * redirects. Everything HTTP that is peculiar to the OCI distribution protocol
 * is here (registry.c names and blobs, registry_req.c one range request,
 * registry_token.c tokens) and in auth.c.
 *
 * A registry is served by the hosts that hosts.h finds for it: mirrors in their
 * order, then itself. What one does not give, late, or wrongly is asked of the
 * next, and the failure is remembered for a while. Without configuration, plain
 * http is spoken to loopback hosts with a port other than 443, TLS to all
 * others.
 *
 * Locks: one, rank RANK_FETCH, around sizes, places and the links from a
 * request to what runs for it. All else happens on the network thread.
 *
 * Sources: OCI distribution-spec v1.1; containerd core/remotes/docker.
 */
#ifndef SNAPSHOTTER_REGISTRY_H
#define SNAPSHOTTER_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"
#include "snapshotter/fetch.h"

struct registry;

struct registry_opts {
	struct fetcher *fetcher;
	/* docker config.json; NULL: $DOCKER_CONFIG, else $HOME/.docker. Read at
	 * each use, so credentials may be rotated. */
	const char *docker_config;
	const char *ca_file; /* instead of the system's; NULL */
	/* Folders as /etc/containerd/certs.d, joined with ':'; NULL: none. See
	 * hosts.h; looked at again when a second has passed. */
	const char *hosts_dirs;
	unsigned backoff_ms; /* before the second try; 0: 200 */
};

int registry_new(const struct registry_opts *o, struct registry **ret)
	must_check;
/* After fetcher_free() and after the last blob_unref(). Accepts NULL. */
void registry_free(struct registry *r);

/* An image reference, taken apart: "host[:port]/repo[:tag][@digest]". */
struct image_ref {
	char host[256]; /* lower case, with the port if one was written */
	char repo[256];
	char tag[129]; /* may be empty */
};
/*
 * image_ref_parse() - as docker and containerd read it
 *
 * Familiar names are completed: "alpine" is docker.io/library/alpine. The
 * digest is checked for its form and not kept. @e: ERR_INVALID.
 */
int image_ref_parse(const char *s, struct image_ref *ret, struct err *e)
	must_check;

/* A blob in one or more repositories. Reference counted; any thread. */
struct blob;
int blob_new(struct registry *r, const struct image_ref *ref,
	     const struct digest *d, struct blob **ret) must_check;
struct blob *blob_ref(struct blob *b);
void blob_unref(struct blob *b);
/* Another repository that has the same blob. */
int blob_add_source(struct blob *b, const struct image_ref *ref) must_check;
/* "host" of its first source, for limits per registry and messages */
const char *blob_host(const struct blob *b);
/*
 * blob_good_host() - the registry to expect the blob from
 * @now: a source's "host", perhaps what this said before
 * @now, unless no host of it does what it should at present and there is a
 * source without a failure: then the first such. Lives as long as the blob; any
 * thread.
 */
const char *blob_good_host(struct blob *b, const char *now);
/* Compressed bytes; 0 before the first answer that told it. A size that was
 * set is held against every answer; one that was learned is forgotten when an
 * answer contradicts it. */
uint64_t blob_size(struct blob *b);
void blob_set_size(struct blob *b, uint64_t size);

/*
 * One range request, with authentication, redirects and bounded retries behind
 * it (network errors, 429 and 5xx: 3 rounds with back-off within the deadline;
 * 401: one new token; 401, 403 or 410 of a presigned URL: resolved anew once).
 * What one host of one repository does not give is asked of the next that may
 * have the blob, where the former stopped.
 */
#define BLOB_PARTS_MAX 8

struct blob_req {
	struct blob *blob; /* a reference is held while it runs */
	uint64_t off, len; /* or .. */
	uint64_t suffix_len; /* .. the last so many bytes (or all): off and len
			      * are set before the first on_data */
	unsigned deadline_ms; /* for everything together; 0: 60 s */
	bool urgent;
	unsigned silence_ms; /* no byte for so long: failed; 0: 10 s */
	/* On silence, done() at once instead of the same question again: the
	 * caller will ask for less, or from where it stopped. */
	bool yields;
	/* Set before done(): it ended so, at all sources that were asked; every
	 * one of them answers that it has no such blob. */
	bool silent, no_blob;
	/*
	 * Bytes in order from @off; after a retry it goes on where it stopped,
	 * never twice. On the network thread. Non-zero: stop.
	 */
	int (*on_data)(struct blob_req *q, uint64_t off, const void *p,
		       size_t len);
	/* Exactly once, on the network thread; what @blob points to is not ours
	 * any more, and q may be freed or started again. On failure the bytes
	 * already delivered are good as far as HTTP can tell.
	 * ERR_DENIED 401/403, ERR_UNAVAILABLE, ERR_CANCELLED, ERR_CORRUPT (the
	 * registry broke the protocol: 200 to a range, wrong Content-Range);
	 * messages name host, repository and status, never a token or query. */
	void (*done)(struct blob_req *q, const struct err *e);
	void *ctx;
	struct run *impl; /* private to registry_*.c, as are these */
	/* Kept when it is started again, to go on where it was. */
	struct {
		uint64_t off;
		uint32_t place;
	} parts[BLOB_PARTS_MAX];
	unsigned n_parts;
};

/* Never blocks. -1: done() will not be called. ERR_INVALID: the range is empty
 * or beyond the blob. */
int blob_fetch(struct blob_req *q, struct err *e) must_check;
/* done() comes soon, with ERR_CANCELLED unless it was over already. The caller
 * knows that *q is still there. Never blocks. */
void blob_cancel(struct blob_req *q);

/*
 * blob_blame() - bytes [off, off + len) of a request were not the blob's
 *
 * Whoever sent them is asked last for this blob for ten minutes. From
 * on_data() on until the request is started again or freed; any thread.
 */
void blob_blame(struct blob_req *q, uint64_t off, uint64_t len);
/*
 * blob_distrust() - what came of this blob so far, taken together, is wrong
 * Whoever sent it is asked last from now on, as by blob_blame(), and a learned
 * size is forgotten. True: that makes a difference. Any thread.
 */
bool blob_distrust(struct blob *b);

/*
 * Blocking forms, for job threads only (they park the thread, never the
 * network). Exactly @len bytes, or the last min(@len, size) bytes with their
 * number in *ret_len and the blob's size known afterwards. Sources of errors
 * are those of blob_fetch() and done(). @deadline_ms: 0: 60 s.
 */
int blob_read(struct blob *b, uint64_t off, void *p, size_t len,
	      unsigned deadline_ms, struct err *e) must_check;
/* For work that others wait behind: who keeps silent is not asked again. */
int blob_read_once(struct blob *b, uint64_t off, void *p, size_t len,
		   unsigned deadline_ms, struct err *e) must_check;
int blob_read_tail(struct blob *b, void *p, size_t len, size_t *ret_len,
		   unsigned deadline_ms, struct err *e) must_check;

/*
 * registry_read_manifest() - an image manifest by its digest, at most @max bytes
 *
 * Blocking, for job threads. Verified: what has another digest is asked of the
 * next host, and ERR_CORRUPT in the end. *ret is heap, not NUL-terminated.
 * Errors as blob_read().
 */
int registry_read_manifest(struct registry *r, const struct image_ref *ref,
			   const struct digest *d, size_t max,
			   unsigned deadline_ms, char **ret, size_t *ret_len,
			   struct err *e) must_check;

/*
 * registry_check() - whether anybody gives the manifest that a tag names
 *
 * As for a layer: the same hosts in the same order, credentials and proxies.
 * Nothing is made of what comes. @ref: its tag is not empty; may be a digest.
 * @ret_by: where the one that answered has its API. Blocking, for job threads.
 * Errors as blob_read().
 */
int registry_check(struct registry *r, const struct image_ref *ref,
		   unsigned deadline_ms, char *ret_by, size_t size,
		   struct err *e) must_check;

/* Counters for status and tests: HTTP requests for blobs, for tokens, and
 * bytes of blobs delivered. */
struct registry_stats {
	uint64_t n_requests, n_token_requests, bytes;
};
void registry_stats(struct registry *r, struct registry_stats *ret);

/* JSON array of the registries asked so far, with the state of their hosts. */
int registry_status_json(struct registry *r, struct buf *out) must_check;

#endif
