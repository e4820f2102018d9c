/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the order of events that one thing brings to several, and of connections that end. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define ENDS  5
#define TWINS 3

static void show_order(int ep)
{
	struct epoll_event ev[16];
	int n = epoll_wait(ep, ev, 16, 0);
	char line[256] = "";

	for (int i = 0; i < n; i++)
		sprintf(line + strlen(line), " %llu:%s",
			(unsigned long long)ev[i].data.u64,
			poll_names((int)ev[i].events));
	say("%d%s", n, line);
}

/* Until the kernel has the end, which is asked past every library. */
static void wait_end(int fd)
{
	struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
	socklen_t len = sizeof(info);

	while (info.tcpi_state == TCP_ESTABLISHED)
		NEED(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) ==
		     0);
}

static void come(struct pair p)
{
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
}

static void shut_there(struct pair p)
{
	NEED(shutdown(p.c, SHUT_WR) == 0);
	wait_end(p.s);
}

static void close_there(struct pair p)
{
	NEED(close(p.c) == 0);
	wait_end(p.s);
}

static void reset_there(struct pair p)
{
	come((struct pair){p.s, p.c});
	close_there(p);
}

static void shut_here(struct pair p)
{
	NEED(shutdown(p.s, SHUT_WR) == 0);
}

static void shut_here_for_reading(struct pair p)
{
	NEED(shutdown(p.s, SHUT_RD) == 0);
}

static void (*const all[])(struct pair) = {
	come, shut_there, close_there, reset_there, shut_here, shut_here_for_reading};

/* One connection by several numbers in one instance: the last one in is told first. */
static void twins(uint32_t events)
{
	for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++) {
		struct pair p = pair_warm_open();
		int ep = ep_open(), fd[TWINS] = {p.s, dup(p.s), dup(p.s)};

		for (int i = 0; i < TWINS; i++)
			ep_add(ep, fd[i], events, (uint64_t)i);
		ep_drain(ep);
		all[k](p);
		show_order(ep);
		show_order(ep);
		/* A change keeps its place, a new one does not. */
		ep_mod(ep, fd[1], events, 11);
		NEED(ep_ctl(ep, EPOLL_CTL_DEL, fd[0], 0, 0) == 0);
		ep_add(ep, fd[0], events, 10);
		show_order(ep);
		if (k == 0) {
			char byte;
			recv_all(p.s, &byte, 1);
			ep_drain(ep);
			come(p);
			show_order(ep);
		}
		for (int i = 0; i < TWINS; i++)
			close(fd[i]);
		close(ep);
	}
}

CASE(order_of_twins_level, DIRECT)
{
	twins(EPOLLIN);
}

CASE(order_of_twins_edge, DIRECT)
{
	twins(EPOLLIN | EPOLLRDHUP | EPOLLET);
}

/* Among others that are woken, the exclusive ones come last, and the first of them alone. */
CASE(order_of_twins_exclusive, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open(), twin = dup(p.s);

	ep_add(ep, p.s, EPOLLIN | EPOLLEXCLUSIVE, 1);
	ep_add(ep, twin, EPOLLIN | EPOLLET, 2);
	show_order(ep);
	come(p);
	show_order(ep);
	show_order(ep);
	close(twin);
	close(ep);
	pair_close(p);
}

/* Several end, in another order than they were registered, and bytes come in between. */
static void ends_between(uint32_t events)
{
	struct pair p[6];
	int ep = ep_open();

	for (int i = 0; i < 6; i++) {
		p[i] = pair_warm_open();
		ep_add(ep, p[i].s, events, (uint64_t)i);
	}
	show_order(ep);
	close_there(p[2]);
	shut_there(p[0]);
	come(p[5]);
	reset_there(p[3]);
	come(p[4]);
	shut_there(p[4]);
	close_there(p[1]);
	show_order(ep);
	show_order(ep);
	shut_there(p[5]);
	show_order(ep);
	close(ep);
}

CASE(order_of_ends_level, DIRECT)
{
	ends_between(EPOLLIN);
}

CASE(order_of_ends_edge, DIRECT)
{
	ends_between(EPOLLIN | EPOLLET);
}

CASE(order_of_ends_told, DIRECT)
{
	ends_between(EPOLLIN | EPOLLRDHUP | EPOLLET);
}

/* What is there at ADD and MOD has the place of these, whatever follows it. */
CASE(order_of_changed_edge, DIRECT)
{
	static const uint32_t events[] = {EPOLLIN | EPOLLET,
					  EPOLLIN | EPOLLET | EPOLLONESHOT};
	struct pair a = pair_warm_open(), b = pair_warm_open();

	for (int k = 0; k < 2; k++) {
		int ep = ep_open();
		char bytes[4];

		ep_add(ep, b.s, EPOLLIN | EPOLLET, 1);
		come(a);
		ep_add(ep, a.s, events[k], 0);
		come(b);
		send_all(a.c, "y", 1);
		wait_inq(a.s, 2);
		show_order(ep);
		ep_mod(ep, a.s, events[k], 10);
		recv_all(b.s, bytes, 1);
		come(b);
		send_all(a.c, "z", 1);
		wait_inq(a.s, 3);
		show_order(ep);
		recv_all(b.s, bytes, 1);
		recv_all(a.s, bytes, 3);
		close(ep);
	}
	pair_close(a);
	pair_close(b);
}

/* Bytes that follow others which have been told of, and not been read, are an edge of their own time. */
CASE(order_of_unread_edge, DIRECT)
{
	static const int turns[] = {2, 1, 3, 0};
	struct pair p[4];
	int ep = ep_open();
	char byte;

	for (int i = 0; i < 4; i++) {
		p[i] = pair_warm_open();
		ep_add(ep, p[i].s, EPOLLIN | EPOLLET, (uint64_t)i);
	}
	ep_drain(ep);
	for (int i = 0; i < 4; i++) {
		come(p[i]);
		send_all(p[i].c, "y", 1);
		wait_inq(p[i].s, 2);
	}
	show_order(ep);
	recv_all(p[1].s, &byte, 1);
	for (int i = 0; i < 4; i++) {
		send_all(p[turns[i]].c, "z", 1);
		wait_inq(p[turns[i]].s, turns[i] == 1 ? 2 : 3);
	}
	show_order(ep);
	show_order(ep);
	send_all(p[3].c, "z", 1);
	wait_inq(p[3].s, 4);
	close_there(p[1]);
	show_order(ep);
	close(ep);
}

static void end_somehow(int fd, void *arg)
{
	char byte;

	recv_all(fd, &byte, 1);
	switch (*(char *)arg) {
	case 'e':
		exit(0);
	case '_':
		_exit(0);
	case 'k':
		kill(getpid(), SIGKILL);
		break;
	case 's':
		shutdown(fd, SHUT_WR);
		break;
	case 'c':
		close(fd);
		break;
	default:
		send_all(fd, "last", 4);
		exit(0);
	}
	for (;;)
		pause();
}

static void processes(const char *how, uint32_t events)
{
	static const int turns[ENDS] = {3, 1, 4, 0, 2};
	int fd[ENDS], ep = ep_open();
	pid_t pid[ENDS];

	for (int i = 0; i < ENDS; i++) {
		char way = how[i];
		fd[i] = peer_start(end_somehow, &way, &pid[i]);
		ep_add(ep, fd[i], events, (uint64_t)i);
	}
	show_order(ep);
	for (int i = 0; i < ENDS; i++) {
		send_all(fd[turns[i]], "x", 1);
		wait_end(fd[turns[i]]);
	}
	show_order(ep);
	show_order(ep);
	for (int i = 0; i < ENDS; i++) {
		kill(pid[i], SIGKILL);
		child_status(pid[i]);
		close(fd[i]);
	}
	close(ep);
}

CASE(order_of_processes_killed, DIRECT)
{
	processes("kkkkk", EPOLLIN);
	processes("kkkkk", EPOLLIN | EPOLLRDHUP | EPOLLET);
}

CASE(order_of_processes_ended, DIRECT)
{
	processes("e_sc!", EPOLLIN);
	processes("e_sc!", EPOLLIN | EPOLLET);
}

CASE(order_of_processes_mixed, DIRECT)
{
	processes("ek_sc", EPOLLIN);
	processes("!_ksc", EPOLLIN | EPOLLET);
}
