/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: readiness by every call that tells it, of each interest, in each state. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "conform/grid_state.h"
#include "conform/ready_epoll.h"

static const struct {
	const char *name;
	int events;
} interests[] = {
	{"none", 0},
	{"IN", POLLIN},
	{"OUT", POLLOUT},
	{"PRI", POLLPRI},
	{"RDHUP", POLLRDHUP},
	{"HUP ERR", POLLHUP | POLLERR},
	{"RDNORM", POLLRDNORM},
	{"RDBAND", POLLRDBAND},
	{"WRNORM", POLLWRNORM},
	{"WRBAND", POLLWRBAND},
	{"IN OUT", POLLIN | POLLOUT},
	{"all", POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLRDBAND |
			POLLWRNORM | POLLWRBAND},
};

static const struct {
	const char *name;
	uint32_t flags;
} triggers[] = {
	{"level", 0},
	{"edge", EPOLLET},
	{"oneshot", EPOLLONESHOT},
	{"edge oneshot", EPOLLET | EPOLLONESHOT},
	{"wakeup", EPOLLWAKEUP},
	{"exclusive", EPOLLEXCLUSIVE},
};

/* All that can happen to a readable or closed end, told as numbers: poll has more names. */
static int poll_one(int fd, int events)
{
	struct pollfd pf = {fd, (short)events, 0};
	int n = poll(&pf, 1, 0);
	NEED(n == (pf.revents ? 1 : 0));
	return pf.revents;
}

/* The same socket twice in one call. */
static int poll_twice(int fd, int events)
{
	struct pollfd pf[3] = {{fd, (short)events, 0}, {-1, POLLIN, 7}, {fd, 0, 0}};
	int n = poll(pf, 3, 0);
	NEED(n == (pf[0].revents != 0) + (pf[2].revents != 0) && pf[1].revents == 0);
	return pf[0].revents << 16 | pf[2].revents;
}

static int select_one(int fd, int events)
{
	struct timeval now = {0, 0};
	fd_set r, w, e;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&e);
	if (events & POLLIN)
		FD_SET(fd, &r);
	if (events & POLLOUT)
		FD_SET(fd, &w);
	if (events & POLLPRI)
		FD_SET(fd, &e);
	int n = select(fd + 1, &r, &w, &e, &now);
	int bits = (FD_ISSET(fd, &r) ? 1 : 0) | (FD_ISSET(fd, &w) ? 2 : 0) |
		   (FD_ISSET(fd, &e) ? 4 : 0);
	NEED(n == __builtin_popcount((unsigned)bits));
	return bits;
}

static void visit_poll(const struct grid_state *state, enum stage stage)
{
	for (size_t i = 0; i < COUNT_OF(interests); i++) {
		struct pair p = state_open(state, stage);
		int events = interests[i].events;
		int one = poll_one(p.s, events), again = poll_one(p.s, events);
		say("%s, %s: poll %#x, %#x, twice %#x, select %d", state->name,
		    interests[i].name, (unsigned)one, (unsigned)again,
		    (unsigned)poll_twice(p.s, events), select_one(p.s, events));
		state_close(p);
	}
}

/* What one wait gives; "-" for nothing. */
static void add_wait(char *line, size_t size, const char *what, int ep)
{
	struct epoll_event ev[4];
	size_t at = strlen(line);
	int n = epoll_wait(ep, ev, 4, 0);
	NEED(n >= 0);
	at += (size_t)snprintf(line + at, size - at, ", %s", what);
	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(line + at, size - at, " %llu:%#x",
				       (unsigned long long)ev[i].data.u64, ev[i].events);
	if (n == 0)
		snprintf(line + at, size - at, " -");
}

/*
 * New bytes may come by the other way, and may so be an edge twice, or one of room as well:
 * programs read, or write, until EAGAIN. That they are one is what counts.
 */
static void add_edges(char *line, size_t size, int ep)
{
	struct epoll_event ev[4];
	uint32_t all = 0;
	size_t at = strlen(line);
	while (epoll_wait(ep, ev, 4, 0) > 0)
		all |= ev[0].events & ~(uint32_t)(EPOLLOUT | EPOLLWRNORM);
	snprintf(line + at, size - at, ", fed %#x", all);
}

/* The answer to our FIN is one more change of state, and wakes; it may be held back. */
static void wait_fin_answered(struct pair p)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	int on = 1;
	if (p.c >= 0)
		NEED(setsockopt(p.c, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on) == 0);
	for (;; usleep(1000)) {
		NEED(getsockopt(p.s, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
		if (info.tcpi_state != TCP_FIN_WAIT1)
			return;
	}
}

/* From the wait that reports the state on: again, after new bytes, after MOD, after a part. */
static void visit_epoll(const struct grid_state *state, size_t interest, size_t trigger,
			enum stage stage)
{
	struct pair p = state_open(state, stage);
	uint32_t events = (uint32_t)interests[interest].events | triggers[trigger].flags;
	bool feeds = p.c >= 0 && !state->ended && !state->full &&
		     !strstr(state->name, "urgent");
	char line[512], byte;
	int ep = ep_open();
	if (events & EPOLLET)
		wait_fin_answered(p);
	snprintf(line, sizeof line, "%s, %s, %s", state->name, interests[interest].name,
		 triggers[trigger].name);
	if (ep_ctl(ep, EPOLL_CTL_ADD, p.s, events, 1) < 0) {
		say("%s: ADD %s", line, errno_name(errno));
		close(ep);
		state_close(p);
		return;
	}
	add_wait(line, sizeof line, "first", ep);
	add_wait(line, sizeof line, "again", ep);
	if (feeds) {
		send_all(p.c, "more", 4);
		wait_inq(p.s, (int)state->unread + 4);
		if (events & EPOLLET)
			add_edges(line, sizeof line, ep);
		else
			add_wait(line, sizeof line, "fed", ep);
		add_wait(line, sizeof line, "again", ep);
	}
	if (recv(p.s, &byte, 1, MSG_DONTWAIT) >= 0)
		add_wait(line, sizeof line, "read one", ep);
	if (ep_ctl(ep, EPOLL_CTL_MOD, p.s, events, 2) < 0)
		snprintf(line + strlen(line), sizeof line - strlen(line), ", MOD %s",
			 errno_name(errno));
	add_wait(line, sizeof line, "modified", ep);
	add_wait(line, sizeof line, "again", ep);
	say("%s", line);
	close(ep);
	state_close(p);
}

static void grid_epoll(enum stage stage, size_t first_trigger, size_t count)
{
	alarm(GRID_SECONDS);
	for (size_t t = first_trigger; t < first_trigger + count; t++)
		for (size_t s = 0; s < grid_states_count; s++)
			for (size_t i = 0; i < COUNT_OF(interests); i++)
				visit_epoll(&grid_states[s], i, t, stage);
}

static void grid_poll(enum stage stage)
{
	alarm(GRID_SECONDS);
	for (size_t s = 0; s < grid_states_count; s++)
		visit_poll(&grid_states[s], stage);
}

CASE(grid_poll_cold, ANYWAY)
{
	grid_poll(COLD);
}

CASE(grid_poll_warm, DIRECT)
{
	grid_poll(WARM);
}

CASE(grid_poll_bounced, DIRECT)
{
	grid_poll(BOUNCED);
}

CASE(grid_poll_one_way, DIRECT)
{
	grid_poll(ONE_WAY);
}

CASE(grid_poll_other_way, DIRECT)
{
	grid_poll(OTHER_WAY);
}

CASE(grid_poll_midway, DIRECT)
{
	grid_poll(MIDWAY);
}

CASE(grid_epoll_cold, ANYWAY)
{
	grid_epoll(COLD, 0, 6);
}

CASE(grid_epoll_warm, DIRECT)
{
	grid_epoll(WARM, 0, 6);
}

CASE(grid_epoll_bounced, DIRECT)
{
	grid_epoll(BOUNCED, 0, 3);
}

CASE(grid_epoll_one_way, DIRECT)
{
	grid_epoll(ONE_WAY, 0, 3);
}

CASE(grid_epoll_other_way, DIRECT)
{
	grid_epoll(OTHER_WAY, 0, 3);
}

CASE(grid_epoll_midway, DIRECT)
{
	grid_epoll(MIDWAY, 0, 3);
}
