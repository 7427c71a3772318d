#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Debian's docker-registry with TLS and a token server: anonymous, passwords,
# identity tokens, credential helpers, the files of other clients; one token for
# all ranges, renewed before it is refused; and no secret in the log.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
# shellcheck source=tests/lib/certs.sh
. "$TOP/tests/lib/certs.sh"
DOCKER=127.0.0.1:5443 TOKENS=127.0.0.1:5444
password=correct-horse identity=battery-staple

# The registry of the client, without TLS, has the same storage.
n=0
pull_case() { # REPOSITORY: an image of its own
	n=$((n + 1))
	random_image "$1" "${n}00"
	skopeo copy -q --dest-tls-verify=false "oci:$OCI/$1" "docker://$REG/$1:latest"
	d=$(layer_info "$1" 0)
	pull_by_hosts "auth.direct/$1:latest" --hosts-dir "$W/near"
}
lazy_from() { # REPOSITORY
	pull_case "$1"
	assert_state "$d" lazy
	assert_file "$(layer_path "$d")/f1" "${n}01"
}
refused() { # REPOSITORY PART-OF-THE-REASON
	pull_case "$1"
	assert_fallback "$d" "$2"
	echo "$1: $(layer_status "$d" .reason)"
}
credentials() { # the JSON of docker's config.json
	mkdir -p "$W/docker"
	printf '%s' "$1" >"$W/docker/config.json.new"
	mv "$W/docker/config.json.new" "$W/docker/config.json"
}
granted() { # KIND
	curl -sf --cacert "$PKI/ca.crt" "https://$TOKENS/stats" | jq ".$1 // 0"
}
start_tokens() { # [ARGS...]
	start tokens python3 "$TOP/tests/lib/tokenserver.py" --port ${TOKENS##*:} --cert "$PKI/signer.crt" \
		--key "$PKI/signer.key" --tls "$PKI/server.crt" "$PKI/server.key" --user "lab:$password" \
		--identity $identity "$@"
	wait_for 30 'the token server' granted basic
}
refusals() { grep 'verity-snapshotter/' "$W/docker.log" | grep -c '" 401 ' || true; }

make_ca ca
make_cert server ca IP:127.0.0.1
make_cert signer ca
near _default "http://$REG/v2"
mkdir -p "$OCI/public" "$OCI/team" "$W/public" "$W/team" "$W/bin"
hosts auth.direct <<-T
	server = "https://$DOCKER"
	ca = "$PKI/ca.crt"
T
start_registry "$W/storage"
start_tokens
start_docker_registry docker $DOCKER "$W/storage" \
	"auth: {token: {realm: 'https://$TOKENS/token', service: lab, issuer: lab, rootcertbundle: $PKI/ca.crt}}"
cat >"$W/bin/docker-credential-lab" <<-H
	#!/bin/sh
	read -r server
	[ "\$1 \$server" = "get $DOCKER" ] || { echo credentials not found in native keychain; exit 1; }
	echo '{"ServerURL": "$DOCKER", "Username": "lab", "Secret": "$password"}'
H
chmod +x "$W/bin/docker-credential-lab"
config "hosts_dir = \"$CERTS\"" 'background_fill = false'
export DOCKER_CONFIG=$W/docker REGISTRY_AUTH_FILE=$W/auth.json
PATH=$W/bin:$PATH start_daemon
unset DOCKER_CONFIG REGISTRY_AUTH_FILE
start_containerd 1

# --- anonymous
lazy_from public/app
[ "$(granted anonymous)" = 1 ] || fail "anonymous tokens: $(granted anonymous)"
refused nobody 401

# --- a password: one token, whatever is read with it, and however many at once
auth=$(printf 'lab:%s' $password | base64 -w0)
credentials "{\"auths\": {\"$DOCKER\": {\"auth\": \"$auth\"}}}"
lazy_from login
for i in 2 3 4 5 6 7 8 9; do
	assert_file "$(layer_path "$d")/f$i" "${n}0$i" &
	readers+=($!)
done
for p in "${readers[@]}"; do wait "$p" || fail 'a reader failed'; done
[ "$(granted basic)" = 1 ] || fail "tokens for one repository: $(granted basic)"

# --- wrong ones, and the reason
credentials "{\"auths\": {\"$DOCKER\": {\"auth\": \"$(printf 'lab:wrong-secret' | base64 -w0)\"}}}"
refused wrong 'answers 401'

# --- an identity token, traded in
credentials "{\"auths\": {\"https://$DOCKER/v2/\": {\"identitytoken\": \"$identity\"}}}"
lazy_from identity
[ "$(granted identity)" = 1 ] || fail "identity tokens traded in: $(granted identity)"

# --- a helper for this registry, and one for all
credentials "{\"credHelpers\": {\"$DOCKER\": \"lab\"}}"
lazy_from helper
credentials '{"auths": {"'$DOCKER'": {}}, "credsStore": "lab"}'
lazy_from store

# --- a broken file of one client, and a part of the registry in another's
credentials '{"auths": '
echo "{\"auths\": {\"$DOCKER/team\": {\"auth\": \"$auth\"}}}" >"$W/auth.json"
lazy_from team/app
refused outside 401

# --- tokens that live for two seconds are renewed before they are refused
credentials "{\"auths\": {\"$DOCKER\": {\"auth\": \"$auth\"}}}"
stop tokens
start_tokens --expires-in 2
lazy_from short
before=$(refusals)
had=$(granted basic)
for i in 2 3; do
	sleep 2
	assert_file "$(layer_path "$d")/f$i" "${n}0$i"
done
[ "$(granted basic)" -ge $((had + 2)) ] || fail 'the token was not renewed'
[ "$(refusals)" = "$before" ] || fail 'the registry had to refuse an old token'

! grep -qE "$password|$identity|wrong-secret|$auth|Bearer ey|\"token\"" "$W/daemon.log" || fail 'a secret is in the log'
