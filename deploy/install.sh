#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh install|uninstall: called by make, which sets the variables. One
# list of files serves both, so that what was installed can be removed.
set -eu

: "${DESTDIR=}" "${B:?}" "${SBINDIR:?}" "${BINDIR:?}" "${MANDIR:?}"
: "${DATADIR:?}" "${UNITDIR:?}" "${SYSCONFDIR:?}"
TMPFILESDIR=${TMPFILESDIR:-${UNITDIR%/systemd/system}/tmpfiles.d}
BASHCOMPDIR=${BASHCOMPDIR:-${DATADIR%/*}/bash-completion/completions}
ZSHCOMPDIR=${ZSHCOMPDIR:-${DATADIR%/*}/zsh/site-functions}
CONFIG=$SYSCONFDIR/verity-snapshotter/config.toml

# MODE SOURCE TARGET, one file a line. The configuration is not among them:
# it belongs to the administrator once it is there.
list() {
	cat <<-LIST
		755 $B/verity-snapshotter $SBINDIR/verity-snapshotter
		755 $B/verityctl $BINDIR/verityctl
		644 deploy/verity-snapshotter.service $UNITDIR/verity-snapshotter.service
		644 deploy/verity-snapshotter.socket $UNITDIR/verity-snapshotter.socket
		644 deploy/tmpfiles/verity-snapshotter.conf $TMPFILESDIR/verity-snapshotter.conf
		644 deploy/config.toml $DATADIR/config.toml
		644 deploy/containerd/verity-1.x.toml $DATADIR/containerd/verity-1.x.toml
		644 deploy/containerd/verity.toml $DATADIR/containerd/verity.toml
		644 deploy/containerd/verity-kubernetes.toml $DATADIR/containerd/verity-kubernetes.toml
		644 deploy/grafana/verity-snapshotter.json $DATADIR/grafana/verity-snapshotter.json
		644 deploy/kubernetes.md $DATADIR/kubernetes.md
		644 deploy/man/verity-snapshotter.8 $MANDIR/man8/verity-snapshotter.8
		644 deploy/man/verityctl.8 $MANDIR/man8/verityctl.8
		644 deploy/man/verity-snapshotter.toml.5 $MANDIR/man5/verity-snapshotter.toml.5
		644 deploy/completions/verityctl.bash $BASHCOMPDIR/verityctl
		644 deploy/completions/verityctl.bash $BASHCOMPDIR/verity-snapshotter
		644 deploy/completions/_verityctl $ZSHCOMPDIR/_verityctl
	LIST
}

# These name the paths of others.
is_template() {
	case $1 in
	*.service | *.8 | *.5) return 0 ;;
	*) return 1 ;;
	esac
}

put() { # MODE SOURCE TARGET
	mkdir -p "$DESTDIR${3%/*}"
	if is_template "$2"; then
		sed "s|@SBINDIR@|$SBINDIR|g; s|@DATADIR@|$DATADIR|g" "$2" \
			>"$DESTDIR$3.new"
	else
		cp "$2" "$DESTDIR$3.new"
	fi
	chmod "$1" "$DESTDIR$3.new"
	# A rename: a running daemon keeps the file it was started from.
	mv -f "$DESTDIR$3.new" "$DESTDIR$3"
	echo "  INST   $DESTDIR$3"
}

do_install() {
	list | while read -r mode source target; do
		put "$mode" "$source" "$target"
	done
	if [ -e "$DESTDIR$CONFIG" ]; then
		echo "  KEEP   $DESTDIR$CONFIG"
	else
		put 644 deploy/config.toml "$CONFIG"
	fi
}

do_uninstall() {
	# First, while the shipped copy is there to compare with.
	if cmp -s deploy/config.toml "$DESTDIR$CONFIG"; then
		rm -f "$DESTDIR$CONFIG"
	elif [ -e "$DESTDIR$CONFIG" ]; then
		echo "  KEEP   $DESTDIR$CONFIG (it was changed)"
	fi
	list | while read -r _ _ target; do
		rm -f "$DESTDIR$target"
	done
	for dir in "$DATADIR/containerd" "$DATADIR/grafana" "$DATADIR" "${CONFIG%/*}"; do
		rmdir "$DESTDIR$dir" 2>/dev/null || :
	done
}

case ${1:-} in
install) do_install ;;
uninstall) do_uninstall ;;
*)
	echo "usage: $0 install|uninstall" >&2
	exit 2
	;;
esac
