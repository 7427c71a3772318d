/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the bytes of a request to those of its answer: path -> unpack ->
 * snapshotter -> pack. The only place that maps enum err_kind to gRPC codes
 * and the only user of the generated messages.
 */
#ifndef PLUGIN_METHODS_H
#define PLUGIN_METHODS_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "rpc/grpc.h"
#include "snapshotter/labels.h"

struct method;
struct prepare_op;
struct snapshotter;

#define METHOD_PAGE 100u /* snapshots in one message of List */

/* The method with a :path of HTTP/2, or NULL; its name, as in "Prepare". */
const struct method *method_find(const char *path);
const char *method_name(const struct method *m);

enum method_next {
	METHOD_END, /* .status says how; .out holds the last message, if any */
	METHOD_PARKED, /* wait for ready(), then call method_step() again */
	METHOD_MORE, /* send .out, then call method_step() again */
};

/* One call. The owner fills the first part before the first step. */
struct method_call {
	const struct method *method;
	struct snapshotter *snapshotter;
	struct buf request; /* the message; freed by the first step */
	void (*ready)(void *ctx); /* any thread */
	void *ready_ctx;

	/* results of a step */
	struct buf out; /* messages with their prefixes */
	struct grpc_status status;
	struct prepare_op *op; /* METHOD_PARKED; for ..._expire() */

	/* private */
	ProtobufCMessage *msg;
	struct labels labels;
	uint64_t cursor;
};

/*
 * method_step() - the next part of a call; worker threads only
 *
 * Unary methods take one step, Prepare and View two when a layer is being made
 * ready, List one for each page. After METHOD_PARKED a second step must follow
 * (once ready() was called), whether or not anybody wants the result.
 */
enum method_next method_step(struct method_call *c);
void method_call_release(struct method_call *c);

enum grpc_code grpc_code_of(enum err_kind kind);

#endif
