#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real programs, plain and under Viaduct, in alternating pairs; options: bench/apps.py --help.
#
# As root, everything runs in a network namespace of its own, where TCP uses cubic and no
# port is taken. Otherwise it runs on the loopback interface as it is.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

if [ "$(id -u)" -ne 0 ]; then
	exec python3 "$here/apps.py" "$@"
fi
# By route: the sysctl of a new namespace takes only what every user may choose.
exec unshare --net -- sh -euc '
	ip link set lo up
	for net in 127.0.0.0/8 127.0.0.1; do
		ip route replace table local local $net dev lo proto kernel scope host \
			src 127.0.0.1 congctl cubic
	done
	APPS_NETWORK=own exec python3 "$@"
' sh "$here/apps.py" "$@"
