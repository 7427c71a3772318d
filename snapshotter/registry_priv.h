/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry_*.c files share. Nobody else includes this. */
#ifndef SNAPSHOTTER_REGISTRY_PRIV_H
#define SNAPSHOTTER_REGISTRY_PRIV_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/pool.h"
#include "snapshotter/registry.h"
#include "snapshotter/url.h"

#define BLOB_SOURCES_MAX 8

struct token;

struct registry {
	struct fetcher *fetcher; /* a reference */
	char *docker_config, *ca_file;
	unsigned backoff_ms;
	struct pool *jobs; /* reads config.json, runs credential helpers */
	struct token *tokens; /* table; network thread only */
	struct lock lock; /* guards blob sources and size, blob_req.impl */
	atomic_uint_least64_t n_requests, n_token_requests, bytes;
};

/* A repository that has a blob. Lives as long as the blob. */
struct source {
	struct image_ref ref;
	struct url url; /* of the blob, at its registry */
	const char *accept; /* a header, or NULL; static */
	/* network thread only: */
	char *final_url; /* where the last redirect led; NULL: ask */
	bool direct; /* the registry itself sends the bytes */
	struct run *resolver; /* finds out which of the two holds */
	struct list waiters; /* for the resolver: run.node */
};

struct blob {
	struct registry *reg;
	atomic_uint refs;
	struct digest digest;
	/* under reg->lock: */
	struct source *sources[BLOB_SOURCES_MAX];
	unsigned n_sources;
	uint64_t size;
	bool size_was_set;
	/* network thread only: */
	unsigned preferred; /* the source that worked last */
};

/* What an answer said; -1 and the learned size is forgotten when it contradicts
 * what is known. */
int blob_check_size(struct blob *b, uint64_t size) must_check;

/* ---- tokens; network thread only ---- */

/* The Authorization header for one repository, as one request uses it. */
struct grant {
	char *header; /* "Authorization: ..."; NULL: none */
	unsigned generation; /* of the token it was made of; 0: none */
};
void grant_release(struct grant *g);

struct token_waiter {
	struct list node; /* list_init() it once */
	/* On the network thread. The token can be used now, or why not. */
	void (*ready)(struct token_waiter *w, const struct err *e);
};

/*
 * token_get() - what to send to @ref's registry along with a request
 *
 * 1: *ret is filled in (perhaps with nothing: ask without, and see). 0: a
 * token is on its way, w->ready() will be called. -1.
 */
int token_get(struct registry *r, const struct source *s, struct grant *ret,
	      struct token_waiter *w, struct err *e) must_check;

/*
 * token_refused() - the registry answered 401
 * @used: what was sent
 * @challenge: the WWW-Authenticate header; may be NULL
 *
 * 1: try again, another has a newer token already. 0: a new one is on its way,
 * w->ready() will be called. -1: nothing to be done.
 */
int token_refused(struct registry *r, const struct source *s,
		  const struct grant *used, const char *challenge,
		  struct token_waiter *w, struct err *e) must_check;

void token_wait_cancel(struct token_waiter *w);
void tokens_free(struct registry *r); /* the network thread has ended */

#endif
