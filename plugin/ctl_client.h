/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the daemon at RUN/control.sock; the protocol is in control.h. */
#ifndef PLUGIN_CTL_CLIENT_H
#define PLUGIN_CTL_CLIENT_H

#include <json-c/json.h>

#include "base/buf.h"
#include "base/err.h"

/**
 * ctl_ask() - one request, one document
 * @run:     run-time files of the daemon
 * @request: with its newline
 * @answer:  as it came, for --json; may hold a part of it on failure
 * @ret:     the same, parsed; for json_object_put()
 *
 * Blocks until the daemon has answered, or was silent for 30 seconds.
 * ERR_UNAVAILABLE: nobody listens there, or nobody answers. ERR_INVALID: what
 * came is no document, or is {"error": ...}.
 */
int ctl_ask(const char *run, const char *request, struct buf *answer,
	    struct json_object **ret, struct err *e) must_check;

/**
 * ctl_ask_text() - one request whose answer is text
 * @request: with its newline
 * @answer:  all of it; may hold a part of it on failure
 *
 * As ctl_ask(), for answers that are no document unless they are an error.
 */
int ctl_ask_text(const char *run, const char *request, struct buf *answer,
		 struct err *e) must_check;

#endif
