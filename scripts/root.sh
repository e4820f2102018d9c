#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Debian release in a folder of its own, and what a new user does there: ./demo and ./check in a copy of
# this tree, as an ordinary user who may use sudo. Root alone can make it, by debootstrap; packages come
# from where this machine's apt has its own. Takes the time of a check, and 8 GB below build-check, which
# are removed at the end. Status 77: it cannot be had here.
#
# usage: root.sh RELEASE [COMMAND]... - the commands in the place of these two
cd "$(dirname "$0")/.." || exit 1
release=$1
shift
[ $# -gt 0 ] || set -- ./demo ./check

lacking() {
	echo "root.sh: $1"
	exit 77
}
[ "$(id -u)" = 0 ] || lacking "only root makes another system's root"
command -v debootstrap >/dev/null || lacking "debootstrap is missing"
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
	grep -v security | head -n 1)
[ -n "$mirror" ] || lacking "this machine's apt knows no mirror of Debian"

mkdir -p build-check/roots || exit
root=$(mktemp -d "build-check/roots/$release-XXXXXX") || exit
chmod 755 "$root"
root=$(realpath "$root")
# Nothing is mounted there that this shell sees: see below.
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM

make_root() {
	debootstrap --variant=minbase --include=ca-certificates,sudo,procps "$release" "$root" "$mirror" &&
		apt-config dump Acquire >"$root/etc/apt/apt.conf.d/99host" &&
		cp /etc/resolv.conf /etc/hosts "$root/etc" &&
		chroot "$root" useradd -m -s /bin/bash newcomer &&
		echo 'newcomer ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/newcomer" &&
		mkdir "$root/home/newcomer/viaduct" &&
		git -c safe.directory="$PWD" ls-files -z | tar -c --null -T - | tar -x -C "$root/home/newcomer/viaduct" &&
		chroot "$root" chown -R newcomer: /home/newcomer
}
make_root >"$root.log" 2>&1 || {
	tail -n 20 "$root.log"
	lacking "no root of $release could be made"
}
rm -f "$root.log"

# Not by chroot, where no user may have a user namespace of his own. All that still runs there ends with it.
# shellcheck disable=SC2016
enter='
	mount --make-rprivate / && mount --bind "$1" "$1" && cd "$1" &&
		mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
		mkdir -p .old && pivot_root . .old && umount -l /.old && rmdir /.old &&
		cd /home/newcomer/viaduct || exit
	exec setpriv --reuid=newcomer --regid=newcomer --init-groups env -i HOME=/home/newcomer \
		USER=newcomer LOGNAME=newcomer TERM=dumb LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin \
		sh -c "$2"'
status=0
for command; do
	echo "== $release: $command"
	unshare --mount --pid --fork --kill-child sh -c "$enter" sh "$root" "$command" || status=1
done
exit $status
