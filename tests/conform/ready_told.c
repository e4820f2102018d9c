/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: EPOLLONESHOT in one instance, and waits in another, as Erlang does with a busy connection. */
#include <sys/epoll.h>
#include <unistd.h>

#include "cases.h"

enum { TURNS = 400, WAIT_MS = 5000 };

static int registered(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
	return epfd;
}

static int heard(int epfd, int ms)
{
	struct epoll_event ev;
	return epoll_wait(epfd, &ev, 1, ms);
}

static void answer(struct pair p, int epfd, int turns)
{
	char buf[8];
	for (int i = 0; i < turns; i++) {
		send_all(p.c, "query", 5);
		NEED(heard(epfd, WAIT_MS) == 1);
		recv_all(p.s, buf, 5);
		send_all(p.s, "reply", 5);
		recv_all(p.c, buf, 5);
	}
}

static void say_once(struct pair p, int first)
{
	char buf[8];
	send_all(p.c, "query", 5);
	say("told %d", heard(first, WAIT_MS));
	say("and again %d", heard(first, 0));
	recv_all(p.s, buf, 5);
}

/* It has been told, and is armed again when the connection has been in its ring for long. */
static void told_in_one(uint32_t how)
{
	struct pair p = pair_open();
	struct epoll_event ev = {.events = EPOLLIN | how, .data.fd = p.s};
	int first = registered(p.s, EPOLLIN | how);
	say_once(p, first);
	int second = registered(p.s, EPOLLIN);
	answer(p, second, TURNS);
	say("not armed: %d", heard(first, 0));
	send_all(p.c, "query", 5);
	say("not armed: %d", heard(first, 0));
	NEED(epoll_ctl(first, EPOLL_CTL_MOD, p.s, &ev) == 0);
	recv_all(p.s, (char[8]){0}, 0);
	say("armed: %d", heard(first, WAIT_MS));
	say("and again %d", heard(first, 0));
	recv_all(p.s, (char[8]){0}, 5);
	NEED(epoll_ctl(first, EPOLL_CTL_MOD, p.s, &ev) == 0);
	say_once(p, first);
	answer(p, second, 3);
	pair_close(p);
}

CASE(told_in_one, DIRECT)
{
	told_in_one(EPOLLONESHOT);
}

CASE(told_in_one_edge, DIRECT)
{
	told_in_one(EPOLLONESHOT | EPOLLET);
}

/* It is never armed again. */
CASE(told_and_left, DIRECT)
{
	struct pair p = pair_open();
	int first = registered(p.s, EPOLLIN | EPOLLONESHOT);
	say_once(p, first);
	answer(p, registered(p.s, EPOLLIN), TURNS);
	say("not armed: %d", heard(first, 0));
	pair_close(p);
}

/* Nobody ever hears of it: it is armed for ever. */
CASE(told_never, ANYWAY)
{
	struct pair p = pair_open();
	int first = registered(p.s, EPOLLIN | EPOLLONESHOT);
	answer(p, registered(p.s, EPOLLIN), 40000);
	say("once: %d", heard(first, 0));
	say("and again %d", heard(first, 0));
	pair_close(p);
}
