/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of what another thread does in the middle of a call: see between.c. */
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"

#define MOMENTS 6
#define CALLS	8

/* A pipe, a connection, and another pipe, polled in that order. */
enum { PIPE, RING, LATER, ENDS };

static struct {
	int in[ENDS], out[ENDS];
	int first, second; /* of them, written to in turn */
	int ep;		   /* or -1: ppoll */
	int moment, now;
	_Atomic int turn, done;
	_Atomic bool over;
} chain;

static void in_turn(void *arg)
{
	(void)arg;
	for (int i = 1;; i++) {
		while (atomic_load(&chain.turn) < i && !atomic_load(&chain.over))
			sched_yield();
		if (atomic_load(&chain.turn) < i)
			return;
		NEED(write(chain.out[chain.first], "x", 1) == 1);
		/* TCP may be late. */
		wait_inq(chain.in[chain.first], 1);
		NEED(write(chain.out[chain.second], "x", 1) == 1);
		atomic_store(&chain.done, i);
	}
}

static void write_both(void)
{
	int i = atomic_fetch_add(&chain.turn, 1) + 1;

	while (atomic_load(&chain.done) < i)
		sched_yield();
}

static void at_moment(void)
{
	if (chain.now++ == chain.moment)
		write_both();
}

/* Returns a bit for each that is told. */
static unsigned ask_poll(void)
{
	const struct timespec zero = {0};
	struct pollfd f[ENDS];
	unsigned told = 0;

	for (int k = 0; k < ENDS; k++)
		f[k] = (struct pollfd){.fd = chain.in[k], .events = POLLIN};
	NEED(ppoll(f, ENDS, &zero, NULL) >= 0);
	for (int k = 0; k < ENDS; k++)
		told |= (unsigned)(f[k].revents != 0) << k;
	return told;
}

static unsigned ask_epoll(void)
{
	struct epoll_event ev[ENDS];
	int n = epoll_wait(chain.ep, ev, ENDS, 0);
	unsigned told = 0;

	NEED(n >= 0);
	for (int i = 0; i < n; i++)
		told |= 1u << ev[i].data.u32;
	return told;
}

/* How often the second was told without the first, which the kernel's poll looks at later. */
static int polls(void)
{
	int bad = 0;
	char byte;

	for (int i = 0; i < CALLS; i++) {
		unsigned told = chain.ep < 0 ? ask_poll() : ask_epoll();

		bad += (told >> chain.second & 1) && !(told >> chain.first & 1);
	}
	if (chain.now <= chain.moment)
		write_both();
	NEED(read(chain.in[chain.first], &byte, 1) == 1);
	NEED(read(chain.in[chain.second], &byte, 1) == 1);
	return bad;
}

static void all_moments(void (**between)(void), int first, int second)
{
	chain.first = first;
	chain.second = second;
	for (chain.moment = 0; chain.moment < MOMENTS; chain.moment++) {
		chain.now = 0;
		*between = at_moment;
		say("%d, then %d, at moment %d: %d without the first", first, second,
		    chain.moment, polls());
		*between = NULL;
	}
}

static void run_all(bool epoll)
{
	void (**between)(void) = dlsym(RTLD_DEFAULT, "conform_between");
	struct pair p;
	struct worker other;
	int early[2], later[2], on = 1;

	if (!between)
		skip("needs between.so");
	NEED(pipe(early) == 0 && pipe(later) == 0);
	p = pair_warm_open();
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	chain.in[PIPE] = early[0];
	chain.out[PIPE] = early[1];
	chain.in[RING] = p.s;
	chain.out[RING] = p.c;
	chain.in[LATER] = later[0];
	chain.out[LATER] = later[1];
	chain.ep = epoll ? epoll_create1(0) : -1;
	for (int k = 0; k < ENDS && epoll; k++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)k};

		NEED(epoll_ctl(chain.ep, EPOLL_CTL_ADD, chain.in[k], &ev) == 0);
	}
	worker_start(&other, in_turn, NULL);
	all_moments(between, RING, PIPE);
	all_moments(between, LATER, RING);
	atomic_store(&chain.over, true);
	worker_join(&other);
	pair_close(p);
}

CASE(between_poll, DIRECT)
{
	run_all(false);
}

CASE(between_epoll, DIRECT)
{
	run_all(true);
}
