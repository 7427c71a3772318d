/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which servers speak for a registry: hosts.toml and the certificate folders,
 * read as containerd reads them.
 *
 * A list is immutable but for the health of its hosts, and reference counted.
 * Differences from containerd: a file that cannot be read as TOML makes its
 * registry unavailable, with file and line (containerd logs and goes on without
 * the mirrors and headers it was told to use); of several client certificates
 * the first is used; loopback registries without a file are spoken to in plain
 * http and not in https first.
 *
 * Source: containerd docs/hosts.md; core/remotes/docker/config/hosts.go (2.3).
 */
#ifndef SNAPSHOTTER_HOSTS_H
#define SNAPSHOTTER_HOSTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HOSTS_DIRS_DEFAULT "/etc/containerd/certs.d:/etc/docker/certs.d"
#define HOSTS_MAX 16 /* in one file */
#define HOSTS_FILE_MAX (256u * 1024u)

enum host_caps {
	HOST_PULL = 1,
	HOST_RESOLVE = 2,
	HOST_PUSH = 4,
	HOST_REFERRERS = 8,
};

/* What failures have taught; whoever owns the list guards it. */
struct host_health {
	uint64_t bad_until_ms; /* left for others until then */
	unsigned n_failed; /* in a row */
	char why[160];
	unsigned n_wrong; /* times that wrong bytes came from it */
};

struct host {
	char *base; /* "https://mirror:5000/v2", no '/' at its end */
	char *name; /* "mirror:5000": whose credentials */
	bool https;
	bool is_mirror; /* wants to know for whom: "?ns=" */
	unsigned caps; /* enum host_caps */
	char **ca_files; /* NULL-terminated, absolute; NULL: none */
	char *ca_pem; /* their contents, by hosts_load() */
	char *client_cert, *client_key; /* files; no key: it is in cert */
	bool skip_verify;
	char **headers; /* "Name: value", NULL-terminated; NULL: none */
	unsigned dial_ms; /* 0: default */
	struct host_health health;
};

struct host_list {
	atomic_uint refs;
	struct host *v; /* in the order in which they are asked */
	size_t n;
	char *error; /* what is wrong with the file; then n is 0 */
	char *file; /* where it came from; NULL: nothing is configured */
	struct host_stamp *stamps; /* what it was made of */
	size_t n_stamps;
};

/*
 * hosts_parse() - the text of a hosts.toml
 * @dir: the folder it lies in, for relative paths and messages
 * @registry: as in an image reference, "docker.io"
 * @ret: CA files are named but not read
 * @e: ERR_INVALID "DIR/hosts.toml:LINE: what is wrong"; ERR_INTERNAL
 *
 * Pure. The last host is the one that "server" names, or the registry itself.
 */
int hosts_parse(const char *dir, const char *registry, const char *text,
		size_t len, struct host_list **ret, struct err *e) must_check;

/*
 * hosts_load() - what is configured for a registry
 * @dirs: folders as /etc/containerd/certs.d, joined with ':'; NULL: none
 *
 * Reads files: job threads only. What is wrong with them is in (*ret)->error;
 * -1 only without memory.
 */
int hosts_load(const char *dirs, const char *registry, struct host_list **ret,
	       struct err *e) must_check;

/* Has anything changed that the list was made of? A few stat(): job threads. */
bool hosts_stale(const struct host_list *l);

struct host_list *hosts_ref(struct host_list *l);
void hosts_unref(struct host_list *l); /* accepts NULL */

DEFINE_OWNED(hosts, struct host_list *, hosts_unref)

#endif
