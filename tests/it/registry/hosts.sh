#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hosts.toml as containerd reads it: names of folders, defaults, paths, headers,
# IPv6, a proxy; and a broken file, which makes its registry unavailable with
# file and line, and no other, until it is mended, without a restart. The client
# has a folder of its own, so that what is lazy is ours.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
SIX='[::1]:5006' PROXY=127.0.0.1:5007

lazy_from() { # REF NAME SEED [ARGS...]
	local ref=$1 d
	d=$(layer_info "$2" 0)
	pull_by_hosts "$ref" --hosts-dir "$W/near" "${@:4}"
	assert_state "$d" lazy
	assert_file "$(layer_path "$d")/f1" $(($3 + 1))
}

near _default "http://$REG/v2"
near path.direct "http://$REG/v2/team"
mkdir -p "$OCI/team" "$W/team" "$CERTS"
n=0
for name in colon plain default team/path six proxied broken other; do
	n=$((n + 1))
	random_image "$name" "${n}00"
done
start_at registry $REG
start_at six "$SIX" --bind ::1
start_at proxy $PROXY
# The proxy has no name server either: it answers for every host.
export http_proxy=http://$PROXY no_proxy=.direct
config "hosts_dir = \"$CERTS\"" 'background_fill = false'
start_daemon
unset http_proxy no_proxy
start_containerd 1

# --- names of folders, and the order of them
hosts colon.direct:5000 <<<"server = 'http://$REG'"
lazy_from colon.direct:5000/colon:latest colon 100
hosts plain.direct:5000 <<<"server = 'http://127.0.0.1:1'"
hosts plain.direct_5000_ <<<"server = 'http://$REG'"
lazy_from plain.direct:5000/plain:latest plain 200
hosts _default <<-T
	# for all that have no folder of their own
	server = "http://$REG"
	[header]
	  X-Lab = ["one", 'two']
	  Authorization = "Basic dTpw"
T
order $REG '{"auth": "basic:u:p"}'
lazy_from any.direct/default:latest default 300 --user u:p
order $REG '{"auth": null}'

# --- a path that replaces /v2, and a server without a scheme
hosts path.direct <<-T
	server = "127.0.0.1:1"
	[host."http://$REG/v2/team/"]
	  override_path = true
	  capabilities = ["pull", "resolve"]
T
lazy_from path.direct/path:latest team/path 400
[ "$(asked $REG '.path | startswith("/v2/team/path/blobs/")')" -ge 2 ] || fail 'override_path'

# --- IPv6
hosts six.direct <<<"server = 'http://$SIX'"
lazy_from six.direct/six:latest six 500
[ "$(asked "$SIX")" -ge 2 ] || fail 'nothing was asked by IPv6'

# --- a proxy from the environment; what no_proxy names goes without
hosts far.test <<<'server = "http://far.test"'
lazy_from far.test/proxied:latest proxied 600
[ "$(asked $PROXY '.path | contains("/proxied/blobs/")')" -ge 2 ] || fail 'the proxy was not asked'
[ "$(asked $PROXY '.path | contains("/proxied/") | not')" = 0 ] || fail 'the proxy was asked for others'

# --- a broken file
hosts broken.direct <<-'T'

	[host."http://127.0.0.1:1"
T
d=$(layer_info broken 0)
pull_by_hosts broken.direct/broken:latest --hosts-dir "$W/near"
assert_fallback "$d" 'broken.direct/hosts.toml:2: '
[[ $(status | jq -r '.registries[] | select(.registry == "broken.direct").error') == *"hosts.toml:2: "* ]] ||
	fail 'status does not say what is wrong with the file'
lazy_from other.direct/other:latest other 800
ctr images rm --sync broken.direct/broken:latest >/dev/null
hosts broken.direct <<<"server = 'http://$REG'"
is_lazy_now() {
	ctr images rm --sync broken.direct/broken:latest >/dev/null 2>&1
	pull_by_hosts broken.direct/broken:latest --hosts-dir "$W/near"
	[ "$(layer_status "$d" .state)" = lazy ]
}
wait_for 60 'the mended file to count' is_lazy_now
assert_file "$(layer_path "$d")/f1" 701
