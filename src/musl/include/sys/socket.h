/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with the kernel's options that it lacks, and flags as glibc declares them. */
#ifndef VD_MUSL_SYS_SOCKET_H
#define VD_MUSL_SYS_SOCKET_H

#define recvmmsg recvmmsg_of_musl
#define sendmmsg sendmmsg_of_musl
#include_next <sys/socket.h>
#undef recvmmsg
#undef sendmmsg

struct timespec;
int recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags,
	     struct timespec *timeout);
int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags);

#ifndef SO_TIMESTAMP_NEW
#define SO_TIMESTAMP_NEW   63
#define SO_TIMESTAMPNS_NEW 64
#endif
#ifndef SO_RCVTIMEO_NEW
#define SO_RCVTIMEO_OLD 20
#define SO_SNDTIMEO_OLD 21
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

#endif
