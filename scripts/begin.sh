# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# What ./demo and ./check begin with: packages and a build, with one line of output for each
# step. The rest goes to a log, whose name is given when a step fails.

say() {
	echo "$job: $*"
}

# begin JOB BUILD-FOLDER: names both, and empties the log.
begin() {
	job=$1
	build=$2
	log=$build/$job.log
	mkdir -p "$build"
	: >"$log"
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
