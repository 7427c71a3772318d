#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mklayers.py --packages CACHE, then mklayers.py IMAGE DIR CACHE: the layers of a test image as tar files in DIR.

Prints their paths, lowest first. Deterministic, except for the Debian packages
of `py`, whose file system is kept in CACHE.
"""
import glob
import io
import os
import random
import subprocess
import sys
import tarfile

EPOCH = 1700000000
BUSYBOX = "/bin/busybox"


class Layer:
    def __init__(self, path):
        self.path = path
        self.tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT,
                                encoding="utf-8", errors="surrogateescape")

    def add(self, name, data=b"", kind=tarfile.REGTYPE, mode=0o644, pax=None, **attrs):
        t = tarfile.TarInfo(name)
        t.type, t.mode, t.mtime, t.size = kind, mode, EPOCH, len(data)
        t.pax_headers = pax or {}
        for k, v in attrs.items():
            setattr(t, k, v)
        self.tar.addfile(t, io.BytesIO(data))

    def dir(self, name, mode=0o755, **attrs):
        self.add(name, kind=tarfile.DIRTYPE, mode=mode, **attrs)

    def link(self, name, target, mode=0o644):
        # An unpack gives the mode of the last name to the inode.
        self.add(name, kind=tarfile.LNKTYPE, linkname=target, mode=mode)

    def symlink(self, name, target):
        self.add(name, kind=tarfile.SYMTYPE, mode=0o777, linkname=target)

    def done(self):
        self.tar.close()
        print(self.path)


def busybox(path):
    la = Layer(path)
    for d in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr", "usr/bin"):
        la.dir(d, 0o1777 if d == "tmp" else 0o755)
    with open(BUSYBOX, "rb") as f:
        la.add("bin/busybox", f.read(), mode=0o755)
    for a in ("sh", "cat", "ls", "echo", "id", "stat", "find", "md5sum", "sha256sum",
              "sleep", "test", "dd", "true", "head", "tail", "wc", "cp", "rm", "mv", "touch"):
        la.link("bin/" + a, "bin/busybox", 0o755)
    la.add("etc/passwd", b"root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
    la.add("etc/group", b"root:x:0:\nuser:x:1000:\n")
    la.done()


def hello(d):
    busybox(d + "/0.tar")
    la = Layer(d + "/1.tar")
    la.dir("data")
    la.add("data/one", b"one\n")
    la.add("data/gone", b"removed above\n")
    la.add("data/blob", random.Random(1).randbytes(3 << 20))
    la.dir("data/opaque")
    la.add("data/opaque/below", b"hidden\n")
    la.done()
    la = Layer(d + "/2.tar")
    la.dir("data")
    la.add("data/two", b"two\n")
    la.add("data/.wh.gone")
    la.dir("data/opaque")
    la.add("data/opaque/.wh..wh..opq")
    la.add("data/opaque/above", b"seen\n")
    la.done()


def static_program(d, name, body):
    """A program without libraries: busybox drops what a setuid bit gives it."""
    src, out = f"{d}/{name}.c", f"{d}/{name}"
    with open(src, "w") as f:
        f.write("#include <stdio.h>\n#include <sys/socket.h>\n#include <unistd.h>\nint main(void) { %s }\n" % body)
    subprocess.run(["gcc", "-Os", "-s", "-static", "-o", out, src], check=True)
    with open(out, "rb") as f:
        return f.read()


def odd(d):
    euid = static_program(d, "euid", 'printf("%d\\n", (int)geteuid()); return 0;')
    raw_socket = static_program(d, "raw", 'puts(socket(2, 3, 1) < 0 ? "refused" : "raw"); return 0;')
    busybox(d + "/0.tar")
    la = Layer(d + "/1.tar")
    la.dir("odd")
    la.add("odd/plain", b"plain\n")
    la.add("odd/empty")
    la.add("odd/setuid", euid, mode=0o4755)
    la.add("odd/setgid", b"x", mode=0o2755)
    la.dir("odd/sticky", 0o1777)
    la.add("odd/mode000", b"secret\n", mode=0)
    la.add("odd/uid", b"u", uid=4000000000, gid=3999999999)
    la.dir("odd/dir2", 0o700)
    la.link("odd/hl-a", "odd/plain")
    la.link("odd/dir2/hl-b", "odd/plain")
    la.symlink("odd/sym", "plain")
    la.symlink("odd/sym-dangling", "../../../nowhere")
    la.symlink("odd/sym-long", "x" * 300)
    la.add("odd/chr", kind=tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3)
    la.add("odd/blk", kind=tarfile.BLKTYPE, mode=0o660, devmajor=259, devminor=70000)
    la.add("odd/fifo", kind=tarfile.FIFOTYPE)
    la.add("odd/" + "n" * 255, b"long name\n")
    la.add("odd/utf8-\u00e9\u4e2d", b"utf8\n")
    la.add("odd/xattr", b"x", pax={"SCHILY.xattr.user.one": "1", "SCHILY.xattr.user.long": "v" * 3000})
    # cap_net_raw=ep: what ping has
    la.add("odd/cap", raw_socket, mode=0o755,
           pax={"SCHILY.xattr.security.capability": "\1\0\0\2\0\x20" + "\0" * 14})
    la.dir("odd/replaced")
    la.add("odd/replaced/old", b"old\n")
    la.add("odd/file-then-dir", b"file\n")
    la.done()
    la = Layer(d + "/2.tar")
    la.dir("odd")
    la.add("odd/.wh.empty")
    la.add("odd/.wh.replaced")
    la.dir("odd/file-then-dir")
    la.add("odd/file-then-dir/in", b"in\n")
    la.done()
    busybox(d + "/3.tar")


def many(d):
    busybox(d + "/0.tar")
    rnd = random.Random(50)
    la = Layer(d + "/1.tar")
    la.dir("many")
    for i in range(50000):
        if i % 100 == 0:
            la.dir("many/%03d" % (i // 100))
        size = min(int(rnd.lognormvariate(7.2, 1.0)), 60000)
        la.add("many/%03d/f%05d" % (i // 100, i), rnd.randbytes(size // 2) + b"a" * (size - size // 2))
    la.done()


def weights(rnd, size):
    """Like model weights: compresses by a fifth."""
    return bytes(b for pair in zip(rnd.randbytes(size // 2), rnd.choices(range(58, 64), k=size // 2)) for b in pair)


def big(d):
    busybox(d + "/0.tar")
    rnd = random.Random(7)
    block = weights(rnd, 4 << 20)
    for name, n in (("big", 256), ("mid", 32)):
        la = Layer(d + "/%s.tar" % name)
        # Each 4 MiB differs, so that nothing is found twice.
        la.add(name + ".bin", b"".join(rnd.randbytes(1 << 20) + block[i % 64:] + block[:i % 64]
                                       for i in range(n))[:n << 22], mode=0o644)
        la.done()


def packages(cache):
    """A Debian with Python from this machine's own package sources."""
    os.makedirs(cache, exist_ok=True)
    tar = cache + "/py.tar"
    if os.path.exists(tar):
        return
    sources = [f for f in glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*")
               if os.path.getsize(f)]
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase",
                    "--aptopt=Acquire::Check-Valid-Until \"false\"",
                    "--include=python3-minimal,python3,python3-yaml,python3-numpy",
                    "--dpkgopt=path-exclude=/usr/share/man/*", "bookworm", tar + ".tmp.tar"] + sources,
                   check=True, stdout=sys.stderr)
    os.rename(tar + ".tmp.tar", tar)


def py(d, cache):
    tar = cache + "/py.tar"
    # One layer of packages, one of the application: as people build them.
    print(tar)
    la = Layer(d + "/app.tar")
    la.dir("app")
    la.add("app/main.py", b"import json, decimal, ssl, sqlite3, asyncio, http.client, yaml, numpy\n"
                          b"print('imported', numpy.arange(10).sum())\n")
    la.done()


def main():
    if sys.argv[1] == "--packages":
        packages(sys.argv[2])
        return
    image, d, cache = sys.argv[1:4]
    if image == "py":
        py(d, cache)
    else:
        {"hello": hello, "odd": odd, "many": many, "big": big}[image](d)


main()
