#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom (ARCHITECTURE.md): prints every include that goes up.
set -u
cd "$(dirname "$0")/../.." || exit 1

# deny FOLDER-GLOB REGEX: no file there includes a header that matches
deny() {
	grep -nE "^#include [\"<]($2)" -- $1 /dev/null 2>/dev/null
}
deny 'snapshotter/base/*.[ch]' '(fuse|verity|plugin|rpc|proto|snapshotter/[a-z_]+\.h|snapshotter/formats)'
deny 'snapshotter/base/*.[ch]' '(curl|json-c|sqlite3|openssl|systemd|nghttp2)'
deny 'fuse/*.[ch]' '(verity/|plugin/|rpc/|proto/|snapshotter/)'
deny 'verity/*.[ch]' '(fuse/|plugin/|rpc/|proto/|snapshotter/)'
deny 'snapshotter/rpc/*.[ch]' '(fuse/|verity/|plugin/|proto/|snapshotter/)'
deny 'snapshotter/*.[ch]' '(plugin/|proto/snapshots)'
deny 'snapshotter/formats/*.[ch]' '(plugin/|proto/|rpc/|fuse/)'

# only FILES may include HEADER
only() {
	local header=$1
	shift
	grep -lE "^#include <$header" -r plugin fuse verity snapshotter --include='*.[ch]' |
		grep -vE "^($(IFS='|'; echo "$*"))\$" | sed "s#\$#: includes <$header>, which only $* may#"
}
only 'sqlite3\.h' 'snapshotter/store[a-z_]*\.[ch]'
only 'curl/' 'snapshotter/(fetch|transfer|url)\.[ch]'
only 'microhttpd\.h' 'plugin/metrics_http\.c'
only 'nghttp2/' 'plugin/h2[a-z_]*\.[ch]' 'snapshotter/rpc/client\.c'
only 'fuse_lowlevel\.h' 'fuse/[a-z_]+\.[ch]'
exit 0
