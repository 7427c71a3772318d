#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A token server as docker-registry wants it: JWTs that a certificate signs.

    tokenserver.py --port 5001 --cert C --key K [--tls CERT KEY]
                   [--user NAME:PASSWORD] [--identity TOKEN] [--expires-in N]

Basic authentication by GET, or an identity token by POST (OAuth2). Without
credentials a token is given, but for repositories below public/ only. GET
/stats: requests by kind, and the scopes that were asked for.
"""
import argparse
import base64
import json
import ssl
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def sign(claims, key, x5c):
    """A JWT; openssl signs it, so that Python needs no further packages."""
    head = {"typ": "JWT", "alg": "RS256", "x5c": [x5c]}
    text = b64(json.dumps(head).encode()) + b"." + b64(json.dumps(claims).encode())
    done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text, capture_output=True, check=True)
    return (text + b"." + b64(done.stdout)).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def count(self, kind, scopes):
        with self.server.lock:
            self.server.stats[kind] = self.server.stats.get(kind, 0) + 1
            self.server.stats["scopes"] += scopes

    def grant(self, kind, scopes, service, allowed):
        s = self.server
        self.count(kind, scopes)
        access = []
        for scope in scopes:
            name, _, actions = scope.removeprefix("repository:").rpartition(":")
            if allowed or name.startswith("public/"):
                access.append({"type": "repository", "name": name, "actions": actions.split(",")})
        now = int(time.time())
        claims = {
            "iss": "lab",
            "sub": kind,
            "aud": service,
            "exp": now + 3600,
            "nbf": now - 60,
            "iat": now,
            "jti": str(time.monotonic_ns()),
            "access": access,
        }
        token = sign(claims, s.args.key, s.x5c)
        self.answer(200, {"token": token, "access_token": token, "expires_in": s.args.expires_in})

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        form = urllib.parse.parse_qs(url.query)
        if url.path == "/stats":
            self.answer(200, self.server.stats)
            return
        scopes = form.get("scope", [])
        service = form.get("service", [""])[0]
        kind, _, cred = (self.headers.get("Authorization") or "").partition(" ")
        if not kind:
            self.grant("anonymous", scopes, service, False)
        elif base64.b64decode(cred).decode() == self.server.args.user:
            self.grant("basic", scopes, service, True)
        else:
            self.count("refused", scopes)
            self.answer(401, {})

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        scopes = " ".join(form.get("scope", [])).split()
        if form.get("grant_type") == ["refresh_token"] and form.get("refresh_token") == [self.server.args.identity]:
            self.grant("identity", scopes, form.get("service", [""])[0], True)
        elif form.get("grant_type") == ["password"] and (
            f"{form['username'][0]}:{form['password'][0]}" == self.server.args.user
        ):
            self.grant("password", scopes, form.get("service", [""])[0], True)
        else:
            self.count("refused", scopes)
            self.answer(401, {})


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, required=True)
    ap.add_argument("--cert", required=True)
    ap.add_argument("--key", required=True)
    ap.add_argument("--tls", nargs=2)
    ap.add_argument("--user", default="")
    ap.add_argument("--identity", default="")
    ap.add_argument("--expires-in", type=int, default=300)
    args = ap.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.daemon_threads = True
    server.args = args
    server.lock = threading.Lock()
    server.stats = {"scopes": []}
    with open(args.cert, encoding="ascii") as f:
        server.x5c = "".join(line.strip() for line in f if not line.startswith("-----"))
    if args.tls:
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(*args.tls)
        server.socket = ctx.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
