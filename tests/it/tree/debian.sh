#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Debian with Python, lazily: the same tree as an unpack; dpkg and pip
# work on it and leave what they leave on overlayfs. TREE_ALL=1 adds the other
# large images that have been made (a GiB in one file, 50,000 files):
#     tests/lib/images.sh build/images py many big wide100k
#     TREE_ALL=1 IT_TIMEOUT=1800 tests/run.sh it/tree/debian
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"
[ -e "$IMAGES/.py" ] || fail 'the image py is not there (tests/lib/images.sh build/images py)'

start_registry
start_daemon
start_containerd 1
for i in ${TREE_ALL:+many big wide100k}; do
	[ ! -e "$IMAGES/.$i" ] || same "$i"
done

# A package and a wheel of our own, so that no network is needed.
deb=$W/in/deb
mkdir -p "$deb/DEBIAN" "$deb/usr/share/tried" "$W/in/wheel/tried" "$W/in/wheel/tried-1.dist-info"
printf '%s\n' 'Package: tried' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <n@invalid>' 'Description: tried' >"$deb/DEBIAN/control"
echo data >"$deb/usr/share/tried/data"
dpkg-deb --root-owner-group --build "$deb" "$W/in/tried.deb" >/dev/null
cd "$W/in/wheel" || exit
echo 'print("tried")' >tried/__init__.py
printf '%s\n' 'Metadata-Version: 2.1' 'Name: tried' 'Version: 1' >tried-1.dist-info/METADATA
printf '%s\n' 'Wheel-Version: 1.0' 'Generator: none' 'Root-Is-Purelib: true' 'Tag: py3-none-any' >tried-1.dist-info/WHEEL
printf '%s\n' 'tried/__init__.py,,' 'tried-1.dist-info/METADATA,,' 'tried-1.dist-info/WHEEL,,' 'tried-1.dist-info/RECORD,,' >tried-1.dist-info/RECORD
python3 -m zipfile -c "$W/in/tried-1-py3-none-any.whl" tried tried-1.dist-info
cd "$W" || exit
cp "$IMAGES"/cache/python3-pip-whl_*.deb "$W/in/pip.deb" 2>/dev/null || echo 'without pip: not in the cache of images'
cat >"$W/in/inside" <<-'S'
	exec 2>&1
	export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
	python3 /app/main.py
	dpkg -i /in/tried.deb
	cat /usr/share/tried/data
	dpkg --verify coreutils || true
	dpkg --purge --force-all gzip
	if [ -e /in/pip.deb ]; then
		dpkg --force-depends -i /in/pip.deb
		whl=$(echo /usr/share/python-wheels/pip-*.whl)
		python3 "$whl/pip" install -q --no-index --break-system-packages --root-user-action ignore --no-compile /in/tried-1-py3-none-any.whl
		python3 -c 'import tried'
	fi
	find / -xdev -type f -name '*.py' | wc -l
S
ref=$REG/py:esgz
same py
pull_both "$ref"
since=$(date +%s)
for k in plain:overlayfs lazy:verity; do
	ctr run --snapshotter "${k#*:}" --mount "type=bind,src=$W/in,dst=/in,options=rbind:ro" \
		"$ref" "inside-${k%:*}" /bin/sh -e /in/inside >"$W/${k%:*}.said" 2>&1 || fail "$k: $(tail -n 20 "$W/${k%:*}.said")"
done
diff -u "$W/plain.said" "$W/lazy.said" || fail 'dpkg, pip and Python see different things'
for k in plain:overlayfs lazy:verity; do
	eval "$(ctr snapshots --snapshotter "${k#*:}" mounts "$W/${k%:*}" "inside-${k%:*}")"
done
# Logs hold the time of the run.
compare_trees 'py, after dpkg and pip' --since "$since" --skip /var/log/dpkg.log || fail "$(head -n 40 "$W/differences")"
total
