#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A read-only registry whose failures are scripted.

    registry.py --port 0 --portfile F --root DIR [--root NAME=DIR ...]

serves OCI image layouts: DIR itself (named after its last component), or every
layout below it (named by its relative path), or one under a NAME of its own.
Tags are the ref.name annotations of index.json (the part behind the last ':'),
and "latest" when there is a single manifest. Files are looked at for each
request, so images may be added while it runs.

Faults are set by POST /_admin with a JSON object:

    {"match": "part of the path", "fault": "KIND[:ARGUMENT]",
     "count": n (default: for ever), "skip": n matches to let pass first}

    status:503[:RETRY_AFTER]   answer with this status
    silent                     read the request, never answer
    silent-above:N             the same, to a range of more than N bytes
    hold                       answer once the faults are cleared
    stall:N                    send N bytes of the body, then nothing
    short:N                    promise all, send N bytes, close
    long:N                     N bytes more than the range says (chunked)
    chunked                    no Content-Length
    reset                      RST instead of an answer
    200                        ignore the range
    no-suffix[:STATUS]         refuse "bytes=-N" (416)
    tamper:OFFSET              flip the byte of the blob at OFFSET
    wrong-content-range        shift it by one
    wrong-total                blob one byte longer than it is
    slow:BYTES_PER_S           of the body
    delay:MS                   before the answer
    redirect:URL[|STATUS]      {path} in URL stands for the request's path

{"clear": true} forgets faults, {"reset": true} the counters, {"expires_in": n}
sets the life of new tokens, {"revoke": true} ends those there are.
GET /_admin/stats tells what was asked for.
"""

import argparse
import base64
import hashlib
import json
import os
import secrets
import signal
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST_TYPES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
}
CHUNK = 64 * 1024
LOG_MAX = 10000


class Layouts:
    """Repository name -> directory of an OCI layout."""

    def __init__(self, roots):
        self.roots = roots

    def find(self, name):
        for root in self.roots:
            alias, _, path = root.rpartition("=")
            if alias:
                if alias == name:
                    return path
                continue
            path = path.rstrip("/")
            if os.path.exists(os.path.join(path, "index.json")):
                if os.path.basename(path) == name:
                    return path
            elif ".." not in name.split("/"):
                sub = os.path.join(path, name)
                if os.path.exists(os.path.join(sub, "index.json")):
                    return sub
        return None

    @staticmethod
    def blob(layout, digest):
        algo, _, value = digest.partition(":")
        if not algo.isalnum() or not value.isalnum():
            return None
        path = os.path.join(layout, "blobs", algo, value)
        return path if os.path.isfile(path) else None

    @staticmethod
    def tags(layout):
        with open(os.path.join(layout, "index.json"), encoding="utf-8") as f:
            manifests = json.load(f)["manifests"]
        tags = {}
        for m in manifests:
            name = (m.get("annotations") or {}).get(
                "org.opencontainers.image.ref.name"
            )
            if name:
                tags[name.rsplit(":", 1)[-1]] = m["digest"]
        if len(manifests) == 1:
            tags.setdefault("latest", manifests[0]["digest"])
        return tags


class State:
    """What the admin endpoint changes and the handlers look at."""

    def __init__(self, args):
        self.lock = threading.Lock()
        self.cleared = threading.Condition(self.lock)
        self.n_clears = 0
        self.layouts = Layouts(args.root)
        self.auth = args.auth
        self.realm = args.realm
        self.connect = args.connect
        self.expires_in = 300
        self.tokens = {}  # token -> (until, scope)
        self.faults = []
        self.logfile = open(args.log, "a", encoding="utf-8") if args.log else None
        self.round = 0
        self.reset()
        if args.script:
            with open(args.script, encoding="utf-8") as f:
                for entry in json.load(f):
                    self.add_fault(entry)

    def reset(self):
        self.round += 1
        self.requests = 0
        self.bytes = 0
        self.token_requests = 0
        self.by_digest = {}
        self.log = []

    def add_fault(self, entry):
        kind, _, arg = entry["fault"].partition(":")
        self.faults.append(
            {
                "match": entry.get("match", ""),
                "kind": kind,
                "arg": arg,
                "count": entry.get("count", -1),
                "skip": entry.get("skip", 0),
            }
        )

    def take_faults(self, path):
        """The faults that apply to this request: kind -> argument."""
        found = {}
        with self.lock:
            for f in self.faults:
                if f["match"] not in path or f["count"] == 0:
                    continue
                if f["skip"] > 0:
                    f["skip"] -= 1
                    continue
                if f["kind"] in found:
                    continue
                if f["count"] > 0:
                    f["count"] -= 1
                found[f["kind"]] = self.n_clears if f["kind"] == "hold" else f["arg"]
        return found

    def wait_for_clear(self, since):
        with self.lock:
            self.cleared.wait_for(lambda: self.n_clears != since)

    def begin(self, entry):
        """Counted before it is answered: whoever has an answer can rely on it."""
        with self.lock:
            self.requests += 1
            if len(self.log) < LOG_MAX:
                self.log.append(entry)

    def note_blob(self, entry, digest):
        with self.lock:
            d = self.by_digest.setdefault(
                digest, {"requests": 0, "bytes": 0, "ranges": []}
            )
            d["requests"] += 1
            if entry["range"] and len(d["ranges"]) < LOG_MAX:
                d["ranges"].append(entry["range"])

    def end(self, entry, digest, began_in):
        with self.lock:
            # What began before the counters were reset counts for nothing.
            if began_in == self.round:
                self.bytes += entry["bytes"]
                if digest in self.by_digest:
                    self.by_digest[digest]["bytes"] += entry["bytes"]
            if self.logfile:
                self.logfile.write(json.dumps(entry) + "\n")
                self.logfile.flush()

    def stats(self):
        with self.lock:
            return {
                "requests": self.requests,
                "bytes": self.bytes,
                "token_requests": self.token_requests,
                "by_digest": self.by_digest,
                "log": self.log,
                "tokens": list(self.tokens),
            }

    def admin(self, order):
        with self.lock:
            if order.get("clear"):
                self.faults = []
                self.n_clears += 1
                self.cleared.notify_all()
            if order.get("reset"):
                self.reset()
            if order.get("revoke"):
                self.tokens = {}
            if "expires_in" in order:
                self.expires_in = order["expires_in"]
            if "auth" in order:
                self.auth = order["auth"]
            if "fault" in order:
                self.add_fault(order)

    def new_token(self, scope):
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.token_requests += 1
            self.tokens[token] = (time.monotonic() + self.expires_in, scope)
        return token

    def token_is_good(self, token, repo):
        with self.lock:
            until, scope = self.tokens.get(token, (0, ""))
        wanted = f"repository:{repo}:"
        return time.monotonic() < until and any(
            s.startswith(wanted) and "pull" in s for s in scope.split()
        )


class Gone(Exception):
    """The connection is to end here, without another word."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scripted-registry"
    disable_nagle_algorithm = True
    timeout = 300

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    # ---- answers ----

    def start(self, status, headers):
        self.entry["status"] = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def answer(self, status, body=b"", **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        headers["Content-Length"] = len(body)
        self.start(status, headers)
        if self.command != "HEAD":
            self.send(body)

    def answer_json(self, status, value, **headers):
        headers.setdefault("Content_Type", "application/json")
        self.answer(status, json.dumps(value).encode(), **headers)

    def error(self, status, code, **headers):
        self.answer_json(status, {"errors": [{"code": code}]}, **headers)

    def send(self, data):
        self.wfile.write(data)
        self.sent += len(data)

    # ---- dispatch ----

    def do_GET(self):
        self.handle_request()

    def do_HEAD(self):
        self.handle_request()

    def do_POST(self):
        self.handle_request()

    def do_CONNECT(self):
        """As a proxy for TLS: whatever the host, --connect is where it is."""
        self.st = self.server.state
        kept = {"method": "CONNECT", "path": self.path, "query": "", "range": None}
        kept["auth"] = (self.headers.get("Authorization") or "").split(" ")[0]
        kept["proxy_auth"] = self.headers.get("Proxy-Authorization") or ""
        kept["agent"] = self.headers.get("User-Agent")
        host, port = self.st.connect.rsplit(":", 1)
        self.close_connection = True
        with socket.create_connection((host, int(port))) as there:
            self.st.begin(kept)
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()

    def handle_request(self):
        self.st = self.server.state
        began_in = self.st.round
        self.sent = 0
        self.entry = {}
        self.digest = None
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/_admin"):
            self.admin(url.path)
            return
        self.entry = {
            "method": self.command,
            "path": url.path,
            "query": url.query,
            "status": 0,
            "range": self.headers.get("Range"),
            "auth": (self.headers.get("Authorization") or "").split(" ")[0],
            "agent": self.headers.get("User-Agent"),
            "encoding": self.headers.get("Accept-Encoding"),
            "bytes": 0,
            "from": self.client_address[1],
        }
        self.st.begin(self.entry)
        try:
            self.fault = self.st.take_faults(self.path)
            if not self.early_fault():
                self.route(url)
        except (Gone, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self.entry["bytes"] = self.sent
            self.st.end(self.entry, self.digest, began_in)

    def early_fault(self):
        """Faults that need no blob. True: the request is dealt with."""
        f = self.fault
        if "delay" in f:
            time.sleep(int(f["delay"]) / 1000)
        if "hold" in f:
            self.st.wait_for_clear(f["hold"])
        if "silent" in f or self.asks_too_much():
            self.wait_for_close()
        if "reset" in f:
            self.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self.connection.close()
            raise Gone
        if "status" in f:
            status, _, after = f["status"].partition(":")
            self.error(int(status), "SCRIPTED", **({"Retry_After": after} if after else {}))
            return True
        if "redirect" in f:
            target, _, status = f["redirect"].partition("|")
            self.answer(
                int(status or 307),
                b"over there",
                Location=target.replace("{path}", self.path),
            )
            return True
        return False

    def asks_too_much(self):
        limit = self.fault.get("silent-above")
        first, _, last = (self.headers.get("Range") or "bytes=-")[6:].partition("-")
        if limit is None or not (first and last):
            return False
        return int(last) + 1 - int(first) > int(limit)

    def wait_for_close(self):
        self.connection.settimeout(120)
        try:
            while self.connection.recv(4096):
                pass
        except OSError:
            pass
        raise Gone

    def route(self, url):
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")]
        if url.path == "/token":
            self.token(url.query)
        elif parts[1:2] != ["v2"]:
            self.error(404, "NOT_FOUND")
        elif url.path.rstrip("/") == "/v2":
            if self.authorised(""):
                self.answer_json(200, {})
        elif len(parts) >= 5 and parts[-2] in ("manifests", "blobs", "tags"):
            repo = "/".join(parts[2:-2])
            if not self.authorised(repo):
                return
            layout = self.st.layouts.find(repo)
            if not layout:
                self.error(404, "NAME_UNKNOWN")
            elif parts[-2] == "manifests":
                self.manifest(layout, parts[-1])
            elif parts[-2] == "blobs":
                self.blob(layout, parts[-1])
            else:
                self.answer_json(
                    200, {"name": repo, "tags": sorted(Layouts.tags(layout))}
                )
        else:
            self.error(404, "NOT_FOUND")

    # ---- authentication ----

    def credentials(self):
        kind, _, value = (self.headers.get("Authorization") or "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            return base64.b64decode(value).decode()
        except ValueError:
            return None

    def authorised(self, repo):
        kind, _, cred = (self.st.auth or "").partition(":")
        if not kind:
            return True
        if kind == "basic":
            if self.credentials() == cred:
                return True
            challenge = 'Basic realm="scripted registry"'
        else:
            scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
            if scheme.lower() == "bearer" and (
                self.st.token_is_good(token, repo) or not repo
            ):
                return True
            proto = "https" if self.server.is_tls else "http"
            realm = self.st.realm or f'{proto}://{self.headers["Host"]}/token'
            challenge = (
                f'Bearer realm="{realm}",service="scripted registry"'
            )
            if repo:
                challenge += f',scope="repository:{repo}:pull"'
        self.error(401, "UNAUTHORIZED", WWW_Authenticate=challenge)
        return False

    def token(self, query):
        cred = (self.st.auth or "").partition(":")[2]
        if self.command == "POST":
            form = urllib.parse.parse_qs(self.body.decode())
            good = (
                form.get("grant_type") == ["refresh_token"]
                and form.get("refresh_token") == [cred.partition(":")[2]]
                and form.get("service") == ["scripted registry"]
            )
            scope = " ".join(form.get("scope", []))
        else:
            form = urllib.parse.parse_qs(query)
            good = not cred or self.credentials() == cred
            scope = " ".join(form.get("scope", []))
        if not good:
            self.error(401, "UNAUTHORIZED")
            return
        self.answer_json(
            200,
            {"token": self.st.new_token(scope), "expires_in": self.st.expires_in},
        )

    # ---- content ----

    def manifest(self, layout, ref):
        digest = ref if ":" in ref else Layouts.tags(layout).get(ref)
        path = digest and Layouts.blob(layout, digest)
        if not path:
            self.error(404, "MANIFEST_UNKNOWN")
            return
        with open(path, "rb") as f:
            data = f.read()
        try:
            kind = json.loads(data).get("mediaType")
        except ValueError:
            kind = None
        if kind not in MANIFEST_TYPES:
            kind = "application/vnd.oci.image.manifest.v1+json"
            if b'"manifests"' in data:
                kind = "application/vnd.oci.image.index.v1+json"
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.answer(200, data, Content_Type=kind, Docker_Content_Digest=digest)

    def parse_range(self, size):
        """(first, last, partial), or None: not satisfiable."""
        text = self.headers.get("Range")
        if not text or "200" in self.fault or not text.startswith("bytes="):
            return 0, size - 1, False
        first, _, last = text[6:].partition("-")
        if "," in text or not (first or last):
            return 0, size - 1, False
        if not first:
            if "no-suffix" in self.fault or int(last) == 0:
                return None
            return max(0, size - int(last)), size - 1, True
        if int(first) >= size:
            return None
        return int(first), min(int(last or size), size - 1), True

    def blob(self, layout, digest):
        path = Layouts.blob(layout, digest)
        if not path:
            self.error(404, "BLOB_UNKNOWN")
            return
        self.digest = digest
        self.st.note_blob(self.entry, digest)
        size = os.path.getsize(path)
        found = self.parse_range(size)
        if not found:
            status = int(self.fault.get("no-suffix") or 416)
            self.error(status, "RANGE_INVALID", Content_Range=f"bytes */{size}")
            return
        first, last, partial = found
        headers = {
            "Content-Type": "application/octet-stream",
            "Docker-Content-Digest": digest,
            "Accept-Ranges": "bytes",
        }
        if partial:
            shift = 1 if "wrong-content-range" in self.fault else 0
            total = size + (1 if "wrong-total" in self.fault else 0)
            headers["Content-Range"] = f"bytes {first + shift}-{last + shift}/{total}"
        chunked = "chunked" in self.fault or "long" in self.fault
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = last + 1 - first
        self.start(206 if partial else 200, headers)
        if self.command == "HEAD":
            return
        with open(path, "rb") as f:
            if not self.fault:
                self.sent += self.sendfile(f, first, last + 1 - first)
            else:
                self.send_faulty(f, first, last + 1, chunked)

    def sendfile(self, f, first, n):
        if self.server.is_tls:
            f.seek(first)
            self.wfile.write(f.read(n))
            return n
        self.wfile.flush()
        return self.connection.sendfile(f, first, n)

    def send_faulty(self, f, first, end, chunked):
        limit = end
        for kind in ("short", "stall"):
            if kind in self.fault:
                limit = min(limit, first + int(self.fault[kind]))
        rate = int(self.fault.get("slow") or 0)
        step = max(1, min(CHUNK, rate // 20)) if rate else CHUNK
        tamper = int(self.fault.get("tamper") or -1) if "tamper" in self.fault else -1
        f.seek(first)
        pos = first
        while pos < limit:
            data = bytearray(f.read(min(step, limit - pos)))
            if pos <= tamper < pos + len(data):
                data[tamper - pos] ^= 0xFF
            self.send_piece(bytes(data), chunked)
            pos += len(data)
            if rate:
                time.sleep(len(data) / rate)
        if "long" in self.fault:
            self.send_piece(b"x" * int(self.fault["long"]), True)
        if "stall" in self.fault:
            self.wfile.flush()
            self.wait_for_close()
        if limit < end:
            raise Gone
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def send_piece(self, data, chunked):
        if chunked:
            self.wfile.write(b"%x\r\n" % len(data))
        self.send(data)
        if chunked:
            self.wfile.write(b"\r\n")

    # ---- orders ----

    def admin(self, path):
        if self.command == "POST":
            try:
                self.st.admin(json.loads(self.body or b"{}"))
            except (ValueError, KeyError, AttributeError) as e:
                self.answer_json(400, {"error": str(e)})
                return
            self.answer_json(200, {})
        elif path == "/_admin/stats":
            self.answer_json(200, self.st.stats())
        else:
            self.answer_json(404, {})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


def pump(source, sink):
    """All bytes, then the end of them."""
    try:
        while data := source.recv(CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Server6(Server):
    address_family = socket.AF_INET6


def main():
    ap = argparse.ArgumentParser(description="a scripted read-only registry")
    ap.add_argument("--bind", default="127.0.0.1")
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--portfile", help="gets the port when it listens")
    ap.add_argument("--root", action="append", default=[], metavar="[NAME=]DIR")
    ap.add_argument("--script", help="JSON list of faults to begin with")
    ap.add_argument("--log", help="one JSON line a request")
    ap.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    ap.add_argument("--client-ca", help="clients must have a certificate of it")
    ap.add_argument("--auth", help="basic:USER:PASSWORD | bearer[:USER:PASSWORD]")
    ap.add_argument("--connect", metavar="HOST:PORT", help="be a proxy to it, too")
    ap.add_argument("--realm", metavar="URL", help="the token server, when it is another")
    args = ap.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    cls = Server6 if ":" in args.bind else Server
    server = cls((args.bind, args.port), Handler)
    server.state = State(args)
    server.is_tls = bool(args.tls)
    if args.tls:
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(*args.tls)
        if args.client_ca:
            ctx.load_verify_locations(args.client_ca)
            ctx.verify_mode = ssl.CERT_REQUIRED
        server.socket = ctx.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    if args.portfile:
        tmp = args.portfile + ".tmp"
        with open(tmp, "w", encoding="ascii") as f:
            f.write(f"{server.server_address[1]}\n")
        os.rename(tmp, args.portfile)
    server.serve_forever()


if __name__ == "__main__":
    main()
