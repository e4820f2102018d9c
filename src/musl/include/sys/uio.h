/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with what it lacks. */
#ifndef VD_MUSL_SYS_UIO_H
#define VD_MUSL_SYS_UIO_H

#include_next <sys/uio.h>

#ifndef RWF_HIPRI
#define RWF_HIPRI  0x1
#define RWF_DSYNC  0x2
#define RWF_SYNC   0x4
#define RWF_NOWAIT 0x8
#define RWF_APPEND 0x10
#endif

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags);

#endif
