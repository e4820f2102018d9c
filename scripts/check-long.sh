#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make check-long: what takes too long for make check, in parts of less than two hours each:
#   builds     with clang; all cases with musl
#   tests      Meson's suite `long`, of which make check has smaller forms
#   guests     streams between two guests with random calls, with and without a cable that loses, by several
#              seeds; all programs there over IPv6 and without rights; faults
#   models     all searches; random operations by as many seeds as SEEDS says, 1,000 without
#   events-0, events
#              rounds of events (tests/integrity), an hour at a threshold of 0, and one at the default
#   volume     10^12 bytes of streams, each compared
#   native     the native interface at random; pods that are killed
#   rpc        remote procedure calls at random
#   go         the tests of Go's own network libraries, plain and followed
#   apps       programs whose packages are too large for make check; the papers' experiments
#   fuzz       each fuzzer for a minute; the soak test
#   debian     ./demo and ./check on Debian 12, 13 and sid, for which it has to be root
# Goes on after a failure, and fails at the end.
#
# usage: [SEEDS=N] check-long.sh BUILD [PART | NAME]... - of the parts above, and the names below, all
# without one
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
wanted=" $* "
guest=tests/guest
kernel=$build/tests/guest/kernel
seeds="7 1009 20011"
seconds=120
ran=0
failed=

# one NAME COMMAND...: status 77 is a test that cannot be had here.
one() {
	local name=$1 began=$SECONDS rc
	shift
	[ "$wanted" = "  " ] || [[ $wanted == *" $name "* || $wanted == *" $part "* ]] || return
	ran=$((ran + 1))
	echo "== $name: $*"
	"$@"
	rc=$?
	case $rc in
	0) echo "== $name: ok, $((SECONDS - began)) s" ;;
	77) echo "== $name: skipped" ;;
	*)
		echo "== $name: FAILED, status $rc"
		failed="$failed $name"
		;;
	esac
}

# The whole with clang, which make check asks for its warnings only.
clang_build() {
	local folder=build-check/clang
	command -v clang >/dev/null || return 77
	[ -f $folder/build.ninja ] ||
		CC=clang meson setup $folder -Dwerror=true -Dbuildtype=plain -Dmusl=disabled || return
	ninja -C $folder
}
part=builds
one clang clang_build
one mechanisms ninja -C "$build" mechanisms
# Without musl-gcc there are none.
musl_cases() {
	ninja -C "$build" -t query musl-cases-all >/dev/null 2>&1 || return 77
	ninja -C "$build" musl-cases-all static-cases-all
}
one musl musl_cases
# The suite has cases of musl, too.
long_tests() {
	musl_cases
	meson test -C "$build" --no-rebuild --print-errorlogs --suite long --timeout-multiplier 8
}
part=tests
one long long_tests
part=guests
far=("$guest/far.py" --expect rdma)
faults=("$guest/far_faults.py" --expect rdma)
for seed in $seeds; do
	arguments="--seed $seed --conns 4 --bytes 6000000 --kill --signals"
	for loss in "" --loss; do
		one "integrity$loss-$seed" "${far[@]}" $loss --integrity $seconds \
			--arguments "$arguments" "$build/viaduct" "$kernel"
	done
done
one programs--loss "${far[@]}" --loss -- "$build/viaduct" "$kernel"
one programs--ipv6 "${far[@]}" --ipv6 "$build/viaduct" "$kernel"
one programs--user "${far[@]}" --user 1000 "$build/viaduct" "$kernel"
one faults "${faults[@]}" "$build/viaduct" "$kernel"
one faults--loss "${faults[@]}" --loss -- "$build/viaduct" "$kernel"
one faults--ipv6 "${faults[@]}" --ipv6 "$build/viaduct" "$kernel"
part=models
for model in switch sleep epoll end native message reach; do
	one model-$model models/check.sh --whole $model
done
one differential tests/differential/differential.py --seed 1001 --seeds "${SEEDS:-1000}" \
	"$build/viaduct" "$build/tests/differential/differential"
# Events against moves in both directions, with signals, children and kills.
integrity=("$build/tests/support/viaduct" "$build/tests/integrity/integrity")
events() { # THRESHOLD
	INTEGRITY_AFTER=$1 tests/integrity/run.py --slow "$build/tests/integrity/libintegrity-slow.so" \
		"${integrity[@]}" --events --seconds 3600 --seed "$(date +%s)" --signals --switch --kill
}
part=events-0
one events-hour-0 events 0
part=events
one events-hour events default
# VOLUME ARGUMENT...: streams of so many bytes in all, with each byte compared.
volume() {
	local bytes=$1
	shift
	tests/integrity/run.py "${integrity[@]}" --volume "$bytes" --conns 8 "$@"
}
part=volume
one volume-plain volume 500000000000 --seed 1 --bytes 1000000000 --no-fork
one volume-switch volume 200000000000 --seed 2 --bytes 300000000 --switch
one volume-all volume 100000000000 --seed 3 --bytes 100000000 --signals --switch --kill
one volume-default env INTEGRITY_AFTER=default tests/integrity/run.py "${integrity[@]}" \
	--volume 200000000000 --conns 8 --seed 4 --bytes 300000000
# The native interface at random: over TCP, in shared memory, and with the preloaded engine.
part=native
native=$build/tests/native/native-random
one native-tcp env VIADUCT=off NATIVE_PATH=tcp NATIVE_SECONDS=120 "$native"
one native-shm env NATIVE_PATH=shm NATIVE_SECONDS=120 "$native"
one native-preloaded env NATIVE_PATH=shm NATIVE_SECONDS=120 "$build/viaduct" run "$native"
# The same under sanitizers, in the build folders of make check: an hour, and ten minutes.
native() { # FOLDER SANITIZERS VARIABLE...
	local folder=build-check/$1 sanitizers=$2
	shift 2
	[ -f "$folder/build.ninja" ] ||
		CC=gcc meson setup "$folder" "-Db_sanitize=$sanitizers" -Db_lundef=false || return
	ninja -C "$folder" tests/native/native-random || return
	env "$@" "$folder/tests/native/native-random"
}
one native-sanitized-tcp native sanitized address,undefined VIADUCT=off NATIVE_PATH=tcp \
	NATIVE_SEED=100000 NATIVE_SECONDS=1800
one native-sanitized-shm native sanitized address,undefined NATIVE_PATH=shm \
	NATIVE_SEED=200000 NATIVE_SECONDS=1800
suppressed=TSAN_OPTIONS=die_after_fork=0:suppressions=$PWD/tests/native/threads.supp
one native-threads-tcp native threads thread "$suppressed" VIADUCT=off NATIVE_PATH=tcp \
	NATIVE_SEED=300000 NATIVE_SECONDS=300
one native-threads-shm native threads thread "$suppressed" NATIVE_PATH=shm \
	NATIVE_SEED=400000 NATIVE_SECONDS=300
# Two pods of one host, and kills at random moments.
near() { # FOLDER SANITIZERS
	local folder=build-check/$1 sanitizers=$2 test
	[ -f "$folder/build.ninja" ] ||
		CC=gcc meson setup "$folder" "-Db_sanitize=$sanitizers" -Db_lundef=false || return
	ninja -C "$folder" libviaduct-preload.so || return
	for test in pods storm; do
		SANITIZER=${sanitizers%%,*} python3 tests/relay/$test.py "$build/viaductd" \
			"$folder/libviaduct-preload.so" || return
	done
}
one near-sanitized near sanitized address,undefined
one near-threads near threads thread
part=rpc
# Random remote procedure calls; tests/support has a door by which connections go back to TCP.
calls() { # FOLDER SANITIZERS ARGUMENT...
	local folder=build-check/$1 sanitizers=$2
	shift 2
	[ -f "$folder/build.ninja" ] ||
		CC=gcc meson setup "$folder" "-Db_sanitize=$sanitizers" -Db_lundef=false || return
	ninja -C "$folder" libviaduct-rpc.so tests/rpc/rpc-stress || return
	tests/rpc/stress.py --module "$folder/libviaduct-rpc.so" "$@" \
		"$build/tests/support/viaduct" "$folder/tests/rpc/rpc-stress"
}
one rpc-stress tests/rpc/stress.py --seed 100000 --seconds 900 "$build/tests/support/viaduct" \
	"$build/tests/rpc/rpc-stress"
one rpc-stress-sanitized calls sanitized address,undefined --seed 200000 --seconds 3600
one rpc-stress-threads calls threads thread --seed 300000 --seconds 900
part=go
one go-suites tests/suites/go.py "$build/viaduct"
part=apps
# Systems for calls whose packages are too large for make check.
for app in capnp dbus java omniorb rmi samba; do
	one app-$app tests/apps/$app.py "$build/viaduct"
done
one app-grpc-c++ tests/apps/grpc.py "$build/viaduct" c++
# The papers' experiments, in short measurements; what a row says of its time is not judged.
papers() {
	local folder rc
	folder=$(mktemp -d) || return
	"$build/viaduct" papers --quick -o "$folder/papers"
	rc=$?
	rm -rf "$folder"
	return $rc
}
one papers papers
part=fuzz
for target in tests/fuzz/fuzz_*.c; do
	name=$(basename "${target#*/fuzz_}" .c)
	one fuzz-"$name" scripts/fuzz.sh 60 "$name"
done
one soak tests/suites/soak.py "$build/viaduct" --seconds 600 --plain 120
part=debian
# What a new user does, on each Debian that the README names.
for release in bookworm trixie sid; do
	one root-$release scripts/root.sh $release
done

if [ $ran = 0 ]; then
	echo "check-long: nothing is named$wanted" >&2
	exit 2
fi
if [ -n "$failed" ]; then
	echo "check-long: FAILED:$failed" >&2
	exit 1
fi
