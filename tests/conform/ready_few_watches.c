/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel takes few registrations: the program has as many as on TCP. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define PAIRS	4
#define WATCHES 10

static _Atomic int *watches_need(void)
{
	_Atomic int *left = (_Atomic int *)dlsym(RTLD_DEFAULT, "conform_watches");

	if (!left)
		skip("needs few_watches.so");
	return left;
}

/* Both ends of upgraded connections, then pipes, until there is no more. Each still says what comes. */
static void fill(uint32_t trigger, bool watched, bool deletes)
{
	_Atomic int *left = watches_need();
	struct pair p[PAIRS];
	int ep = ep_open(), outer = ep_open(), added = 0;
	struct signal_pipe idle = signal_pipe();

	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	if (watched)
		ep_add(outer, ep, EPOLLIN, 100);
	atomic_store(left, WATCHES);
	for (int i = 0; i < PAIRS; i++) {
		ep_add(ep, p[i].s, EPOLLIN | trigger, (uint64_t)i | MAY_REPEAT);
		if (deletes && i == 0)
			NEED(ep_ctl(ep, EPOLL_CTL_DEL, p[i].s, 0, 0) == 0);
	}
	while (ep_ctl(ep, EPOLL_CTL_ADD, dup(idle.fd[0]), EPOLLIN, 200) == 0)
		added++;
	say("pipes: %d, %s", added, errno_name(errno));
	atomic_store(left, -1);
	for (int i = deletes; i < PAIRS; i++) {
		struct epoll_event ev;

		send_pattern(p[i].c, 0, 10);
		do
			NEED(epoll_wait(ep, &ev, 1, SOON) == 1);
		while (ev.data.u64 != ((uint64_t)i | MAY_REPEAT));
		recv_pattern(p[i].s, 0, 10);
	}
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
	close(ep);
	close(outer);
	close(idle.fd[0]);
	close(idle.fd[1]);
}

CASE(few_watches, READY)
{
	fill(0, false, false);
	fill(EPOLLET, false, false);
}

CASE(few_watches_deleted, READY)
{
	fill(0, false, true);
}

CASE(few_watches_watched, READY)
{
	fill(0, true, false);
}
