#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for a job:
# scripts/deps.sh build|headers|demo|check|long|bench.
# Installs nothing when everything is there, and says beforehand what it installs. What this system has no
# package of is named, and the rest is installed; then it fails.
# With DEPS_LOG=FILE, what apt-get prints is appended to that file.
set -eu

# One line a package: group, package, and the command or file by which it is known. A sign that
# another package brings as well would hide that this one is missing; `dpkg` asks for the package.
# `headers` are those of `check` by which Meson decides what there is to build.
packages() {
	python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || :
	cat <<-END
	build gcc gcc
	build make make
	build libc6-dev /usr/include/stdio.h
	build linux-libc-dev /usr/include/linux/sock_diag.h
	build meson meson
	build ninja-build ninja
	build pkg-config pkg-config
	build libjansson-dev /usr/include/jansson.h
	build libsmartcols-dev /usr/include/libsmartcols/libsmartcols.h
	build libsodium-dev /usr/include/sodium.h
	build libtirpc-dev /usr/include/tirpc/rpc/rpc.h
	build binutils nm
	build musl-tools musl-gcc
	build python3 python3
	build systemtap-sdt-dev /usr/include/x86_64-linux-gnu/sys/sdt.h
	headers rpcsvc-proto rpcgen
	headers libkrb5-dev /usr/include/gssapi/gssapi.h
	headers liburing-dev /usr/include/liburing.h
	headers libibverbs-dev /usr/include/infiniband/verbs.h
	demo redis-server redis-server
	demo redis-tools redis-benchmark
	demo iproute2 ip
	check clang clang
	check libclang-rt-dev /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a
	check clang-format clang-format
	check spin spin
	check rpcsvc-proto rpcgen
	check rpcbind rpcbind
	check systemd systemd-socket-activate
	check libkrb5-dev /usr/include/gssapi/gssapi.h
	check krb5-kdc krb5kdc
	check krb5-admin-server kadmin.local
	check krb5-user kinit
	check nfs-common showmount
	check nfs-kernel-server rpc.mountd
	check nftables nft
	check iproute2 ip
	check redis-server redis-server
	check redis-tools redis-benchmark
	check memcached memcached
	check nginx-light nginx
	check libnginx-mod-stream /usr/lib/nginx/modules/ngx_stream_module.so
	check haproxy haproxy
	check wrk wrk
	check curl curl
	check apache2-bin apache2
	check apache2-utils ab
	check openmpi-bin mpirun.openmpi
	check libopenmpi-dev /usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h
	check socat socat
	check netcat-openbsd nc.openbsd
	check postgresql /usr/lib/postgresql/*/bin/initdb
	check iperf3 iperf3
	check tshark tshark
	check bpftrace bpftrace
	check netpipe-tcp NPtcp
	check stress-ng stress-ng
	check nuttcp nuttcp
	check nbdkit nbdkit
	check fio fio
	check nodejs node
	check openssl openssl
	check php-cli php
	check php-fpm /usr/sbin/php-fpm*
	check php-redis /usr/lib/php/*/redis.so
	check php-curl /usr/lib/php/*/curl.so
	check golang-go go
	check caddy caddy
	check sockperf sockperf
	check openssh-server sshd
	check openssh-client ssh
	check openbsd-inetd inetd
	check vsftpd vsftpd
	check tnftp tnftp
	check liburing-dev /usr/include/liburing.h
	check python3-tornado /usr/lib/python3/dist-packages/tornado/test/runtests.py
	check python3-cffi /usr/lib/python3/dist-packages/cffi/api.py
	check python3-matplotlib /usr/lib/python3/dist-packages/matplotlib/__init__.py
	check python3-jinja2 /usr/lib/python3/dist-packages/jinja2/__init__.py
	check fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
	check libpython$python-testsuite /usr/lib/python$python/test/test_socket.py
	check qemu-system-x86 qemu-system-x86_64
	check busybox-static dpkg
	check kmod depmod
	check python3-thrift /usr/lib/python3/dist-packages/thrift
	check thrift-compiler thrift
	check python3-grpcio /usr/lib/python3/dist-packages/grpc
	check dbus-daemon dbus-daemon
	check dbus-bin dbus-send
	check libglib2.0-bin gdbus
	check libibverbs-dev /usr/include/infiniband/verbs.h
	check ibverbs-providers /etc/libibverbs.d/rxe.driver
	check ibverbs-utils ibv_rc_pingpong
	check rdmacm-utils rping
	long debootstrap debootstrap
	long git git
	long default-jdk-headless javac
	long g++ g++
	long mariadb-server-core mariadbd
	long mariadb-client-core my_print_defaults
	long php-mysql /usr/lib/php/*/mysqli.so
	long php-pgsql /usr/lib/php/*/pgsql.so
	long omniorb nameclt
	long omniorb-nameserver omniNames
	long omniidl omniidl
	long libomniorb4-dev /usr/include/omniORB4/CORBA.h
	long capnproto capnp
	long libcapnp-dev /usr/include/capnp/ez-rpc.h
	long samba smbd
	long smbclient rpcclient
	long libgrpc++-dev /usr/include/grpcpp/grpcpp.h
	long libprotobuf-dev /usr/include/google/protobuf/message.h
	long protobuf-compiler protoc
	long protobuf-compiler-grpc grpc_cpp_plugin
	long python3-gi /usr/lib/python3/dist-packages/gi
	bench gcc cc
	bench iproute2 ip
	bench redis-server redis-server
	bench redis-tools redis-benchmark
	bench memcached memcached
	bench libmemcached-tools memcaslap
	bench nginx-light nginx
	bench wrk wrk
	bench postgresql /usr/lib/postgresql/*/bin/initdb
	bench iperf3 iperf3
	bench nodejs node
	bench perftest ib_write_lat
	bench netpipe-tcp NPtcp
	bench sockperf sockperf
	bench openmpi-bin mpirun.openmpi
	bench netpipe-openmpi NPopenmpi
	bench hpcc hpcc
	bench nuttcp nuttcp
	bench nbdkit nbdkit
	bench fio fio
	bench vsftpd vsftpd
	bench openbsd-inetd inetd
	bench curl curl
	bench haproxy haproxy
	bench nftables nft
	bench caddy caddy
	bench golang-go go
	bench default-jdk-headless javac
	bench g++ g++
	bench omniidl omniidl
	bench libomniorb4-dev /usr/include/omniORB4/CORBA.h
	bench python3-grpcio /usr/lib/python3/dist-packages/grpc
	END
}

# known PACKAGE SIGN
known() {
	case $2 in
	/*)
		for sign in $2; do
			[ ! -e "$sign" ] || return 0
		done
		return 1
		;;
	dpkg) dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed ;;
	*) has "$2" ;;
	esac
}

has() {
	PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1
}

group=${1:-}
case $group in
build | headers | demo | check | long | bench) ;;
*)
	echo "usage: $0 build|headers|demo|check|long|bench" >&2
	exit 2
	;;
esac

missing=
while read -r in_group package sign; do
	[ "$in_group" = "$group" ] && ! known "$package" "$sign" && missing="$missing $package"
done <<END
$(packages)
END
[ -n "$missing" ] || exit 0

if ! has apt-get; then
	echo "deps: missing for '$group', and no apt-get to install it:$missing" |
		fold -s -w 80 >&2
	exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	if ! has sudo; then
		echo "deps: missing for '$group':$missing" | fold -s -w 80 >&2
		echo "deps: install it as root: apt-get install$missing" >&2
		exit 1
	fi
	as_root=sudo
fi
echo "deps: installing with apt-get, for '$group':$missing" | fold -s -w 80
log=${DEPS_LOG:-}

# Debian starts a service when its package is installed, unless policy-rc.d forbids it;
# what was there before is put back.
policy=/usr/sbin/policy-rc.d
kept=$policy.before-viaduct
restore() {
	$as_root rm -f $policy
	[ ! -e $kept ] || $as_root mv $kept $policy
}
if [ -e $policy ]; then
	$as_root mv $policy $kept
fi
trap restore EXIT
trap 'exit 130' INT TERM
printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
$as_root chmod 755 $policy

export DEBIAN_FRONTEND=noninteractive
quietly() {
	if [ -n "$log" ]; then
		"$@" >>"$log" 2>&1
	else
		"$@"
	fi
}
# Of what is missing: $there has a package here, $nowhere has none.
look() {
	# shellcheck disable=SC2086
	there=$(LC_ALL=C apt-cache policy $missing 2>/dev/null | awk '
		/^[^ ]/ { name = $1; sub(/:$/, "", name) }
		$1 == "Candidate:" && $2 != "(none)" { print name }')
	nowhere=
	for package in $missing; do
		echo "$there" | grep -Fqx "$package" || nowhere="$nowhere $package"
	done
}
install() {
	# shellcheck disable=SC2086
	quietly $as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends $there
}
look
if [ -n "$nowhere" ]; then
	quietly $as_root apt-get update -q
	look
fi
if [ -n "$nowhere" ]; then
	echo "deps: no package of this system, for '$group':$nowhere" | fold -s -w 80 >&2
fi
[ -n "$there" ] || exit 1
install || {
	quietly $as_root apt-get update -q
	install
} || {
	status=$?
	[ -z "$log" ] || {
		tail -n 20 "$log"
		echo "deps: apt-get failed. All that it printed: $log"
	} >&2
	exit $status
}
[ -z "$nowhere" ]
