/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of what one process does in turn: who is told of the second is told of the
 * first with it. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define ROUNDS	 120 /* unless CAUSAL_ROUNDS says another number */
#define BUSY	 80  /* calls after which nothing else counts as lately busy */
#define PAUSE_US 12

enum { FIRST, SECOND };

struct chain;
typedef unsigned wait_call(struct chain *c);

struct chain {
	void (*open)(struct chain *c);
	bool anew; /* for each round */
	bool to_pipe;
	void (*first)(struct chain *c);
	void (*after)(struct chain *c);
	wait_call *wait;
	struct pair second; /* or a pipe's ends */
	int listener;
	uint16_t port;
	int in, out; /* ends of the first: the waiter's, and the other */
	int ep;
	int rounds;
	_Atomic int turn, done;
};

/* ---- what comes first ---- */

/* There are many: pair_open() would keep a listener of each. */
static void open_pair(struct chain *c)
{
	struct pair p;

	if (!c->port)
		c->listener = listen_any(AF_INET, &c->port);
	p.c = connect_to(AF_INET, c->port);
	p.s = accept(c->listener, NULL, NULL);
	NEED(p.s >= 0);
	pair_warm(p);
	c->in = p.s;
	c->out = p.c;
}

static void close_out(struct chain *c)
{
	NEED(close(c->out) == 0);
}

static void close_in(struct chain *c)
{
	NEED(close(c->in) == 0);
}

static void write_out(struct chain *c)
{
	NEED(write(c->out, "x", 1) == 1);
}

static void read_in(struct chain *c)
{
	char byte;

	NEED(read(c->in, &byte, 1) == 1);
}

/* ---- who waits: returns a bit for each end that is told ---- */

/* The kernel, too, looks at one after the other: the second first. */
static unsigned by_poll(struct chain *c)
{
	struct pollfd f[] = {{.fd = c->second.s, .events = POLLIN},
			     {.fd = c->in, .events = POLLIN}};

	NEED(poll(f, 2, -1) > 0);
	return (f[0].revents != 0) << SECOND | (f[1].revents != 0) << FIRST;
}

static unsigned by_poll_at_once(struct chain *c)
{
	struct pollfd f[] = {{.fd = c->second.s, .events = POLLIN},
			     {.fd = c->in, .events = POLLIN}};

	NEED(poll(f, 2, 0) >= 0);
	return (f[0].revents != 0) << SECOND | (f[1].revents != 0) << FIRST;
}

static unsigned by_select(struct chain *c)
{
	int most = c->in > c->second.s ? c->in : c->second.s;
	fd_set r;

	NEED(c->second.s < c->in);
	FD_ZERO(&r);
	FD_SET(c->in, &r);
	FD_SET(c->second.s, &r);
	NEED(select(most + 1, &r, NULL, NULL, NULL) > 0);
	return (unsigned)(FD_ISSET(c->second.s, &r) != 0) << SECOND |
	       (unsigned)(FD_ISSET(c->in, &r) != 0) << FIRST;
}

static unsigned by_epoll_for(struct chain *c, int timeout)
{
	struct epoll_event ev[4];
	int n = epoll_wait(c->ep, ev, 4, timeout);
	unsigned told = 0;

	NEED(n >= 0);
	for (int i = 0; i < n; i++)
		told |= 1u << ev[i].data.u64;
	return told;
}

static unsigned by_epoll(struct chain *c)
{
	return by_epoll_for(c, -1);
}

static unsigned by_epoll_at_once(struct chain *c)
{
	return by_epoll_for(c, 0);
}

/* ---- the rounds ---- */

static void second_alone(struct chain *c)
{
	char byte = 'b';

	for (int i = 0; i < BUSY; i++) {
		NEED(write(c->second.c, &byte, 1) == 1);
		while (!(c->wait(c) & 1u << SECOND))
			;
		NEED(read(c->second.s, &byte, 1) == 1);
	}
}

static void in_turn(void *arg)
{
	struct chain *c = arg;

	for (int i = 0; i < c->rounds; i++) {
		while (atomic_load(&c->turn) <= i)
			sched_yield();
		/* While the waiter begins, spins, or sleeps. */
		if (i % 4)
			usleep((useconds_t)(i % 4 * PAUSE_US));
		c->first(c);
		NEED(write(c->second.c, "x", 1) == 1);
		atomic_store(&c->done, i + 1);
	}
}

static int run_rounds(struct chain *c)
{
	struct worker other;
	char byte;
	int bad = 0;

	c->ep = ep_open();
	ep_add(c->ep, c->second.s, EPOLLIN, SECOND);
	if (!c->anew)
		ep_add(c->ep, c->in, EPOLLIN, FIRST);
	worker_start(&other, in_turn, c);
	for (int i = 0; i < c->rounds; i++) {
		unsigned told;

		if (c->anew) {
			c->open(c);
			ep_add(c->ep, c->in, EPOLLIN, FIRST);
		}
		if (i % 2)
			second_alone(c);
		atomic_store(&c->turn, i + 1);
		do
			told = c->wait(c);
		while (!(told & 1u << SECOND));
		bad += !(told & 1u << FIRST);
		while (atomic_load(&c->done) <= i)
			sched_yield();
		NEED(read(c->second.s, &byte, 1) == 1);
		c->after(c);
	}
	worker_join(&other);
	close(c->ep);
	return bad;
}

static struct pair pipe_open(void)
{
	int p[2];

	NEED(pipe(p) == 0);
	return (struct pair){.c = p[1], .s = p[0]};
}

static void run_waits(struct chain *c)
{
	static wait_call *const waits[] = {by_poll, by_poll_at_once, by_select, by_epoll,
					   by_epoll_at_once};
	const char *rounds = getenv("CAUSAL_ROUNDS");
	int bad = 0;

	c->rounds = rounds ? atoi(rounds) : ROUNDS;
	/* First: it is to have the lower number, where select begins. */
	if (c->to_pipe)
		c->second = pipe_open();
	else
		c->second = pair_warm_open();
	if (!c->anew)
		c->open(c);
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
		c->wait = waits[i];
		atomic_store(&c->turn, 0);
		atomic_store(&c->done, 0);
		bad += run_rounds(c);
	}
	/* The kernel's softirqs are late at times: so one is told alone on TCP as well, in some
	 * ten thousand. */
	if (bad > 1)
		say("%d of them without the first", bad);
	say("told");
	pair_close(c->second);
}

CASE(causal_close, DIRECT)
{
	struct chain c = {
		.open = open_pair, .anew = true, .first = close_out, .after = close_in};

	run_waits(&c);
}

CASE(causal_ring, DIRECT)
{
	struct chain c = {.open = open_pair, .first = write_out, .after = read_in};

	run_waits(&c);
}

static void open_pipe(struct chain *c)
{
	struct pair p = pipe_open();

	c->in = fcntl(p.s, F_DUPFD, c->second.s);
	NEED(c->in >= 0 && close(p.s) == 0);
	c->out = p.c;
}

/* The kernel alone knows of the first. */
CASE(causal_pipe, DIRECT)
{
	struct chain c = {.open = open_pipe, .first = write_out, .after = read_in};

	run_waits(&c);
}

/* And here of the second. */
CASE(causal_to_pipe, DIRECT)
{
	struct chain c = {
		.open = open_pair, .to_pipe = true, .first = write_out, .after = read_in};

	run_waits(&c);
}
