# SPDX-License-Identifier: Apache-2.0
# bash completion for verityctl and verity-snapshotter

_verityctl() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	case $prev in
	--run)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--config | --containerd)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W \
		"status pull-status ls doctor metrics --config --containerd --json --no-wait --proven --run --help
		--version" -- "$cur")
}

_verity_snapshotter() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local words="--config --root --run --address --log-level --without
		--help --version"

	COMPREPLY=()
	case $prev in
	--root | --run)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--config | --address)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--log-level) words="error warn info debug" ;;
	--without) words="fuse dontcache verity page-cache-hints readdirplus resend passthrough
		big-reads" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _verityctl verityctl
complete -F _verity_snapshotter verity-snapshotter
