#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest: sets it up, and leaves the place to busybox's init, which
# starts what runs the commands and takes the orphans. What it says goes to the console.
set -eu
export PATH=/usr/sbin:/usr/bin:/usr/lib/busybox HOME=/root
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mkdir -p /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs -o mode=1777 none /tmp
ip link set lo up
# As systemd does on Debian.
ulimit -Hn 524288
ulimit -l unlimited
modprobe virtio_pci
modprobe virtio_console
echo "::once:/commands" >/etc/inittab
exec init
