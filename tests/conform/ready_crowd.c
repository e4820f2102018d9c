/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of epoll with several threads, processes or instances. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

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
	ep_add(ep, q.s, EPOLLIN | EPOLLET, 2 | MAY_REPEAT);
	ep_show(ep, 0); /* whose waits have not been seen stays on TCP */
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

#define QUEUE 5

#define LOOKERS 3

static void look_often(void *arg)
{
	struct pair *p = arg;
	char byte;

	for (int i = 0; i < 50; i++) {
		NEED(recv(p->c, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0);
		NEED(recv(p->s, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0);
	}
}

/* Several threads use the socket while it is upgraded: each of them may be the one that
 * completes it. */
CASE(ep_upgrade_crowd, DIRECT)
{
	struct worker t[LOOKERS];
	int ep = ep_open(), told = 0;
	struct epoll_event ev;
	char byte;

	for (int turn = 0; turn < 300; turn++) {
		struct pair p = pair_open();

		ep_add(ep, p.s, EPOLLIN, (uint64_t)turn);
		for (int i = 0; i < LOOKERS; i++)
			worker_start(&t[i], look_often, &p);
		for (int i = 0; i < LOOKERS; i++)
			worker_join(&t[i]);
		send_all(p.c, "x", 1);
		told += epoll_wait(ep, &ev, 1, SOON) == 1 &&
			ev.data.u64 == (uint64_t)turn;
		recv_all(p.s, &byte, 1);
		pair_close(p);
	}
	say("told %d", told);
	close(ep);
}

/* The order of one epoll_wait's events, unsorted. */
static void show_order(int ep, int max)
{
	struct epoll_event ev[QUEUE];
	char text[64];
	int at = 0, n = epoll_wait(ep, ev, max, SOON);

	for (int i = 0; i < n; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %d",
			       (int)ev[i].data.u64);
	NEED(at > 0);
	say("order:%s", text);
}

static void send_and_see(struct pair p)
{
	send_all(p.c, "x", 1);
	wait_events(p.s, POLLIN);
}

/* A server of one thread serves who came first, also where several connections wait. */
static void order_case(uint32_t extra)
{
	struct pair p[QUEUE];
	int ep = ep_open();
	char buf[8];

	for (int i = 0; i < QUEUE; i++) {
		p[i] = pair_warm_open();
		NEED(setsockopt(p[i].c, IPPROTO_TCP, TCP_NODELAY, &(int){1},
				sizeof(int)) == 0);
		ep_add(ep, p[i].s, EPOLLIN | extra, (uint64_t)i);
	}
	ep_drain(ep);
	for (int turn = 0; turn < 150; turn++) {
		int first = turn * 7 / 3 % QUEUE, step = turn % (QUEUE - 1) + 1;

		for (int i = 0; i < QUEUE; i++)
			send_and_see(p[(first + i * step) % QUEUE]);
		/* More bytes do not change the order. */
		for (int i = 0; i < turn % 7; i++)
			send_all(p[first].c, "y", 1);
		wait_inq(p[first].s, 1 + turn % 7);
		show_order(ep, QUEUE);
		if (!extra && turn % 3 == 0)
			show_order(ep, QUEUE);
		for (int i = 0; i < QUEUE; i++)
			recv_all(p[i].s, buf, i == first ? 1 + (size_t)turn % 7 : 1);
		/* Where nobody looks in between, the level-triggered keep their places. */
		if (turn % 5)
			ep_drain(ep);
	}
	for (int i = 0; i < QUEUE; i++)
		pair_close(p[i]);
	close(ep);
}

CASE(ep_order_level, DIRECT)
{
	order_case(0);
}

CASE(ep_order_edge, DIRECT)
{
	order_case(EPOLLET);
}

/* First to a connection that is on TCP, or that has long said nothing, then to a busy one. */
static void order_mixed_case(bool fresh)
{
	struct pair busy = pair_warm_open(), other;
	int ep = ep_open();
	char byte;

	ep_add(ep, busy.s, EPOLLIN, 0);
	for (int turn = 0; turn < 20; turn++) {
		if (fresh || turn == 0) {
			/* It says nothing while the other is busy. */
			other = fresh ? pair_open() : pair_warm_open();
			ep_add(ep, other.s, EPOLLIN, 1);
		}
		for (int i = 0; i < 200; i++) {
			send_all(busy.c, "x", 1);
			NEED(epoll_wait(ep, &(struct epoll_event){0}, 1, SOON) == 1);
			recv_all(busy.s, &byte, 1);
		}
		if (turn % 3)
			ep_drain(ep);
		send_and_see(other);
		send_and_see(busy);
		show_order(ep, QUEUE);
		recv_all(busy.s, &byte, 1);
		recv_all(other.s, &byte, 1);
		if (fresh)
			pair_close(other);
	}
	if (!fresh)
		pair_close(other);
	pair_close(busy);
	close(ep);
}

CASE(ep_order_tcp_first, DIRECT)
{
	order_mixed_case(true);
}

CASE(ep_order_cold_first, DIRECT)
{
	order_mixed_case(false);
}

/* What stays ready keeps its place in the queue, be it on TCP, in a ring or no socket at all,
 * and a change of what is asked does not move it. */
CASE(ep_order_kept, DIRECT)
{
	struct pair p[3] = {pair_warm_open(), pair_open(), pair_warm_open()};
	int ep = ep_open(), pipes[2][2];

	for (int i = 0; i < 2; i++)
		NEED(pipe(pipes[i]) == 0);
	ep_add(ep, pipes[0][1], EPOLLOUT, 0);
	show_order(ep, QUEUE);
	for (int i = 0; i < 3; i++) {
		ep_add(ep, p[i].s, EPOLLOUT, 1 + (uint64_t)i);
		show_order(ep, QUEUE);
	}
	ep_add(ep, pipes[1][1], EPOLLOUT, 4);
	for (int turn = 0; turn < 20; turn++) {
		int i = turn % 3;

		show_order(ep, QUEUE);
		if (turn == 10)
			pair_warm(p[1]);
		ep_mod(ep, p[i].s, turn % 2 ? EPOLLOUT : EPOLLIN | EPOLLOUT,
		       1 + (uint64_t)i);
	}
	for (int i = 0; i < 3; i++)
		pair_close(p[i]);
	for (int i = 0; i < 4; i++)
		close(pipes[i / 2][i % 2]);
	close(ep);
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

/* ---- several threads: in one answer each is told once (but while one goes to TCP) ---- */

#define ONCE_PAIRS 40
#define ONCE_BYTES 150000

static struct once {
	int ep;
	struct pair p[ONCE_PAIRS];
	_Atomic int twice;
	_Atomic bool over;
} once;

static void once_write(void *arg)
{
	int *state = arg;
	unsigned n = (unsigned)*state;

	for (int i = 0; i < ONCE_BYTES; i++) {
		n = n * 1103515245 + 12345;
		(void)!write(once.p[(n >> 16) % ONCE_PAIRS].c, "x", 1);
		for (int k = (n >> 8) % 8 ? 0 : 1000; k > 0; k--)
			__builtin_ia32_pause();
	}
}

static void once_wait(void *arg)
{
	struct epoll_event ev[ONCE_PAIRS];
	char byte;

	while (!once.over) {
		int n = epoll_wait(once.ep, ev, ONCE_PAIRS, *(int *)arg);
		uint64_t told = 0;

		for (int i = 0; i < n; i++) {
			uint64_t bit = 1ull << ev[i].data.u64;

			once.twice += (told & bit) != 0;
			told |= bit;
			(void)!read(once.p[ev[i].data.u64].s, &byte, 1);
		}
	}
}

CASE(ep_order_once, DIRECT)
{
	int state[] = {1, 2}, timeout[] = {10, 10, 0}, fd[2];
	struct worker writers[2], waiters[3];

	once.ep = ep_open();
	for (int i = 0; i < ONCE_PAIRS; i++) {
		if (i)
			once.p[i] = pair_warm_open();
		else
			NEED(pipe(fd) == 0 && (once.p[i].s = fd[0], once.p[i].c = fd[1]));
		nonblock(once.p[i].c, true);
		nonblock(once.p[i].s, true);
		ep_add(once.ep, once.p[i].s, EPOLLIN, (uint64_t)i);
	}
	for (int i = 0; i < 3; i++)
		worker_start(&waiters[i], once_wait, &timeout[i]);
	worker_start(&writers[0], once_write, &state[0]);
	worker_start(&writers[1], once_write, &state[1]);
	worker_join(&writers[0]);
	worker_join(&writers[1]);
	once.over = true;
	for (int i = 0; i < 3; i++)
		worker_join(&waiters[i]);
	say("twice in one answer: %d", once.twice);
}
