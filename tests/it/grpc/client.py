# SPDX-License-Identifier: Apache-2.0
"""grpcio as the peer: calls by name with bytes in and out."""
import sys

import grpc

import pb

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Client:
    def __init__(self, path, **options):
        self.channel = grpc.insecure_channel(
            "unix:" + path, OPTIONS + [("grpc." + k, v) for k, v in options.items()]
        )

    def start(self, method, request, timeout=None, **more):
        return self.channel.unary_unary(pb.SERVICE + method).future(request, timeout=timeout, **more)

    def call(self, method, request, timeout=60, **more):
        return self.channel.unary_unary(pb.SERVICE + method)(request, timeout=timeout, **more)

    def list(self, filters=(), sn="verity", timeout=None):
        request = pb.field(1, sn) + b"".join(pb.field(2, f) for f in filters)
        return self.channel.unary_stream(pb.SERVICE + "List")(request, timeout=timeout)

    def names(self, **more):
        return [pb.info(i)["name"] for page in self.list(**more) for i in pb.parse(page).get(1, [])]

    def close(self):
        self.channel.close()


def check(condition, *what):
    if not condition:
        print("FAIL:", *what, file=sys.stderr)
        sys.exit(1)


def fails(code, call, *args, **more):
    """The text of the error with which the call must fail."""
    try:
        call(*args, **more)
    except grpc.RpcError as e:
        check(e.code() == code, "code", e.code(), "not", code, e.details())
        return e.details()
    check(False, "no", code, args[0])
    return None
