#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dashboard.py DASHBOARD CATALOGUE: holds a Grafana dashboard's model against
what Grafana expects, and its queries against the metrics that there are.

The catalogue is snapshotter/base/metrics.c. Prints what is wrong.
"""
import json
import re
import sys

PREFIX = "verity_snapshotter_"
WIDTH = 24
problems = []


def wrong(where, what):
    problems.append(f"{where}: {what}")


def read_catalogue(path):
    """Name of a series -> {label: values, or None for any}."""
    with open(path) as f:
        text = re.search(r"families\[METRICS_N\] = \{(.*?)\n\};", f.read(), re.S)[1]
    families = {}
    for entry in re.split(r"\n\t\[METRIC_\w+\] =", text)[1:]:
        kind, name = re.match(r'\s*(COUNTER|GAUGE|HISTOGRAM)\(\s*"(\w+)"', entry).groups()
        name = PREFIX + name
        label = re.search(r'LABELS?\("(\w+)",(.*)\)', entry, re.S)
        labels = {"instance": None, "job": None}
        if label:
            labels[label[1]] = set(re.findall(r'"(\w+)"', label[2]))
        if kind == "HISTOGRAM":
            families[name + "_bucket"] = {**labels, "le": None}
            families[name + "_sum"] = families[name + "_count"] = labels
        else:
            families[name] = labels
    return families


def balanced(expr):
    closing, stack = {")": "(", "]": "[", "}": "{"}, []
    for c in re.sub(r'"[^"]*"', "", expr):
        if c in "([{":
            stack.append(c)
        elif c in closing and (not stack or stack.pop() != closing[c]):
            return False
    return not stack and expr.count('"') % 2 == 0


def check_query(where, expr, families, variables):
    known = {}
    if not balanced(expr):
        wrong(where, f"brackets or quotes of {expr}")
    for name in re.findall(rf"\b{PREFIX}\w+", expr):
        if name not in families:
            wrong(where, f"no metric {name}")
        for label, values in families.get(name, {}).items():
            known[label] = values
    if not known:
        wrong(where, f"no metric in {expr}")
    for label, op, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', expr):
        if label not in known:
            wrong(where, f"no label {label} in {expr}")
        elif known[label] is not None and op in ("=", "!=") and value not in known[label]:
            wrong(where, f'{label} is never "{value}"')
    for by in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expr):
        for label in by.replace(" ", "").split(","):
            if label not in known:
                wrong(where, f"no label {label} to group by in {expr}")
    for name in re.findall(r"\b(?:rate|increase)\((\w+)", expr):
        if not re.search("_(total|bucket|sum|count)$", name):
            wrong(where, f"a rate of the gauge {name}")
    for name in re.findall(rf"\b{PREFIX}\w+_(?:total|bucket|sum|count)\b", expr):
        if not re.search(rf"(rate|increase)\({name}\b", expr):
            wrong(where, f"{name} without its rate")
    for v in re.findall(r"\$\{?(\w+)", expr):
        if v not in variables and not v.startswith("__"):
            wrong(where, f"no variable {v}")
    return known


def check_panel(p, families, variables):
    where = f"panel '{p.get('title')}'"
    if not p.get("title"):
        wrong(where, "no title")
    if p["type"] == "row":
        return
    if p["type"] not in ("timeseries", "stat"):
        wrong(where, f"type {p['type']}")
    if p["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
        wrong(where, "its data source is not the variable")
    if not p["fieldConfig"]["defaults"].get("unit") or not p.get("description"):
        wrong(where, "no unit, or no description")
    refs = [t["refId"] for t in p["targets"]]
    if not refs or len(set(refs)) != len(refs):
        wrong(where, f"names of queries {refs}")
    for t in p["targets"]:
        known = check_query(where, t["expr"], families, variables)
        for label in re.findall(r"{{(\w+)}}", t["legendFormat"]):
            if label not in known:
                wrong(where, f"no label {label} for the legend")


def check_grid(panels):
    taken = {}
    for p in panels:
        g = p["gridPos"]
        if g["x"] < 0 or g["w"] < 1 or g["h"] < 1 or g["x"] + g["w"] > WIDTH:
            wrong(p["title"], f"is outside of the grid: {g}")
        for cell in ((x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])):
            if cell in taken:
                wrong(p["title"], f"lies on '{taken[cell]}'")
                break
            taken[cell] = p["title"]


def main():
    with open(sys.argv[1]) as f:
        d = json.load(f)
    families = read_catalogue(sys.argv[2])
    if not 36 <= d["schemaVersion"] <= 39 or not d["title"] or not re.fullmatch("[a-zA-Z0-9_-]{1,40}", d["uid"]):
        wrong("dashboard", "schemaVersion, title or uid")
    if d.get("id") is not None:
        wrong("dashboard", "has the id of a database")
    variables = {v["name"] for v in d["templating"]["list"]}
    for v in d["templating"]["list"]:
        if v["type"] == "query":
            check_query(f"variable {v['name']}", v["definition"], families, variables)
    ids = [p["id"] for p in d["panels"]]
    if len(set(ids)) != len(ids):
        wrong("dashboard", "two panels have the same id")
    for p in d["panels"]:
        check_panel(p, families, variables)
    check_grid(d["panels"])
    shown = json.dumps(d)
    for name in families:
        if not re.search("_(sum|count)$", name) and name not in shown:
            wrong(name, "is in no panel")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))


main()
