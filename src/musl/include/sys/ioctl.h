/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header: the request is an int there, of whose register no more is defined. */
#ifndef VD_MUSL_SYS_IOCTL_H
#define VD_MUSL_SYS_IOCTL_H

#define ioctl ioctl_of_musl
#include_next <sys/ioctl.h>
#undef ioctl

int ioctl(int fd, unsigned long request, ...);

#endif
