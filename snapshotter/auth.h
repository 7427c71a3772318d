/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a registry asks of us (WWW-Authenticate), what we have (docker's
 * config.json and its credential helpers), and what goes over the wire.
 * Sources: RFC 9110 section 11; distribution-spec "token authentication";
 * docker/cli config file; docker-credential-helpers protocol.
 *
 * The parsers are pure. Secrets are wiped when they are released, and appear in
 * no message.
 */
#ifndef SNAPSHOTTER_AUTH_H
#define SNAPSHOTTER_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum auth_scheme { AUTH_NONE, AUTH_BASIC, AUTH_BEARER };

struct auth_challenge {
	enum auth_scheme scheme;
	char realm[1024]; /* AUTH_BEARER: the token server's URL */
	char service[256];
	char scope[1024];
};

/*
 * auth_challenge_parse() - the best of the challenges in a header's value
 * @s: any bytes; several challenges joined with commas are taken apart
 * @ret: Bearer before Basic, the first of its kind
 * @e: ERR_UNSUPPORTED: only other schemes; ERR_INVALID: not of the grammar, or
 *     longer than the fields above
 */
int auth_challenge_parse(const char *s, struct auth_challenge *ret,
			 struct err *e) must_check;

struct auth_cred {
	char *user; /* NULL: there are no credentials */
	char *secret;
	bool identity; /* the secret is a token to trade in by POST */
};
void auth_cred_release(struct auth_cred *c); /* wipes */

#define AUTH_HELPER_MAX 64

/*
 * auth_config_find() - what a config.json says about a repository
 * @host: as in an image reference, "docker.io" for Docker Hub
 * @repo: an entry may be for a part of a registry ("quay.io/team"): the longest
 *        that fits wins, and one whose host has a pattern ("*.example.com",
 *        as the kubelet reads it) comes last
 * @ret: ->user stays NULL when it has no credentials itself
 * @ret_helper: name of the helper to ask first, or ""
 * @e: ERR_INVALID, with the place
 */
int auth_config_find(const char *json, size_t len, const char *host,
		     const char *repo, struct auth_cred *ret,
		     char ret_helper[AUTH_HELPER_MAX + 1], struct err *e)
	must_check;

/*
 * auth_config_path() - the @i-th file in which clients keep credentials
 * @path: the only one; NULL: docker's ($DOCKER_CONFIG, $HOME/.docker and
 *        /root/.docker), podman's and skopeo's ($REGISTRY_AUTH_FILE,
 *        /run/containers/0 and $HOME/.config/containers), the kubelet's
 * @buf: "" where a variable is not set
 * -ENOENT: there are no more; -ENAMETOOLONG
 */
int auth_config_path(const char *path, unsigned i, char *buf, size_t size)
	must_check;

/* The first of them, to tell people where to put credentials. */
void auth_config_name(const char *path, char *buf, size_t size);

/*
 * auth_load() - credentials for a repository: files in turn, each with helpers
 * @path: see auth_config_path()
 *
 * 1: found, 0: there are none (also when there is no file), -1: there are none,
 * and @e says what is wrong with a file or helper. Reads files and runs
 * programs for up to ten seconds each: job threads only.
 */
int auth_load(const char *path, const char *host, const char *repo,
	      struct auth_cred *ret, struct err *e) must_check;

/* Value of an Authorization header: "Basic ...". Heap, wipe it. */
int auth_basic(const struct auth_cred *c, char **ret) must_check;

/* The URL of a GET to the token server; @scope: when the challenge has none. */
int auth_token_url(const struct auth_challenge *ch, const char *scope,
		   char **ret) must_check;
/* The body of a POST that trades an identity token in. */
int auth_token_form(const struct auth_challenge *ch, const char *scope,
		    const struct auth_cred *c, char **ret) must_check;

struct auth_token {
	char *token; /* safe to stand in a header */
	unsigned expires_s; /* 60 when the server did not say */
};
/* @json: a token server's answer, any bytes. @e: ERR_INVALID | ERR_INTERNAL */
int auth_token_parse(const char *json, size_t len, struct auth_token *ret,
		     struct err *e) must_check;

/* free() of a string that held a secret. Accepts NULL. */
void secret_free(char *s);

static inline __attribute__((unused)) void owned_cred(struct auth_cred *c)
{
	auth_cred_release(c);
}

DEFINE_OWNED(secret, char *, secret_free)

#endif
