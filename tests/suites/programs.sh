#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The own test suites of Redis, memcached and PostgreSQL, plain and under Viaduct; they take
# too long for make check. SOURCE is the program's unpacked and built source (for PostgreSQL
# src/test/regress, with regress.so, as root). memcached's tests use TCP only where
# t/lib/MemcachedTest.pm sets $unix_socket_disabled. A test of Debian 12's Redis sets
# repl-diskless-load to yes, which that version refuses, and so ends the whole suite: make it
# swapdb (tests/integration/replication.tcl).
#
#   tests/suites/programs.sh VIADUCT redis SOURCE [AFTER] [--single unit/multi ...]
#   tests/suites/programs.sh VIADUCT memcached SOURCE [AFTER] [t/stats.t ...]
#   tests/suites/programs.sh VIADUCT postgres SOURCE [AFTER]
#
# Writes plain.log and viaduct.log, without times and in order, and report, to a new folder,
# and compares the two. Exit status 0: the same outcomes, and bytes went the direct way.
set -eu

viaduct=$(realpath "$1") suite=$2 source=$(realpath "$3") after=${4:-0}
shift 3
[ $# = 0 ] || shift
out=$(mktemp -d /tmp/viaduct-suite-XXXXXX)
touch "$out/report"
chmod 777 "$out"
chmod 666 "$out/report"

outcomes() {
	case $suite in
	# Which replicas PSYNC2 links and kills, and how often, is drawn by chance.
	redis) sed -n 's/\x1b\[[0-9;]*m//g; s/ ([0-9]* ms)$//
		/ PSYNC2/{s/[0-9][0-9]*/N/g; s/kill chained/kill first/}
		/^\[\(ok\|err\|exception\)\]/p' | awk '!/ PSYNCN/ || !seen[$0]++' ;;
	memcached) grep -E '^t/.*\.t |^Result|not ok' | grep -v Wstat ;;
	postgres) sed -n 's/ *[0-9]* ms$//; /\.\.\. /p' ;;
	esac | sort
}

postgres() {
	bin=$(pg_config --bindir) data=$out/data-$1
	shift
	port=$(python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	as='setpriv --reuid postgres --regid postgres --clear-groups --'
	$as "$bin/initdb" -D "$data" --no-sync -A trust -E UTF8 --locale=C >/dev/null
	$as "$@" "$bin/postgres" -D "$data" -p "$port" -c listen_addresses=127.0.0.1 \
		-c unix_socket_directories= -c fsync=off >"$data.server" 2>&1 &
	server=$!
	until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do kill -0 $server; done
	mkdir "$data.out"
	chmod 777 "$data.out"
	$as "$@" "$(dirname "$(pg_config --pgxs)")/../test/regress/pg_regress" \
		--bindir="$bin" --dlpath="$source" --inputdir="$source" \
		--outputdir="$data.out" --host=127.0.0.1 --port="$port" --user=postgres \
		--max-connections=6 --schedule="$source/parallel_schedule" || true
	kill -INT $server
	wait $server || true
}

# run NAME WRAPPER...: the suite, behind the words of the wrapper
run() {
	name=$1
	shift
	cd "$source"
	case $suite in
	redis) "$@" ./runtest --clients 2 $arguments ;;
	memcached) "$@" prove -j2 ${arguments:-t/} ;;
	postgres) cd "$out" && postgres "$name" "$@" ;;
	*) echo "programs: no suite '$suite'" >&2 && exit 2 ;;
	esac >"$out/$name.all" 2>&1 || true
	outcomes <"$out/$name.all" >"$out/$name.log"
}

arguments=$*
run plain env
run viaduct "$viaduct" run --report "$out/report" --upgrade-after "$after" --
echo "programs: see $out"
diff "$out/plain.log" "$out/viaduct.log"
[ -s "$out/plain.log" ]
if grep '^\[exception\]' "$out/plain.log"; then
	echo 'programs: the suite has ended early' >&2
	exit 1
fi
# Of tests that fail in both, the outputs count.
[ $suite != postgres ] || diff -r "$out/data-plain.out/results" "$out/data-viaduct.out/results"
grep -q '"upgraded": *[1-9].*"tx_direct_bytes": *[1-9]' "$out/report"
