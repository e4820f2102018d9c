/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that musl lacks. */
#ifndef VD_MUSL_SYS_PIDFD_H
#define VD_MUSL_SYS_PIDFD_H

#include <sys/types.h>

int pidfd_open(pid_t pid, unsigned flags);
int pidfd_getfd(int pidfd, int target, unsigned flags);

#endif
