/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of epoll: triggers, registration, mixtures and ends. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* For events that must come: long enough for any machine. */
#define SOON 20000

static int ep_open(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);

	NEED(ep >= 0);
	return ep;
}

static int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return epoll_ctl(ep, op, fd, &ev);
}

static void ep_add(int ep, int fd, uint32_t events, uint64_t data)
{
	NEED(ep_ctl(ep, EPOLL_CTL_ADD, fd, events, data) == 0);
}

static void ep_mod(int ep, int fd, uint32_t events, uint64_t data)
{
	NEED(ep_ctl(ep, EPOLL_CTL_MOD, fd, events, data) == 0);
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* One epoll_wait; its events in the order of their data. */
static int ep_show(int ep, int timeout)
{
	struct epoll_event ev[16];
	int n = epoll_wait(ep, ev, 16, timeout);

	if (n < 0) {
		say_result("wait", n);
		return n;
	}
	qsort(ev, (size_t)n, sizeof(ev[0]), by_data);
	if (!n)
		say("nothing");
	for (int i = 0; i < n; i++)
		say("%llu: %s", (unsigned long long)ev[i].data.u64,
		    poll_names((int)ev[i].events));
	return n;
}

/* The switch of a registration may repeat an edge: the programs read until EAGAIN. */
static void ep_drain(int ep)
{
	struct epoll_event ev[16];

	while (epoll_wait(ep, ev, 16, 0) > 0)
		;
}

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
	ep_show(ep, SOON);
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

static uint64_t fill(int fd)
{
	static char buf[4096];
	uint64_t total = 0;
	ssize_t n;

	while ((n = send(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		total += (uint64_t)n;
	NEED(errno == EAGAIN);
	return total;
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
		uint64_t n = fill(p.s);

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

struct waiter {
	int ep, timeout, result, err;
	struct epoll_event ev;
};

static void wait_once(void *arg)
{
	struct waiter *w = arg;

	w->result = epoll_wait(w->ep, &w->ev, 1, w->timeout);
	w->err = errno;
}

/* A thread sleeps from before the upgrade. */
CASE(ep_before, DIRECT)
{
	struct pair p = pair_open();
	struct waiter w = {.ep = ep_open(), .timeout = -1};
	struct worker t;

	ep_add(w.ep, p.s, EPOLLRDHUP, 1);
	worker_start(&t, wait_once, &w);
	wait_asleep(getpid(), t.tid);
	pair_warm(p);
	wait_asleep(getpid(), t.tid);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	worker_join(&t);
	say("%d: %llu %s", w.result, (unsigned long long)w.ev.data.u64,
	    poll_names((int)w.ev.events));
	close(w.ep);
	pair_close(p);
}

CASE(ep_added_before, DIRECT)
{
	struct pair p = pair_open(), q = pair_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN, 1);
	ep_add(ep, q.s, EPOLLIN | EPOLLET, 2);
	pair_warm(p);
	pair_warm(q);
	ep_drain(ep);
	ep_show(ep, 0);
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	recv_pattern(p.s, 0, 100);
	send_pattern(q.c, 0, 100);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
	pair_close(q);
}

struct echo {
	int ep, fd;
	uint64_t left;
};

static void echo_loop(void *arg)
{
	struct echo *e = arg;
	struct epoll_event ev;
	char buf[4096];

	while (e->left) {
		ssize_t n;

		NEED(epoll_wait(e->ep, &ev, 1, -1) == 1);
		while ((n = recv(e->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
			send_all(e->fd, buf, (size_t)n);
			e->left -= (uint64_t)n;
		}
		NEED(n < 0 && errno == EAGAIN);
	}
}

static void echo_case(uint32_t extra)
{
	struct pair p = pair_open();
	struct echo e = {.ep = ep_open(), .fd = p.s};
	uint64_t off = 0;
	struct worker t;

	for (int i = 0; i < 400; i++)
		e.left += (uint64_t)(i * 7 % 500 + 1);
	ep_add(e.ep, p.s, EPOLLIN | extra, 1);
	worker_start(&t, echo_loop, &e);
	for (int i = 0; i < 400; i++) {
		size_t n = (size_t)(i * 7 % 500 + 1);

		send_pattern(p.c, off, n);
		recv_pattern(p.c, off, n);
		off += n;
	}
	worker_join(&t);
	say("%llu bytes came back", (unsigned long long)off);
	close(e.ep);
	pair_close(p);
}

/* From before the upgrade to long after it, with sleeps between. */
CASE(ep_echo_level, DIRECT)
{
	echo_case(0);
}

CASE(ep_echo_edge, DIRECT)
{
	echo_case(EPOLLET);
}

#define CREW	 3
#define MESSAGES 200

struct crew {
	int ep;
	struct pair p[4];
	_Atomic int handled, twice;
	_Atomic int inside[4];
};

static void crew_loop(void *arg)
{
	struct crew *c = arg;
	struct epoll_event ev;
	char byte;

	for (;;) {
		int at;

		NEED(epoll_wait(c->ep, &ev, 1, -1) == 1);
		at = (int)ev.data.u64;
		if (at == 99)
			return;
		if (c->inside[at]++)
			c->twice++;
		NEED(recv(c->p[at].s, &byte, 1, 0) == 1);
		c->handled++;
		c->inside[at]--;
		send_all(c->p[at].s, &byte, 1);
		ep_mod(c->ep, c->p[at].s, EPOLLIN | EPOLLONESHOT, (uint64_t)at);
	}
}

/* One instance, several threads, each message for one of them. */
CASE(ep_crew, DIRECT)
{
	struct crew c = {.ep = ep_open()};
	struct worker t[CREW];
	int stop = eventfd(0, 0);
	char byte = 1;

	for (int i = 0; i < 4; i++) {
		c.p[i] = pair_warm_open();
		ep_add(c.ep, c.p[i].s, EPOLLIN | EPOLLONESHOT, (uint64_t)i);
	}
	for (int i = 0; i < CREW; i++)
		worker_start(&t[i], crew_loop, &c);
	for (int m = 0; m < MESSAGES; m++) {
		for (int i = 0; i < 4; i++)
			send_all(c.p[i].c, &byte, 1);
		for (int i = 0; i < 4; i++)
			recv_all(c.p[i].c, &byte, 1);
	}
	ep_add(c.ep, stop, EPOLLIN, 99);
	eventfd_write(stop, 1);
	for (int i = 0; i < CREW; i++)
		worker_join(&t[i]);
	say("handled %d, together %d", c.handled, c.twice);
	for (int i = 0; i < 4; i++)
		pair_close(c.p[i]);
	close(stop);
	close(c.ep);
}

CASE(ep_nested, ANYWAY)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN, 1);
	ep_add(out, in, EPOLLIN, 2);
	/* On its way to the kernel the inner one may look ready once too often. */
	ep_drain(in);
	for (int i = 0; i < 20; i++) {
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		ep_show(out, SOON);
		ep_show(in, SOON);
		recv_pattern(p.s, 100 * (uint64_t)i, 100);
		ep_show(in, 0);
		ep_show(out, 0);
	}
	close(in);
	close(out);
	pair_close(p);
}

CASE(ep_polled, ANYWAY)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN, 1);
	for (int i = 0; i < 20; i++) {
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		say("%s", poll_names(wait_events(ep, POLLIN)));
		ep_show(ep, SOON);
		recv_pattern(p.s, 100 * (uint64_t)i, 100);
		ep_show(ep, 0);
	}
	close(ep);
	pair_close(p);
}

/* The child waits on what its parent registered. */
CASE(ep_inherited, ANYWAY)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();
	pid_t child;

	ep_add(ep, p.s, EPOLLIN, 1);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		say_as("child");
		for (int i = 0; i < 20; i++) {
			ep_show(ep, SOON);
			recv_pattern(p.s, 100 * (uint64_t)i, 100);
			send_pattern(p.s, (uint64_t)i, 1);
		}
		_exit(0);
	}
	for (int i = 0; i < 20; i++) {
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		recv_pattern(p.c, (uint64_t)i, 1);
	}
	say("child: %d", child_status(child));
	ep_show(ep, 0);
	send_pattern(p.c, 2000, 100);
	ep_show(ep, SOON);
	close(ep);
	pair_close(p);
}

/* A child closes what it inherited: nothing changes for the parent. */
CASE(ep_child_closes, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();
	pid_t child;

	ep_add(ep, p.s, EPOLLIN, 1);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		close(p.s);
		close(p.c);
		close(ep);
		_exit(0);
	}
	say("child: %d", child_status(child));
	ep_show(ep, 0);
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	recv_pattern(p.s, 0, 100);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(ep_timeout, DIRECT)
{
	struct pair p = pair_warm_open();
	const struct timespec ts = {.tv_nsec = 1500000};
	struct epoll_event ev;
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN, 1);
	for (int i = 0; i < 20; i++)
		say_result("1 ms", epoll_wait(ep, &ev, 1, 1));
	say_result("1.5 ms", epoll_pwait2(ep, &ev, 1, &ts, NULL));
	send_pattern(p.c, 0, 100);
	ep_show(ep, SOON);
	close(ep);
	pair_close(p);
}

static void on_signal(int sig)
{
	(void)sig;
}

CASE(ep_signal, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.ep = ep_open(), .timeout = -1};
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct worker t;
	sigset_t none, usr;

	sigaction(SIGUSR1, &act, NULL);
	ep_add(w.ep, p.s, EPOLLIN, 1);
	worker_start(&t, wait_once, &w);
	wait_asleep(getpid(), t.tid);
	pthread_kill((pthread_t)t.thread, SIGUSR1);
	worker_join(&t);
	say("%d %s", w.result, errno_name(w.err));
	/* Pending, and let in by the mask of the call. */
	sigemptyset(&none);
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr, NULL);
	raise(SIGUSR1);
	say_result("masked", epoll_wait(w.ep, &w.ev, 1, 0));
	say_result("let in", epoll_pwait(w.ep, &w.ev, 1, SOON, &none));
	send_pattern(p.c, 0, 100);
	say_result("data", epoll_pwait(w.ep, &w.ev, 1, SOON, &none));
	close(w.ep);
	pair_close(p);
}
