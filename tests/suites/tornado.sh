#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tornado's own tests (python3-tornado), plain and under Viaduct with the threshold at 0 and as
# it is: clients and servers in one process and one thread, over epoll. The outcomes must be
# the same, and connections upgraded. What judges times is left out.
#
#   tests/suites/tornado.sh VIADUCT
set -eu

viaduct=$(realpath "$1")
python=/usr/bin/python3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

$python -c 'import tornado.test' 2>/dev/null || {
	echo "skipped: Tornado's tests (python3-tornado) are missing"
	exit 77
}

# run NAME WRAPPER...: the tests, behind the words of the wrapper
run() {
	name=$1
	shift
	"$@" $python -m tornado.test.runtests --verbose >"$name.all" 2>&1 || true
	sed -n 's/^\(test[^ ]* ([^)]*)\).*\.\.\. \(ok\|FAIL\|ERROR\|skipped\).*/\1 \2/p' \
		"$name.all" | grep -v -i -E 'performance|timeout' | sort >"$name"
}

run plain env
grep -q ' ok$' plain
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
