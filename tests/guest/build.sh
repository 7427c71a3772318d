#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [CACHE]: the kernel of the guest; prints its path.
#
# User-mode Linux, because it needs no virtualization and no root file system:
# Debian builds it without fs-verity, so it comes from Debian's linux-source
# package, with kernel.config. Built once per machine and recipe, into a cache
# that outlives the checkout. Exit 77 where the package cannot be had.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${1:-${GUEST_CACHE:-/var/cache/verity-snapshotter-guest}}
# Wanted is a kernel with FUSE passthrough and RWF_DONTCACHE: newer than the
# one of Debian 12.
suite=trixie-backports
key=$(cat "$here/build.sh" "$here/kernel.config" | sha256sum | cut -c1-16)
kernel=$cache/linux-$key

log() {
	echo "build: $* (after $SECONDS s)" >&2
}

finish() {
	echo "$kernel"
	exit 0
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -x "$kernel" ] || finish

for tool in gcc make flex bison bc xz apt-get dpkg-deb; do
	command -v "$tool" >/dev/null || { echo "build: '$tool' is missing, see tests/lib/packages" >&2; exit 1; }
done
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# apt with a state of its own: the system's sources and lists stay as they are.
apt() {
	"$1" -qq -o Acquire::Retries=3 -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=180 \
		-o Dir::State="$work/apt/state" -o Dir::State::Lists="$work/apt/lists" \
		-o Dir::Cache="$work/apt/cache" -o Dir::Etc::SourceList=/dev/null \
		-o Dir::Etc::SourceParts="$work/apt/sources" -o Dir::Etc::PreferencesParts=/dev/null \
		-o APT::Sandbox::User=root "${@:2}"
}

# The mirror that this machine uses anyway.
mirror() {
	local uri
	uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
		sed -n 's#^\([^ ]*/debian/\) Debian$#\1#p' | head -n 1)
	[ -n "$uri" ] || { log 'apt knows no Debian mirror'; return 1; }
	echo "$uri"
}

fetch_source() {
	local package mirror
	mirror=$(mirror) || return 1
	mkdir -p "$work"/apt/{state,lists/partial,cache/archives/partial,sources}
	printf '%s\n' 'Types: deb' "URIs: $mirror" "Suites: $suite" 'Components: main' \
		'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$work/apt/sources/source.sources"
	apt apt-get update >&2 || return 1
	package=$(apt apt-cache search --names-only '^linux-source-[0-9.]+$' | awk '{ print $1 }' | sort -V | tail -n 1)
	[ -n "$package" ] || return 1
	log "fetching $package from $suite"
	(cd "$work" && apt apt-get download "$package" >&2) || return 1
}

# Only the Kconfig files and Makefiles of what ARCH=um never compiles.
unpack() {
	log 'unpacking'
	mkdir "$work/src"
	dpkg-deb --fsys-tarfile "$work"/linux-source-*.deb | tar -C "$work" -xf - --wildcards './usr/src/*.tar.xz'
	rm "$work"/linux-source-*.deb
	tar -C "$work/src" --strip-components=1 -xJf "$work"/usr/src/linux-source-*.tar.xz --wildcards \
		--exclude='*/Documentation/*/*' --exclude='*/tools/testing/*' --exclude='*/tools/perf/*' \
		--exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' --exclude='*/drivers/net/*/*.[ch]' \
		--exclude='*/drivers/staging/*.[ch]' --exclude='*/drivers/scsi/*.[ch]' \
		--exclude='*/drivers/infiniband/*.[ch]' --exclude='*/sound/*.c' --exclude='*/arch/*/boot/dts/*'
	rm -r "${work:?}/usr"
}

configure() {
	local name value got lost=0
	log 'configuring'
	make -s -C "$work/src" ARCH=um O="$work/obj" KCONFIG_ALLCONFIG="$here/kernel.config" allnoconfig >&2
	while IFS='=' read -r name value; do
		case $name in CONFIG_*) ;; *) continue ;; esac
		got=$(sed -n "s/^$name=//p" "$work/obj/.config")
		[ "${got:-n}" = "$value" ] || { echo "build: $name is ${got:-n}, not $value" >&2; lost=1; }
	done <"$here/kernel.config"
	return $lost
}

compile() {
	log "compiling with $(nproc) jobs"
	make -s -C "$work/src" ARCH=um O="$work/obj" -j"$(nproc)" linux >"$work/log" 2>&1 ||
		{ tail -n 40 "$work/log" >&2; return 1; }
	strip -o "$work/linux" "$work/obj/linux"
	mv "$work/linux" "$kernel"
	log "built $("$kernel" --version)"
}

fetch_source || { echo "SKIP: no linux-source package in $suite" >&2; exit 77; }
unpack
configure
compile
finish
