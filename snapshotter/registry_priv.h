/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry_*.c files share. Nobody else includes this. */
#ifndef SNAPSHOTTER_REGISTRY_PRIV_H
#define SNAPSHOTTER_REGISTRY_PRIV_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/pool.h"
#include "snapshotter/hosts.h"
#include "snapshotter/registry.h"
#include "snapshotter/url.h"

#define BLOB_SOURCES_MAX 8
#define PLACES_MAX (BLOB_SOURCES_MAX * 2 * (HOSTS_MAX + 1))

struct token;
struct known_hosts;

struct registry {
	struct fetcher *fetcher; /* a reference */
	char *docker_config, *ca_file, *hosts_dirs;
	unsigned backoff_ms;
	struct pool *jobs; /* reads config.json, runs credential helpers */
	struct pool *files; /* reads hosts.toml: waits for nobody's helper */
	struct token *tokens; /* table; network thread only */
	/*
	 * Guards blob sources and sizes, the lists of places, health, the table
	 * of hosts, blob_req.impl and .parts. Lists of places and the table
	 * change on the network thread only, which reads them without it.
	 */
	struct lock lock;
	struct known_hosts *hosts; /* table */
	uint32_t next_place;
	atomic_uint_least64_t n_requests, n_token_requests, bytes;
};

/* One of the servers that may have a repository's blob. */
struct place {
	unsigned refs; /* network thread only */
	uint32_t id; /* no other one of this process has it */
	struct source *src;
	struct host_list *list; /* a reference */
	struct host *host; /* in it */
	struct url url; /* of the blob there */
	/* under reg->lock: */
	uint64_t bad_until_ms; /* lacks the blob, refuses it, or lied */
	bool served; /* bytes came from here; see blob_distrust() */
	/* network thread only: */
	char *final_url; /* where the last redirect led; NULL: ask */
	bool direct; /* the registry itself sends the bytes */
	struct run *resolver; /* finds out which of the two holds */
	struct list waiters; /* for the resolver: run.node */
};

/* A repository that has a blob. Lives as long as the blob. */
struct source {
	struct image_ref ref;
	const char *kind; /* "blobs" or "manifests"; static */
	bool by_tag; /* what ref.tag names, instead of the blob's digest */
	const char *accept; /* a header, or NULL; static */
	struct host_list *list; /* a reference: what places was made of */
	struct place **places;
	size_t n_places;
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

/* Somebody to be told on the network thread. */
struct net_waiter {
	struct list node; /* list_init() it once */
	/* What was waited for can be used now, or why not. */
	void (*ready)(struct net_waiter *w, const struct err *e);
};

/* Empties the list and tells everybody; who waits again is not in this round. */
void net_wake(struct list *waiters, const struct err *e);

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

/*
 * token_get() - what to send to a place along with a request
 *
 * 1: *ret is filled in (perhaps with nothing: ask without, and see). 0: a
 * token is on its way, w->ready() will be called. -1.
 */
int token_get(struct registry *r, const struct place *p, struct grant *ret,
	      struct net_waiter *w, struct err *e) must_check;

/*
 * token_refused() - the registry answered 401
 * @used: what was sent
 * @challenge: the WWW-Authenticate header; may be NULL
 *
 * 1: try again, another has a newer token already. 0: a new one is on its way,
 * w->ready() will be called. -1: nothing to be done.
 */
int token_refused(struct registry *r, const struct place *p,
		  const struct grant *used, const char *challenge,
		  struct net_waiter *w, struct err *e) must_check;

void tokens_free(struct registry *r); /* the network thread has ended */

/* ---- hosts of a registry; network thread only, registry_hosts.c ---- */

/*
 * hosts_get() - who speaks for the registry @name
 *
 * 1: *ret, borrowed until the caller is back in the loop. 0: files are being
 * looked at, w->ready() will be called. -1. They are looked at again after a
 * second, so that changes count without a restart.
 */
int hosts_get(struct registry *r, const char *name, struct host_list **ret,
	      struct net_waiter *w, struct err *e) must_check;
void known_hosts_free(struct registry *r); /* the network thread has ended */
/* Every host of the registry has failed last; one never asked has not. Any
 * thread, under reg->lock. */
bool hosts_all_fail_locked(const struct registry *r, const char *name);

/* ---- places; registry_place.c ---- */

/*
 * source_set_hosts() - make the places of @s anew unless @l made them already
 * 0 or -ENOMEM. Network thread.
 */
int source_set_hosts(struct blob *b, struct source *s, struct host_list *l)
	must_check;
void source_free(struct source *s); /* accepts NULL */

struct place *place_ref(struct place *p);
void place_put(struct place *p); /* accepts NULL */

enum place_fault {
	FAULT_BLOB, /* it has not this blob, or does not give it to us */
	FAULT_HOST, /* down, silent, slow, overloaded: all its blobs */
};
/* Remembered for a while, so that others do not ask it first. */
void place_failed(struct registry *r, struct place *p, enum place_fault f,
		  unsigned retry_after_s, const char *why);
void place_worked(struct registry *r, struct place *p);

#endif
