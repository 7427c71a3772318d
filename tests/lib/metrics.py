#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds metrics (stdin) against Prometheus' text format and conventions.

    metrics.py          "SERIES VALUE" lines, labels sorted; 1 with what is wrong
    metrics.py --names  the names that a query can have, one a line

Stricter than Prometheus itself: each family has HELP and TYPE and comes once,
no series comes twice, histograms add up, and names have their units.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (\S+)")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
PREFIX = "verity_snapshotter_"


def die(line, what):
    sys.exit(f"metrics: {what}: {line!r}")


class Family:
    def __init__(self, name):
        self.name, self.type, self.samples = name, None, []

    def names(self):
        if self.type == "histogram":
            return [self.name + s for s in ("_bucket", "_sum", "_count")]
        return [self.name]


def check_name(f):
    if not re.fullmatch(PREFIX + "[a-z][a-z0-9_]*", f.name):
        die(f.name, "not a name of ours")
    if (f.type == "counter") != f.name.endswith("_total"):
        die(f.name, "_total is for counters, and for all of them")
    if (f.type == "histogram") != f.name.endswith("_seconds"):
        die(f.name, "a duration is a histogram in seconds")
    if re.search("(milli|micro|nano|kilo|mega|_ms|_us|_kb)", f.name):
        die(f.name, "not a base unit")


def check_histogram(f):
    groups = {}
    for name, labels, value in f.samples:
        rest = tuple((k, v) for k, v in labels if k != "le")
        groups.setdefault(rest, {}).setdefault(name, []).append((dict(labels).get("le"), value))
    for rest, g in groups.items():
        buckets = g.get(f.name + "_bucket", [])
        bounds = [float(b.replace("+Inf", "inf")) for b, _ in buckets]
        counts = [v for _, v in buckets]
        if not bounds or bounds[-1] != float("inf") or bounds != sorted(set(bounds)):
            die(f.name, f"bounds {bounds}")
        if counts != sorted(counts):
            die(f.name, f"buckets do not add up {counts}")
        if [v for _, v in g[f.name + "_count"]] != [counts[-1]] or len(g[f.name + "_sum"]) != 1:
            die(f.name, "count or sum")


def parse(text):
    families, f = {}, None
    if not text.endswith("\n"):
        die(text[-40:], "does not end with a line")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, help_text = line[7:].partition(" ")
            if name in families or not help_text:
                die(line, "HELP twice, or empty")
            f = families[name] = Family(name)
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            if not f or f.name != name or f.type or kind not in ("counter", "gauge", "histogram"):
                die(line, "TYPE is not behind its HELP")
            f.type = kind
        else:
            m = SAMPLE.fullmatch(line)
            if not m or not NUMBER.fullmatch(m[7]):
                die(line, "not a sample")
            if not f or not f.type or m[1] not in f.names():
                die(line, "not of the family above it")
            labels = sorted(re.findall(LABEL, m[2] or ""))
            value = float(m[7]) if "." in m[7] else int(m[7])
            if value < 0 and f.type != "gauge":
                die(line, "below zero")
            f.samples.append((m[1], labels, value))
    return families


def main():
    families = parse(sys.stdin.read())
    seen = set()
    for f in families.values():
        check_name(f)
        if not f.samples:
            die(f.name, "without a sample")
        if f.type == "histogram":
            check_histogram(f)
        if sys.argv[1:] == ["--names"]:
            print("\n".join(f.names()))
            continue
        for name, labels, value in f.samples:
            series = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels) + "}" if labels else "")
            if series in seen:
                die(series, "twice")
            seen.add(series)
            print(series, value)


main()
