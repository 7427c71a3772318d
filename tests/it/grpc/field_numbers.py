#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compare our .proto files with containerd's as Debian packages them.

field_numbers.py OURS... -- THEIRS...: every message of ours that they have
must have the same fields: name, number, type and repetition.

field_numbers.py --part OURS... -- THEIRS...: ours are a client's, which names
only what it reads: name, number and repetition of those.
"""
import re
import sys

# What is newer than the packaged version may be missing there.
ADDED = {"CommitSnapshotRequest": {("parent", 5, "string")}}


def strip(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"\[[^\]]*\]", "", text)


def read(paths):
    """({message: {(field, number, type)}}, {enum value: number}, {rpc})"""
    messages, enums, rpcs = {}, {}, set()
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = strip(f.read())
        for kind, name, body in re.findall(r"^(message|enum|service)\s+(\w+)\s*\{(.*?)\}$", text, re.S | re.M):
            if kind == "message":
                fields = re.findall(r"^\s*((?:repeated\s+)?(?:map\s*<[^>]*>|[\w.]+))\s+(\w+)\s*=\s*(\d+)\s*;", body, re.M)
                messages[name] = {(n, int(i), re.sub(r"\s+", "", t)) for t, n, i in fields}
            elif kind == "enum":
                enums.update({n: int(i) for n, i in re.findall(r"^\s*(\w+)\s*=\s*(\d+)\s*;", body, re.M)})
            else:
                rpcs |= {re.sub(r"\s+", "", r) for r in re.findall(r"rpc\s+([^;]*)", body)}
    return messages, enums, rpcs


def compare_part(ours, theirs):
    n = bad = 0
    for name, fields in sorted(ours[0].items()):
        known = {(f, i, t.startswith("repeated")) for f, i, t in theirs[0].get(name, set())}
        mine = {(f, i, t.startswith("repeated")) for f, i, t in fields}
        if not known:
            continue
        n += 1
        if not mine <= known:
            print(name, "ours", sorted(mine), "theirs", sorted(known))
            bad += 1
    print(n, "messages compared")
    sys.exit(bad > 0 or n < 10)


def main():
    part = sys.argv[1] == "--part"
    if part:
        del sys.argv[1]
    at = sys.argv.index("--")
    ours, theirs = read(sys.argv[1:at]), read(sys.argv[at + 1 :])
    if part:
        compare_part(ours, theirs)
    bad = n = 0
    for name, fields in sorted(theirs[0].items()):
        if name not in ours[0]:
            print("missing message", name)
            bad += 1
            continue
        n += len(fields)
        if ours[0][name] - ADDED.get(name, set()) != fields - ADDED.get(name, set()):
            print(name, "ours", sorted(ours[0][name]), "theirs", sorted(fields))
            bad += 1
    for name, added in ADDED.items():
        bad += name in ours[0] and not added <= ours[0][name]
    if ours[1] != theirs[1]:
        print("enums differ:", ours[1], theirs[1])
        bad += 1
    if ours[2] != theirs[2]:
        print("services differ:", ours[2] ^ theirs[2])
        bad += 1
    if n == 0 or len(theirs[0]) < len(sys.argv) - at - 1:
        print("their files are not understood")
        bad += 1
    print(len(theirs[0]), "messages,", n, "fields,", len(theirs[2]), "methods compared")
    sys.exit(bool(bad))


main()
