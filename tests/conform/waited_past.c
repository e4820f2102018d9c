/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a program that sends and receives by the C library, and waits by system calls of its own, as Bun does. */
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cases.h"

static long wait_past(int epfd, struct epoll_event *ev, int max, long ms)
{
	register long r10 __asm__("r10") = ms;
	long r;
	__asm__ __volatile__("syscall"
			     : "=a"(r)
			     : "a"(SYS_epoll_wait), "D"(epfd), "S"(ev), "d"(max), "r"(r10)
			     : "rcx", "r11", "memory");
	return r;
}

static int registered(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
	return epfd;
}

static void say_heard(long n, const struct epoll_event *ev)
{
	if (n == 1)
		say("heard %s", poll_names((int)ev->events));
	else
		say("heard %ld", n);
}

/* The question has been sent. */
static void take_and_reply(struct pair p)
{
	char buf[8];
	recv_all(p.s, buf, 5);
	send_all(p.s, "reply", 5);
	recv_all(p.c, buf, 5);
}

/* So many questions, of which the first and the last are shown, and what the end is. */
static void answer(int epfd, struct pair p, int count, int change_at)
{
	struct epoll_event ev;
	char buf[8] = "";
	for (int i = 0; i < count; i++) {
		send_all(p.c, "query", 5);
		long n = wait_past(epfd, &ev, 1, 5000);
		if (i == 0 || i == count - 1 || n != 1)
			say_heard(n, &ev);
		NEED(n == 1);
		take_and_reply(p);
		if (i == change_at) {
			ev = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP};
			NEED(epoll_ctl(epfd, EPOLL_CTL_MOD, p.s, &ev) == 0);
		}
	}
	NEED(close(p.c) == 0);
	say_heard(wait_past(epfd, &ev, 1, 5000), &ev);
	say_result("recv", read(p.s, buf, 1));
}

CASE(waited_past, ANYWAY)
{
	struct pair p = pair_open();
	answer(registered(p.s, EPOLLIN), p, 40, -1);
}

/* More often than an instance is given without a wait. */
CASE(waited_past_for_long, ANYWAY)
{
	struct pair p = pair_open();
	answer(registered(p.s, EPOLLIN), p, 3000, -1);
}

CASE(waited_past_changed, ANYWAY)
{
	struct pair p = pair_open();
	answer(registered(p.s, EPOLLIN), p, 40, 20);
}

/* What is added where nobody has been heard to wait for long. */
CASE(waited_past_added, ANYWAY)
{
	struct pair p = pair_open(), q = pair_warm_open();
	int epfd = registered(p.s, EPOLLIN);
	struct epoll_event ev = {.events = EPOLLIN};
	answer(epfd, p, 3000, -1);
	usleep(1100000);
	NEED(close(p.s) == 0);
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, q.s, &ev) == 0);
	answer(epfd, q, 3, -1);
}

/* The same with bytes that came before, and then a wait by the C library. */
CASE(waited_past_then_not, ANYWAY)
{
	struct pair p = pair_open(), q = pair_warm_open();
	int epfd = registered(p.s, EPOLLIN);
	struct epoll_event ev = {.events = EPOLLIN};
	answer(epfd, p, 1500, -1);
	usleep(1100000);
	NEED(close(p.s) == 0);
	send_all(q.c, "query", 5);
	wait_inq(q.s, 5);
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, q.s, &ev) == 0);
	say_heard(epoll_wait(epfd, &ev, 1, 5000), &ev);
	pair_close(q);
}

/* Taken out and put in again while the upgrade waits for a wait. */
CASE(waited_past_again, ANYWAY)
{
	struct pair p = pair_open();
	int epfd = registered(p.s, EPOLLIN);
	struct epoll_event ev = {.events = EPOLLIN};
	for (int i = 0; i < 30; i++) {
		send_all(p.c, "query", 5);
		take_and_reply(p);
		NEED(epoll_ctl(epfd, EPOLL_CTL_DEL, p.s, NULL) == 0);
		NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	}
	answer(epfd, p, 10, -1);
}

/* In two instances, of which one is waited on by the C library, and the other never. */
CASE(waited_on_one, DIRECT)
{
	struct pair p = pair_open();
	int spare = registered(p.s, EPOLLIN), epfd = registered(p.s, EPOLLIN);
	struct epoll_event ev;
	say("nothing: %d", epoll_wait(epfd, &ev, 1, 0));
	for (int i = 0; i < 1500; i++) {
		send_all(p.c, "query", 5);
		long n = epoll_wait(epfd, &ev, 1, 5000);
		if (i % 500 == 0 || n != 1)
			say_heard(n, &ev);
		take_and_reply(p);
	}
	NEED(close(spare) == 0);
	pair_close(p);
}

/* The first wait comes late, and by the C library. */
CASE(waited_late, DIRECT)
{
	struct pair p = pair_open();
	int epfd = registered(p.s, EPOLLIN);
	struct epoll_event ev;
	pair_warm(p);
	say("nothing: %d", epoll_wait(epfd, &ev, 1, 0));
	pair_warm(p);
	send_all(p.c, "query", 5);
	say_heard(epoll_wait(epfd, &ev, 1, 5000), &ev);
	pair_close(p);
}
