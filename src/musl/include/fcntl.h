/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_FCNTL_H
#define VD_MUSL_FCNTL_H

#include_next <fcntl.h>

#undef open64
#undef openat64
#undef creat64
int open64(const char *path, int flags, ...);
int openat64(int dir, const char *path, int flags, ...);
int creat64(const char *path, mode_t mode);

#define __OPEN_NEEDS_MODE(flags)                                                         \
	(((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE)

#endif
