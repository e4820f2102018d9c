/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what a wait was given, changed or taken away while it sleeps. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define PAGE	((size_t)sysconf(_SC_PAGESIZE))
#define MOST	700
#define A_WHILE 1500 /* ms */

/* Whole pages of its own, with nothing behind. */
static void *pages_for(size_t len)
{
	size_t bytes = (len + PAGE - 1) / PAGE * PAGE;
	char *p = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(p != MAP_FAILED);
	NEED(mprotect(p + bytes, PAGE, PROT_NONE) == 0);
	return p;
}

/* ---- poll ---- */

struct polled {
	struct pollfd *p;
	nfds_t n;
	int timeout;
	bool masked; /* as ppoll does it */
	int result, err;
};

static void poll_them(void *arg)
{
	struct polled *w = arg;
	struct timespec time = {w->timeout / 1000, w->timeout % 1000 * 1000000L};

	errno = 0;
	w->result =
		w->masked ? ppoll(w->p, w->n, &time, NULL) : poll(w->p, w->n, w->timeout);
	w->err = errno;
}

static void poll_start(struct worker *t, struct polled *w)
{
	worker_start(t, poll_them, w);
	wait_asleep(getpid(), t->tid);
}

static void poll_end(struct worker *t, struct polled *w, const char *what)
{
	worker_join(t);
	errno = w->err;
	say_result(what, w->result);
}

static void show(const struct polled *w)
{
	for (nfds_t i = 0; i < w->n; i++)
		if (w->p[i].revents)
			say("%d: %d %s %s", (int)i, w->p[i].fd >= 0,
			    poll_names(w->p[i].events),
			    poll_names((unsigned short)w->p[i].revents));
}

/* The last of n; those before it are a listener, which has nothing. */
static void fill(struct polled *w, int quiet, int fd)
{
	for (nfds_t i = 0; i < w->n; i++)
		w->p[i] = (struct pollfd){i % 2 ? -1 : quiet, POLLIN, 0x5a};
	w->p[w->n - 1] = (struct pollfd){fd, POLLIN, 0x5a};
}

enum change { REMOVED, OTHER, MORE, LESS, GARBAGE, CHANGES };

static void change(struct pollfd *p, enum change how, int other)
{
	if (how == REMOVED)
		p->fd = -1;
	else if (how == OTHER)
		p->fd = other;
	else if (how == MORE)
		p->events |= POLLOUT;
	else if (how == LESS)
		p->events = 0;
	p->revents = how == GARBAGE ? 0x77 : 0;
}

static void change_amid(struct pair p, nfds_t n, bool masked)
{
	uint16_t port;
	int quiet = listen_any(2, &port), bell = eventfd(0, 0);
	struct pair other = pair_warm_open();
	struct pollfd them[MOST];
	struct polled w = {.p = them, .n = n, .timeout = 10000, .masked = masked};
	struct worker t;
	char byte;

	for (int how = 0; how < CHANGES; how++) {
		say("change %d of %d", how, (int)n);
		fill(&w, quiet, p.s);
		poll_start(&t, &w);
		change(&w.p[n - 1], (enum change)how, other.s);
		send_all(p.c, "x", 1);
		poll_end(&t, &w, "woken");
		show(&w);
		NEED(recv(p.s, &byte, 1, 0) == 1);
		/* By another one, beside it. */
		if (n > 1) {
			fill(&w, quiet, p.s);
			w.p[0].fd = bell;
			poll_start(&t, &w);
			change(&w.p[n - 1], (enum change)how, other.s);
			NEED(eventfd_write(bell, 1) == 0);
			poll_end(&t, &w, "by the bell");
			show(&w);
			NEED(read(bell, &(uint64_t){0}, 8) == 8);
		}
	}
	if (n == 1 || n == MOST) {
		fill(&w, quiet, p.s);
		w.timeout = A_WHILE;
		poll_start(&t, &w);
		change(&w.p[n - 1], GARBAGE, -1);
		poll_end(&t, &w, "nothing");
		show(&w);
	}
	close(bell);
	close(quiet);
	pair_close(other);
}

CASE(given_poll, DIRECT)
{
	struct pair p = pair_warm_open();

	change_amid(p, 1, false);
	change_amid(p, 5, true);
	change_amid(p, 20, false);
	change_amid(p, 100, true);
	change_amid(p, MOST, false);
	pair_close(p);
}

CASE(given_poll_cold, ANYWAY)
{
	struct pair p = pair_open();

	change_amid(p, 1, true);
	change_amid(p, 20, false);
	pair_close(p);
}

CASE(given_poll_listener, ANYWAY)
{
	struct pollfd them[1];
	struct polled w = {.p = them, .n = 1, .timeout = 10000};
	struct worker t;
	uint16_t port;
	int l = listen_any(2, &port), c;

	fill(&w, l, l);
	poll_start(&t, &w);
	w.p->fd = -1;
	c = connect_to(2, port);
	poll_end(&t, &w, "connected");
	show(&w);
	close(c);
	close(l);
}

/* The last page of the array goes, or can only be read. */
static void take_amid(struct pair p, nfds_t n, int protection, int timeout)
{
	size_t bytes = n * sizeof(struct pollfd),
	       last = (bytes + PAGE - 1) / PAGE * PAGE - PAGE;
	struct polled w = {.p = pages_for(bytes), .n = n, .timeout = timeout};
	struct worker t;
	char byte;

	fill(&w, -1, p.s);
	if (n > 1)
		w.p[0].fd = p.s;
	poll_start(&t, &w);
	NEED(mprotect((char *)w.p + last, PAGE, protection) == 0);
	if (timeout > A_WHILE)
		send_all(p.c, "x", 1);
	poll_end(&t, &w, "taken");
	w.n = last / sizeof(*w.p);
	show(&w);
	NEED(mprotect((char *)w.p + last, PAGE, PROT_READ | PROT_WRITE) == 0);
	say("last: %s", poll_names(w.p[n - 1].revents));
	say_result("left", recv(p.s, &byte, 1, MSG_DONTWAIT));
	NEED(munmap(w.p, last + 2 * PAGE) == 0);
}

static void take_each(struct pair p)
{
	for (nfds_t n = 1; n <= MOST; n = n == 1 ? 20 : n * 35) {
		take_amid(p, n, PROT_NONE, 10000);
		take_amid(p, n, PROT_READ, 10000);
	}
	take_amid(p, 1, PROT_NONE, A_WHILE);
}

CASE(given_poll_taken, DIRECT)
{
	struct pair p = pair_warm_open();

	take_each(p);
	pair_close(p);
}

CASE(given_poll_taken_cold, ANYWAY)
{
	struct pair p = pair_open();

	take_each(p);
	pair_close(p);
}

/* The kernel takes an unsigned int. */
CASE(given_poll_wide_count, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	const struct timespec none = {0, 0};
	volatile nfds_t wide = 1ul << 32 | 1;

	send_all(p.c, "x", 1);
	wait_events(p.s, POLLIN);
	for (int i = 0; i < 4; i++) {
		f.revents = 0;
		say_result("poll",
			   i == 0   ? poll(&f, wide, 0)
			   : i == 1 ? ppoll(&f, wide, &none, NULL)
			   : i == 2 ? syscall(SYS_poll, &f, wide, 0)
				    : syscall(SYS_ppoll, &f, wide, &none, NULL, 8));
		say("%s", poll_names(f.revents));
	}
	wide--;
	say_result("none", poll(&f, wide, 0));
	pair_close(p);
}

/* ---- select ---- */

struct selected {
	int n;
	fd_set *set[3];
	struct timeval time;
	int result, err;
};

static void select_them(void *arg)
{
	struct selected *w = arg;

	errno = 0;
	w->result = select(w->n, w->set[0], w->set[1], w->set[2], &w->time);
	w->err = errno;
}

static void select_amid(struct pair p, int which, int protection, bool late)
{
	struct selected w = {.n = p.s + 1, .time = {late ? 1 : 10, late ? 500000 : 0}};
	struct worker t;
	char byte;

	for (int i = 0; i < 3; i++) {
		w.set[i] = pages_for(sizeof(fd_set));
		FD_ZERO(w.set[i]);
		FD_SET(i == 1 ? 0 : p.s, w.set[i]);
	}
	w.set[1] = which == 1 ? w.set[1] : NULL;
	if (w.set[1])
		FD_CLR(0, w.set[1]);
	worker_start(&t, select_them, &w);
	wait_asleep(getpid(), t.tid);
	NEED(mprotect(w.set[which], PAGE, protection) == 0);
	if (!late)
		send_all(p.c, "x", 1);
	worker_join(&t);
	errno = w.err;
	say_result("select", w.result);
	NEED(mprotect(w.set[which], PAGE, PROT_READ | PROT_WRITE) == 0);
	for (int i = 0; i < 3; i++)
		say("%d", w.set[i] && FD_ISSET(p.s, w.set[i]));
	say_result("left", recv(p.s, &byte, 1, MSG_DONTWAIT));
}

CASE(given_select_taken, DIRECT)
{
	struct pair p = pair_warm_open();

	for (int which = 0; which < 3; which++) {
		select_amid(p, which, PROT_NONE, false);
		select_amid(p, which, PROT_READ, false);
	}
	select_amid(p, 0, PROT_NONE, true);
	pair_close(p);
}

/* ---- epoll ---- */

struct told {
	int ep, max, timeout;
	struct epoll_event *ev;
	int result, err;
};

static void tell_them(void *arg)
{
	struct told *w = arg;

	errno = 0;
	w->result = epoll_wait(w->ep, w->ev, w->max, w->timeout);
	w->err = errno;
}

static void epoll_amid(struct told *w, int protection, int fd)
{
	size_t bytes = (size_t)w->max * sizeof(*w->ev),
	       last = (bytes + PAGE - 1) / PAGE * PAGE - PAGE;
	struct worker t;

	/* Where it ends with the first page, or a few are in the last one. */
	w->ev = (void *)((char *)pages_for(bytes) +
			 (last ? PAGE - 2 * sizeof(*w->ev) : 0));
	worker_start(&t, tell_them, w);
	wait_asleep(getpid(), t.tid);
	last = last ? PAGE : 0;
	NEED(mprotect((void *)(((uintptr_t)w->ev & -PAGE) + last), PAGE, protection) ==
	     0);
	if (fd >= 0)
		NEED(write(fd, "12345678", 8) == 8);
	worker_join(&t);
	errno = w->err;
	say_result("wait", w->result);
}

CASE(given_epoll_taken, DIRECT)
{
	const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
	struct pair p = pair_warm_open();
	char bytes[8];

	for (int i = 0; i < 8; i++) {
		struct told w = {
			.ep = ep_open(), .max = i < 4 ? 4 : 342, .timeout = 10000};

		ep_add(w.ep, p.s, EPOLLIN | flags[i % 4], 7);
		epoll_amid(&w, i % 2 ? PROT_READ : PROT_NONE, p.c);
		ep_show(w.ep, 0);
		ep_show(w.ep, 0);
		NEED(recv(p.s, bytes, 8, MSG_WAITALL) == 8);
		w.timeout = A_WHILE;
		if (i == 0)
			epoll_amid(&w, PROT_NONE, -1);
		close(w.ep);
	}
	pair_close(p);
}

/* The kernel's own, beside a connection that is not. */
CASE(given_epoll_taken_from_pipes, DIRECT)
{
	const uint32_t flags[] = {0, EPOLLET};
	struct pair p = pair_warm_open();
	char bytes[8];

	for (int i = 0; i < 2; i++) {
		struct told w = {.ep = ep_open(), .max = 4, .timeout = 10000};
		struct signal_pipe pipe = signal_pipe();

		ep_add(w.ep, p.s, EPOLLIN, 7);
		ep_add(w.ep, pipe.fd[0], EPOLLIN | flags[i], 8);
		epoll_amid(&w, PROT_NONE, pipe.fd[1]);
		ep_show(w.ep, 0);
		ep_show(w.ep, 0);
		NEED(read(pipe.fd[0], bytes, 8) == 8);
		close(w.ep);
	}
	pair_close(p);
}
