/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC server: a listening unix socket, its connections, and the calls
 * that are on their way. Everything here belongs to the loop thread; the
 * calls' work is done by the workers.
 */
#ifndef PLUGIN_SERVER_H
#define PLUGIN_SERVER_H

#include "base/err.h"
#include "plugin/loop.h"
#include "plugin/worker.h"

struct server;
struct snapshotter;

struct server_opts {
	/* all three must outlive the server */
	struct loop *loop;
	struct workers *workers;
	struct snapshotter *snapshotter;
	int listen_fd; /* bound and listening; consumed, also on failure */
};

/**
 * server_open() - serve containerd.services.snapshots.v1 on a socket
 * @e: ERR_INTERNAL
 *
 * Requests are answered while loop_run() runs.
 */
int server_open(const struct server_opts *o, struct server **ret, struct err *e)
	must_check;

/**
 * server_close() - stop gracefully
 * @grace_ms: how long running calls may take to reach their clients
 *
 * Call it after loop_run() has returned: it turns the loop itself. New
 * connections and calls are refused from the start, parked Prepares are told
 * that their budget is over. After the grace time the connections are closed,
 * but a call that is in a worker is waited for (it is bounded by the disk):
 * when this returns nothing refers to the snapshotter any more. NULL is fine.
 */
void server_close(struct server *s, unsigned grace_ms);

/* Calls that have not ended, including those whose client has gone. */
unsigned server_n_calls(const struct server *s);
unsigned server_n_conns(const struct server *s);

#endif
