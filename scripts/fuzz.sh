#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes for so many seconds each: all targets of tests/fuzz, or those that are named. With
# libFuzzer, where clang has it, which keeps the inputs that reach something new in
# build-fuzz/corpus; else by changes at random. Both with address and undefined sanitizers.
# With --fast as many inputs as can be: by changes at random, without sanitizers, and what takes
# longer than the rest with one input of FUZZ_SELDOM only.
#
# usage: fuzz.sh [--fast] SECONDS [NAME]...
cd "$(dirname "$0")/.." || exit 1
fast=
if [ "$1" = --fast ]; then
	fast=yes
	shift
fi
seconds=${1:?usage: fuzz.sh [--fast] SECONDS [NAME]...}
shift
dir=build-fuzz${fast:+-fast}
failed=0
export VIADUCT_CONFIG= # no file of this machine's

has_libfuzzer() {
	echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }' |
		clang -x c -fsanitize=fuzzer - -o "$1" 2>/dev/null
}

setup() {
	if [ "$fast" ]; then
		CC=gcc meson setup $dir -Dbuildtype=release
		return
	fi
	local trial compiler=gcc fuzz=false
	trial=$(mktemp)
	if has_libfuzzer "$trial"; then
		compiler=clang
		fuzz=true
	fi
	rm -f "$trial"
	CC=$compiler meson setup $dir -Dfuzz=$fuzz -Db_sanitize=address,undefined \
		-Db_lundef=false
}

# guided NAME: by libFuzzer. Says how many inputs there were. New functions are not named: a process that
# knows names would have two descriptors of ours, which targets count.
guided() {
	local corpus=$dir/corpus/$1 kept=$dir/kept-$1- log=$dir/fuzz-$1.log
	mkdir -p "$corpus"
	$dir/tests/fuzz/fuzz-"$1" seeds "$corpus" || return 1
	if $dir/tests/fuzz/libfuzzer-"$1" -max_total_time="$seconds" -timeout=120 \
		-rss_limit_mb=8192 -max_len=16384 -print_final_stats=1 -verbosity=1 -print_funcs=0 \
		-artifact_prefix="$kept" "$corpus" >"$log" 2>&1; then
		echo "fuzz-$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
		return 0
	fi
	tail -n 60 "$log"
	sed -n "s|.*Test unit written to |repeat it: $dir/tests/fuzz/libfuzzer-$1 |p" "$log"
	return 1
}

at_random() {
	echo -n "fuzz-$1: "
	${fast:+env FUZZ_SELDOM="${FUZZ_SELDOM:-256}"} $dir/tests/fuzz/fuzz-"$1" $RANDOM "$seconds"s
}

[ -f $dir/build.ninja ] || setup >/dev/null || exit 1
ninja -C $dir fuzzers >$dir/build.log 2>&1 || {
	tail -n 40 $dir/build.log
	exit 1
}
[ $# -gt 0 ] || set -- $(ls $dir/tests/fuzz | sed -n 's/^fuzz-\([a-z-]*\)$/\1/p')
for name in "$@"; do
	if [ -x $dir/tests/fuzz/libfuzzer-"$name" ]; then
		guided "$name" || failed=1
	else
		at_random "$name" || failed=1
	fi
done
exit $failed
