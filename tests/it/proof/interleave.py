#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every order in which two images that claim one chain id can ask and look.

interleave.py SOCKET REF HONEST EVIL: as containerd does it, Prepare comes
first, and who is told AlreadyExists lists by (ref, parent) and takes the first
row. HONEST and EVIL are "image-ref layer-digest toc-digest".
"""
import os
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "grpc"))
import pb  # noqa: E402
from client import Client, check  # noqa: E402

SOCKET, REF, HONEST, EVIL = sys.argv[1:5]
PREFIX = "containerd.io/snapshot/"
LAYER = PREFIX + "cri.layer-digest"
COMMITTED = 3


def labels(image):
    ref, layer, toc = image.split()
    return {"containerd.io/snapshot.ref": REF, PREFIX + "cri.image-ref": ref, LAYER: layer,
            PREFIX + "cri.image-layers": layer, PREFIX + "stargz/toc.digest": toc}


class Pull:
    """One image pulled in a namespace of its own, step by step."""

    def __init__(self, c, ns, image):
        self.c, self.image, self.key = c, image, f"{ns}/1/extract-1 {REF}"
        self.name, self.layer = f"{ns}/2/{REF}", image.split()[1]
        self.call = None

    def ask(self):
        self.call = self.c.start("Prepare", pb.prepare(self.key, labels_=labels(self.image)))

    def is_lazy(self):
        """Prepare's answer: AlreadyExists, or mounts for an unpack."""
        try:
            check(pb.mounts(self.call.result()), "no mounts")
            return False
        except grpc.RpcError as e:
            check(e.code() == grpc.StatusCode.ALREADY_EXISTS, e.code(), e.details())
            return True

    def look(self):
        """The layer of the row that containerd would take; None: there is none."""
        seen = [pb.info(i) for page in self.c.list(filters=[f'labels."containerd.io/snapshot.ref"=={REF},parent==""'])
                for i in pb.parse(page).get(1, [])]
        rows = [r for r in seen if r["kind"] == COMMITTED]
        check(len(rows) <= 1, "two rows show the ref:", rows)
        return rows[0]["labels"][LAYER] if rows else None

    def unpack(self):
        """What follows ordinary mounts. (containerd checks the diff_id before.)"""
        self.c.call("Commit", pb.field(1, "verity") + pb.field(2, self.name) + pb.field(3, self.key) +
                    pb.labels(4, labels(self.image)))


def forget(c):
    for name in sorted(c.names(), reverse=True):
        c.call("Remove", pb.by_key(name))
    c.call("Cleanup", pb.field(1, "verity"))
    time.sleep(1)  # for the sweeper: it must not take a layer that the next order has just got


def first_asks_and_looks(c, first, second):
    first.ask()
    check(first.is_lazy(), "the first is lazy")
    check(first.look() == first.layer)
    second.ask()
    check(not second.is_lazy(), "the second met an unproven row of another layer")


def both_ask_then_look(c, first, second):
    first.ask()
    check(first.is_lazy())
    second.ask()
    check(not second.is_lazy())
    check(first.look() == first.layer, "the first looks after the second has asked")


def both_at_once(c, first, second):
    first.ask()
    second.ask()
    lazy = [p for p in (first, second) if p.is_lazy()]
    check(len(lazy) == 1, "lazy:", len(lazy))
    check(lazy[0].look() == lazy[0].layer)


def the_unpacked_one_takes_the_ref(c, first, second):
    first.ask()
    check(first.is_lazy())
    second.ask()
    check(not second.is_lazy())
    second.unpack()
    check(first.look() == second.layer, "a row that containerd unpacked itself is trusted")


def main():
    c = Client(SOCKET)
    n = 0
    for order in (first_asks_and_looks, both_ask_then_look, both_at_once, the_unpacked_one_takes_the_ref):
        for a, b in ((HONEST, EVIL), (EVIL, HONEST)):
            order(c, Pull(c, "one", a), Pull(c, "two", b))
            forget(c)
            n += 1
    print(n, "orders")


main()
