/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of epoll with arguments that the kernel refuses, in the order in which it does. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

/* Two pages, of which the second cannot be used. */
static uint8_t *half_page(void)
{
	uint8_t *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(p != MAP_FAILED);
	NEED(mprotect(p + PAGE, PAGE, PROT_NONE) == 0);
	return p;
}

static void *nowhere(void)
{
	return half_page() + PAGE;
}

static void ctl_show(const char *what, int ep, int op, int fd, void *ev)
{
	say_result(what, epoll_ctl(ep, op, fd, ev));
}

static void bad_ctl(int ep, int fd)
{
	void *bad = nowhere();

	for (int op = 0; op < 5; op++) {
		ctl_show("bad event", ep, op, fd, bad);
		ctl_show("no event", ep, op, fd, NULL);
		ctl_show("no instance", fd, op, fd, bad);
		ctl_show("no descriptor", ep, op, 9999, bad);
		ctl_show("closed instance", 9998, op, fd, bad);
		ctl_show("itself", ep, op, ep, bad);
	}
}

static void odd_ctl(int ep, int fd)
{
	const uint32_t odd[] = {
		EPOLLEXCLUSIVE | EPOLLONESHOT | EPOLLIN,
		EPOLLEXCLUSIVE | EPOLLRDHUP,
		EPOLLEXCLUSIVE | EPOLLRDNORM,
		EPOLLWAKEUP | EPOLLIN,
	};
	struct epoll_event ev = {.events = EPOLLIN};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		for (int op = 1; op <= 3; op += 2) {
			ev.events = odd[i];
			ctl_show("odd", ep, op, fd, &ev);
		}
	}
	ctl_show("del", ep, EPOLL_CTL_DEL, fd, NULL);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		for (int op = 3; op >= 1; op -= 2) {
			ev.events = odd[i];
			ctl_show("odd", ep, op, fd, &ev);
		}
		ctl_show("del", ep, EPOLL_CTL_DEL, fd, NULL);
	}
	ev.events = EPOLLIN | EPOLLEXCLUSIVE;
	ctl_show("exclusive", ep, EPOLL_CTL_ADD, fd, &ev);
	ev.events = EPOLLIN;
	ctl_show("changed", ep, EPOLL_CTL_MOD, fd, &ev);
	ctl_show("twice", ep, EPOLL_CTL_ADD, fd, &ev);
	ctl_show("del", ep, EPOLL_CTL_DEL, fd, NULL);
	ctl_show("add", ep, EPOLL_CTL_ADD, fd, &ev);
	ctl_show("odd operation", ep, 77, fd, &ev);
}

static void bad_time(int ep)
{
	const struct timespec bad[] = {{-1, 0},		 {0, 1000000000}, {0, -1},
				       {-1, 1000000000}, {LONG_MIN, 0},	  {1, LONG_MAX}};
	struct epoll_event ev[4];
	sigset_t none;

	sigemptyset(&none);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		say_result("time", epoll_pwait2(ep, ev, 4, &bad[i], NULL));
		say_result("and mask", epoll_pwait2(ep, ev, 4, &bad[i], &none));
		say_result("and size", epoll_pwait2(ep, ev, 0, &bad[i], NULL));
		say_result("and bad mask", epoll_pwait2(ep, ev, 4, &bad[i], nowhere()));
	}
	say_result("no time", epoll_pwait2(ep, ev, 4, nowhere(), NULL));
	say_result("no time, bad mask", epoll_pwait2(ep, ev, 4, nowhere(), nowhere()));
	say_result("closed", epoll_pwait2(9999, ev, 4, nowhere(), NULL));
}

/* Of what it is called with the compiler knows nothing. */
static __attribute__((noinline)) int odd_wait(int ep, struct epoll_event *ev, int max)
{
	return epoll_wait(ep, ev, max, 0);
}

static void bad_wait(int ep)
{
	const struct timespec now = {0, 0};
	struct epoll_event ev[4];

	say_result("bad mask", epoll_pwait(ep, ev, 4, 0, nowhere()));
	say_result("bad mask, size", epoll_pwait(ep, ev, 0, 0, nowhere()));
	say_result("bad mask, time", epoll_pwait2(ep, ev, 4, &now, nowhere()));
	say_result("bad mask, closed", epoll_pwait(9999, ev, 4, 0, nowhere()));
	say_result("none", odd_wait(ep, ev, 0));
	say_result("fewer", odd_wait(ep, ev, -1));
	say_result("fewest", odd_wait(ep, ev, INT_MIN));
	say_result("more", odd_wait(ep, ev, INT_MAX));
	say_result("too many", odd_wait(ep, ev, INT_MAX / (int)sizeof(ev[0]) + 1));
	say_result("none, bad", odd_wait(ep, nowhere(), 0));
	say_result("far away", odd_wait(ep, (void *)-4096l, 4));
	say_result("end", odd_wait(ep, (void *)(-1ul >> 17 << 1), 4));
}

static void bad_array(int ep)
{
	struct epoll_event ev[4];

	say_result("bad array", epoll_wait(ep, nowhere(), 4, 0));
	say_result("null", odd_wait(ep, NULL, 4));
	say_result("bad array, mask", epoll_pwait(ep, nowhere(), 4, 0, NULL));
	say_result("good array", epoll_wait(ep, ev, 4, 0));
}

/* With something ready and with nothing. */
static void all_bad(int ep, int fd)
{
	bad_ctl(ep, fd);
	odd_ctl(ep, fd);
	bad_time(ep);
	bad_wait(ep);
	bad_array(ep);
}

CASE(bad_unix, ANYWAY)
{
	int ep = ep_open(), fd[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
	all_bad(ep, fd[0]);
	send_all(fd[1], "x", 1);
	all_bad(ep, fd[0]);
	close(ep);
	close(fd[0]);
	close(fd[1]);
}

CASE(bad_pipe, ANYWAY)
{
	struct signal_pipe p = signal_pipe();
	int ep = ep_open();

	all_bad(ep, p.fd[0]);
	signal_send(p);
	all_bad(ep, p.fd[0]);
	close(ep);
}

CASE(bad_direct, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	all_bad(ep, p.s);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	all_bad(ep, p.s);
	close(ep);
	pair_close(p);
}

/* What could not be told is told the next time, also once. */
CASE(bad_array_keeps, DIRECT)
{
	const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT};
	struct pair p = pair_warm_open();

	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	for (int i = 0; i < 3; i++) {
		int ep = ep_open();

		ep_add(ep, p.s, EPOLLIN | flags[i], 7);
		say_result("bad", epoll_wait(ep, nowhere(), 4, 0));
		say_result("bad", epoll_wait(ep, nowhere(), 4, -1));
		ep_show(ep, 0);
		ep_show(ep, 0);
		close(ep);
	}
	pair_close(p);
}

/* A pipe's is the kernel's to tell: also beside a connection that is not. */
CASE(bad_array_keeps_pipes, DIRECT)
{
	const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT,
				  EPOLLET | EPOLLEXCLUSIVE};
	struct pair p = pair_warm_open();

	for (int i = 0; i < 5; i++) {
		struct signal_pipe pipe = signal_pipe();
		int ep = ep_open();

		ep_add(ep, p.s, EPOLLIN, 7);
		ep_add(ep, pipe.fd[0], EPOLLIN | flags[i], 8);
		say_result("nothing", epoll_wait(ep, nowhere(), 4, 0));
		signal_send(pipe);
		say_result("bad", epoll_wait(ep, nowhere(), 4, 0));
		say_result("bad", epoll_wait(ep, nowhere(), 4, -1));
		ep_show(ep, 0);
		ep_show(ep, 0);
		signal_wait(pipe);
		signal_send(pipe);
		ep_show(ep, 0);
		close(ep);
	}
	pair_close(p);
}

/* An array of which only so much can be written to. */
static void array_part(int behind)
{
	struct pair p[4];
	uint8_t *mem = half_page();
	int ep = ep_open();

	NEED(mprotect(mem + PAGE, PAGE, behind) == 0);
	for (int i = 0; i < 4; i++) {
		p[i] = pair_warm_open();
		send_all(p[i].c, "x", 1);
		wait_inq(p[i].s, 1);
		ep_add(ep, p[i].s, EPOLLIN, 0);
	}
	for (size_t room = 0; room < 80; room += 4) {
		struct epoll_event *ev = (void *)(mem + PAGE - room);

		say_result("room", epoll_wait(ep, ev, 16, 0));
	}
	say_result("much", epoll_wait(ep, (void *)mem, 2000, 0));
	for (int i = 0; i < 4; i++)
		pair_close(p[i]);
	close(ep);
}

CASE(bad_array_part, DIRECT)
{
	array_part(PROT_NONE);
}

CASE(bad_array_part_to_read, DIRECT)
{
	array_part(PROT_READ);
}
