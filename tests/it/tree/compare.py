#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py [--since T] [--skip PATH]... [--unpacked] [--repeated] PLAIN LAZY: every difference between two trees.

PLAIN is an unpack on a disk, LAZY the same image through the layers view.
Prints a line for each difference, then a summary; exits 1 if there is one.
Compared, for every path:

  listing    names as getdents64 gives them: no doubles, "." and "..", d_type
  lstat      type, mode, uid, gid, nlink, rdev; size of all but directories.
             A layer that is twice in an image is mounted once, so its
             directories are not merged with themselves: with --repeated,
             nlink of a directory may be 1 in PLAIN only
  size, blocks of a directory   where both fit in one block of 4 KiB: beyond,
             each file system has its own. A block more holds attributes
  blocks     of files: no fewer than the unpack has without its own metadata
             (one block of attributes, and 1/256 of mapping)
  mtime      to the second that is nearest, as the format keeps it; not of the
             root (made by the snapshotter), nor of directories that the unpack
             itself has touched (later than T: counted in the summary), nor of
             what is later than T in both
  xattrs     all that listxattr shows, with values
  links      which paths are one inode
  symlinks   targets        files      SHA-256 of the contents
  st_ino     of LAZY fits in 32 bits

Landmarks and table of contents, which an unpack leaves in the root, are not
part of the image; they are taken out of PLAIN, and of LAZY where some of its
layers are --unpacked. Nor are attributes user.overlay.*, see README. atime and ctime are not
compared: an unpack sets them to the time that it runs.
"""
import argparse
import ctypes
import hashlib
import os
import stat
import struct
import sys

FORMAT_FILES = {b".prefetch.landmark", b".no.prefetch.landmark", b"stargz.index.json"}
libc = ctypes.CDLL(None, use_errno=True)


def getdents(path):
    """[(name, d_type)] of a directory, in the kernel's order"""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    buf = ctypes.create_string_buffer(1 << 16)
    out = []
    try:
        while True:
            n = libc.getdents64(fd, buf, len(buf))
            if n < 0:
                raise OSError(ctypes.get_errno(), "getdents64", path)
            if n == 0:
                return out
            at = 0
            while at < n:
                reclen, kind = struct.unpack_from("<HB", buf, at + 16)
                name = buf.raw[at + 19:at + reclen].split(b"\0", 1)[0]
                out.append((name, kind))
                at += reclen
    finally:
        os.close(fd)


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def getxattr(path, name):
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as e:
        return e.strerror.encode()


class Node:
    def __init__(self, path):
        self.st = os.lstat(path)
        self.xattrs = {n: getxattr(path, n) for n in os.listxattr(path, follow_symlinks=False)
                       if not n.startswith("user.overlay.")}
        self.target = os.readlink(path) if stat.S_ISLNK(self.st.st_mode) else None
        self.digest = sha256(path) if stat.S_ISREG(self.st.st_mode) else None


class Tree:
    def __init__(self, root, skip):
        self.nodes, self.bytes, self.problems, self.ghosts = {}, 0, [], set()
        self.root, self.skip = os.fsencode(root), skip
        self.nodes[b"/"] = Node(self.root)
        self.walk(b"")
        self.groups = {}
        for path, n in self.nodes.items():
            if not stat.S_ISDIR(n.st.st_mode):
                self.groups.setdefault((n.st.st_dev, n.st.st_ino), set()).add(path)

    def walk(self, top):
        todo = [top]
        while todo:
            d = todo.pop()
            names = getdents(self.root + d)
            if len({n for n, _ in names}) != len(names):
                self.problems.append(show(d or b"/") + ": a name is listed twice")
            if {n for n, _ in names[:2]} != {b".", b".."} and not {b".", b".."} <= {n for n, _ in names}:
                self.problems.append(show(d or b"/") + ": no '.' or '..' in the listing")
            for name, kind in names:
                path = d + b"/" + name
                if name in (b".", b"..") or path in self.skip:
                    continue
                try:
                    node = Node(self.root + path)
                except FileNotFoundError:
                    # overlayfs lists whiteouts in opaque directories
                    self.ghosts.add((path, kind))
                    continue
                self.nodes[path] = node
                if kind != stat.S_IFMT(node.st.st_mode) >> 12:
                    self.problems.append("%s: d_type %d" % (show(path), kind))
                if stat.S_ISDIR(node.st.st_mode):
                    todo.append(path)
                if node.digest:
                    self.bytes += node.st.st_size

    def group(self, path):
        n = self.nodes[path]
        return self.groups.get((n.st.st_dev, n.st.st_ino), set())


def show(path):
    s = path.decode("utf-8", "surrogateescape")
    if len(s) > 100:
        s = s[:70] + "..." + s[-20:]
    return s.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode("unicode_escape").decode()


def nearest_second(ns):
    return (ns + 500000000) // 1000000000


def stat_differences(path, a, b, o):
    kind = stat.S_IFMT(a.st_mode)
    is_dir = stat.S_ISDIR(kind)
    if kind != stat.S_IFMT(b.st_mode):
        yield "type", oct(kind), oct(stat.S_IFMT(b.st_mode))
        return
    for name in ("mode", "uid", "gid", "nlink", "rdev"):
        x, y = getattr(a, "st_" + name), getattr(b, "st_" + name)
        merged = name == "nlink" and is_dir and x == 1 and o.repeated
        if x != y and not merged:
            yield name, oct(x) if name == "mode" else x, oct(y) if name == "mode" else y
    if not is_dir and a.st_size != b.st_size:
        yield "size", a.st_size, b.st_size
    if is_dir and a.st_size <= 4096 and b.st_size <= 4096:
        if a.st_size != b.st_size:
            yield "size", a.st_size, b.st_size
        if abs(a.st_blocks - b.st_blocks) > 8:
            yield "blocks", a.st_blocks, b.st_blocks
    if stat.S_ISREG(kind) and not b.st_blocks <= a.st_blocks <= b.st_blocks + 8 + b.st_blocks // 256:
        yield "blocks", a.st_blocks, b.st_blocks
    touched = o.since and a.st_mtime >= o.since and (is_dir or b.st_mtime >= o.since)
    if path != b"/" and not touched and nearest_second(a.st_mtime_ns) != nearest_second(b.st_mtime_ns):
        yield "mtime", a.st_mtime_ns / 1e9, b.st_mtime_ns / 1e9


def differences(plain, lazy, path, o):
    a, b = plain.nodes[path], lazy.nodes[path]
    yield from stat_differences(path, a.st, b.st, o)
    if a.xattrs != b.xattrs:
        for name in sorted(a.xattrs.keys() | b.xattrs.keys()):
            x, y = a.xattrs.get(name), b.xattrs.get(name)
            if x != y:
                yield "xattr " + name, x.hex() if x is not None else None, y.hex() if y is not None else None
    if a.target != b.target:
        yield "target", a.target, b.target
    if a.digest != b.digest:
        yield "contents", a.digest, b.digest
    x, y = plain.group(path), lazy.group(path)
    if x != y:
        yield "links", sorted(map(show, x)), sorted(map(show, y))
    if b.st.st_ino >= 1 << 32:
        yield "st_ino above 32 bits", None, b.st.st_ino


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--since", type=float, default=0)
    p.add_argument("--skip", action="append", default=[])
    p.add_argument("--unpacked", action="store_true")
    p.add_argument("--repeated", action="store_true")
    p.add_argument("plain")
    p.add_argument("lazy")
    o = p.parse_args()
    skip = {os.fsencode(s) for s in o.skip}
    without = skip | {b"/" + n for n in FORMAT_FILES}
    lazy = Tree(o.lazy, without if o.unpacked else skip)
    plain = Tree(o.plain, without)
    found = plain.problems + lazy.problems
    found += ["%s: a name of nothing in one of the listings" % show(p) for p, _ in sorted(plain.ghosts ^ lazy.ghosts)]
    for path in sorted(plain.nodes.keys() - lazy.nodes.keys()):
        found.append("%s: only in the unpack" % show(path))
    for path in sorted(lazy.nodes.keys() - plain.nodes.keys()):
        found.append("%s: only in the view" % show(path))
    both = sorted(plain.nodes.keys() & lazy.nodes.keys())
    touched = 0
    for path in both:
        for what, x, y in differences(plain, lazy, path, o):
            found.append("%s: %s: unpack %s, view %s" % (show(path), what, x, y))
        st = plain.nodes[path].st
        touched += path != b"/" and stat.S_ISDIR(st.st_mode) and 0 < o.since <= st.st_mtime
    for f in found:
        print(f)
    print("%d paths, %d bytes compared, %d directories without their time, %d differences"
          % (len(both), lazy.bytes, touched, len(found)))
    sys.exit(1 if found else 0)


main()
