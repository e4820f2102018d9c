/* SPDX-License-Identifier: Apache-2.0 */
/* One call of epoll_wait, and what it asks the kernel. */
#ifndef VD_READINESS_EPOLL_CALL_H
#define VD_READINESS_EPOLL_CALL_H

#include <x86intrin.h>

#include "base/atomic.h"
#include "readiness/epoll.h"

/*
 * Events of the kernel's in one call: they come to an array of our own first. The kernel
 * leaves alone what it does not report, and a program may use it again: a tag there would
 * come back as the program's data. More than that are told by the next call: what is level-triggered
 * the kernel puts behind the rest.
 */
#define RAW_EVENTS EPOLL_ORDERED
/* Else it is on the stack, which may be short: it is there while it is used, and no longer. */
#define APART __attribute__((noinline))

struct call {
	struct instance *in;
	int epfd; /* another one once that was closed, and duplicates live */
	struct epoll_event *ev;
	int max;
	uint64_t deadline;
	const sigset_t *mask;
	uint32_t handlers; /* signal handlers run by this thread before the call */
	bool late;	   /* a sleep lasted until the deadline */
	bool gone;	   /* the instance was closed during it */
	bool lost;	   /* and so was the memory at ev, which is the spot by now */
	struct epoll_event spot;
	uint64_t moves;		/* as of the first look */
	uint64_t asking, asked; /* ticks around the kernel's last answer */
	struct batch found;	/* events from memory, at the end of ev */
};

/* ---- epoll_ask.c ---- */

/* How many the kernel is asked for at once where there is room for so many. */
static inline int call_room(int room)
{
	return room < RAW_EVENTS ? room : RAW_EVENTS;
}

/*
 * Memory has events: the kernel is asked as well (0.1 us), and what is new there goes
 * first. Who sent to one connection over TCP and then to another through a ring must not
 * find the second reported without the first. An instance with one connection in it and
 * nothing else has no such order: there the kernel is asked at every 16th call, and
 * earlier when about 20 us have passed. The first bounds its cost where calls are short,
 * the second the lateness of its events where they are long.
 */
#define ASK_CALLS 16
#define ASK_TICKS 60000

static inline bool instance_ask_due(struct instance *in)
{
	uint32_t since = load_relaxed(&in->since_ask) + 1;

	store_relaxed(&in->since_ask, since);
	return load_relaxed(&in->mixed) || since >= ASK_CALLS ||
	       load_relaxed(&in->ask_now) ||
	       __rdtsc() - load_relaxed(&in->asked_at) > ASK_TICKS;
}

/* Asks the kernel without waiting, for at most call_room(room) events. */
static inline int call_ask(struct call *c, struct epoll_event *raw, int room)
{
	static const struct timespec zero;
	struct instance *in = c->in;
	int n;

	store_relaxed(&in->ask_now, false);
	store_relaxed(&in->kernel_turn, false);
	store_relaxed(&in->since_ask, 0);
	store_relaxed(&in->asked_at, __rdtsc());
	c->asking = __rdtsc();
	c->epfd = instance_fd_now(in, c->epfd);
	n = epoll_kernel_wait(in, c->epfd, raw, call_room(room), &zero, NULL);
	c->asked = __rdtsc();
	return n;
}

/*
 * The kernel has told n events of the program's, into ev. What memory had at the same time may
 * have come before one of these, or after another that has not been told: the kernel is asked
 * again until memory has had nothing meanwhile. Where there are many, it is not: what is
 * level-triggered would all be told once more, before what is new.
 */
int call_ask_again(struct call *c, struct epoll_event *ev, int n, int room);

/* ---- epoll_room.c ---- */

/* After a sleep, in which another thread may have taken the memory away, or a part of it. */
static inline bool call_has_room(const struct call *c)
{
	return epoll_room(c->ev, c->max, (uint32_t)c->max) == c->max;
}
/* Where that is so, and the kernel has told n: those without room are told once more. */
int call_shrink(struct call *c, struct epoll_event *raw, int n);
/* The one event at the spot is, too. Returns -EFAULT. */
int call_untell(struct call *c);

#endif
