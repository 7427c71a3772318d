/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker-credential-NAME, a program that knows passwords.
 * Source: docker-credential-helpers, "get": the server's URL on stdin, JSON
 * {"ServerURL", "Username", "Secret"} on stdout.
 */
#ifndef SNAPSHOTTER_CREDHELPER_H
#define SNAPSHOTTER_CREDHELPER_H

#include "snapshotter/auth.h"

#define CREDHELPER_MS 10000

/*
 * credhelper_get() - ask a helper
 * @name: letters, digits, '.', '_', '-' only; looked up in PATH
 * @limit_ms: the program and its children are killed then; 0: ten seconds
 *
 * 1: found, 0: it does not know the server, -1: ERR_INVALID (name, answer),
 * ERR_UNAVAILABLE (does not run, fails, takes too long). Blocks for up to
 * @limit_ms: job threads only. The program gets no descriptor of ours but a
 * pipe each way.
 */
int credhelper_get(const char *name, const char *server, unsigned limit_ms,
		   struct auth_cred *ret, struct err *e) must_check;

/* The parser of its answer, for tests and fuzzing. As above. */
int credhelper_parse(const char *json, size_t len, struct auth_cred *ret,
		     struct err *e) must_check;

#endif
