#!/opt/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in a container of the image `tools`: what programs do to a root file
# system. Says what it sees; run on overlayfs, it must say the same.
PATH=/opt:/bin
export LC_ALL=C
exec 2>&1
set -u

# Everything but times of directories and of what was written here.
list() {
	(cd "$1" && find . -xdev \( -path ./.no.prefetch.landmark -o -path ./stargz.index.json -o -path ./proc \) -prune -o \
		\( -type d -printf '%P %y %m %U %G %n\n' \) -o -printf '%P %y %m %U %G %s %n %l\n' | sort)
}

say() { # COMMAND...: with its outcome
	"$@" 2>&1
	echo "$* = $?"
}

cd /t || exit 1
list .
echo '--- the first change of each type, by each way'
for k in file dir sym fifo dev link; do
	[ $k = sym ] || say chmod 0711 $k-a
	say chown -h 20:21 $k-b
	say mv $k-c renamed-$k
	say rm -r $k-d
	[ $k = dir ] || say ln $k-e other-$k
	say touch -h -d @1600000000 $k-f
	[ $k = fifo ] || [ $k = dev ] || say setfattr -h -n "$([ $k = sym ] && echo security || echo user).x" -v 1 $k-g
done
say mv file-h dir-h/moved
say rmdir dir-b
say mv dir-h dir-g/
say ln -sfn nowhere sym-h
echo appended >>link-h
sha256sum link-h file-a dir-a/in dir-g/dir-h/moved
: >file-g
dd if=/dev/zero of=large bs=1 count=3 seek=1000000 conv=notrunc 2>/dev/null
sha256sum large
mkdir dir-d && echo new >dir-d/in
mkfifo fifo-d && mknod dev-d c 1 3 && ln -s x sym-d
list .

echo '--- exec and mappings'
say /opt/mapped /t/large
cp /bin/busybox /t/busybox && chmod 755 /t/busybox && say /t/busybox echo executed
chmod 700 /bin/busybox && say /bin/busybox echo executed after copy-up
say /bin/cat /t/dir-a/in

echo '--- copies'
want=$(list /src)
for how in cp tar rsync; do
	mkdir /copy
	case $how in
	cp) cp -a /src/. /copy/ ;;
	tar) tar -C /src --xattrs --xattrs-include='*' -cf - . | tar -C /copy --xattrs --xattrs-include='*' -xf - ;;
	rsync) rsync -aHX --numeric-ids /src/ /copy/ ;;
	esac || echo "$how failed"
	[ "$(list /copy)" = "$want" ] && echo "$how: the same tree"
	getfattr --absolute-names -h -d -m - -e hex /copy/cap
	mv /copy "/copy-$how"
done
say rsync -aHX --numeric-ids --delete --dry-run --itemize-changes --checksum /src/ /copy-rsync/
say rm other-dev other-fifo other-sym
say cp -a /t /t2
say tar -C / -cf /dev/null t src copy-cp
say find / -xdev -newermt 2024-01-01 -type f -path '/src/*'
find / -xdev -type f -links +1 | sort
say rm -r /src
list /
