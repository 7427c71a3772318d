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
import struct
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

    def link(self, name, target, mode=0o644, **attrs):
        # An unpack gives the attributes of the last name to the inode.
        self.add(name, kind=tarfile.LNKTYPE, linkname=target, mode=mode, **attrs)

    def symlink(self, name, target, **attrs):
        self.add(name, kind=tarfile.SYMTYPE, mode=0o777, linkname=target, **attrs)

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
    if not glob.glob(cache + "/python3-pip-whl_*.deb"):
        # For a test that runs pip; the image does not need it.
        subprocess.run(["apt-get", "-qq", "download", "python3-pip-whl"], cwd=cache, stderr=subprocess.DEVNULL)
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


# ---- trees that are compared path by path with an unpack (tests/it/tree) ----


def acl(*entries):
    """The kernel's form of an ACL, from (tag, permissions, id)"""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


NO_ID = 0xffffffff
ACL_RWX = acl((1, 7, NO_ID), (2, 5, 1000), (4, 5, NO_ID), (16, 5, NO_ID), (32, 5, NO_ID))


def xattrs(**values):
    """PAX records; a name's "_" stands for its first dot"""
    return {"SCHILY.xattr." + k.replace("_", ".", 1): v.decode("utf-8", "surrogateescape")
            for k, v in values.items()}


def attrs(d):
    """Modes, owners, times, devices, extended attributes, ACLs"""
    la = Layer(d + "/0.tar")
    la.dir("./", 0o751, uid=33, gid=34)
    for mode in (0, 0o1, 0o444, 0o600, 0o755, 0o777, 0o1755, 0o2755, 0o4755, 0o6711, 0o7777):
        la.add("f%04o" % mode, b"x", mode=mode)
        la.dir("d%04o" % mode, mode)
        la.add("d%04o/in" % mode, b"y", mode=0o640, uid=5, gid=6)
        la.add("p%04o" % mode, kind=tarfile.FIFOTYPE, mode=mode)
    for i, (u, g) in enumerate(((1, 2), (65534, 65533), (65536, 100000), (2147483648, 4294967294))):
        la.add("owner%d" % i, b"u", uid=u, gid=g, mode=0o4755)
        la.dir("ownerd%d" % i, uid=u, gid=g)
        la.symlink("owners%d" % i, "x", uid=u, gid=g)
    for major, minor in ((1, 3), (0, 1), (8, 255), (8, 256), (259, 70000), (4095, 1048575)):
        la.add("chr%d-%d" % (major, minor), kind=tarfile.CHRTYPE, mode=0o666, devmajor=major, devminor=minor)
        la.add("blk%d-%d" % (major, minor), kind=tarfile.BLKTYPE, mode=0o660, devmajor=major, devminor=minor,
               uid=7, gid=8)
    # To overlayfs this is a whiteout, whoever brings it.
    la.add("chr0-0", kind=tarfile.CHRTYPE, mode=0o600)
    times = {"epoch": 0, "one": 1, "before": -86400, "y2038": 2147483648, "y2106": 4294967296, "y2200": 7258118400,
             "y2500": 16725225600, "below": 1700000000.4, "above": 1700000000.6, "nanosecond": 1700000000.123456789}
    for name, t in times.items():
        la.add("time-" + name, b"t", mtime=t)
        la.dir("timed-" + name, mtime=t)
        la.symlink("times-" + name, "x", mtime=t)
    cap2 = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    cap3 = struct.pack("<IIIIII", 0x03000001, 1 << 10, 0, 0, 0, 1000)
    la.add("cap2", b"c", mode=0o755, pax=xattrs(security_capability=cap2))
    la.add("cap3", b"c", mode=0o755, uid=9, pax=xattrs(security_capability=cap3))
    la.add("capsuid", b"c", mode=0o6755, uid=9, pax=xattrs(security_capability=cap2))
    la.add("x", b"x", pax=xattrs(user_one=b"1", user_empty=b"", user_long=b"v" * 3000, security_mine=b"s",
                                 **{"user_a.b.c": b"dots", "user_\u00e9": b"utf8"}))
    la.add("x-binary", b"x", pax=xattrs(user_b=bytes(range(256))))
    la.add("x-ignored", b"x", pax=xattrs(trusted_mine=b"t", unknown_space=b"u", user_kept=b"k"))
    la.add("x-overlay", b"x", pax=xattrs(**{"user_overlay.mine": b"o"}))
    la.dir("x-dir", pax=xattrs(user_d=b"dir"))
    la.symlink("x-symlink", "x", pax=xattrs(user_no=b"n", security_yes=b"y"))
    la.add("x-fifo", kind=tarfile.FIFOTYPE, pax=xattrs(user_no=b"n", security_yes=b"y"))
    la.add("x-many", b"x", pax=xattrs(**{"user_%03d" % i: b"%d" % i for i in range(100)}))
    # ACLs: as tar writes them, at odds with the mode, without need, with names
    la.add("acl", b"a", mode=0o755, pax=xattrs(**{"system_posix_acl_access": ACL_RWX}))
    la.add("acl-odds", b"a", mode=0o620, pax=xattrs(**{"system_posix_acl_access": ACL_RWX}))
    la.add("acl-minimal", b"a", mode=0o640, pax=xattrs(**{
        "system_posix_acl_access": acl((1, 6, NO_ID), (4, 4, NO_ID), (32, 4, NO_ID))}))
    la.add("acl-setuid", b"a", mode=0o4755, pax=xattrs(**{"system_posix_acl_access": ACL_RWX}))
    la.dir("acl-dir", 0o750, pax=xattrs(**{"system_posix_acl_access": ACL_RWX}))
    # A default ACL is what others inherit: also those that the tar made without
    la.dir("acl-default", 0o755, pax=xattrs(**{"system_posix_acl_default": ACL_RWX}))
    la.add("acl-default/own", b"a", mode=0o755, pax=xattrs(**{"system_posix_acl_access": ACL_RWX}))
    la.add("acl-default/heir", b"a", mode=0o640)
    la.add("acl-default/suid", b"a", mode=0o4755)
    la.add("acl-default/fifo", kind=tarfile.FIFOTYPE, mode=0o600)
    la.symlink("acl-default/link", "own")
    la.dir("acl-default/sub", 0o700)
    la.add("acl-default/sub/heir", b"a", mode=0o444)
    la.add("acl-default/implied/heir", b"a", mode=0o444)
    la.dir("acl-late")
    la.add("acl-late/before", b"a")
    la.done()


def names(d):
    """Names and targets of every shape that UTF-8 can have"""
    la = Layer(d + "/0.tar")
    la.dir("n")
    three = "\u4e2d" * 85
    for n in ("n" * 255, three, "new\nline", "tab\tbell\a", "back\\slash", "quote\"'", "-rf", "trailing ", " leading",
              "...", "..x", ".wh", ".whx", "a:b,c;d", "a=b&c<d>e", "\u00e9", "e\u0301", "\u2028\u2029", "\U0001f600",
              "\x7f\x1b[0m", "%s%n", "*?[]", "#~", "CON", "con"):
        la.add("n/" + n, n.encode())
    la.add("./n/dot", b"./\n")
    for n in (1, 59, 60, 255, 256, 1023, 4095):
        la.symlink("n/to%d" % n, ("t" * 200 + "/") * (n // 201) + "t" * (n % 201))
    la.symlink("n/odd-target", "a\nb\\c\u00e9//./../x/")
    la.dir("n/deep")
    path = "n/deep"
    for i in range(18):
        path += "/" + chr(97 + i) * 200
        la.dir(path, 0o750)
    la.add(path + "/leaf", b"3,600 bytes of path\n")
    la.done()


def damaged(d):
    """Names that are not UTF-8: a table of contents in JSON cannot hold them"""
    la = Layer(d + "/0.tar")
    la.add("fine", b"fine\n")
    la.done()
    la = Layer(d + "/1.tar")
    la.dir("b")
    la.add(os.fsdecode(b"b/latin1-\xe9"), b"one\n")
    la.add(os.fsdecode(b"b/latin1-\xe8"), b"two\n")
    la.done()
    la = Layer(d + "/2.tar")
    la.symlink("target", os.fsdecode(b"latin1-\xe9"))
    la.done()


def links(d):
    """Inodes with several names, within a layer and across"""
    la = Layer(d + "/0.tar")
    for n in ("l", "l/a", "l/b", "l/b/c"):
        la.dir(n)
    la.add("l/a/file", b"file\n", mode=0o644)
    la.link("l/b/file", "l/a/file")
    la.link("l/b/c/chain", "l/b/file")
    la.link("l/abs", "/l/a/file")
    la.symlink("l/a/sym", "file")
    la.link("l/b/sym", "l/a/sym", 0o777)
    la.add("l/a/fifo", kind=tarfile.FIFOTYPE)
    la.link("l/b/fifo", "l/a/fifo")
    la.add("l/a/null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3)
    la.link("l/b/null", "l/a/null")
    la.add("l/a/empty")
    la.link("l/b/empty", "l/a/empty")
    # The header of a link has attributes, too: the last one stays.
    cap = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    la.add("l/a/changed", b"c", mode=0o755, pax=xattrs(user_first=b"1", user_both=b"1", security_capability=cap))
    la.link("l/b/changed", "l/a/changed", 0o6711, uid=11, gid=12, mtime=EPOCH + 100,
            pax=xattrs(user_both=b"2", user_last=b"2"))
    la.add("l/a/capable", b"c", mode=0o755, pax=xattrs(security_capability=cap))
    la.link("l/b/capable", "l/a/capable", 0o755, pax=xattrs(security_capability=cap))
    for i in range(100):
        la.link("l/b/c/many%02d" % i, "l/a/null")
    la.done()
    la = Layer(d + "/1.tar")
    la.dir("l")
    la.dir("l/b")
    la.add("l/b/file", b"the upper layer breaks the link\n")
    la.add("l/b/.wh.fifo")
    la.dir("l/new")
    la.add("l/new/x", b"x")
    la.link("l/new/y", "l/new/x")
    la.link("l/a2", "l/new/x")
    la.done()


def merged(d):
    """What layers do to each other"""
    la = Layer(d + "/0.tar")
    for n in ("keep", "opaque", "opaque/sub", "opaque-empty", "to-file", "to-link", "chmod", "gone", "gone/sub", "again",
              "wh-opq", "implied", "implied/a", "deep", "deep/1", "deep/1/2", "acl", "swap-dir"):
        la.dir(n, 0o755)
        la.add(n + "/low", b"low\n")
    la.dir("attr", 0o2711, uid=33, gid=34, mtime=EPOCH - 1000,
           pax=xattrs(user_d=b"dir", **{"system_posix_acl_default": ACL_RWX}))
    la.dir("attr/sub", 0o700, uid=35)
    for n in ("file", "to-dir", "file-gone", "link-to-file", "swap-file"):
        la.add(n, b"low\n")
    la.symlink("link", "file")
    la.symlink("link-to-dir", "keep")
    la.add("fifo-to-file", kind=tarfile.FIFOTYPE)
    la.done()
    Layer(d + "/1-empty.tar").done()
    la = Layer(d + "/2.tar")
    la.add("file", b"middle\n", mode=0o600, uid=3)
    la.dir("opaque", 0o700)
    la.add("opaque/.wh..wh..opq")
    la.add("opaque/middle", b"middle\n")
    la.dir("opaque-empty")
    la.add("opaque-empty/.wh..wh..opq")
    la.add("to-file", b"now a file\n")
    la.add(".wh.to-link")
    la.symlink("to-link", "keep")
    la.add(".wh.to-dir")
    la.dir("to-dir")
    la.add("to-dir/in", b"in\n")
    la.dir("chmod", 0o1700, uid=1, gid=2, mtime=EPOCH + 5)
    la.add(".wh.gone")
    la.add(".wh.file-gone")
    la.add(".wh.never-was")
    la.dir("again")
    la.add("again/.wh.low")
    la.add("link", b"was a link\n")
    la.dir("link-to-dir")
    la.add("link-to-dir/in", b"was a link\n")
    la.add("fifo-to-file", b"was a fifo\n")
    la.dir("deep")
    la.dir("deep/1")
    la.add("deep/1/.wh.2")
    la.dir("wh-opq")
    la.add("wh-opq/.wh..wh..opq")
    la.add("wh-opq/.wh.low")
    la.add("wh-opq/new", b"new\n")
    la.done()
    la = Layer(d + "/3.tar")
    la.dir("gone")
    la.add("gone/back", b"back\n")
    la.dir("again")
    la.add("again/low", b"back again\n")
    la.dir("swap-file")
    la.add("swap-file/in", b"in\n")
    la.add("swap-dir", b"now a file\n")
    la.dir("deep")
    la.dir("deep/1")
    la.dir("deep/1/2")
    la.add("deep/1/2/new", b"new\n")
    la.done()
    # names whose directories are in other layers only, or nowhere
    la = Layer(d + "/4-implied.tar")
    la.add("attr/sub/new", b"new\n")
    la.add("attr/fresh/new", b"new\n")
    la.add("chmod/new", b"new\n")
    la.add("nowhere/at/all", b"new\n")
    la.add("opaque/sub/new", b"new\n")
    la.add("implied/a/.wh.low")
    la.done()
    Layer(d + "/5-empty.tar").done()


def twice(d):
    """The same layer at two places, with changes between"""
    def same(path):
        la = Layer(path)
        la.dir("t")
        la.dir("t/sub")
        la.add("t/one", b"one\n")
        la.add("t/sub/two", b"two\n")
        la.add("t/.wh.old")
        la.done()
    la = Layer(d + "/0.tar")
    la.dir("t")
    la.add("t/old", b"old\n")
    la.add("t/base", b"base\n")
    la.done()
    same(d + "/1.tar")
    la = Layer(d + "/2.tar")
    la.dir("t")
    la.add("t/.wh.one")
    la.add("t/old", b"back\n")
    la.dir("t/sub")
    la.add("t/sub/.wh..wh..opq")
    la.add("t/sub/three", b"three\n")
    la.done()
    same(d + "/3.tar")


def wide(d, n=10000):
    """A directory of many entries; files that are empty, of zeros, of holes"""
    la = Layer(d + "/0.tar")
    la.dir("wide")
    for i in range(n):
        name = "wide/entry-%06d" % i
        if i % 10 == 1:
            la.symlink(name, "entry-%06d" % (i - 1))
        elif i % 10 == 2:
            la.dir(name)
        elif i % 40 == 3:
            la.add(name, b"%d\n" % i)
        elif i % 10 == 4:
            la.link(name, "wide/entry-%06d" % (i - 4))
        else:
            la.add(name)
    la.done()
    la = Layer(d + "/1.tar")
    la.dir("s")
    for size in (0, 1, 511, 512, 513, 4095, 4096, 4097, 131071, 131072, 131073, 4 << 20, (4 << 20) + 1):
        la.add("s/zeros-%d" % size, bytes(size))
        la.add("s/bytes-%d" % size, random.Random(size).randbytes(size))
    holes = bytearray(9 << 20)
    holes[5 << 20:(5 << 20) + 5] = b"islet"
    la.add("s/holes", bytes(holes))
    la.done()


def deep(d):
    """120 layers"""
    for i in range(120):
        la = Layer("%s/%03d.tar" % (d, i))
        la.dir("deep")
        la.add("deep/own-%03d" % i, b"%d\n" % i)
        la.add("deep/common", b"%d\n" % i)
        if i % 3 == 2:
            la.add("deep/.wh.own-%03d" % (i - 1))
        la.done()


def closure(paths):
    """Programs of this machine with what the loader needs for them"""
    files = set(paths)
    for p in paths:
        out = subprocess.run(["ldd", p], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        files |= {w for w in out.split() if w.startswith("/")}
    return sorted(files)


def program32(d):
    """Walks as a program of 1998 does, with 32 bits for an inode number."""
    src = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "it", "tree", "walk32.c")
    subprocess.run(["gcc", "-m32", "-Os", "-s", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie",
                    "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-o", d + "/walk32", src], check=True)
    with open(d + "/walk32", "rb") as f:
        return f.read()


def mapper(d):
    src = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mapped.c")
    subprocess.run(["gcc", "-Os", "-s", "-static", "-o", d + "/mapped", src], check=True)
    with open(d + "/mapped", "rb") as f:
        return f.read()


def tools(d):
    """Programs of this machine, and things to try them on"""
    busybox(d + "/0.tar")
    la = Layer(d + "/1.tar")
    made = set()
    programs = ["/bin/bash", "/bin/cp", "/bin/tar", "/usr/bin/rsync", "/usr/bin/find", "/usr/bin/getfattr",
                "/usr/bin/sha256sum", "/usr/bin/stat", "/usr/bin/sort", "/bin/chmod", "/bin/mknod", "/bin/ln", "/usr/bin/setfattr",
                "/bin/mv", "/bin/rm", "/bin/touch", "/bin/mkdir", "/bin/rmdir", "/usr/bin/mkfifo", "/bin/chown",
                "/bin/dd"]
    for path in closure(programs):
        name = (os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)).lstrip("/")
        if name.startswith("usr/bin/"):
            name = "opt/" + os.path.basename(path)
        parts = name.split("/")
        for i in range(1, len(parts)):
            parent = "/".join(parts[:i])
            if parent not in made:
                made.add(parent)
                la.dir(parent)
        if name in made:
            continue
        made.add(name)
        with open(path, "rb") as f:
            la.add(name, f.read(), mode=0o755)
    la.symlink("lib", "usr/lib")
    la.symlink("lib64", "usr/lib64")
    la.add("opt/walk32", program32(d), mode=0o755)
    la.add("opt/mapped", mapper(d), mode=0o755)
    la.done()
    la = Layer(d + "/2.tar")
    la.dir("t")
    for n in "abcdefgh":
        la.add("t/file-" + n, n.encode() * 5000, mode=0o640, uid=10, gid=11, pax=xattrs(user_n=n.encode()))
        la.dir("t/dir-" + n, 0o2750, uid=10)
        la.add("t/dir-%s/in" % n, b"in\n")
        la.symlink("t/sym-" + n, "file-" + n)
        la.add("t/fifo-" + n, kind=tarfile.FIFOTYPE, mode=0o600)
        la.add("t/dev-" + n, kind=tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)
        la.link("t/link-" + n, "t/file-" + n, 0o640, uid=10, gid=11, pax=xattrs(user_n=n.encode()))
    la.add("t/large", random.Random(3).randbytes(3 << 20))
    la.dir("src")
    la.dir("src/sub")
    for i in range(50):
        la.add("src/f%02d" % i, b"%d\n" % i * 100, mtime=EPOCH + i)
        la.link("src/sub/l%02d" % i, "src/f%02d" % i, mtime=EPOCH + i)
    la.add("src/cap", b"c", mode=0o755, pax=xattrs(
        security_capability=struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)))
    la.symlink("src/sym", "f00")
    la.add("src/fifo", kind=tarfile.FIFOTYPE)
    la.add("src/null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3)
    la.done()


def main():
    if sys.argv[1] == "--packages":
        packages(sys.argv[2])
        return
    image, d, cache = sys.argv[1:4]
    if image == "py":
        py(d, cache)
    else:
        {"hello": hello, "odd": odd, "many": many, "big": big, "attrs": attrs, "names": names, "damaged": damaged,
         "links": links, "merged": merged, "twice": twice, "wide": wide, "deep": deep, "tools": tools,
         "wide100k": lambda d: wide(d, 100000)}[image](d)


main()
