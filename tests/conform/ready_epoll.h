/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases of epoll share. */
#ifndef CONFORM_READY_EPOLL_H
#define CONFORM_READY_EPOLL_H

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

/* For events that must come: long enough for any machine. */
#define SOON 20000

static inline int ep_open(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);

	NEED(ep >= 0);
	return ep;
}

static inline int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return epoll_ctl(ep, op, fd, &ev);
}

static inline void ep_add(int ep, int fd, uint32_t events, uint64_t data)
{
	NEED(ep_ctl(ep, EPOLL_CTL_ADD, fd, events, data) == 0);
}

static inline void ep_mod(int ep, int fd, uint32_t events, uint64_t data)
{
	NEED(ep_ctl(ep, EPOLL_CTL_MOD, fd, events, data) == 0);
}

/* Sends until there is no room. Returns how many bytes. */
static inline size_t send_until_full(int fd)
{
	static char bytes[65536];
	size_t sent = 0;
	ssize_t n;

	while ((n = send(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		sent += (size_t)n;
	NEED(n < 0 && errno == EAGAIN);
	return sent;
}

static inline int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* In the data of a registration whose edges may be told once more: see tests/support/relation.py. */
#define MAY_REPEAT (1ull << 63)

/* One epoll_wait; its events in the order of their data. Returns how many there are without edges. */
static inline int ep_show(int ep, int timeout)
{
	struct epoll_event ev[16];
	int n = epoll_wait(ep, ev, 16, timeout), levels = 0;

	if (n < 0) {
		say_result("wait", n);
		return n;
	}
	qsort(ev, (size_t)n, sizeof(ev[0]), by_data);
	for (int i = 0; i < n; i++)
		levels += !(ev[i].data.u64 & MAY_REPEAT);
	if (!levels)
		say("nothing");
	for (int i = 0; i < n; i++)
		say("%llu: %s%s", (unsigned long long)(ev[i].data.u64 & ~MAY_REPEAT),
		    poll_names((int)ev[i].events),
		    ev[i].data.u64 & MAY_REPEAT ? " edge" : "");
	return levels;
}

/* A child that ends at once. */
static inline void a_child(void)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0)
		_exit(7);
	NEED(child_status(pid) == 7);
}

/* The switch of a registration may repeat an edge: the programs read until EAGAIN. */
static inline void ep_drain(int ep)
{
	struct epoll_event ev[16];

	while (epoll_wait(ep, ev, 16, 0) > 0)
		;
}

#endif
