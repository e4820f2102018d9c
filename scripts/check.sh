#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make check: builds with gcc, and lets clang read it all, warnings as errors; runs all tests on the gcc
# build but those of the suite `long`, and the unit tests, fuzzers and random calls again under
# sanitizers. Goes on after a failure, and fails at the end. Leaves the results in build-check/results
# for scripts/tally.py.
#
# usage: check.sh [early] - early builds the first folder alone, which the whole then finds built
cd "$(dirname "$0")/.." || exit 1
out=build-check
results=$out/results
mkdir -p $results
rm -f $results/*
failed=0

note() { # status name
	if [ "$1" = 0 ]; then
		echo "ok $2" >>$results/steps
	else
		echo "failed $2" >>$results/steps
		echo "check: FAILED: $2" >&2
		failed=1
	fi
}

# checked DIR: of a build folder's targets, those that run under its sanitizers. Where fuzzers let
# two threads write the same words, they mean to; and random calls with threads are check-long's.
checked() {
	local more='fuzz\|'
	local calls='s#^\(libviaduct-rpc\.so\|tests/rpc/rpc-\(stress\|flipped\)\): .*#\1#p'
	[[ $1 != */threads ]] || more='' calls=''
	ninja -C "$1" -t targets all 2>&1 | sed -n "/-bench: /d
		s#^\(tests/\(${more}unit\|native\)/[^/]*\): .*#\1#p
		$calls"
}

# needed DIR: all targets of a build folder but the whole sets of cases with musl, 170 files, which the
# suite `long` alone runs.
needed() {
	ninja -C "$1" -t query all meson-test-prereq |
		sed -n '/^  outputs:/,/^[^ ]/d; /-prereq$\|\/cases-\(musl-\)\?all$/d; s/^    //p'
}

# build NAME COMPILER MESON-OPTION...: a build folder, its outcome noted as a step. With sanitizers
# no more than what runs there.
build() {
	local name=$1 cc=$2 dir=$out/$1 rc
	shift 2
	echo "== build: $name"
	if [ ! -f "$dir/build.ninja" ]; then
		rm -rf "$dir"
		CC=$cc meson setup "$dir" "$@" >"$results/$name.setup" 2>&1 ||
			cat "$results/$name.setup"
	fi
	local targets
	if [[ "$*" = *sanitize* ]]; then
		targets=$(checked "$dir")
	else
		targets=$(needed "$dir")
	fi
	# shellcheck disable=SC2086
	nice -n "${BUILD_NICE:-0}" ninja -C "$dir" $targets >"$results/$name.build" 2>&1
	rc=$?
	[ $rc = 0 ] || tail -n 60 "$results/$name.build"
	note $rc "build with $name"
	return $rc
}

# tests NAME ARGUMENT...: the tests of a build folder; meson's log is the result.
tests() {
	local name=$1 dir=$out/$1 rc
	shift
	echo "== tests: $name"
	rm -f "$dir/meson-logs/testlog.json"
	# Many wait for something most of their time. A limit of time is there to end a test that
	# hangs: a slow test on a busy machine, with fifteen others for each processor, is none.
	meson test -C "$dir" --no-rebuild --print-errorlogs \
		--num-processes $(($(nproc) + 4)) --timeout-multiplier 8 "$@"
	rc=$?
	if [ -s "$dir/meson-logs/testlog.json" ]; then
		cp "$dir/meson-logs/testlog.json" "$results/$name.json"
	else
		note 1 "tests of $name left no results"
	fi
	[ $rc = 0 ] || failed=1
}

# stress NAME: remote procedure calls at random, and with a peer that changes the ring meanwhile; program
# and module have the sanitizers of a build.
stress() {
	local stress=$out/$1/tests/rpc/rpc-stress who
	[ -x "$stress" ] || return 0
	echo "== random calls: $1"
	tests/rpc/stress.py --module "$out/$1/libviaduct-rpc.so" --count 8 \
		$out/gcc/tests/support/viaduct "$stress"
	note $? "random calls with $1"
	for who in service client; do
		tests/rpc/flipped.py --honest "$out/$1/tests/rpc/rpc-flipped" \
			--module "$out/$1/libviaduct-rpc.so" \
			$out/gcc/tests/support/viaduct $out/gcc/tests/rpc/rpc-flipped "$who"
		note $? "a $who whose peer changes the ring, with $1"
	done
}

# What the sanitizers see, and that clang warns of nothing: beside the tests of the first build, in what
# they leave of the processors, since many wait.
others() {
	BUILD_NICE=14
	# With debugging information for their reports' lines. Not -Werror: the sanitizers' own code
	# upsets gcc's flow warnings.
	local lean=(-Doptimization=1 -Dc_args=-g1 -Db_lundef=false)
	renice -n 5 $BASHPID >/dev/null
	if build sanitized gcc -Db_sanitize=address,undefined "${lean[@]}"; then
		tests sanitized --suite unit --suite fuzz --suite native
		# With threads alone in check-long: the library that orders them is not instrumented
		# there, and by chance ThreadSanitizer reports what it does not see ordered (a sheet
		# that another thread has emptied).
		[ $gcc_built != 0 ] || stress sanitized
	fi
	! build threads gcc -Db_sanitize=thread "${lean[@]}" || tests threads --suite unit --suite native
	# For its warnings alone: check-long builds with it.
	if [ $gcc_built = 0 ] && command -v clang >/dev/null; then
		echo "== warnings: clang"
		scripts/clang.py $out/gcc
		note $? "warnings of clang"
	fi
	return $failed
}

# Debugging information takes a fifth of the compiler's time: lines are enough.
build gcc gcc -Dwerror=true -Dc_args=-g1
gcc_built=$?
[ "${1:-}" != early ] || exit $gcc_built
set -m # a group of its own, which an interrupt ends
others >$results/others 2>&1 </dev/null &
others=$!
set +m
trap 'kill -- -$others 2>/dev/null; exit 130' INT TERM
[ $gcc_built != 0 ] || tests gcc
wait $others || failed=1
cat $results/others

exit $failed
