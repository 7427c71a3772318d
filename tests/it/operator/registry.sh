#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl doctor IMAGE: the daemon asks the registry as it would for a layer,
# with its credentials and its hosts.toml.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/operator/common.sh
. "$TOP/tests/it/operator/common.sh"
MIRROR=127.0.0.1:5001
export DOCKER_CONFIG=$W/docker
mkdir -p "$DOCKER_CONFIG" "$W/certs.d"

make_image one <<<'{"layers": [{"entries": [{"path": "f", "content": "x"}]}]}'
config "hosts_dir = \"$W/certs.d\""
doctor "$REG/one"
finding registry.answer unknown 'while the daemon is away'
start_scripted
start_daemon
about() { # IMAGE: what is said of its registry
	doctor "$1"
	[ "$(jq '[.findings[] | select(.check == "registry.answer")] | length' "$W/found")" = 1 ] || fail "$(cat "$W/found")"
}
about "$REG/one:latest"
finding registry.answer ok "'http://$REG/v2' gives '$REG/one:latest' to the daemon"
about "$REG/one"
finding registry.answer ok "http://$REG"
manifest=$(skopeo inspect --raw --tls-verify=false "docker://$REG/one:latest" | sha256sum | cut -d' ' -f1)
about "$REG/one@sha256:$manifest"
finding registry.answer ok "http://$REG"
about "$REG/one:v2"
finding registry.answer problem "$REG/one:v2: the registry answers 404" 'check the name and the tag'
about 'A b'
finding registry.answer unknown 'is not an image reference'

# --- credentials: none, wrong, right
fault '{"auth": "bearer:robot:secret"}'
login() { # USER:PASSWORD
	printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$REG" "$(printf %s "$1" | base64 -w0)" >"$DOCKER_CONFIG/config.json"
}
about "$REG/one"
finding registry.answer problem "'$REG' does not give '$REG/one' to the daemon (denied): " \
	"nerdctl login $REG    # as root: the daemon reads /root/.docker/config.json"
login robot:wrong
about "$REG/one"
finding registry.answer problem '(denied)'
login robot:secret
about "$REG/one"
finding registry.answer ok "http://$REG"

# --- nobody there; then a mirror is
stop registry
about "$REG/one"
finding registry.answer problem '(unavailable)' "cat /etc/containerd/certs.d/$REG/hosts.toml    # mirrors, certificates"
start mirror python3 "$TOP/tests/lib/registry.py" --port "${MIRROR##*:}" --root "$OCI"
wait_for 30 'the mirror' curl -sf "http://$MIRROR/_admin/stats"
mkdir "$W/certs.d/$REG"
printf '[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$MIRROR" >"$W/certs.d/$REG/hosts.toml"
mirrored() {
	about "$REG/one"
	jq -e '.findings[] | select(.check == "registry.answer" and .level == "ok")' "$W/found"
}
wait_for 60 'the mirror to be known' mirrored
finding registry.answer ok "http://$MIRROR"
echo 'doctor: registries'
