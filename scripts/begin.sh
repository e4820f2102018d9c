# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# What ./demo and ./check begin with: packages and a build, with one line of output for each
# step. The rest goes to a log, whose name is given when a step fails.

say() {
	echo "$job: $*"
}

# arguments MOST ARGUMENT...: prints the comment at the head of the script where --help or too many
# are given, and ends it.
arguments() {
	most=$1
	shift
	case ${1:-} in
	-h | --help) sed -n '3,/^set/{/^# \{0,1\}/s///p}' "${0##*/}" && exit 0 ;;
	-*) ;;
	*) [ $# -gt "$most" ] || return 0 ;;
	esac
	echo "$0: what is \`$*\`? See: $0 --help" >&2
	exit 2
}

# begin JOB BUILD-FOLDER: names both, and empties the log. A folder that another user has made, as by
# sudo, ends the script.
begin() {
	job=$1
	build=$2
	log=$build/$job.log
	if ! mkdir -p "$build" || ! (: >"$log") 2>/dev/null || [ ! -w "$build" ]; then
		say "user $(id -un) may not write to the folder $build"
		case $job in
		demo) say "name another one: ./demo FOLDER" ;;
		*) say "run it as the owner of that folder, or move it away" ;;
		esac
		exit 1
	fi >&2
}

# logged WHAT COMMAND...: runs the command into the log; shows the log's end when it fails.
logged() {
	what=$1
	shift
	"$@" >>"$log" 2>&1 || {
		status=$?
		tail -n 20 "$log" >&2
		say "$what failed. All that was printed: $log" >&2
		return $status
	}
}

# packages GROUP: installs those that are missing; says which.
packages() {
	DEPS_LOG=$log scripts/deps.sh "$1"
}

build() {
	[ -f "$build/build.ninja" ] || logged "the set-up of the build" meson setup "$build" || exit
	say "building Viaduct (half a minute)"
	logged "the build" ninja -C "$build" programs || exit
}
