/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client on one unix socket, for one thread that has nothing else to do:
 * calls block, and while one waits, the messages of the subscriptions that were
 * opened on the same connection are delivered. The only client-side user of
 * nghttp2.
 *
 * Memory is bounded: by GRPC_MESSAGE_MAX for each open call, and by what the
 * callbacks keep. Any error of a connection ends it: the owner closes it and
 * opens another.
 */
#ifndef RPC_CLIENT_H
#define RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/err.h"
#include "rpc/grpc.h"

struct rpc_client;

/*
 * One message of the answer, checked by wire_check(), valid during the call.
 * 0: go on; -1 with @e: the call ends with that. No calls from within.
 */
typedef int (*rpc_message_fn)(void *ctx, const ProtobufCMessage *m,
			      struct err *e);

struct rpc_method {
	const char *path; /* "/package.Service/Method" */
	const ProtobufCMessageDescriptor *answer;
};

/*
 * rpc_client_open() - connect
 * @stop_fd: readable (an eventfd): every wait ends with ERR_CANCELLED. Borrowed
 * @e: ERR_UNAVAILABLE: nobody listens there
 */
int rpc_client_open(const char *path, int stop_fd, struct rpc_client **ret,
		    struct err *e) must_check;
/* The same on a connected socket. Consumes @fd, also on failure. */
int rpc_client_new(int fd, int stop_fd, struct rpc_client **ret, struct err *e)
	must_check;
void rpc_client_close(struct rpc_client *c); /* accepts NULL */

/*
 * rpc_call() - send a request, take all messages of the answer
 * @ns: of containerd, sent as a header; NULL: none
 * @deadline_ms: from now
 *
 * ERR_NOT_FOUND: the server says so. ERR_UNAVAILABLE: another error of the
 * server; the connection may be used further unless rpc_client_is_broken(), as
 * it is when the deadline has passed. What @fn said.
 */
int rpc_call(struct rpc_client *c, const struct rpc_method *m, const char *ns,
	     const ProtobufCMessage *request, rpc_message_fn fn, void *ctx,
	     unsigned deadline_ms, struct err *e) must_check;

/* Opens a call that does not end: @fn is called from within rpc_call() and
 * rpc_client_wait(). Its end breaks the connection. Lives as long as that. */
int rpc_subscribe(struct rpc_client *c, const struct rpc_method *m,
		  const ProtobufCMessage *request, rpc_message_fn fn, void *ctx,
		  struct err *e) must_check;

/*
 * rpc_client_wait() - until a message of a subscription has come, @fd is
 * readable, or the time is over
 * @fd: -1: none
 *
 * -1: ERR_CANCELLED, or the connection has broken: ERR_UNAVAILABLE.
 */
int rpc_client_wait(struct rpc_client *c, int fd, unsigned timeout_ms,
		    struct err *e) must_check;

bool rpc_client_is_broken(const struct rpc_client *c);

#endif
