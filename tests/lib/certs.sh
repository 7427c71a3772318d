# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Certificates of a test's own, and Debian's docker-registry with TLS. Source it
# behind hosts.sh.
PKI=$W/pki
mkdir -p "$PKI"

ssl() {
	openssl "$@" 2>"$W/openssl.log" || fail "openssl $1: $(tail -n 2 "$W/openssl.log")"
}

make_ca() { # NAME
	ssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -keyout "$PKI/$1.key" -out "$PKI/$1.crt"
}

# make_cert NAME CA [SAN]
make_cert() {
	ssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout "$PKI/$1.key" -out "$PKI/$1.csr"
	printf '%s\n' "subjectAltName=${3:-DNS:$1}" >"$PKI/$1.ext"
	ssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/$2.crt" -CAkey "$PKI/$2.key" -CAcreateserial -days 2 \
		-extfile "$PKI/$1.ext" -out "$PKI/$1.crt"
}

# start_docker_registry NAME HOST:PORT STORAGE [LINE...]: with the certificate
# "server" and an access log; further lines of its configuration
start_docker_registry() {
	local name=$1 at=$2 storage=$3
	shift 3
	cat >"$W/$name.yml" <<-Y
		version: 0.1
		log: {level: warn, accesslog: {disabled: false}}
		storage: {filesystem: {rootdirectory: $storage}}
		http: {addr: "$at", secret: lab, tls: {certificate: $PKI/server.crt, key: $PKI/server.key}}
	Y
	printf '%s\n' "$@" >>"$W/$name.yml"
	start "$name" docker-registry serve "$W/$name.yml"
	wait_for 30 "the registry $name" curl -sk "https://$at/v2/"
}
