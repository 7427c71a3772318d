/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is read of a request, without HTTP/2 around it: framing,
 * grpc-timeout, protobuf. The first byte chooses the type of the message.
 */
#include <string.h>

#include "proto/snapshots.pb-c.h"
#include "rpc/grpc.h"
#include "rpc/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TYPE(x) &containerd__services__snapshots__v1__##x##__descriptor

static const ProtobufCMessageDescriptor *const requests[] = {
	TYPE(prepare_snapshot_request),
	TYPE(view_snapshot_request),
	TYPE(mounts_request),
	TYPE(commit_snapshot_request),
	TYPE(remove_snapshot_request),
	TYPE(stat_snapshot_request),
	TYPE(update_snapshot_request),
	TYPE(list_snapshots_request),
	TYPE(usage_request),
	TYPE(cleanup_request),
};

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void fuzz_texts(const uint8_t *data, size_t size)
{
	char text[64], out[3 * sizeof(text) + 1];
	uint64_t us;

	if (size >= sizeof(text))
		size = sizeof(text) - 1;
	memcpy(text, data, size);
	text[size] = '\0';
	if (grpc_timeout_parse(text, &us) == 0)
		require(us <= 360000000000000000);
	(void)grpc_is_content_type(text);
	grpc_percent_encode(text, out, sizeof(out));
	for (const char *p = out; *p; p++)
		require(*p >= 0x20 && *p <= 0x7e);
	require(out[0] != ' ');
}

/* In two pieces: the result must not depend on where they meet. */
static void fuzz_framing(const uint8_t *data, size_t size, size_t cut)
{
	struct grpc_reader whole = { 0 }, parts = { 0 };
	struct grpc_status a = { 0 }, b = { 0 };
	int ra = grpc_reader_feed(&whole, data, size, &a), rb;

	if (cut > size)
		cut = size;
	rb = grpc_reader_feed(&parts, data, cut, &b);
	if (rb == 0)
		rb = grpc_reader_feed(&parts, data + cut, size - cut, &b);
	require(ra == rb && a.code == b.code);
	if (ra == 0) {
		require(whole.msg.len == parts.msg.len);
		ra = grpc_reader_end(&whole, &a);
		rb = grpc_reader_end(&parts, &b);
		require(ra == rb && a.code == b.code);
	}
	grpc_reader_release(&whole);
	grpc_reader_release(&parts);
}

/* A stream of messages comes to the same whatever pieces it comes in. */
static size_t take_all(const uint8_t *data, size_t size, size_t piece,
		       size_t *ret_bytes)
{
	struct grpc_reader rd = { 0 };
	struct grpc_status st = { 0 };
	size_t n = 0, used;
	int r = 0;

	for (*ret_bytes = 0; size && r >= 0; data += used, size -= used) {
		r = grpc_reader_take(&rd, data, piece < size ? piece : size,
				     &used, &st);
		if (r < 0)
			break;
		require(used <= size && (used > 0 || r > 0));
		if (r == 0)
			continue;
		n++;
		*ret_bytes += rd.msg.len;
		grpc_reader_release(&rd);
	}
	grpc_reader_release(&rd);
	return n;
}

static void fuzz_stream(const uint8_t *data, size_t size, size_t piece)
{
	size_t a, b, n = take_all(data, size, size, &a);

	require(take_all(data, size, piece + 1, &b) == n && a == b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ProtobufCMessage *msg = NULL;
	struct err e = ERR_INIT;

	if (size < 2)
		return 0;
	fuzz_texts(data + 1, size - 1);
	fuzz_framing(data + 2, size - 2, data[1]);
	fuzz_stream(data + 2, size - 2, data[1]);
	if (wire_unpack(requests[data[0] % ARRAY_LEN(requests)], data + 1,
			size - 1, &msg, &e) == 0)
		protobuf_c_message_free_unpacked(msg, NULL);
	else /* what passes the check is what protobuf-c can take */
		require(e.kind == ERR_INVALID);
	return 0;
}
