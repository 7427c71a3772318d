#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC's own implementation against ours, over a fake snapshotter.

peer.py SOCKET ROWS: what a call does is chosen by its key, see grpcserve.
"""
import sys
import time

import grpc
from grpc import StatusCode

import pb
from client import Client, check, fails

SOCKET, ROWS = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20


def many_calls_on_one_connection(c):
    calls = [c.start("Stat", pb.by_key(f"sleep-{i % 7}")) for i in range(200)]
    for i, call in enumerate(calls):
        name = pb.info(pb.parse(call.result())[1][0])["name"]
        check(name == f"sleep-{i % 7}", name)


def slow_prepare_delays_nothing(c):
    slow = [c.start("Prepare", pb.prepare("park-1500")) for _ in range(32)]
    time.sleep(0.1)
    for i in range(20):
        c.call("Stat", pb.by_key(f"k{i}"))
        c.call("Mounts", pb.by_key(f"k{i}"))
    check(len(c.names()) == ROWS)
    check(not any(s.done() for s in slow), "Prepare ended too early: the machine is too slow for this test")
    for s in slow:
        check(pb.mounts(s.result())[0][1] == "park-1500")


def errors_have_code_and_text(c):
    text = "nothing called '100%'\nhere \u044f"
    for kind, code in ((1, StatusCode.INVALID_ARGUMENT), (2, StatusCode.NOT_FOUND), (3, StatusCode.ALREADY_EXISTS),
                       (4, StatusCode.FAILED_PRECONDITION), (5, StatusCode.DATA_LOSS), (6, StatusCode.UNAVAILABLE),
                       (7, StatusCode.PERMISSION_DENIED), (9, StatusCode.RESOURCE_EXHAUSTED)):
        check(fails(code, c.call, "Stat", pb.by_key(f"fail-{kind}")) == text)
    check("Prune" in fails(StatusCode.UNIMPLEMENTED, c.call, "Prune", b""))
    check("malformed" in fails(StatusCode.INVALID_ARGUMENT, c.call, "Stat", b"\x0a\x05x"))


def compression_is_refused(c):
    fails(StatusCode.UNIMPLEMENTED, c.call, "Stat", pb.by_key("k" * 2000), compression=grpc.Compression.Gzip)
    c.call("Stat", pb.by_key("k"))


def big_messages_go_both_ways(c):
    value = "v" * (16 * MIB - 300)
    c.call("Prepare", pb.prepare("big", labels_={"l": value}))
    got = pb.info(pb.parse(c.call("Stat", pb.by_key("big")))[1][0])
    check(got["labels"] == {"l": value}, "labels differ")
    fails(StatusCode.RESOURCE_EXHAUSTED, c.call, "Prepare", pb.prepare("more", labels_={"l": "v" * 16 * MIB}))


def deadline_is_kept(c):
    begin = time.monotonic()
    fails(StatusCode.DEADLINE_EXCEEDED, c.call, "Prepare", pb.prepare("park"), timeout=0.3)
    fails(StatusCode.DEADLINE_EXCEEDED, c.call, "Stat", pb.by_key("sleep-900"), timeout=0.3)
    check(time.monotonic() - begin < 0.9, "late")


def cancelled_and_vanished_clients_hurt_nobody(c):
    call = c.start("Prepare", pb.prepare("park"))
    time.sleep(0.1)
    call.cancel()
    other = Client(SOCKET)
    calls = [other.start("Stat", pb.by_key("sleep-300")) for _ in range(8)]
    pages = other.list()
    next(pages)
    time.sleep(0.1)
    other.close()
    check(all(x.done() for x in calls))
    c.call("Stat", pb.by_key("k"))


def list_is_read_slowly(c):
    pages, n = c.list(), 0
    for i, page in enumerate(pages):
        infos = [pb.info(x) for x in pb.parse(page)[1]]
        check(len(infos) <= 100)
        check(infos[0]["name"] == f"snapshot {n:06}", infos[0])
        n += len(infos)
        if i % 10 == 0:
            time.sleep(0.02)
            c.call("Stat", pb.by_key("k"))  # on the same connection
    check(n == ROWS, n, "rows")


def two_connections_work_together(c):
    others = [Client(SOCKET) for _ in range(8)]
    calls = [o.start("Stat", pb.by_key(f"k{i}")) for i in range(20) for o in others]
    for call in calls:
        call.result()
    for o in others:
        o.close()
    c.call("Stat", pb.by_key("k"))


client = Client(SOCKET)
for test in (many_calls_on_one_connection, slow_prepare_delays_nothing, errors_have_code_and_text,
             compression_is_refused, big_messages_go_both_ways, deadline_is_kept,
             cancelled_and_vanished_clients_hurt_nobody, list_is_read_slowly, two_connections_work_together):
    test(client)
    print("ok", test.__name__)
client.close()
print("client: grpcio", grpc.__version__)
