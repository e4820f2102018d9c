#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Suites of other projects in which each test is a program of its own: each is run plain
# and under Viaduct, with both ends in it, and its exit status must be the same. One
# that differs is run plain up to eight times more: a status that it has there too is
# flaky, and is named. FOLDER is, built, the build folder of libuv, libevent or ZeroMQ;
# or the folder `test` of Node's source, `bin/varnishtest/tests` of Varnish's, or
# `test/broker` of Mosquitto's, built. EARLY is early.so of the build (see early.c), or -
# to leave all connections as they are: then few are upgraded, and most of these in
# mid-stream. Where the ends are in several processes, set EARLY_LOOKS=16.
#
#   tests/suites/each.sh VIADUCT EARLY SUITE FOLDER [AFTER [TEST ...]]
#
# Exit status 0: no differences, and bytes went the direct way.
set -eu

viaduct=$(realpath "$1") early=$2 suite=$3 folder=$4 after=${5:-0}
shift $(($# < 5 ? $# : 5))
[ "$early" = - ] && early= || early=$(realpath "$early")
# One that exports nothing would be loaded, and do nothing.
[ ! "$early" ] || nm -D --defined-only "$early" | grep -q ' T accept4$' || {
	echo "each: $early does not export accept4" >&2
	exit 2
}
out=$(mktemp -d /tmp/viaduct-suite-XXXXXX)
export UV_RUN_AS_ROOT=1
cd "$folder"

# Those that have to do with sockets, processes or signals.
names() {
	case $suite in
	libuv) ./uv_run_tests --list | awk '{print $1}' |
		grep -vE '^(fs_|thread|mutex|rwlock|semaphore|cond|barrier|random|utf8|idna)' ;;
	libevent) bin/regress --list-tests | awk '/\// {print $1}' | grep -vE '^(util|evtag)/' ;;
	zeromq) ls bin | grep '^test_' ;;
	node) ls parallel/test-net-*.js parallel/test-http-*.js parallel/test-tls-*.js \
		parallel/test-cluster-*.js parallel/test-child-process-*.js sequential/test-net-*.js ;;
	varnish) ls ./*.vtc ;;
	mosquitto) ls [01]*.py ;;
	*) echo "each: no suite '$suite'" >&2 && exit 2 ;;
	esac
}

command_of() {
	case $suite in
	libuv) echo "./uv_run_tests $1" ;;
	libevent) echo "bin/regress --no-fork --timeout 30 $1" ;;
	zeromq) echo "bin/$1" ;;
	node) echo "node $(sed -n 's|^// Flags:||p;T;q' "$1") $1" ;;
	varnish) echo "varnishtest -q $1" ;;
	mosquitto) echo "python3 $1 1888 1889 1890" ;;
	esac
}

# status NAME WRAPPER...: of the test, behind the words of the wrapper
status() {
	name=$1
	shift
	# shellcheck disable=SC2046,SC2016
	"$@" sh -c 'LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec timeout -k 5 60 "$@"' \
		"$early" $(command_of "$name") >"$out/log" 2>&1 </dev/null && echo 0 || echo $?
}

is_flaky() {
	for _ in 1 2 3 4 5 6 7 8; do
		[ "$(status "$1" env)" != "$2" ] || return 0
	done
	return 1
}

tests=0 differ=0
for test in ${*:-$(names)}; do
	tests=$((tests + 1))
	plain=$(status "$test" env)
	under=$(status "$test" "$viaduct" run --report "$out/report" --upgrade-after "$after" --)
	[ "$plain" != "$under" ] || continue
	cp "$out/log" "$out/differs.$tests"
	if is_flaky "$test" "$under"; then
		echo "FLAKY PLAIN: $test: $under"
	else
		echo "DIFFERENT: $test: $under, plain $plain: see $out/differs.$tests"
		differ=$((differ + 1))
	fi
done
sed -n 's/.*"upgraded":\([0-9]*\).*"tx_direct_bytes":\([0-9]*\).*/\1 \2/p' "$out/report" |
	awk -v tests=$tests -v differ=$differ '{ ends += $1; bytes += $2 }
		END { print tests " tests, " differ " differences; " ends " ends upgraded, " \
			bytes " bytes direct"; exit !(ends && bytes) }'
[ $differ = 0 ]
