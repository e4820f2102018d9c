/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on epoll instances. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

#define MOST_INSTANCES 4
/* In the data of registrations that are edge-triggered. */
#define EDGE (1ull << 63)

static void op_create(struct dice *d)
{
	int n = 0;
	for (int i = 0; i < descriptor_count; i++)
		n += descriptors[i].kind == EPOLL;
	if (n >= MOST_INSTANCES || descriptor_count > MOST_DESCRIPTORS - 8) {
		tell("enough");
		return;
	}
	(void)d;
	int fd = epoll_create1(EPOLL_CLOEXEC);
	tell("= %s", result(fd));
	NEED(fd >= 0);
	descriptor_add(fd, EPOLL, 0);
}

static uint32_t some_events(struct dice *d)
{
	static const uint32_t some[] = {
		EPOLLIN,
		EPOLLIN,
		EPOLLOUT,
		EPOLLIN | EPOLLOUT,
		EPOLLIN | EPOLLRDHUP,
		EPOLLRDHUP,
		EPOLLPRI,
		0,
		EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI,
		EPOLLRDNORM,
	};
	uint32_t events = some[dice(d, 10)];
	switch (dice(d, 8)) {
	case 0:
	case 1:
	case 2:
		return events | EPOLLET;
	case 3:
		return events | EPOLLONESHOT;
	case 4:
		return events | EPOLLET | EPOLLONESHOT;
	case 5:
		return once_in(d, 3) ? events | EPOLLEXCLUSIVE : events;
	default:
		return events;
	}
}

static void op_ctl(struct dice *d)
{
	static const int some[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_ADD,
				   EPOLL_CTL_MOD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
	static const char *const text[] = {"", "ADD", "DEL", "MOD"};
	struct descriptor *e = any_of(d, EPOLL), *s = any_descriptor(d);
	int what = some[dice(d, 6)];
	uint32_t events = some_events(d);
	if (!e || !s || (perform_depth && !pending()) ||
	    (s->kind == EPOLL && !once_in(d, 3))) {
		tell("nothing");
		return;
	}
	/* Apart from all others, so that what is folded by its data stays two. */
	struct epoll_event ev = {
		events, {.u64 = (uint64_t)perform_number << 16 | (unsigned)s->fd}};
	if (events & EPOLLET)
		ev.data.u64 |= EDGE;
	int r = epoll_ctl(e->fd, what, s->fd, &ev);
	tell("(%d, %s, %d%s, %s) = %s", e->fd, text[what], s->fd,
	     s->kind == EPOLL ? " epoll" : "", events_of_epoll(events), result(r));
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;
	if (x->data.u64 != y->data.u64)
		return x->data.u64 < y->data.u64 ? -1 : 1;
	return x->events < y->events ? -1 : x->events > y->events;
}

/* An edge more than the kernel tells is told apart: see differential.py. */
static void tell_events(int epfd, struct epoll_event *ev, int n)
{
	int edges = 0;
	if (n > 0)
		qsort(ev, (size_t)n, sizeof *ev, by_data);
	for (int i = 0; i < n; i++)
		edges += (ev[i].data.u64 & EDGE) != 0;
	tell("(%d) = %s", epfd, result(n < 0 ? n : n - edges));
	for (int i = 0; i < n; i++)
		tell("  %lu of %lu: %s%s", (unsigned long)ev[i].data.u64 & 0xFFFF,
		     (unsigned long)(ev[i].data.u64 & ~EDGE) >> 16,
		     events_of_epoll(ev[i].events), ev[i].data.u64 & EDGE ? " edge" : "");
}

static void op_wait(struct dice *d)
{
	struct descriptor *e = any_of(d, EPOLL);
	struct epoll_event ev[64];
	struct timespec none = {0, 0};
	sigset_t mask;
	sigemptyset(&mask);
	if (!e || (perform_depth && !pending())) {
		tell("nothing");
		return;
	}
	int r, way = (int)dice(d, 4);
	if (way == 0)
		r = epoll_pwait(e->fd, ev, 64, 0, once_in(d, 2) ? &mask : NULL);
	else if (way == 1)
		r = epoll_pwait2(e->fd, ev, 64, &none, NULL);
	else
		r = epoll_wait(e->fd, ev, 64, 0);
	tell_events(e->fd, ev, r);
}

/* A short wait: what is ready is reported at once, and else nothing. */
static void op_wait_short(struct dice *d)
{
	struct descriptor *e = any_of(d, EPOLL);
	struct epoll_event ev[64];
	if (!e || !once_in(d, 2) || (perform_depth && !pending())) {
		tell("nothing");
		return;
	}
	int r = epoll_wait(e->fd, ev, 64, 2);
	tell_events(e->fd, ev, r);
}

const struct op ops_epoll[] = {
	{"epoll-create", op_create, 6},
	{"epoll-ctl", op_ctl, 40},
	{"epoll-wait", op_wait, 50},
	{"epoll-wait-short", op_wait_short, 3},
	{NULL, NULL, 0},
};
