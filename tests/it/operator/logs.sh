#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the log says of pulls that go wrong: image, layer and host, once and not
# forty times; and never, at any level, a password, a token or the query of a
# presigned URL. The same is true of verityctl.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
CDN=127.0.0.1:5001
user=alice password=s3cr3t-passw0rd signature=5ign4tur3-of-this-url
export DOCKER_CONFIG=$W/docker

for i in one two; do
	python3 - "$i" <<-'P' | make_image "$i"
		import json, sys
		seed = sum(map(ord, sys.argv[1])) * 1000
		def layer(n, seed):
		    return {"entries": [{"path": f"f{i}", "content": {"random": 100000, "seed": seed + i}} for i in range(n)]}
		print(json.dumps({"layers": [layer(40, seed), layer(4, seed + 100), layer(4, seed + 200), layer(4, seed + 300)]}))
	P
done
start_scripted --auth "bearer:$user:$password"
start cdn python3 "$TOP/tests/lib/registry.py" --port "${CDN##*:}" --root "$OCI"
wait_for 30 'the other host' curl -sf "http://$CDN/_admin/stats"
cdn() { # 'JSON'
	curl -sf -X POST -d "$1" "http://$CDN/_admin" >/dev/null || fail "order not understood: $1"
}
presign() { # blobs lie elsewhere, behind a URL that is a secret
	fault "{\"match\": \"blobs/\", \"fault\": \"redirect:http://$CDN{path}?X-Amz-Credential=AKIA$signature&X-Amz-Signature=$signature\"}"
}
login() { # PASSWORD
	mkdir -p "$DOCKER_CONFIG"
	printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$REG" "$(printf %s "$user:$1" | base64 -w0)" >"$DOCKER_CONFIG/config.json"
}
pull_private() { # NAME
	ctr-remote images rpull --snapshotter verity --plain-http --user "$user:$password" "$REG/$1:latest" >"$W/pull.log" 2>&1 ||
		fail "pull of $1: $(tail -n 3 "$W/pull.log")"
}
login "$password"
config 'background_fill = false' 'read_timeout = 10'
start_daemon
start_containerd 1
pull_private one
d=$(layer_info one 0)
for i in 0 1 2 3; do
	dirs[i]=$(layer_path "$(layer_info one $i)")
	[ -n "${dirs[i]}" ] || fail "not lazy: $(layer_status "$(layer_info one $i)" .reason)"
done
presign
cat "${dirs[1]}/f0" >/dev/null || fail 'a read by a presigned URL'
[ "$(curl -sf "http://$CDN/_admin/stats" | jq '[.log[] | select(.query | contains("X-Amz-Signature"))] | length')" != 0 ] ||
	fail 'no presigned URL was used'
reg_stats '.tokens[]' >"$W/tokens"
[ "$(reg_stats '[.log[] | select(.auth == "Bearer" and (.path | contains("/blobs/")))] | length')" != 0 ] ||
	fail 'no token was used'

# --- the URL is refused, the host stumbles, tokens end: it goes on
cdn '{"match": "blobs/", "fault": "status:403", "count": 1}'
cat "${dirs[2]}/f0" >/dev/null || fail 'a read behind an expired URL'
cdn '{"match": "blobs/", "fault": "status:503", "count": 1}'
cdn '{"match": "blobs/", "fault": "reset", "count": 1}'
cat "${dirs[3]}/f0" >/dev/null || fail 'a read behind 503 and a reset'

# --- forty readers get nothing, and one line says so
cdn '{"match": "blobs/", "fault": "status:500"}'
pids=()
for i in $(seq 0 39); do
	cat "${dirs[0]}/f$i" >/dev/null 2>&1 &
	pids+=($!)
done
for p in "${pids[@]}"; do
	! wait "$p" || fail 'a read succeeded without a registry'
done
grep -q "read fails: layer=$d image='$REG/one:latest' host=$REG inode=" "$W/daemon.log" ||
	fail "the cause is not in the log: $(tail -n 3 "$W/daemon.log")"
n=$(grep -c 'read fails: ' "$W/daemon.log")
[ "$n" -le 8 ] || fail "$n lines for 40 readers of one layer"
cdn '{"clear": true}'

# --- the wrong password, and none: ordinary mounts, with the reason
all_good
fault '{"revoke": true}'
fault "{\"auth\": \"bearer:$user:another-$password\"}"
ctr-remote images rpull --snapshotter verity --plain-http --user "$user:another-$password" "$REG/two:latest" >"$W/pull.log" 2>&1 ||
	fail "pull of two: $(tail -n 3 "$W/pull.log")"
two=$(layer_info two 0)
assert_fallback "$two" 401
for what in 'layer not lazy' 'layer falls back to ordinary mounts'; do
	grep -q "$what: layer=$two image='$REG/two:latest' host=$REG .*401" "$W/daemon.log" || fail "no '$what' in the log"
done

# --- nothing of it is a secret
{
	cat "$W/daemon.log"
	"$CTL" --run "$RUN" status
	status
	"$CTL" --run "$RUN" pull-status --no-wait "$REG/one" || true
	"$CTL" --run "$RUN" doctor --containerd "$CONTAINERD_ADDRESS" "$REG/one" || true
} >"$W/said" 2>&1
grep -q ' debug ' "$W/said" || fail 'the log is not at level debug'
reg_stats '.tokens[]' >>"$W/tokens"
{
	cat "$W/tokens"
	printf '%s\n' "$password" "$signature" X-Amz- "$(printf %s "$user:$password" | base64 -w0)"
} >"$W/secrets"
! grep -nF -f "$W/secrets" "$W/said" || fail 'a secret was said'
! grep -nE 'Bearer [A-Za-z0-9_-]|Basic [A-Za-z0-9+/]|Authorization:' "$W/said" || fail 'credentials were said'
echo "logs: $n lines of 40 failed reads, no secret in $(wc -l <"$W/said") lines"
