/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_SYS_RESOURCE_H
#define VD_MUSL_SYS_RESOURCE_H

#include_next <sys/resource.h>

#undef prlimit64
#undef setrlimit64
typedef int __rlimit_resource_t;
int prlimit64(pid_t pid, int resource, const struct rlimit *to, struct rlimit *was);
int setrlimit64(int resource, const struct rlimit *to);

#endif
