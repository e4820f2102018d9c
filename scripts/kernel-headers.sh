#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a folder that shows the kernel's headers alone, for a compiler that must not see glibc's.
#
# usage: kernel-headers.sh FOLDER
set -eu

mkdir -p "$1"
for name in linux asm asm-generic; do
	for folder in /usr/include "/usr/include/$(cc -print-multiarch)"; do
		if [ -d "$folder/$name" ]; then
			ln -sfn "$folder/$name" "$1/$name"
		fi
	done
done
