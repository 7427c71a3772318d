#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes eStargz layers and OCI layouts from a description, honest or hostile.

    mkestargz.py --out DIR --name img:tag SPEC.json    an OCI image layout
    mkestargz.py --blob FILE SPEC.json                 the first layer alone
    mkestargz.py --dump BLOB                           what a parser must emit

SPEC is {"layers": [LAYER, ...], "config": {...}}, or one LAYER:

    {"entries": [ENTRY, ...],       or "tree": "/a/folder"
     "chunk_size": 4194304, "min_chunk_size": 0, "level": 6,
     "prefetch": ["path", ...],     written first, landmark behind them
     "landmark": true,              false: neither landmark
     ... and the hostile keys below}

    ENTRY: {"path": "a/b", "type": "reg", "mode": "0644", "uid": 0, "gid": 0,
            "mtime": 1700000000, "link": "target", "major": 1, "minor": 3,
            "xattrs": {"user.k": CONTENT}, "content": CONTENT}
    type: dir reg symlink hardlink char block fifo
    CONTENT: "text" | {"b64": "..."} | {"file": "path"} | {"zeros": N}
             | {"random": N, "seed": 1} | {"text": N, "seed": 1}

Hostile keys of a layer; the tar stream stays what it is in all of them:

    "patch": [{"name": "a/b" | "index": 3, "set": {...}, "del": ["key"],
               "drop": true},
              {"append": {...}}, {"insert": 2, "entry": {...}}]
    "toc_raw": "text instead of the JSON"
    "toc_tail": "text behind the JSON's tar padding"
    "toc_name": "other.json", "toc_members": 2, "toc_text_digest": "sha256:..."
    "footer": "estargz" | "legacy" | "external" | {"b64": ...}
    "footer_offset": "000000000000000Z"
    "lie": ["path"]          stored bytes differ from their chunkDigest
    "fextra": {"path": CONTENT}   the file's member gets an FEXTRA field that
                             holds another member with CONTENT, and the table
                             points there: same tar stream, other file
    "fextra_toc": [PATCH]    the table that the footer names, patched, lies in
                             an FEXTRA field behind the true one

As a module: build, Layer, write_layout, parse_blob, dump. Everything is streamed, so
that layers may be larger than memory; output depends on the input only.
"""
import argparse
import base64
import datetime
import hashlib
import io
import json
import os
import random
import stat
import struct
import sys
import zlib

BLOCK = 64 << 10
TOC_NAME = "stargz.index.json"
LANDMARK = ".prefetch.landmark"
NO_LANDMARK = ".no.prefetch.landmark"
TOC_ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"
SIZE_ANNOTATION = "io.containers.estargz.uncompressed-size"


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


# ---- contents ----


class Content:
    """size, and blocks() that can be called again"""

    def __init__(self, spec, base="."):
        if spec is None:
            spec = b""
        if isinstance(spec, str):
            spec = spec.encode()
        self.spec, self.base = spec, base
        if isinstance(spec, bytes):
            self.size = len(spec)
        elif "b64" in spec:
            self.spec = base64.b64decode(spec["b64"])
            self.size = len(self.spec)
        elif "file" in spec:
            self.size = os.path.getsize(os.path.join(base, spec["file"]))
        else:
            self.size = next(spec[k] for k in ("zeros", "random", "text")
                             if k in spec)

    def blocks(self):
        if isinstance(self.spec, bytes):
            yield from (self.spec[i:i + BLOCK]
                        for i in range(0, self.size, BLOCK))
        elif "file" in self.spec:
            with open(os.path.join(self.base, self.spec["file"]), "rb") as f:
                while block := f.read(BLOCK):
                    yield block
        else:
            yield from self._made()

    def _made(self):
        rnd = random.Random(self.spec.get("seed", 1))
        words = [bytes(rnd.choices(b"etaoinshrdlu", k=rnd.randint(2, 9)))
                 for _ in range(512)]
        left = self.size
        while left:
            n = min(left, BLOCK)
            if "zeros" in self.spec:
                block = bytes(n)
            elif "random" in self.spec:
                block = rnd.randbytes(n)
            else:
                block = b" ".join(rnd.choices(words, k=BLOCK // 5))[:n]
                block += b"." * (n - len(block))
            left -= n
            yield block

    def bytes(self):
        return b"".join(self.blocks())


def rechunk(blocks, size):
    """The same bytes in pieces of exactly size, the last one shorter."""
    have = bytearray()
    for block in blocks:
        have += block
        while len(have) >= size:
            yield bytes(have[:size])
            del have[:size]
    if have:
        yield bytes(have)


# ---- tar ----

TYPEFLAG = {"reg": b"0", "hardlink": b"1", "symlink": b"2", "char": b"3",
            "block": b"4", "dir": b"5", "fifo": b"6"}


def octal(value, width):
    """None when the field cannot hold it"""
    text = b"%0*o" % (width - 1, value) if value >= 0 else b""
    return text + b"\0" if text and len(text) < width else None


def ustar(name, flag, size=0, mode=0o644, uid=0, gid=0, mtime=0, link=b"",
          major=0, minor=0):
    def number(value, width):
        return octal(value, width) or octal(0, width)
    head = b"".join([
        name[:100].ljust(100, b"\0"), number(mode, 8), number(uid, 8),
        number(gid, 8), number(size, 12), number(mtime, 12), b" " * 8, flag,
        link[:100].ljust(100, b"\0"), b"ustar\0" b"00", bytes(64),
        number(major, 8), number(minor, 8), bytes(167)])
    assert len(head) == 512
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def pax_record(key, value):
    body = b" " + key.encode() + b"=" + value + b"\n"
    n = len(body) + 1
    while len(b"%d" % n) + len(body) != n:
        n += 1
    return b"%d" % n + body


def pad(n):
    return bytes(-n % 512)


def tar_header(e, size):
    name = e["path"].encode("utf-8", "surrogateescape")
    link = e.get("link", "").encode("utf-8", "surrogateescape")
    pax = b""
    for key, value, plain in (("path", name, name.isascii()),
                              ("linkpath", link, link.isascii())):
        if len(value) > 100 or not plain:
            pax += pax_record(key, value)
    for key, value, width in (("size", size, 12), ("uid", e["uid"], 8),
                              ("gid", e["gid"], 8), ("mtime", e["mtime"], 12)):
        if octal(value, width) is None:
            pax += pax_record(key, b"%d" % value)
    for key, value in e["xattrs"].items():
        pax += pax_record("SCHILY.xattr." + key, value)
    out = b""
    if pax:
        out = ustar(b"PaxHeaders/x", b"x", len(pax)) + pax + pad(len(pax))
    return out + ustar(name, TYPEFLAG[e["type"]], size, e["mode"], e["uid"],
                       e["gid"], e["mtime"], link, e.get("major", 0),
                       e.get("minor", 0))


# ---- gzip members ----


def gzip_member(data, level=6, extra=None):
    z = zlib.compressobj(level, zlib.DEFLATED, -15)
    return (gzip_head(extra) + z.compress(data) + z.flush() +
            struct.pack("<II", zlib.crc32(data), len(data) & 0xffffffff))


def gzip_head(extra=None):
    head = b"\x1f\x8b\x08" + (b"\x04" if extra is not None else b"\0") + \
        bytes(5) + b"\xff"
    if extra is not None:
        head += struct.pack("<H", len(extra)) + extra
    return head


FOOTERS = {
    "estargz": lambda off: b"SG\x16\0" + off + b"STARGZ",
    "legacy": lambda off: off + b"STARGZ",
    "external": lambda off: b"SG\x11\0STARGZEXTERNALTOC",
}


def footer(kind, off):
    return gzip_head(FOOTERS[kind](off)) + b"\x01\0\0\xff\xff" + bytes(8)


class Members:
    """Concatenated gzip members; knows both positions."""

    def __init__(self, f, level):
        self.f, self.level = f, level
        self.off = 0  # compressed
        self.total = 0  # uncompressed
        self.z = None
        self.blob, self.tar = hashlib.sha256(), hashlib.sha256()

    def raw(self, data):
        self.f.write(data)
        self.blob.update(data)
        self.off += len(data)

    def close(self):
        if self.z:
            self.raw(self.z.flush() + struct.pack("<II", self.crc,
                                                  self.n & 0xffffffff))
        self.z = None

    def open(self, extra=None):
        if self.z:
            return
        self.raw(gzip_head(extra))
        self.z = zlib.compressobj(self.level, zlib.DEFLATED, -15)
        self.crc = self.n = 0

    def write(self, data):
        self.open()
        self.raw(self.z.compress(data))
        self.crc = zlib.crc32(data, self.crc)
        self.n += len(data)
        self.total += len(data)
        self.tar.update(data)


# ---- a layer ----


def normal(entry, base="."):
    e = dict(entry)
    e.setdefault("type", "reg")
    mode = e.get("mode", {"dir": 0o755, "symlink": 0o777}.get(e["type"], 0o644))
    e["mode"] = int(mode, 8) if isinstance(mode, str) else mode
    for key, value in (("uid", 0), ("gid", 0), ("mtime", 1700000000)):
        e.setdefault(key, value)
    e["xattrs"] = {k: Content(v, base).bytes()
                   for k, v in e.get("xattrs", {}).items()}
    return e


def tree_entries(root):
    """A folder as entries, links by inode, sorted."""
    seen = {}
    root = os.path.abspath(root)
    for folder, dirs, files in os.walk(root):
        dirs.sort()
        for name in [""] + sorted(files + [d for d in dirs if os.path.islink(
                os.path.join(folder, d))]):
            path = os.path.join(folder, name) if name else folder
            rel = os.path.relpath(path, root)
            st = os.lstat(path)
            e = {"path": rel, "mode": stat.S_IMODE(st.st_mode),
                 "uid": st.st_uid, "gid": st.st_gid,
                 "mtime": int(st.st_mtime)}
            key = (st.st_dev, st.st_ino)
            if stat.S_ISDIR(st.st_mode):
                e.update(type="dir", path="./" if rel == "." else rel + "/")
            elif key in seen:
                e.update(type="hardlink", link=seen[key])
            elif stat.S_ISLNK(st.st_mode):
                e.update(type="symlink", link=os.readlink(path))
            elif stat.S_ISREG(st.st_mode):
                e.update(type="reg", content={"file": path})
            elif stat.S_ISFIFO(st.st_mode):
                e.update(type="fifo")
            elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
                e.update(type="char" if stat.S_ISCHR(st.st_mode) else "block",
                         major=os.major(st.st_rdev),
                         minor=os.minor(st.st_rdev))
            else:
                continue
            if not stat.S_ISDIR(st.st_mode):
                seen.setdefault(key, rel)
            yield e


def rfc3339(seconds):
    epoch = datetime.datetime(1970, 1, 1)
    return (epoch + datetime.timedelta(seconds=seconds)).isoformat() + "Z"


def toc_entry(e, size):
    t = {"name": e["path"], "type": e["type"]}
    if size:
        t["size"] = size
    if e["mtime"]:
        t["modtime"] = rfc3339(e["mtime"])
    for key, value in (("linkName", e.get("link")), ("mode", e["mode"]),
                       ("uid", e["uid"]), ("gid", e["gid"]),
                       ("devMajor", e.get("major")),
                       ("devMinor", e.get("minor"))):
        if value:
            t[key] = value
    if e["xattrs"]:
        t["xattrs"] = {k: base64.b64encode(v).decode()
                       for k, v in e["xattrs"].items()}
    return t


class Layer:
    """Writes one layer to the binary file f; .info tells what became of it."""

    def __init__(self, spec, f, base="."):
        self.spec, self.base = spec, base
        self.chunk_size = spec.get("chunk_size") or 4 << 20
        self.min_chunk = spec.get("min_chunk_size", 0)
        self.out = Members(f, spec.get("level", 6))
        self.toc = []
        self.start = self.start_total = 0  # of the member with payloads
        for e in self._ordered():
            self._add(e)
        self._finish()

    def _ordered(self):
        entries = self.spec.get("entries")
        if entries is None:
            entries = tree_entries(os.path.join(self.base, self.spec["tree"]))
        want = self.spec.get("prefetch", [])
        mark = {"type": "reg", "mode": 0, "mtime": 0, "content": b"\x0f",
                "path": LANDMARK if want else NO_LANDMARK}
        if want:
            entries = list(entries)
            first = [e for e in entries if e["path"] in want]
            yield from first
            entries = [e for e in entries if e["path"] not in want]
        if self.spec.get("landmark", True):
            yield mark
        yield from entries

    def _add(self, entry):
        e = normal(entry, self.base)
        content = Content(e.get("content"), self.base)
        size = content.size if e["type"] == "reg" else 0
        t = toc_entry(e, size)
        self.out.write(tar_header(e, size))
        self.toc.append(t)
        if e["type"] == "reg":
            self._payload(e, t, content)
        self.out.write(pad(size))

    def _place(self, t, path):
        """Begins a member, or goes on in the one that is open."""
        mark = path in (LANDMARK, NO_LANDMARK)
        hidden = self.spec.get("fextra", {}).get(path)
        if (not self.min_chunk or mark or hidden is not None or
                self.out.off - self.start >= self.min_chunk):
            self.out.close()
            self.start, self.start_total = self.out.off, self.out.total
            if hidden is not None:
                self._hide(t, hidden)
                return True
        t["offset"] = self.start
        if self.out.total > self.start_total:
            t["innerOffset"] = self.out.total - self.start_total
        return False

    def _hide(self, t, spec):
        data = Content(spec, self.base).bytes()
        member = gzip_member(data)
        t.update(offset=self.start + 12, size=len(data),
                 digest=sha256(data), chunkDigest=sha256(data))
        t.pop("chunkSize", None)
        self.out.open(member)

    def _payload(self, e, reg, content):
        whole, pos, t = hashlib.sha256(), 0, reg
        lie, hidden = e["path"] in self.spec.get("lie", []), False
        for piece in rechunk(content.blocks(), self.chunk_size):
            if pos:
                t = {"name": e["path"], "type": "chunk"}
            hidden = self._place(t, e["path"]) or hidden
            whole.update(piece)
            if not hidden:
                if pos:
                    t["chunkOffset"] = pos
                if content.size - pos >= self.chunk_size:
                    t["chunkSize"] = len(piece)
                t["chunkDigest"] = sha256(piece)
                if pos:
                    self.toc.append(t)
            pos += len(piece)
            if lie:
                piece = bytes([piece[0] ^ 1]) + piece[1:]
            self.out.write(piece)
        if not hidden:
            reg["digest"] = "sha256:" + whole.hexdigest()

    def _patched(self, patches):
        for p in patches:
            if "append" in p:
                self.toc.append(p["append"])
            elif "insert" in p:
                self.toc.insert(p["insert"], p["entry"])
            else:
                hits = [self.toc[p["index"]]] if "index" in p else \
                    [t for t in self.toc if t["name"] == p["name"]]
                assert hits, "no entry %r" % p["name"]
                for t in hits:
                    if p.get("drop"):
                        self.toc.remove(t)
                    t.update(p.get("set", {}))
                    for key in p.get("del", []):
                        t.pop(key, None)
        raw = self.spec.get("toc_raw")
        if raw is None:
            raw = json.dumps({"version": 1, "entries": self.toc}, indent="\t",
                             ensure_ascii=False)
        return raw.encode("utf-8", "surrogateescape")

    def _hide_table(self, patches):
        """A last member whose FEXTRA field holds another table and the
        beginning of the footer; the footer's end is its empty contents."""
        raw = self._patched(patches)
        member = gzip_member(ustar(TOC_NAME.encode(), b"0", len(raw), 0) +
                             raw + pad(len(raw)) + bytes(1024))
        self.out.raw(b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" +
                     struct.pack("<H", len(member) + 38))
        toc_off = self.out.off
        self.out.raw(member)
        return raw, toc_off

    def _finish(self):
        out, spec = self.out, self.spec
        raw = self._patched(spec.get("patch", []))
        out.close()
        toc_off = out.off
        name = spec.get("toc_name", TOC_NAME).encode()
        out.write(ustar(name, b"0", len(raw), 0) + raw)
        for _ in range(spec.get("toc_members", 1) - 1):
            out.close()
        out.write(pad(len(raw)) + bytes(1024))
        out.write(spec.get("toc_tail", "").encode())
        out.close()
        if "fextra_toc" in spec:
            raw, toc_off = self._hide_table(spec["fextra_toc"])
        digits = spec.get("footer_offset", "%016x" % toc_off).encode()
        kind = spec.get("footer", "estargz")
        out.raw(footer(kind, digits) if isinstance(kind, str)
                else Content(kind).bytes())
        self.info = {
            "digest": "sha256:" + out.blob.hexdigest(), "size": out.off,
            "toc_digest": spec.get("toc_text_digest", sha256(raw)),
            "toc_offset": toc_off, "diff_id": "sha256:" + out.tar.hexdigest(),
            "uncompressed": out.total,
        }


def build(spec, base="."):
    """One layer in memory: (blob, info)"""
    f = io.BytesIO()
    info = Layer(spec, f, base).info
    return f.getvalue(), info


# ---- an image ----


def put_blob(out, data):
    digest = sha256(data)
    with open(os.path.join(out, "blobs/sha256", digest[7:]), "wb") as f:
        f.write(data)
    return {"digest": digest, "size": len(data)}


def put_layer(out, spec, base):
    tmp = os.path.join(out, "layer.tmp")
    with open(tmp, "wb") as f:
        info = Layer(spec, f, base).info
    os.rename(tmp, os.path.join(out, "blobs/sha256", info["digest"][7:]))
    annotations = {TOC_ANNOTATION: info["toc_digest"],
                   SIZE_ANNOTATION: str(info["uncompressed"])}
    if not spec.get("annotated", True):
        annotations = {}
    return info, {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                  "digest": info["digest"], "size": info["size"],
                  "annotations": annotations}


def write_layout(out, name, spec, base="."):
    """An OCI image layout with one image; returns the layers' infos."""
    os.makedirs(os.path.join(out, "blobs/sha256"), exist_ok=True)
    layers = spec.get("layers", [spec])
    done = [put_layer(out, s, base) for s in layers]
    infos = [info for info, _ in done]
    config = {"created": "2023-11-14T22:13:20Z", "architecture": "amd64",
              "os": "linux", "config": {"Cmd": ["/bin/sh"]},
              "rootfs": {"type": "layers",
                         "diff_ids": [i["diff_id"] for i in infos]},
              "history": [{"created_by": "mkestargz"} for _ in infos]}
    config.update(spec.get("config", {}) if "layers" in spec else {})
    manifest = {"schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType":
                           "application/vnd.oci.image.config.v1+json",
                           **put_blob(out, json.dumps(config).encode())},
                "layers": [desc for _, desc in done]}
    top = {"mediaType": manifest["mediaType"],
           **put_blob(out, json.dumps(manifest).encode()),
           "platform": {"architecture": config["architecture"],
                        "os": config["os"]},
           "annotations": {"org.opencontainers.image.ref.name":
                           name.rpartition(":")[2] or "latest",
                           "io.containerd.image.name": name}}
    index = {"schemaVersion": 2,
             "mediaType": "application/vnd.oci.image.index.v1+json",
             "manifests": [top]}
    with open(os.path.join(out, "index.json"), "w") as f:
        json.dump(index, f)
    with open(os.path.join(out, "oci-layout"), "w") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    return infos


# ---- the reference reader: as the specification's own, not as ours ----


def parse_blob(blob):
    """(toc bytes, toc offset) of an honest blob"""
    off = int(blob[-35:-19], 16)
    assert blob[-51:] == footer("estargz", b"%016x" % off)
    tar = zlib.decompressobj(31).decompress(blob[off:-51])
    assert tar[:100].rstrip(b"\0").decode() == TOC_NAME
    size = int(tar[124:135], 8)
    return tar[512:512 + size], off


def quote(text):
    return "".join(chr(c) if 0x21 <= c < 0x7f and c != 0x25 else "%%%02x" % c
                   for c in text.encode("utf-8", "surrogateescape")) or "-"


def kept_xattr(name):
    return ".overlay." not in name and (
        name.startswith(("user.", "security.")) or
        name in ("system.posix_acl_access", "system.posix_acl_default"))


def chunk_table(entries, toc_off):
    """[(entry index, file offset, offset, next, inner, length, digest)]"""
    chunks, last = [], None
    for i, t in enumerate(entries):
        if t["type"] != "chunk":
            last = i
        if t["type"] == "chunk" or (t["type"] == "reg" and t.get("size")):
            pos = t.get("chunkOffset", 0)
            chunks.append([last, pos, t.get("offset", 0), None,
                           t.get("innerOffset", 0),
                           t.get("chunkSize") or entries[last]["size"] - pos,
                           t["chunkDigest"]])
    end = toc_off
    for c in reversed(chunks):
        c[3] = end
        if c[2] and not c[4]:
            end = c[2]
    return chunks


def dump(blob):
    """Entries, units, extents and prefetch range, one a line; verifies all."""
    raw, toc_off = parse_blob(blob)
    entries = json.loads(raw)["entries"]
    lines, handle = [], {}
    hidden = {LANDMARK, NO_LANDMARK, TOC_NAME}
    prefetch = None
    for i, t in enumerate(entries):
        if t["type"] == "chunk":
            continue
        clean = os.path.normpath("/" + t["name"]).lstrip("/")
        if t["type"] == "reg" and clean in hidden:
            if clean == LANDMARK:
                prefetch = t["offset"]
            continue
        when = 0
        if "modtime" in t:
            when = datetime.datetime.strptime(t["modtime"],
                                              "%Y-%m-%dT%H:%M:%SZ")
            when = (when - datetime.datetime(1970, 1, 1)) // \
                datetime.timedelta(seconds=1)
        handle[i] = len(handle)
        lines.append("entry %d %s %o %d %d %d %d %d:%d %s %s" % (
            handle[i], t["type"], t.get("mode", 0) & 0o7777, t.get("uid", 0),
            t.get("gid", 0), when, t.get("size", 0), t.get("devMajor", 0),
            t.get("devMinor", 0), quote(t["name"]),
            quote(t.get("linkName", ""))))
        for k, v in t.get("xattrs", {}).items():
            if kept_xattr(k):
                lines.append("xattr %s %s" % (
                    quote(k), base64.b64decode(v).hex() or "-"))
    chunks = chunk_table(entries, toc_off)
    units, lens = {}, {}
    if not chunks or chunks[0][2]:
        units[0] = chunks[0][2] if chunks else toc_off
        lens[0] = 0
    for c in chunks:
        units[c[2]] = max(units.get(c[2], 0), c[3])
        lens.setdefault(c[2], 0)
        if c[0] in handle:
            lens[c[2]] = max(lens[c[2]], c[4] + c[5])
    starts = sorted(units)
    for i, s in enumerate(starts):
        # A member whose first payload is not at its start ends the one before
        # it only in our reading; the bytes are the same.
        end = starts[i + 1] if i + 1 < len(starts) else toc_off
        assert units[s] >= end
        lines.append("unit %d %d %d %d" % (i, s, end - s, lens[s]))
    for e, pos, off, end, inner, size, digest in chunks:
        data = zlib.decompressobj(31).decompress(blob[off:end])
        assert sha256(data[inner:inner + size]) == digest
        if e in handle:
            lines.append("extent %d %d %d %d %d %s" % (
                handle[e], pos, starts.index(off), inner, size, digest))
    if prefetch is not None:
        lines.append("prefetch %d" % prefetch)
    return "".join(line + "\n" for line in lines)


def main():
    p = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="See the file's head.")
    p.add_argument("spec", nargs="?", help="JSON file, or - for stdin")
    p.add_argument("--out", help="folder of the OCI layout")
    p.add_argument("--name", default="demo.local/img:latest")
    p.add_argument("--blob", help="write the first layer here")
    p.add_argument("--dump", help="print what a parser emits for this blob")
    a = p.parse_args()
    if a.dump:
        with open(a.dump, "rb") as f:
            sys.stdout.write(dump(f.read()))
        return
    if not a.spec or not (a.out or a.blob):
        p.error("a spec, and --out or --blob")
    with (sys.stdin if a.spec == "-" else open(a.spec)) as f:
        spec = json.load(f)
    base = os.path.dirname(os.path.abspath(a.spec)) if a.spec != "-" else "."
    if a.blob:
        with open(a.blob, "wb") as f:
            infos = [Layer(spec.get("layers", [spec])[0], f, base).info]
    else:
        infos = write_layout(a.out, a.name, spec, base)
    for info in infos:
        print(json.dumps(info))


if __name__ == "__main__":
    main()
