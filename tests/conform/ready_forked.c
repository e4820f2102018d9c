/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of a process whose epoll instances are themselves waited for. */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static void poll_show(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	int rc = poll(&p, 1, 0);

	say("poll: %d %s", rc, poll_names(p.revents));
}

/* A fork where the connection has left the instance, or shared memory, since the last look. */
static void forked_after(void (*leave)(struct pair *p))
{
	struct pair p = pair_warm_open(), other = pair_warm_open();
	int in = ep_open(), out = ep_open();
	pid_t child;

	ep_add(in, p.s, EPOLLIN, 1);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN, 2);
	ep_show(out, 0);
	leave(&p);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(3);
	say("child: %d", child_status(child));
	poll_show(in);
	ep_show(out, 0);
	ep_add(in, other.s, EPOLLIN, 3);
	send_pattern(other.c, 0, 10);
	ep_show(out, SOON);
	ep_show(in, SOON);
	close(in);
	close(out);
	close(p.c);
	close(p.s);
	pair_close(other);
}

static void leave_closed(struct pair *p)
{
	NEED(close(p->s) == 0);
	p->s = -1;
}

static void leave_urgent(struct pair *p)
{
	char byte;

	NEED(send(p->c, "!", 1, MSG_OOB) == 1);
	NEED(send(p->s, "!", 1, MSG_OOB) == 1);
	NEED(recv(p->s, &byte, 1, MSG_DONTWAIT) < 0);
	NEED(recv(p->c, &byte, 1, MSG_DONTWAIT) < 0);
}

CASE(nested_forked_after_a_close, ANYWAY)
{
	forked_after(leave_closed);
}

CASE(nested_forked_after_urgent_bytes, ANYWAY)
{
	forked_after(leave_urgent);
}

/* ---- an edge that has been told is none after a fork ---- */

static void forked_told(uint32_t events, uint32_t outer, size_t unread, bool pending)
{
	struct pair p = pair_warm_open(), other = pair_warm_open();
	int in = ep_open(), out = ep_open(), pipe_fds[2];
	pid_t child;
	char byte;

	NEED(pipe(pipe_fds) == 0 && write(pipe_fds[1], "x", 1) == 1);
	send_pattern(p.c, 0, unread);
	wait_inq(p.s, (int)unread);
	ep_add(in, p.s, events | EPOLLET, 1);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN | outer, 2);
	ep_show(out, 0);
	say_result("recv", recv(p.c, &byte, 1, MSG_DONTWAIT));
	ep_show(out, 0);
	if (pending) {
		ep_add(in, other.s, EPOLLOUT | EPOLLET, 3);
		ep_add(in, pipe_fds[0], EPOLLIN | EPOLLET, 4);
	}
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(3);
	say("child: %d", child_status(child));
	ep_show(out, 0);
	ep_show(in, 0);
	ep_show(out, 0);
	send_pattern(p.c, unread, 10);
	wait_inq(p.s, (int)unread + 10);
	ep_show(out, SOON);
	ep_show(in, 0);
	ep_show(out, 0);
	ep_show(in, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(in);
	close(out);
	pair_close(p);
	pair_close(other);
}

CASE(nested_forked_told, ANYWAY)
{
	forked_told(EPOLLIN, 0, 100, false);
	forked_told(EPOLLIN | EPOLLRDHUP, EPOLLET, 100, false);
	forked_told(EPOLLIN | EPOLLOUT, 0, 100, false);
	forked_told(EPOLLIN | EPOLLOUT, 0, 0, false);
}

CASE(nested_forked_pending, ANYWAY)
{
	forked_told(EPOLLIN, 0, 100, true);
	forked_told(EPOLLIN | EPOLLOUT, 0, 100, true);
}

/* ---- what a child changes is changed ---- */

/* While the parent sleeps on it: then that has what comes after the change. */
static void child_changes(bool nested, uint32_t events, uint32_t then)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	pid_t child, parent = getpid();

	ep_add(in, p.s, events, 1);
	if (nested)
		ep_add(out, in, EPOLLIN, 2);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		say_as("child");
		wait_asleep(parent, parent);
		say_result("mod", ep_ctl(in, EPOLL_CTL_MOD, p.s, then, 3));
		wait_asleep(parent, parent);
		send_pattern(p.c, 0, 10);
		_exit(3);
	}
	ep_show(nested ? out : in, SOON);
	say("child: %d", child_status(child));
	ep_show(in, 0);
	recv_pattern(p.s, 0, 10);
	ep_show(in, 0);
	send_pattern(p.c, 10, 10);
	wait_inq(p.s, 10);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(forked_mod, ANYWAY)
{
	child_changes(false, EPOLLRDHUP, EPOLLIN);
	child_changes(false, EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLET);
	child_changes(false, EPOLLIN, EPOLLIN | EPOLLONESHOT);
}

CASE(forked_mod_of_a_watched_one, ANYWAY)
{
	child_changes(true, EPOLLRDHUP, EPOLLIN);
	child_changes(true, EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLET);
	child_changes(true, EPOLLIN, EPOLLIN | EPOLLONESHOT);
}
