#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random bytes and half frames on the daemon's socket, beside a good client.

hostile.py SOCKET: the good client's calls must all be answered meanwhile, and
the daemon must not grow.
"""
import os
import random
import socket
import sys
import threading

from grpc import StatusCode

import pb
from client import Client, check, fails

SOCKET = sys.argv[1]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SEED = int.from_bytes(os.urandom(4), "big")


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def request(stream, method=b"Stat", flags=4):
    path = pb.SERVICE.encode() + method
    head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
            (b"content-type", b"application/grpc")]
    return frame(1, flags, stream, b"".join(literal(n, v) for n, v in head))


HELLO = PREFACE + frame(4, 0, 0)
BODY = b"\0\0\0\0\3\x12\1x"


def inputs(rnd):
    noise = rnd.randbytes(rnd.randrange(1, 5000))
    good = HELLO + request(1) + frame(0, 1, 1, BODY)
    yield noise
    yield HELLO + noise
    yield HELLO + request(1) + frame(0, 0, 1, noise)
    yield good[: rnd.randrange(1, len(good))]  # ends anywhere
    at = rnd.randrange(len(HELLO), len(good))
    yield good[:at] + bytes([rnd.randrange(256)]) + good[at + 1 :]
    yield HELLO + b"".join(request(i) + frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 400, 2))
    yield HELLO + b"".join(frame(6, 0, 0, b"12345678") for _ in range(2000))
    yield HELLO + b"".join(frame(4, 0, 0, b"\0\4\0\0\0\0") for _ in range(2000))
    yield HELLO + frame(1, 0, 1, literal(b"x", b"y")) + b"".join(frame(9, 0, 1, literal(b"x", b"y")) for _ in range(500))
    yield HELLO + b"".join(request(i, b"List", 5) for i in range(1, 60, 2))  # no message


attacks = [0] * 4


def attack(stop, number):
    rnd = random.Random(SEED + number)
    while not stop.is_set():
        for data in inputs(rnd):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(2)
            try:
                s.connect(SOCKET)
                s.sendall(data)
                if rnd.randrange(2):
                    s.settimeout(0.02)
                    s.recv(4096)
            except OSError:
                pass
            s.close()
            attacks[number] += 1


print("seed", SEED)
halves = [socket.socket(socket.AF_UNIX) for _ in range(8)]
for i, s in enumerate(halves):  # these stay, half way through something
    s.connect(SOCKET)
    s.sendall((HELLO + request(1) + frame(0, 1, 1, BODY))[: 10 + 17 * i])
client = Client(SOCKET)
stop = threading.Event()
attackers = [threading.Thread(target=attack, args=(stop, i)) for i in range(4)]
for t in attackers:
    t.start()
n = 0
try:
    for i in range(150):
        key = f"ns/1/extract-{i} \u044f"
        mount = pb.mounts(client.call("Prepare", pb.prepare(key)))
        check(mount[0][0] == "bind" and mount[0][2][0] == "rw", mount)
        check(pb.mounts(client.call("Mounts", pb.by_key(key))) == mount)
        check(key in client.names())
        # Stat while a List is open, as containerd's own suite does
        for page in client.list():
            for name in (pb.info(x)["name"] for x in pb.parse(page)[1]):
                client.call("Stat", pb.by_key(name))
        check("\u044f" in fails(StatusCode.NOT_FOUND, client.call, "Stat", pb.by_key(key + "\u044f")))
        client.call("Remove", pb.by_key(key))
        n += 6
finally:
    stop.set()
    for t in attackers:
        t.join()
fails(StatusCode.INVALID_ARGUMENT, client.call, "Prepare", pb.prepare("a\0b"))
fails(StatusCode.INVALID_ARGUMENT, client.call, "Prepare", pb.prepare("k" * 4097))
fails(StatusCode.INVALID_ARGUMENT, client.call, "Update", pb.field(1, "verity"))
client.close()
check(min(attacks) > 20, "too few attacks", attacks)
print(n, "calls beside", sum(attacks), "hostile connections")
