/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_SYS_STAT_H
#define VD_MUSL_SYS_STAT_H

#include_next <sys/stat.h>

#undef fstat64
int fstat64(int fd, struct stat *st);

#endif
