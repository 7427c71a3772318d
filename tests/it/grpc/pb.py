# SPDX-License-Identifier: Apache-2.0
"""Just enough protobuf to talk to the snapshots service without generated code."""

SERVICE = "/containerd.services.snapshots.v1.Snapshots/"


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    """One field: a number, text or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def labels(number, pairs):
    return b"".join(field(number, field(1, k) + field(2, v)) for k, v in pairs.items())


def get_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n, at
        shift += 7


def parse(data):
    """{field number: [values]}; values are numbers or bytes."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = get_varint(data, at)
        if tag & 7 == 0:
            value, at = get_varint(data, at)
        elif tag & 7 == 2:
            size, at = get_varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {tag & 7}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def prepare(key, parent="", labels_=None, sn="verity"):
    return field(1, sn) + field(2, key) + field(3, parent) + labels(4, labels_ or {})


def by_key(key, sn="verity"):
    return field(1, sn) + field(2, key)


def mounts(answer):
    """[(type, source, [options])] of Prepare, View and Mounts."""
    out = []
    for m in parse(answer).get(1, []):
        f = parse(m)
        out.append((f[1][0].decode(), f[2][0].decode(), [o.decode() for o in f.get(4, [])]))
    return out


def info(data):
    f = parse(data)
    pairs = [parse(entry) for entry in f.get(6, [])]
    return {
        "name": f[1][0].decode(),
        "parent": f.get(2, [b""])[0].decode(),
        "kind": f.get(3, [0])[0],
        "labels": {p[1][0].decode(): p.get(2, [b""])[0].decode() for p in pairs},
    }
