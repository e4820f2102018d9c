#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the integrity test with the instrumented library:
#   meson setup DIR -Db_sanitize=address,undefined -Db_lundef=false   (or =thread)
#   tests/integrity/sanitized.sh address|thread DIR [ARGUMENTS OF integrity]
# The library comes before the sanitizer's runtime: what the test calls must be ours, and
# what ours calls may be intercepted. The other way round, the thread sanitizer takes all
# that runs inside epoll_wait for a blocked thread and sees no lock there.
set -eu
kind=$1 dir=$(readlink -f "$2")
shift 2
out=$(mktemp -d)
common="handle_segv=0 handle_sigbus=0 handle_abort=0 handle_sigfpe=0 handle_sigill=0"
case $kind in
address)
	runtime=$(readlink -f "$(${CC:-gcc} -print-file-name=libasan.so)")
	export ASAN_OPTIONS="detect_leaks=0 verify_asan_link_order=0 log_path=$out/log"
	export UBSAN_OPTIONS="print_stacktrace=1 log_path=$out/log"
	set -- env LD_PRELOAD="$dir/libviaduct-preload.so:$runtime" \
		"$dir/tests/integrity/integrity" "$@"
	;;
thread)
	runtime=$(readlink -f "$(${CC:-gcc} -print-file-name=libtsan.so)")
	export TSAN_OPTIONS="$common exitcode=0 die_after_fork=0 log_path=$out/log"
	# Its shadow memory wants mappings where they were before they became so random; and
	# it cannot follow a fork out of many threads.
	set -- setarch -R env LD_PRELOAD="$dir/libviaduct-preload.so:$runtime" \
		"$dir/tests/integrity/integrity" --no-fork --wait 120 "$@"
	;;
*)
	echo "usage: $0 address|thread DIR [ARGUMENTS]" >&2
	exit 2
	;;
esac
# Linux limits its answers to resets that do not fit, by which it can miss the end of an aborted
# connection for ever: not in a network of our own.
if [ "$(id -u)" -eq 0 ]; then
	set -- unshare --net sh -euc 'ip link set lo up
		echo 0 >/proc/sys/net/ipv4/tcp_invalid_ratelimit
		exec "$@"' sh "$@"
fi
status=0
VIADUCT_UPGRADE_AFTER=0 VIADUCT_REPORT=$out/report "$@" || status=$?
grep -q '"upgraded": *[1-9]' "$out/report" || {
	echo "no connection was upgraded"
	status=1
}
for log in "$out"/log*; do
	[ -e "$log" ] || continue
	status=1
	head -60 "$log"
done
grep -h SUMMARY "$out"/log* 2>/dev/null | sort | uniq -c | sort -rn || true
rm -r "$out"
exit $status
