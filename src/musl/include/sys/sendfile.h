/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_SYS_SENDFILE_H
#define VD_MUSL_SYS_SENDFILE_H

#include_next <sys/sendfile.h>

#undef sendfile64
ssize_t sendfile64(int out, int in, off_t *offset, size_t count);

#endif
