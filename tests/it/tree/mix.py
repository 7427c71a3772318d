#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mix.py REGISTRY NAME FROM TO: NAME:mixed, NAME:esgz with layers FROM..TO-1 of NAME:gzip.

Those layers have no table of contents, as when only the upper part of an image
has been converted.
"""
import hashlib
import json
import sys
import urllib.request

registry, name = sys.argv[1:3]
first, last = int(sys.argv[3]), int(sys.argv[4])
base = "http://%s/v2/%s/" % (registry, name)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def get(path):
    return json.load(urllib.request.urlopen(urllib.request.Request(base + path, headers={"Accept": MANIFEST})))


def push_blob(data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    start = urllib.request.urlopen(urllib.request.Request(base + "blobs/uploads/", method="POST"))
    place = start.headers["Location"]
    urllib.request.urlopen(urllib.request.Request(
        place + ("&" if "?" in place else "?") + "digest=" + digest, data=data, method="PUT",
        headers={"Content-Type": "application/octet-stream"}))
    return digest


def main():
    lazy, plain = get("manifests/esgz"), get("manifests/gzip")
    config, other = (get("blobs/" + m["config"]["digest"]) for m in (lazy, plain))
    for i in range(first, last):
        lazy["layers"][i] = plain["layers"][i]
        config["rootfs"]["diff_ids"][i] = other["rootfs"]["diff_ids"][i]
    data = json.dumps(config).encode()
    lazy["config"].update(digest=push_blob(data), size=len(data))
    urllib.request.urlopen(urllib.request.Request(
        base + "manifests/mixed", data=json.dumps(lazy).encode(), method="PUT", headers={"Content-Type": MANIFEST}))


main()
