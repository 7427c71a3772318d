# SPDX-License-Identifier: Apache-2.0
"""What a neighbour asks of the daemon, without containerd between.

calls.py rounds SOCKET N [FILE]    N lives of an ordinary snapshot, one after the
                                   other; FILE: a line "METHOD MS" for each call
calls.py pulls SOCKET N IMAGE LABELS   N Prepares of layers of IMAGE, whose registry
                                   asks for patience; meanwhile all other calls, and
                                   a Prepare with LABELS (JSON), which is lazy

Every call has a minute: who hangs is not slow, and slow is no failure.
"""
import hashlib
import json
import os
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../grpc"))
import pb  # noqa: E402
from client import Client, check  # noqa: E402

REF = "containerd.io/snapshot.ref"
FAMILY = "containerd.io/snapshot/cri."
TOC = "containerd.io/snapshot/stargz/toc.digest"


class Rounds:
    """The life of a snapshot: each method once, and what it says."""

    def __init__(self, client, times=None):
        self.client, self.times = client, times

    def call(self, method, request):
        begin = time.monotonic()
        answer = self.client.call(method, request)
        if self.times:
            print(method, f"{(time.monotonic() - begin) * 1000:.3f}", file=self.times)
        return answer

    def one(self, name):
        mounts = pb.mounts(self.call("Prepare", pb.prepare(name + "-active")))
        upper = mounts[0][1] if mounts[0][0] == "bind" else dict(o.partition("=")[::2] for o in mounts[0][2])["upperdir"]
        with open(os.path.join(upper, "file"), "w", encoding="ascii") as f:
            f.write("x" * 10000)
        self.call("Mounts", pb.by_key(name + "-active"))
        self.call("Usage", pb.by_key(name + "-active"))
        self.call("Commit", pb.field(1, "verity") + pb.field(2, name) + pb.field(3, name + "-active"))
        info = pb.info(pb.parse(self.call("Stat", pb.by_key(name)))[1][0])
        check(info["kind"] == 3, "committed", info)
        self.call("View", pb.prepare(name + "-view", name))
        begin = time.monotonic()
        names = self.client.names(timeout=60)
        if self.times:
            print("List", f"{(time.monotonic() - begin) * 1000:.3f}", file=self.times)
        check(name in names and name + "-view" in names, "List:", names)
        for key in (name + "-view", name):
            self.call("Remove", pb.by_key(key))
        self.call("Cleanup", pb.field(1, "verity"))
        check(name not in self.client.names(timeout=60), name, "was removed")


def layer_labels(image, i):
    """As a client has them for a layer of eStargz; one that nobody has."""
    def digest(what):
        return "sha256:" + hashlib.sha256(f"{what} {i}".encode()).hexdigest()

    return {
        REF: digest("chain"),
        FAMILY + "image-ref": image,
        FAMILY + "layer-digest": digest("layer"),
        FAMILY + "image-layers": digest("layer"),
        TOC: digest("toc"),
    }


def pulls(client, n, image, lazy):
    calls = [client.start("Prepare", pb.prepare(f"wait-{i}", labels_=layer_labels(image, i))) for i in range(n)]
    # One connection: what follows comes to the daemon behind all of these.
    other = Client(sys.argv[2])
    for c, name in ((client, "same"), (other, "other")):
        for i in range(3):
            Rounds(c).one(f"{name}-{i}")
    try:
        other.call("Prepare", pb.prepare("lazy", labels_=lazy))
        check(False, "the layer of the other registry is not lazy")
    except grpc.RpcError as e:
        check(e.code() == grpc.StatusCode.ALREADY_EXISTS, "the layer of the other registry:", e.details())
    check(not any(c.done() for c in calls), "a Prepare was answered although its registry asks for patience")
    for c in calls:
        c.cancel()
    Rounds(other).one("afterwards")
    print(f"{n} Prepares waited")


def main():
    command, socket, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    client = Client(socket)
    if command == "rounds":
        times = open(sys.argv[4], "w", encoding="ascii") if len(sys.argv) > 4 else None
        rounds = Rounds(client, times)
        for i in range(n):
            rounds.one(f"round-{os.getpid()}-{i}")
    else:
        pulls(client, n, sys.argv[4], json.loads(sys.argv[5]))
    client.close()


main()
