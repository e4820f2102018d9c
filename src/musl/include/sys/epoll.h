/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with a call that it lacks. */
#ifndef VD_MUSL_SYS_EPOLL_H
#define VD_MUSL_SYS_EPOLL_H

#include_next <sys/epoll.h>
#include <time.h>

int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
		 const struct timespec *timeout, const sigset_t *mask);

#endif
