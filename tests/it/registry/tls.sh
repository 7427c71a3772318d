#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Registries behind TLS, scripted ones and Debian's docker-registry: private
# authorities from hosts.toml and from docker's folders, client certificates,
# skip_verify, HTTP/1.1 and HTTP/2, by a proxy, too; unknown authorities and a missing client
# certificate are refused, with the reason in status.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
# shellcheck source=tests/lib/certs.sh
. "$TOP/tests/lib/certs.sh"
TLS=127.0.0.1:5443 MUTUAL=127.0.0.1:5444 DOCKER=127.0.0.1:5445 PROXY=127.0.0.1:5446

n=0
pull_case() { # REGISTRY: an image of its own; the client goes another way
	n=$((n + 1))
	random_image "app$n" "${n}00"
	d=$(layer_info "app$n" 0)
	pull_by_hosts "$1/app$n:latest" --hosts-dir "$W/near"
}
lazy_from() { # REGISTRY
	pull_case "$1"
	assert_state "$d" lazy
	assert_file "$(layer_path "$d")/f1" "${n}01"
}
refused() { # REGISTRY PART-OF-THE-REASON
	pull_case "$1"
	assert_fallback "$d" "$2"
	echo "$1: $(layer_status "$d" .reason)"
}

make_ca ca
make_ca other
make_cert server ca IP:127.0.0.1,DNS:far.test
make_cert client ca
near _default "http://$REG/v2"
mkdir -p "$CERTS"
start_at registry $REG
start tls python3 "$TOP/tests/lib/registry.py" --port ${TLS##*:} --root "$OCI" --tls "$PKI/server.crt" "$PKI/server.key"
start mutual python3 "$TOP/tests/lib/registry.py" --port ${MUTUAL##*:} --root "$OCI" \
	--tls "$PKI/server.crt" "$PKI/server.key" --client-ca "$PKI/ca.crt"
wait_for 30 'TLS' curl -sk "https://$TLS/_admin/stats"
wait_for 30 'TLS with client certificates' curl -sk --cert "$PKI/client.crt" --key "$PKI/client.key" \
	"https://$MUTUAL/_admin/stats"
start_at proxy $PROXY --connect $TLS
config "hosts_dir = \"$CERTS\"" 'background_fill = false'
https_proxy=http://lab:secret@$PROXY start_daemon
start_containerd 1

# --- whom we trust
hosts ca.direct <<-T
	server = "https://$TLS"
	ca = "ca.crt"
T
cp "$PKI/ca.crt" "$CERTS/ca.direct/"
lazy_from ca.direct
hosts list.direct <<-T
	server = "https://$TLS"
	ca = ["$PKI/other.crt", "$PKI/ca.crt"]
T
lazy_from list.direct
hosts unknown.direct <<<"server = 'https://$TLS'"
refused unknown.direct certificate
hosts wrong.direct <<-T
	server = "https://$TLS"
	ca = "$PKI/other.crt"
T
refused wrong.direct certificate
hosts skip.direct <<-T
	server = "https://$TLS"
	skip_verify = true
T
lazy_from skip.direct
hosts nofile.direct <<-T
	server = "https://$TLS"
	ca = "missing.crt"
T
refused nofile.direct missing.crt
# http, and how to do TLS: TLS first, as containerd does
hosts both.direct <<-T
	server = "http://$TLS"
	skip_verify = true
T
lazy_from both.direct
hosts plain.direct <<-T
	server = "http://$REG"
	skip_verify = true
T
lazy_from plain.direct

# --- by a proxy, which sees neither the request nor what it takes for another
hosts far.test <<-T
	server = "https://far.test"
	ca = "$PKI/ca.crt"
	[header]
	  Authorization = "Basic dTpw"
T
lazy_from far.test
connects() { curl -sf "http://$PROXY/_admin/stats" | jq "[.log[] | select(.method == \"CONNECT\") | select($1)] | length"; }
[ "$(connects '.path == "far.test:443"')" -ge 1 ] || fail 'the proxy was not asked'
[ "$(connects '.path != "far.test:443"')" = 0 ] || fail 'the proxy was asked for registries on this machine'
[ "$(connects ".proxy_auth == \"Basic $(printf lab:secret | base64)\"")" -ge 1 ] || fail 'without the password for the proxy'
[ "$(connects '.auth != ""')" = 0 ] || fail 'the proxy got what is for the registry'
! grep -q 'lab:secret' "$W/daemon.log" || fail 'the password for the proxy is in the log'

# --- who we are
hosts mutual.direct <<-T
	server = "https://$MUTUAL"
	ca = "$PKI/ca.crt"
	client = [["$PKI/client.crt", "$PKI/client.key"]]
T
lazy_from mutual.direct
cat "$PKI/client.crt" "$PKI/client.key" >"$PKI/client.pem"
hosts pem.direct <<-T
	server = "https://$MUTUAL"
	ca = "$PKI/ca.crt"
	client = "$PKI/client.pem"
T
lazy_from pem.direct
hosts nobody.direct <<-T
	server = "https://$MUTUAL"
	ca = "$PKI/ca.crt"
T
# TLS 1.3 lets the client find out when it has sent its request: any error
refused nobody.direct "$MUTUAL"

# --- docker's folders, without a hosts.toml
mkdir "$CERTS/$TLS" "$CERTS/${MUTUAL/:/_}_"
cp "$PKI/ca.crt" "$CERTS/$TLS/"
lazy_from $TLS
cp "$PKI/ca.crt" "$CERTS/${MUTUAL/:/_}_/"
cp "$PKI/client.crt" "$CERTS/${MUTUAL/:/_}_/a.cert"
cp "$PKI/client.key" "$CERTS/${MUTUAL/:/_}_/a.key"
lazy_from $MUTUAL

# --- docker-registry, in both versions of HTTP
hosts docker.direct <<-T
	server = "https://$DOCKER"
	[host."https://$DOCKER"]
	  ca = "$PKI/ca.crt"
T
protocols() { grep 'verity-snapshotter/' "$W/docker.log" | grep -o 'HTTP/[0-9.]*' | sort -u; }
reads() { # REPOSITORY: all files of its layers
	local seq
	pull_by_hosts "docker.direct/$1:esgz"
	[ "$(status | jq -r ".layers[] | select(.image | contains(\"$1:\")) | .state" | sort -u)" = lazy ] ||
		fail "$1 is not lazy: $(status | jq -c '.layers[] | {image, state, reason}')"
	for seq in $(status | jq -r ".layers[] | select(.image | contains(\"$1:\")) | .seq"); do
		find "$ROOT/l/$seq" -type f -exec cat {} + >/dev/null || fail "$1 cannot be read"
	done
}
start_docker_registry docker $DOCKER "$IMAGES/registry"
reads hello
[ "$(protocols)" = HTTP/1.1 ] || fail "protocols: $(protocols)"
stop daemon
stop docker
config "hosts_dir = \"$CERTS\"" 'background_fill = false' 'http2 = true'
start_docker_registry docker $DOCKER "$IMAGES/registry"
start_daemon
wait_for 30 'containerd to reconnect' ctr snapshots --snapshotter verity ls
reads twice
[ "$(protocols)" = HTTP/2.0 ] || fail "protocols: $(protocols)"
