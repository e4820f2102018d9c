/* SPDX-License-Identifier: Apache-2.0 */
/* Connections in an instance that is watched, with threads that sleep outside and threads that look inside. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define TURNS 2000
#define PAIRS 3

struct storm {
	int in, out; /* out: -1 where `in` is polled */
	int end;     /* eventfd: nothing is left */
	struct pair pair[PAIRS];
	_Atomic int left; /* bytes that nobody has answered */
	_Atomic bool stops;
};

/* Answers each byte by one. */
static void answer(struct storm *s, struct epoll_event *ev, int n)
{
	char bytes[64];

	for (int i = 0; i < n; i++) {
		int fd = s->pair[ev[i].data.u64].s;
		ssize_t got;

		while ((got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
			send_all(fd, bytes, (size_t)got);
			if (atomic_fetch_sub(&s->left, (int)got) == got)
				NEED(write(s->end, &(uint64_t){1}, 8) == 8);
		}
	}
}

static void look_inside(struct storm *s)
{
	struct epoll_event ev[2];
	int n;

	while ((n = epoll_wait(s->in, ev, 2, 0)) > 0)
		answer(s, ev, n);
}

static void *outside(void *arg)
{
	struct storm *s = arg;

	while (atomic_load(&s->left) > 0) {
		struct pollfd p[] = {{.fd = s->in, .events = POLLIN},
				     {.fd = s->end, .events = POLLIN}};
		struct epoll_event ev[2];
		int n = s->out < 0 ? poll(p, 2, SOON) : epoll_wait(s->out, ev, 2, SOON);

		/* Nothing for so long, while some are left, is a wake-up that was lost. */
		if (n == 0 && atomic_load(&s->left) > 0)
			say("nobody was woken");
		if (n == 0)
			break;
		look_inside(s);
	}
	return NULL;
}

static void *inside(void *arg)
{
	struct storm *s = arg;

	while (!atomic_load(&s->stops)) {
		look_inside(s);
		sched_yield();
	}
	return NULL;
}

/* How: the outer registration's events, or 0 for poll. */
static void storm(uint32_t inner, uint32_t how, bool two)
{
	struct storm s = {.in = ep_open(),
			  .out = how ? ep_open() : -1,
			  .end = eventfd(0, EFD_CLOEXEC),
			  .left = TURNS};
	pthread_t sleeper, looker;
	char byte;

	for (int i = 0; i < PAIRS; i++) {
		s.pair[i] = pair_warm_open();
		ep_add(s.in, s.pair[i].s, inner, (uint64_t)i);
	}
	if (how)
		ep_add(s.out, s.in, how, 9);
	if (how)
		ep_add(s.out, s.end, EPOLLIN, 10);
	pthread_create(&sleeper, NULL, outside, &s);
	if (two)
		pthread_create(&looker, NULL, inside, &s);
	for (int i = 0; i < TURNS; i++) {
		send_all(s.pair[i % PAIRS].c, "x", 1);
		if (i % 4 == 3) {
			for (int j = i - 3; j <= i; j++)
				recv_all(s.pair[j % PAIRS].c, &byte, 1);
		}
	}
	pthread_join(sleeper, NULL);
	atomic_store(&s.stops, true);
	if (two)
		pthread_join(looker, NULL);
	say("left: %d", s.left);
	for (int i = 0; i < PAIRS; i++)
		pair_close(s.pair[i]);
	close(s.in);
	close(s.end);
	if (how)
		close(s.out);
}

CASE(nested_storm, STAYS)
{
	storm(EPOLLIN, EPOLLIN, false);
	storm(EPOLLIN | EPOLLET, EPOLLIN, false);
	storm(EPOLLIN, EPOLLIN | EPOLLET, false);
	storm(EPOLLIN | EPOLLET, EPOLLIN | EPOLLET, false);
}

CASE(nested_storm_polled, STAYS)
{
	storm(EPOLLIN, 0, false);
	storm(EPOLLIN | EPOLLET, 0, false);
}

CASE(nested_storm_of_two, STAYS)
{
	storm(EPOLLIN, EPOLLIN, true);
	storm(EPOLLIN | EPOLLET, EPOLLIN, true);
	storm(EPOLLIN, EPOLLIN | EPOLLET, true);
	storm(EPOLLIN, 0, true);
}
