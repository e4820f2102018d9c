/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: who sleeps on an epoll instance is not woken by a connection that is registered there, and has nothing. */
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

/* It looks at its end all the time, so that it answers at once. */
static void sends_when_told(int fd, void *arg)
{
	const struct signal_pipe *told = arg;
	struct pollfd p[2] = {{.fd = told->fd[0], .events = POLLIN},
			      {.fd = fd, .events = POLLIN}};

	while (!(p[0].revents & POLLIN))
		NEED(poll(p, 2, 5) >= 0);
	signal_wait(*told);
	send_pattern(fd, 0, 10);
	signal_wait(*told);
}

static void sleeps_in_poll(void *arg)
{
	int in = *(int *)arg;
	struct pollfd p = {.fd = in, .events = POLLIN};

	say("poll: %d", poll(&p, 1, -1));
	ep_show(in, 0);
}

static void sleeps_in_select(void *arg)
{
	int in = *(int *)arg;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(in, &set);
	say("select: %d", select(in + 1, &set, NULL, NULL, NULL));
	ep_show(in, 0);
}

static void sleeps_outside(int in, uint32_t outer)
{
	int out = ep_open();

	ep_add(out, in, EPOLLIN | outer, 2);
	ep_show(out, SOON);
	ep_show(in, 0);
	ep_show(out, 0);
	close(out);
}

static void sleeps_in_outer(void *arg)
{
	sleeps_outside(*(int *)arg, 0);
}

static void sleeps_in_outer_edge(void *arg)
{
	sleeps_outside(*(int *)arg, EPOLLET);
}

static void added_meanwhile(void (*sleeps)(void *arg), uint32_t events)
{
	struct signal_pipe told = signal_pipe();
	struct worker w;
	pid_t peer;
	int fd = peer_start(sends_when_told, &told, &peer), in = ep_open();

	worker_start(&w, sleeps, &in);
	wait_asleep(getpid(), w.tid);
	ep_add(in, fd, events, 1);
	usleep(100000);
	signal_send(told);
	worker_join(&w);
	signal_send(told);
	say("peer: %d", child_status(peer));
	close(in);
	close(fd);
}

CASE(asleep_in_poll, READY)
{
	added_meanwhile(sleeps_in_poll, EPOLLIN);
	added_meanwhile(sleeps_in_poll, EPOLLIN | EPOLLET);
}

CASE(asleep_in_select, READY)
{
	added_meanwhile(sleeps_in_select, EPOLLIN);
	added_meanwhile(sleeps_in_select, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
}

CASE(asleep_in_outer, READY)
{
	added_meanwhile(sleeps_in_outer, EPOLLIN | EPOLLONESHOT);
	added_meanwhile(sleeps_in_outer_edge, EPOLLIN | EPOLLONESHOT);
}

/* ---- the one that joins meanwhile is an instance, with such a connection in it ---- */

struct joined {
	int out;
	bool has_another; /* and so has something to tell first */
};

static void sleeps_in_joined(void *arg)
{
	const struct joined *j = arg;

	ep_show(j->out, -1);
	if (j->has_another)
		ep_show(j->out, -1);
}

static void joined_meanwhile(uint32_t inner, uint32_t outer, bool has_another)
{
	struct signal_pipe told = signal_pipe(), another = signal_pipe();
	struct joined j = {ep_open(), has_another};
	struct worker w;
	pid_t peer;
	int fd = peer_start(sends_when_told, &told, &peer), in = ep_open();

	ep_add(in, fd, inner, 1);
	ep_add(j.out, another.fd[0], EPOLLIN | EPOLLET, 3);
	worker_start(&w, sleeps_in_joined, &j);
	wait_asleep(getpid(), w.tid);
	ep_add(j.out, in, outer, 2 | (outer & EPOLLET ? MAY_REPEAT : 0));
	usleep(100000);
	if (has_another)
		signal_send(another);
	wait_asleep(getpid(), w.tid);
	signal_send(told);
	worker_join(&w);
	ep_show(in, 0);
	ep_show(j.out, 0);
	signal_send(told);
	say("peer: %d", child_status(peer));
	close(j.out);
	close(in);
	close(fd);
}

CASE(asleep_in_what_becomes_outer, READY)
{
	static const uint32_t inner[] = {EPOLLIN, EPOLLIN | EPOLLET,
					 EPOLLIN | EPOLLONESHOT},
			      outer[] = {EPOLLIN, EPOLLIN | EPOLLET,
					 EPOLLIN | EPOLLONESHOT};

	for (int i = 0; i < 9; i++) {
		joined_meanwhile(inner[i / 3], outer[i % 3], false);
		joined_meanwhile(inner[i / 3], outer[i % 3], true);
	}
}
