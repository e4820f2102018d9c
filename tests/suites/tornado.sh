#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tornado's own tests (python3-tornado), plain and under Viaduct with the threshold at 0 and as
# it is: clients and servers in one process and one thread, over epoll. The outcomes must be
# the same, and connections upgraded. What judges times is left out.
#
#   tests/suites/tornado.sh VIADUCT [MODULE]... - all without one
set -eu

viaduct=$(realpath "$1")
shift
modules=$*
python=/usr/bin/python3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

$python -c 'import tornado.test' 2>/dev/null || {
	echo "skipped: Tornado's tests (python3-tornado) are missing"
	exit 77
}

# Three tests expect a refusal from a port that an open client has. The kernel may give a new
# client that same port, which then is connected with itself: where many ports are in TIME_WAIT,
# 59 of 30,000 times on kernel TCP, 147 of 60,000 under Viaduct. A bound port is given to nobody.
cat >tornado_main.py <<'END'
import socket

import tornado.test.util


def refusing_port():
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder.close, holder.getsockname()[1]


tornado.test.util.refusing_port = refusing_port
from tornado.test.runtests import all, main  # the tests are found as __main__.all

main()
END

# run NAME WRAPPER...: the tests, behind the words of the wrapper
run() {
	name=$1
	shift
	# shellcheck disable=SC2086
	"$@" $python tornado_main.py --verbose $modules >"$name.all" 2>&1 || true
	sed -n 's/^\(test[^ ]* ([^)]*)\).*\.\.\. \(ok\|FAIL\|ERROR\|skipped\).*/\1 \2/p' \
		"$name.all" | grep -v -i -E 'performance|timeout' | sort >"$name"
}

run plain env
grep -q " ok$" plain || { cat plain.all; exit 1; }
for after in 0 16; do
	run viaduct "$viaduct" run --report report --upgrade-after $after --
	diff plain viaduct || {
		grep -A 20 -E '^(FAIL|ERROR):' viaduct.all
		exit 1
	}
	grep -q '"upgraded": *[1-9]' report
	echo "$(wc -l <plain) outcomes, the same with the threshold at $after"
	rm report
done
