/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that answers anything: the input is what comes on the socket behind
 * our request, until it is closed. The first byte chooses the kind of answer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/containerd.pb-c.h"
#include "rpc/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATIENCE_MS 60000

static int on_message(void *ctx, const ProtobufCMessage *m,
		      struct err *e unused_arg)
{
	const ProtobufCMessageDescriptor *want = ctx;

	if (m->descriptor != want)
		abort();
	return 0;
}

static void fuzz(const uint8_t *data, size_t size,
		 const ProtobufCMessageDescriptor *answer)
{
	const struct rpc_method m = { "/a.B/C", answer };
	Containerd__GetImageRequest rq = CONTAINERD__GET_IMAGE_REQUEST__INIT;
	void *ctx = (void *)(uintptr_t)answer;
	struct rpc_client *c = NULL;
	struct err e = ERR_INIT;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	if (write(fds[1], data, size) != (ssize_t)size ||
	    shutdown(fds[1], SHUT_WR) < 0 ||
	    rpc_client_new(fds[0], -1, &c, &e) < 0)
		abort();
	if (rpc_subscribe(c, &m, &rq.base, on_message, ctx, &e) == 0 &&
	    rpc_call(c, &m, "ns", &rq.base, on_message, ctx, PATIENCE_MS, &e) <
		    0 &&
	    (e.kind == ERR_NONE || !e.msg[0]))
		abort();
	/* It was closed: sooner or later that is seen. */
	while (rpc_client_wait(c, -1, PATIENCE_MS, &e) == 0)
		;
	if (!rpc_client_is_broken(c) || e.kind == ERR_NONE || !e.msg[0])
		abort();
	rpc_client_close(c);
	(void)close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const ProtobufCMessageDescriptor *const answers[] = {
		&containerd__list_namespaces_response__descriptor,
		&containerd__list_images_response__descriptor,
		&containerd__get_image_response__descriptor,
		&containerd__read_content_response__descriptor,
		&containerd__envelope__descriptor,
	};

	/* More than a socket's buffer takes would have nobody to write it. */
	if (size < 1 || size > 100000)
		return 0;
	fuzz(data + 1, size - 1, answers[data[0] % ARRAY_LEN(answers)]);
	return 0;
}
