/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of epoll: triggers, registration, mixtures and ends. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

CASE(ep_level, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN, 1);
	ep_show(ep, 0);
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	ep_show(ep, SOON);
	recv_pattern(p.s, 0, 60);
	ep_show(ep, SOON);
	recv_pattern(p.s, 60, 40);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN | EPOLLOUT, 2);
	ep_show(ep, SOON);
	send_pattern(p.c, 100, 10);
	wait_events(p.s, POLLIN);
	ep_show(ep, SOON);
	ep_mod(ep, p.s, EPOLLIN | EPOLLRDNORM | EPOLLWRNORM, 3);
	ep_show(ep, SOON);
	ep_mod(ep, p.s, 0, 4);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_edge, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLET, 1);
	ep_show(ep, 0);
	for (int i = 0; i < 3; i++) {
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		ep_show(ep, SOON);
		ep_show(ep, 0);
	}
	recv_pattern(p.s, 0, 300);
	ep_show(ep, 0);
	send_pattern(p.c, 300, 100);
	ep_show(ep, SOON);
	recv_pattern(p.s, 300, 50);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

/* Registered between the meeting and the first byte: what is writable is an edge once. */
CASE(ep_edge_is_told_once, DIRECT)
{
	struct pair p = pair_open();
	int ep = ep_open();
	char byte;

	for (int i = 0; i < 16; i++) {
		NEED(recv(p.c, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == -1);
		NEED(recv(p.s, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == -1);
	}
	ep_add(ep, p.s, EPOLLIN | EPOLLOUT | EPOLLET, 1);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	ep_show(ep, 0);
	pair_warm(p);
	close(ep);
	pair_close(p);
}

/* What has been reported once is silent until its MOD, whatever becomes of the socket. */
CASE(ep_oneshot_stays_spent, DIRECT)
{
	struct pair p = pair_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLONESHOT, 1);
	send_pattern(p.c, 0, 1);
	ep_show(ep, SOON);
	for (uint64_t i = 0; i < 20; i++) {
		recv_pattern(p.s, i, 1);
		send_pattern(p.c, i + 1, 1);
		wait_events(p.s, POLLIN);
		ep_show(ep, 0);
		send_pattern(p.s, i, 1);
		recv_pattern(p.c, i, 1);
	}
	ep_mod(ep, p.s, EPOLLIN | EPOLLONESHOT, 2);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	recv_pattern(p.s, 20, 1);
	pair_warm(p);
	close(ep);
	pair_close(p);
}

/* A program may use the array again: the kernel touches only what it reports. */
CASE(ep_leaves_the_rest_alone, DIRECT)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev[4], before[4];
	int ep = ep_open();

	memset(ev, 0x55, sizeof(ev));
	memcpy(before, ev, sizeof(ev));
	ep_add(ep, p.s, EPOLLIN, 1);
	for (int i = 0; i < 20; i++) {
		NEED(epoll_wait(ep, ev, 4, 0) == 0);
		NEED(memcmp(ev, before, sizeof(ev)) == 0);
		send_pattern(p.c, 0, 1);
		NEED(epoll_wait(ep, ev, 4, -1) == 1);
		NEED(memcmp(ev + 1, before + 1, 3 * sizeof(*ev)) == 0);
		memcpy(ev, before, sizeof(ev));
		recv_pattern(p.s, 0, 1);
	}
	close(ep);
	pair_close(p);
}

CASE(ep_edge_both, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	recv_pattern(p.s, 0, 100);
	send_pattern(p.s, 0, 100);
	ep_show(ep, 0);
	recv_pattern(p.c, 0, 100);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN | EPOLLOUT | EPOLLET, 2);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_oneshot, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLONESHOT, 1);
	ep_show(ep, 0);
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	send_pattern(p.c, 100, 100);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN | EPOLLONESHOT, 2);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	recv_pattern(p.s, 0, 200);
	ep_mod(ep, p.s, EPOLLIN | EPOLLET | EPOLLONESHOT, 3);
	ep_show(ep, 0);
	send_pattern(p.c, 200, 100);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN, 4);
	ep_show(ep, SOON);
	ep_show(ep, SOON);
	close(ep);
	pair_close(p);
}

CASE(ep_mod_ready, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	send_pattern(p.c, 0, 100);
	wait_inq(p.s, 100);
	ep_add(ep, p.s, EPOLLIN, 1);
	ep_mod(ep, p.s, EPOLLOUT, 2);
	ep_show(ep, SOON);
	ep_mod(ep, p.s, EPOLLIN | EPOLLET, 3);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN | EPOLLET, 4);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	recv_pattern(p.s, 0, 100);
	ep_mod(ep, p.s, EPOLLIN | EPOLLET, 5);
	ep_show(ep, 0);
	NEED(epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL) == 0);
	send_pattern(p.c, 100, 100);
	wait_inq(p.s, 100);
	ep_show(ep, 0);
	ep_add(ep, p.s, EPOLLIN | EPOLLET, 6);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_errors, DIRECT)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev;
	int ep = ep_open();
	volatile int minus = -1;

	say_result("mod absent", ep_ctl(ep, EPOLL_CTL_MOD, p.s, EPOLLIN, 1));
	say_result("del absent", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
	ep_add(ep, p.s, EPOLLIN, 1);
	say_result("add twice", ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN, 1));
	say_result("bad op", ep_ctl(ep, 77, p.s, EPOLLIN, 1));
	say_result("mod exclusive",
		   ep_ctl(ep, EPOLL_CTL_MOD, p.s, EPOLLIN | EPOLLEXCLUSIVE, 1));
	say_result("no event", epoll_ctl(ep, EPOLL_CTL_MOD, p.s, NULL));
	say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
	say_result("del twice", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
	say_result("exclusive oneshot",
		   ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT,
			  1));
	say_result("exclusive",
		   ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLIN | EPOLLEXCLUSIVE, 7));
	say_result("mod of exclusive", ep_ctl(ep, EPOLL_CTL_MOD, p.s, EPOLLIN, 1));
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	say_result("del exclusive", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
	say_result("not epoll", ep_ctl(p.c, EPOLL_CTL_ADD, p.s, EPOLLIN, 1));
	say_result("itself", ep_ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 1));
	say_result("closed", ep_ctl(ep, EPOLL_CTL_ADD, 900, EPOLLIN, 1));
	say_result("room 0", epoll_wait(ep, &ev, 0, 0));
	say_result("room -1", epoll_wait(ep, &ev, minus, 0));
	say_result("wait on socket", epoll_wait(p.s, &ev, 1, 0));
	close(ep);
	say_result("wait on closed", epoll_wait(ep, &ev, 1, 0));
	pair_close(p);
}

CASE(ep_dup, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open(), d = dup(p.s), ep2 = dup(ep);

	NEED(d >= 0 && ep2 >= 0);
	ep_add(ep, p.s, EPOLLIN, 1);
	ep_add(ep2, d, EPOLLIN, 2);
	say_result("same again", ep_ctl(ep2, EPOLL_CTL_ADD, p.s, EPOLLIN, 3));
	send_pattern(p.c, 0, 100);
	wait_inq(p.s, 100);
	ep_show(ep, SOON);
	ep_show(ep2, SOON);
	/* The registration lives as long as the socket does. */
	close(p.s);
	ep_show(ep, SOON);
	close(ep);
	ep_show(ep2, SOON);
	recv_pattern(d, 0, 100);
	ep_show(ep2, 0);
	send_pattern(p.c, 100, 100);
	wait_inq(d, 100);
	ep_show(ep2, SOON);
	NEED(epoll_ctl(ep2, EPOLL_CTL_DEL, d, NULL) == 0);
	ep_show(ep2, SOON);
	close(d);
	ep_show(ep2, 0);
	close(ep2);
	close(p.c);
}

CASE(ep_close, DIRECT)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	int ep = ep_open(), number = p.s;

	ep_add(ep, p.s, EPOLLIN | EPOLLOUT, 1);
	ep_add(ep, q.s, EPOLLIN, 2);
	ep_show(ep, SOON);
	close(p.s);
	ep_show(ep, 0);
	/* The number comes back for something else. */
	NEED(dup2(q.c, number) == number);
	ep_show(ep, 0);
	ep_add(ep, number, EPOLLIN, 3);
	send_pattern(q.s, 0, 50);
	ep_show(ep, SOON);
	send_pattern(number, 0, 50);
	wait_inq(q.s, 50);
	ep_show(ep, SOON);
	close(ep);
	close(number);
	close(p.c);
	pair_close(q);
}

#define MANY 24

CASE(ep_many, DIRECT)
{
	struct pair p[MANY];
	int ep = ep_open(), seen[MANY] = {0}, total = 0;
	struct epoll_event ev[5];

	for (int i = 0; i < MANY; i++) {
		p[i] = pair_warm_open();
		ep_add(ep, p[i].s, EPOLLIN, (uint64_t)i);
	}
	for (int turn = 0; turn < 20; turn++) {
		for (int i = turn % 3; i < MANY; i += 3)
			send_pattern(p[i].c, 0, 10 + (size_t)i);
		for (int left = MANY / 3; left > 0;) {
			int n = epoll_wait(ep, ev, 5, SOON);

			NEED(n > 0);
			left -= n;
			for (int i = 0; i < n; i++) {
				uint64_t at = ev[i].data.u64;

				recv_pattern(p[at].s, 0, 10 + at);
				seen[at]++;
			}
		}
		ep_show(ep, 0);
	}
	for (int i = 0; i < MANY; i++) {
		say("%d: %d", i, seen[i]);
		total += seen[i];
		pair_close(p[i]);
	}
	say("total %d", total);
	ep_show(ep, 0);
	close(ep);
}

/* Short room: neither half may starve the other. */
CASE(ep_mixed, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open(), bell = eventfd(1, 0), seen[2] = {0};
	struct epoll_event ev;

	ep_add(ep, p.s, EPOLLIN, 0);
	ep_add(ep, bell, EPOLLIN, 1);
	send_pattern(p.c, 0, 100);
	wait_inq(p.s, 100);
	for (int i = 0; i < 200; i++) {
		NEED(epoll_wait(ep, &ev, 1, SOON) == 1);
		seen[ev.data.u64]++;
	}
	say("both had turns: %d", seen[0] > 2 && seen[1] > 2);
	recv_pattern(p.s, 0, 100);
	ep_show(ep, SOON);
	close(bell);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_half, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();
	char byte;

	ep_add(ep, p.s, EPOLLIN | EPOLLRDHUP, 1);
	send_pattern(p.c, 0, 100);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	wait_events(p.s, POLLRDHUP);
	ep_show(ep, SOON);
	recv_pattern(p.s, 0, 100);
	ep_show(ep, SOON);
	say_result("end", recv(p.s, &byte, 1, 0));
	ep_show(ep, SOON);
	ep_mod(ep, p.s, EPOLLOUT, 2);
	ep_show(ep, SOON);
	send_pattern(p.s, 0, 100);
	recv_pattern(p.c, 0, 100);
	NEED(shutdown(p.s, SHUT_WR) == 0);
	wait_events(p.s, POLLHUP);
	ep_show(ep, SOON);
	ep_mod(ep, p.s, 0, 3);
	ep_show(ep, SOON);
	close(ep);
	pair_close(p);
}

CASE(ep_half_edge, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
	ep_show(ep, 0);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_reset, DIRECT)
{
	struct pair p = pair_warm_open();
	const struct linger now = {.l_onoff = 1};
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLRDHUP, 1);
	ep_show(ep, 0);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
	close(p.c);
	wait_events(p.s, POLLERR);
	ep_show(ep, SOON);
	ep_mod(ep, p.s, 0, 2);
	ep_show(ep, SOON);
	close(ep);
	close(p.s);
}

static void drain(int fd, uint64_t total)
{
	static char buf[65536];

	while (total) {
		ssize_t n = recv(fd, buf, total < sizeof(buf) ? total : sizeof(buf), 0);

		NEED(n > 0);
		total -= (uint64_t)n;
	}
}

static void full_case(uint32_t extra)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLOUT | extra, 1);
	ep_show(ep, SOON);
	for (int i = 0; i < 3; i++) {
		uint64_t n = send_until_full(p.s);

		ep_show(ep, 0);
		drain(p.c, n);
		ep_show(ep, SOON);
		if (extra & EPOLLET)
			ep_show(ep, 0);
	}
	close(ep);
	pair_close(p);
}

CASE(ep_full_level, DIRECT)
{
	full_case(0);
}

CASE(ep_full_edge, DIRECT)
{
	full_case(EPOLLET);
}
