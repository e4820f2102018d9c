/* SPDX-License-Identifier: Apache-2.0 */
/* An epoll instance of Viaduct's, and what it knows of a socket in it. */
#ifndef UNIT_READINESS_INSTANCE_H
#define UNIT_READINESS_INSTANCE_H

#include <sys/epoll.h>

#include "readiness/epoll.h"
#include "unit/readiness_pair.h"

static inline int ep_open(void)
{
	sock_pair_init();
	return ready_epoll_create(epoll_create1(EPOLL_CLOEXEC));
}

static inline int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return ready_epoll_ctl(ep, op, fd, &ev);
}

static inline int ep_wait(int ep, struct epoll_event *ev, int max, int ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000l};

	return ready_epoll_wait(ep, ev, max, &ts, NULL);
}

static inline void ep_close(int ep)
{
	ready_closing(ep);
	close(ep);
}

static inline struct epoll_reg *reg_of(int ep, int fd)
{
	struct epoll_reg *r;

	epoll_list_lock();
	r = reg_find(instance_at(ep), fd_sock(fd), fd);
	epoll_list_unlock();
	return r;
}

#endif
