#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A registry that is configured for plain http, on another machine: it gets its
# password itself, but may not say who else gets it. Anybody on the way could
# have said so in its place.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
SELF=192.0.2.1:5001 TRICKED=192.0.2.1:5002 TRICKED_TLS=192.0.2.1:5003
THIEF=192.0.2.2:5004
password=correct-horse

start_remote() { # NAME HOST:PORT [ARGS...]
	local name=$1 at=$2
	shift 2
	start_at "$name" "$at" --bind "${at%:*}" --auth "bearer:lab:$password" "$@"
}
pull_case() { # REGISTRY HOST:PORT IMAGE SEED
	hosts "$1" <<<"server = \"http://$2\""
	near "$1" "http://$REG/v2"
	random_image "$3" "$4"
	pull_by_hosts "$1/$3:latest" --hosts-dir "$W/near"
}
tokens_of() { # the log of a registry: credentials that its token server was shown
	jq -s '[.[] | select(.path == "/token") | .auth] | map(select(. != "")) | length' "$W/$1.jsonl"
}

ip addr add 192.0.2.1/32 dev lo
ip addr add 192.0.2.2/32 dev lo
start_at registry $REG
start_remote self $SELF --log "$W/self.jsonl"
start_remote tricked $TRICKED --realm "http://$THIEF/token"
start_remote tricked_tls $TRICKED_TLS --realm "https://$THIEF/token"
start_remote thief $THIEF --log "$W/thief.jsonl"
auth=$(printf 'lab:%s' $password | base64 -w0)
mkdir "$W/docker"
jq -n --arg a "$auth" '{auths: ([$ARGS.positional[] | {(.): {auth: $a}}] | add)}' \
	--args $SELF $TRICKED $TRICKED_TLS >"$W/docker/config.json"
config "hosts_dir = \"$CERTS\"" 'background_fill = false'
DOCKER_CONFIG=$W/docker start_daemon
start_containerd 1

pull_case self.test $SELF app1 100
d=$(layer_info app1 0)
assert_state "$d" lazy
assert_file "$(layer_path "$d")/f1" 101
[ "$(tokens_of self)" -ge 1 ] || fail 'it asked for no token: this test shows nothing'

pull_case tricked.test $TRICKED app2 200
assert_fallback "$(layer_info app2 0)" 'credentials are not sent'
[ "$(tokens_of thief)" = 0 ] || fail 'the password went to another server, in the clear'

# Encrypted, to a server that nobody authentic has named.
pull_case tls.test $TRICKED_TLS app3 300
assert_fallback "$(layer_info app3 0)" 'credentials are not sent'
