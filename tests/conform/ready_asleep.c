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
