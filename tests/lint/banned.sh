#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Calls that have no place here: unbounded, unsafe with threads, or abrupt.
set -u
cd "$(dirname "$0")/../.." || exit 1
files=$(git ls-files plugin fuse verity snapshotter | grep '\.[ch]$')
calls='sprintf|vsprintf|strcpy|strcat|gets|atoi|atol|strtok|system|popen|tmpnam|mktemp|alloca|localtime|gmtime|ctime|asctime|strerror_l|rand|srand|abort'
# abort() is what lock.c's debug check is for.
# shellcheck disable=SC2086
grep -nE "(^|[^a-zA-Z0-9_>.])($calls)\(" $files | grep -vE '^snapshotter/base/lock\.c:.*abort\(' |
	grep -vE ':[0-9]+:[[:space:]]*(/?\*|//)'
# shellcheck disable=SC2086
grep -nE '(^|[^a-zA-Z0-9_])_?exit\(' $files | grep -vE '^plugin/(main|verityctl)\.c:' |
	grep -vE ':[0-9]+:[[:space:]]*(/?\*|//)' | grep -vE '_exit\(1?[0-9]*\); /\* child'
# Mappings of files on the disk would turn a bad sector into SIGBUS.
# shellcheck disable=SC2086
grep -nE '(^|[^a-zA-Z0-9_])mmap\(' $files | grep -vE '^(fuse/(buffers|opens)|verity/stream_map)\.c:'
# Image bytes go through verity/stream, which decides what stays in the page
# cache. The rest here: state files (small, and read at random), cgroupfs, the
# pipe of a credential helper, what the tests replace ioctls by.
moves='p?(read|write)_full|p(read|write)(v2?|64)?|readv|writev|posix_fadvise|readahead|sync_file_range|copy_file_range|sendfile|splice|madvise|fread|fwrite'
# shellcheck disable=SC2046
grep -nE "(^|[^a-zA-Z0-9_>.])($moves)\(" $(git ls-files verity snapshotter | grep '\.c$') |
	grep -vE '^(verity/(stream|stream_map|state|probe|cgroup)|snapshotter/(base/(io|fs)|credhelper))\.c:'
# shellcheck disable=SC2046
grep -nE '(^|[^a-zA-Z0-9_])stream_map\(' $(git ls-files snapshotter fuse plugin | grep '\.c$')
exit 0
