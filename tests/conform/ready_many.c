/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of epoll_wait that has very much to tell at once. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define MANY 300
#define ROOM 1024

static struct epoll_event told[ROOM];

/* Which it told, in its order: runs of data that rise by one. */
static void show_runs(const struct epoll_event *ev, int n)
{
	char line[4096] = "";
	size_t at = 0;

	for (int i = 0, first = 0; i < n; i++) {
		if (i + 1 < n && ev[i + 1].data.u64 == ev[i].data.u64 + 1)
			continue;
		at += (size_t)snprintf(line + at, sizeof(line) - at, " %llu-%llu",
				       (unsigned long long)ev[first].data.u64,
				       (unsigned long long)ev[i].data.u64);
		first = i + 1;
		NEED(at < sizeof(line) - 64);
	}
	say("%d:%s", n, line);
}

/* Which are told by so many calls as they may take: each tells 64 at least, or all. */
static void wait_show(int ep, int room)
{
	static bool seen[ROOM];
	int n = 1, total = 0;

	memset(seen, 0, sizeof(seen));
	for (int calls = 0; n > 0 && calls < 2 * MANY / (room < 64 ? room : 64) + 1;
	     calls++) {
		n = epoll_wait(ep, told, room, 0);
		NEED(n >= 0);
		for (int i = 0; i < n; i++)
			seen[told[i].data.u64] = true;
	}
	for (uint64_t i = 0; i < ROOM; i++)
		if (seen[i])
			told[total++].data.u64 = i;
	show_runs(told, total);
}

struct crowd {
	int ep, fd[MANY];
	struct pair p;
};

static void crowd_ready(struct crowd *c, int from, int to)
{
	for (int i = from; i < to; i++)
		NEED(eventfd_write(c->fd[i], 1) == 0);
}

/* How many are told until there is nothing. */
static int drain(int ep)
{
	int total = 0, n;

	while ((n = epoll_wait(ep, told, ROOM, 0)) > 0)
		total += n;
	NEED(n == 0);
	return total;
}

/* An upgraded connection, whose data is 1000, and many others, with data from 0 on, or all with the same. */
static struct crowd crowd_new(uint32_t events, bool same)
{
	struct crowd c = {.ep = ep_open(), .p = pair_warm_open()};

	ep_add(c.ep, c.p.s, EPOLLIN, 1000);
	for (int i = 0; i < MANY; i++) {
		c.fd[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		NEED(c.fd[i] >= 0);
		ep_add(c.ep, c.fd[i], events, same ? 5 : (uint64_t)i);
	}
	return c;
}

/* It has had many events before: not all of the first are told at once. */
static struct crowd crowd_of(uint32_t events, bool same)
{
	struct crowd c = crowd_new(EPOLLIN | EPOLLET, same);
	eventfd_t value;

	crowd_ready(&c, 0, MANY);
	NEED(drain(c.ep) == MANY);
	for (int i = 0; i < MANY; i++) {
		NEED(eventfd_read(c.fd[i], &value) == 0);
		ep_mod(c.ep, c.fd[i], events, same ? 5 : (uint64_t)i);
	}
	NEED(drain(c.ep) == 0);
	return c;
}

static struct crowd crowd_open(uint32_t events)
{
	return crowd_of(events, false);
}

static void crowd_close(struct crowd *c)
{
	for (int i = 0; i < MANY; i++)
		close(c->fd[i]);
	pair_close(c->p);
	close(c->ep);
}

CASE(many_level, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN);

	wait_show(c.ep, ROOM);
	crowd_ready(&c, 0, MANY);
	for (int i = 0; i < 4; i++)
		wait_show(c.ep, ROOM);
	crowd_close(&c);
}

CASE(many_edge, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN | EPOLLET);

	crowd_ready(&c, 0, MANY);
	for (int i = 0; i < 3; i++)
		wait_show(c.ep, ROOM);
	crowd_ready(&c, 100, 200);
	for (int i = 0; i < 3; i++)
		wait_show(c.ep, ROOM);
	crowd_close(&c);
}

CASE(many_once, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN | EPOLLONESHOT);

	crowd_ready(&c, 0, MANY);
	for (int i = 0; i < 3; i++)
		wait_show(c.ep, ROOM);
	crowd_close(&c);
}

/* The room is too short for all, but not as short as for few. */
CASE(many_short, DIRECT)
{
	static const int rooms[] = {1,	 63,  64,  65,	100, 128,
				    129, 299, 300, 320, 400, 500};

	for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
		struct crowd c = crowd_open(EPOLLIN);

		crowd_ready(&c, 0, MANY);
		for (int i = 0; i < 4; i++)
			wait_show(c.ep, rooms[r]);
		crowd_close(&c);
	}
}

CASE(many_short_edges, DIRECT)
{
	static const int rooms[] = {64, 65, 100, 299, 300};

	for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
		struct crowd c = crowd_open(EPOLLIN | EPOLLET);

		crowd_ready(&c, 0, MANY);
		for (int i = 0; i < 6; i++)
			wait_show(c.ep, rooms[r]);
		crowd_close(&c);
	}
}

/* Bytes come to the connection as well, after the others and before them. */
CASE(many_and_bytes, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN | EPOLLET);

	crowd_ready(&c, 0, MANY);
	send_pattern(c.p.c, 0, 10);
	wait_show(c.ep, ROOM);
	wait_show(c.ep, ROOM);
	recv_pattern(c.p.s, 0, 10);
	wait_show(c.ep, ROOM);
	crowd_ready(&c, 0, MANY);
	wait_show(c.ep, ROOM);
	crowd_close(&c);
}

CASE(many_levels_and_bytes, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN);

	crowd_ready(&c, 0, MANY);
	send_pattern(c.p.c, 0, 10);
	for (int i = 0; i < 3; i++)
		wait_show(c.ep, ROOM);
	recv_pattern(c.p.s, 0, 10);
	for (int i = 0; i < 3; i++)
		wait_show(c.ep, ROOM);
	crowd_close(&c);
}

/* Those of a sleep: one thing makes all of them ready. */
CASE(many_woken, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN | EPOLLET);
	int one = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), n = 0, more;

	NEED(one >= 0);
	for (int i = 0; i < MANY; i++) {
		NEED(dup2(one, c.fd[i]) == c.fd[i]);
		ep_add(c.ep, c.fd[i], EPOLLIN | EPOLLET, (uint64_t)i);
	}
	NEED(eventfd_write(one, 1) == 0);
	while ((more = epoll_wait(c.ep, told, ROOM, 0)) > 0)
		n += more;
	say("%d", n);
	close(one);
	crowd_close(&c);
}

static const uint32_t kinds[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* What the data says is the program's matter: none is lost, whichever call tells it. */
CASE(many_at_first, DIRECT)
{
	for (size_t k = 1; k < KINDS; k++) {
		struct crowd c = crowd_new(kinds[k], true);

		crowd_ready(&c, 0, MANY);
		say("%d", drain(c.ep));
		crowd_close(&c);
	}
}

static void *drain_beside(void *arg)
{
	static struct epoll_event own[ROOM];
	const struct crowd *c = arg;
	size_t total = 0;
	int n;

	while ((n = epoll_wait(c->ep, own, ROOM, 100)) > 0)
		total += (size_t)n;
	NEED(n == 0);
	return (void *)total;
}

/* Several calls at once. */
CASE(many_threads, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN | EPOLLET);
	pthread_t beside;
	void *there;
	int total = 0, n;

	NEED(pthread_create(&beside, NULL, drain_beside, &c) == 0);
	for (int round = 0; round < 20; round++) {
		crowd_ready(&c, 0, MANY);
		while ((n = epoll_wait(c.ep, told, ROOM, 0)) > 0)
			total += n;
	}
	NEED(pthread_join(beside, &there) == 0);
	total += drain(c.ep);
	/* One may be told twice where it is made ready twice. */
	NEED(total + (int)(size_t)there >= MANY);
	crowd_ready(&c, 0, MANY);
	wait_show(c.ep, ROOM);
	crowd_close(&c);
}

static sigjmp_buf away;

static void jump_away(int sig)
{
	siglongjmp(away, sig);
}

/* A call that does not end keeps nothing from the next ones. */
CASE(many_after_a_jump, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN);
	const struct itimerval soon = {.it_value = {.tv_usec = 50000}};

	NEED(signal(SIGALRM, jump_away) != SIG_ERR);
	if (!sigsetjmp(away, 1)) {
		NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		epoll_wait(c.ep, told, ROOM, -1);
	}
	crowd_ready(&c, 0, MANY);
	wait_show(c.ep, ROOM);
	crowd_close(&c);
}

/* The program's array ends in the middle of what there is to tell: the memory behind is not there, or
 * cannot be written to. */
static void end_early(bool there)
{
	struct crowd c = crowd_open(EPOLLIN);
	size_t page = (size_t)getpagesize();
	char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct epoll_event *ev;

	NEED(map != MAP_FAILED);
	NEED((there ? mprotect(map + page, page, PROT_READ) : munmap(map + page, page)) ==
	     0);
	crowd_ready(&c, 0, MANY);
	for (int fits = 1; fits < 300; fits += 37) {
		int n;

		ev = (struct epoll_event *)(void *)(map + page) - fits;
		n = epoll_wait(c.ep, ev, ROOM, 0);
		say("told some: %d", n > 0 && n <= fits);
	}
	munmap(map, 2 * page);
	crowd_close(&c);
}

CASE(many_and_no_memory, DIRECT)
{
	end_early(false);
}

CASE(many_and_memory_to_read, DIRECT)
{
	end_early(true);
}

/* A child of vfork that is killed amid a call keeps nothing from its parent's. */
CASE(many_after_a_killed_child, DIRECT)
{
	struct crowd c = crowd_open(EPOLLIN);
	const struct itimerval soon = {.it_value = {.tv_usec = 50000}};
	pid_t pid = vfork();

	if (pid == 0) {
		setitimer(ITIMER_REAL, &soon, NULL);
		_exit(epoll_wait(c.ep, told, ROOM, -1));
	}
	say("child: %d", child_status(pid));
	crowd_ready(&c, 0, MANY);
	wait_show(c.ep, ROOM);
	crowd_close(&c);
}
