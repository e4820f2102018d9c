#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Redis over TCP, over AF_UNIX and under Viaduct: scripts/demo.sh [BUILD FOLDER].
# As root it runs in a network namespace of its own, with cubic as congestion control
# there; nothing on the machine is changed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:-$here/../build}" && pwd)

if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then
	# Where the machine does not allow cubic in a namespace, a route may still name it.
	# shellcheck disable=SC2016
	exec unshare -n sh -c '
		ip link set lo up || exit 1
		echo cubic 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control ||
			ip route replace table local local 127.0.0.1 dev lo proto kernel \
				scope host src 127.0.0.1 congctl cubic || true
		exec python3 "$@"' sh "$here/demo.py" "$build" "a network namespace of its own"
fi
exec python3 "$here/demo.py" "$build" "the machine's network namespace, as it is"
