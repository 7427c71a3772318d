/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics over TCP, for a Prometheus that cannot reach the control socket:
 * GET /metrics, and nothing else. libmicrohttpd has one thread for it, which
 * takes none of our locks, and closes who is silent for ten seconds or is the
 * seventeenth. What it tells is in base/metrics.h: no names, no credentials.
 */
#ifndef PLUGIN_METRICS_HTTP_H
#define PLUGIN_METRICS_HTTP_H

#include <sys/socket.h>

#include "base/err.h"

#define METRICS_PATH "/metrics"

struct metrics_http;

/* "127.0.0.1:9099" or "[::1]:9099": no name that would have to be resolved.
 * ERR_INVALID */
int metrics_http_parse(const char *address, struct sockaddr_storage *ret,
		       socklen_t *ret_len, struct err *e) must_check;

/* @address: as above. ERR_INVALID, or ERR_INTERNAL: it cannot be bound. */
int metrics_http_open(const char *address, struct metrics_http **ret,
		      struct err *e) must_check;
/* Ends all connections and the thread; accepts NULL. */
void metrics_http_close(struct metrics_http *m);

#endif
