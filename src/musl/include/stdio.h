/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_STDIO_H
#define VD_MUSL_STDIO_H

#include_next <stdio.h>

#undef freopen64
FILE *freopen64(const char *path, const char *mode, FILE *f);

#endif
