/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: an epoll instance that another program has, or this one after an exec, tells nothing but its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

/* ---- executed with: what was for once, and has been told ---- */

static void keep(int fd)
{
	NEED(fcntl(fd, F_SETFD, 0) == 0);
}

/* After the exec. */
static void once_goes_on(const char *numbers)
{
	int ep;
	struct pair p;

	NEED(sscanf(numbers, "%d %d %d", &ep, &p.c, &p.s) == 3);
	ep_show(ep, 0);
	send_pattern(p.c, 10, 10);
	wait_inq(p.s, 20);
	ep_show(ep, 0);
	ep_mod(ep, p.s, EPOLLIN | EPOLLONESHOT, 2);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	recv_pattern(p.s, 0, 20);
	say_result("deleted", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
}

static void executed_with(const char *name, uint32_t events, bool is_nested)
{
	const char *given = getenv("READY_HANDED");
	char numbers[64];

	if (given) {
		once_goes_on(given);
		return;
	}
	struct pair p = pair_warm_open();
	int ep = ep_open(), out = ep_open();

	if (is_nested) {
		ep_add(out, ep, EPOLLIN, 9);
		ep_show(out, 0);
	}
	ep_add(ep, p.s, events | EPOLLONESHOT, 1);
	send_pattern(p.c, 0, 10);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	keep(ep);
	keep(p.c);
	keep(p.s);
	snprintf(numbers, sizeof numbers, "%d %d %d", ep, p.c, p.s);
	setenv("READY_HANDED", numbers, 1);
	execl("/proc/self/exe", "cases", name, (char *)NULL);
	_exit(99);
}

CASE(handed_once_executed, ANYWAY)
{
	executed_with("handed_once_executed", EPOLLIN, false);
}

CASE(handed_once_edge_executed, ANYWAY)
{
	executed_with("handed_once_edge_executed", EPOLLIN | EPOLLOUT | EPOLLET, false);
}

CASE(handed_once_nested_executed, ANYWAY)
{
	executed_with("handed_once_nested_executed", EPOLLIN, true);
}

/* ---- sent in a message ---- */

struct receiver {
	int channel[2];
	struct signal_pipe go, done;
	pid_t pid;
};

/* It sleeps in the instance when told to go, and shows what it is told, so many times. */
static struct receiver receiver_start(int times)
{
	struct receiver r = {.go = signal_pipe(), .done = signal_pipe()};

	NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, r.channel) == 0);
	r.pid = fork();
	NEED(r.pid >= 0);
	if (r.pid == 0) {
		say_as("receiver");
		int ep = receive_fd(r.channel[1]);
		while (times--) {
			signal_wait(r.go);
			ep_show(ep, SOON);
			signal_send(r.done);
		}
		_exit(0);
	}
	return r;
}

static void receiver_shows(struct receiver *r)
{
	signal_send(r->go);
	signal_wait(r->done);
}

/* The sender registers more, after it has sent the instance. */
CASE(handed_then_added, READY)
{
	struct receiver r = receiver_start(3);
	struct pair first = pair_warm_open(), second = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, first.s, EPOLLIN, 1);
	send_fd(r.channel[0], ep);
	ep_add(ep, second.s, EPOLLIN | EPOLLET, 2);
	send_pattern(second.c, 0, 10);
	wait_inq(second.s, 10);
	receiver_shows(&r);
	recv_pattern(second.s, 0, 10);
	send_pattern(second.c, 10, 5);
	wait_inq(second.s, 5);
	receiver_shows(&r);
	send_pattern(first.c, 0, 5);
	wait_inq(first.s, 5);
	receiver_shows(&r);
	say("receiver: %d", child_status(r.pid));
	pair_close(first);
	pair_close(second);
}

/* What was for once, and had been told before. */
CASE(handed_once_spent, READY)
{
	struct receiver r = receiver_start(3);
	struct pair p = pair_warm_open(), other = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | EPOLLONESHOT, 1);
	ep_add(ep, other.s, EPOLLIN, 2);
	send_pattern(p.c, 0, 10);
	ep_show(ep, SOON);
	send_fd(r.channel[0], ep);
	send_pattern(other.c, 0, 1);
	wait_inq(other.s, 1);
	receiver_shows(&r);
	send_pattern(p.c, 10, 10);
	wait_inq(p.s, 20);
	receiver_shows(&r);
	recv_pattern(other.s, 0, 1);
	ep_mod(ep, p.s, EPOLLIN | EPOLLONESHOT, 3);
	receiver_shows(&r);
	say("receiver: %d", child_status(r.pid));
	ep_show(ep, 0);
	pair_close(p);
	pair_close(other);
}

/* ---- the process goes on: an exec that fails, or of a child of vfork ---- */

/* What was for once has been told, and says nothing of an end before it is armed again. */
static void spent_over(bool child)
{
	struct pair p = pair_warm_open();
	struct linger none = {1, 0};
	int ep = epoll_create1(0);
	char *argv[] = {"true", NULL};

	NEED(ep >= 0);
	ep_add(ep, p.s, EPOLLIN | EPOLLONESHOT, 1);
	send_pattern(p.c, 0, 10);
	ep_show(ep, SOON);
	pid_t pid = child ? vfork() : 0;
	if (pid == 0) {
		execv(child ? "/bin/true" : "/nowhere", argv);
		if (child)
			_exit(99);
	} else {
		say("child: %d", child_status(pid));
	}
	ep_show(ep, 0);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
	close(p.c);
	ep_show(ep, 300);
	ep_mod(ep, p.s, EPOLLIN | EPOLLONESHOT, 2);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	close(p.s);
}

CASE(handed_once_not_executed, ANYWAY)
{
	spent_over(false);
}

CASE(handed_once_by_vfork, ANYWAY)
{
	spent_over(true);
}

/* ---- got by a fork, and waited on there ---- */

static pid_t child_shows(int ep, struct signal_pipe looked, struct signal_pipe done)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		ep_show(ep, 0);
		signal_send(looked);
		for (int i = 0; i < 2; i++) {
			ep_show(ep, SOON);
			signal_send(done);
			signal_wait(looked);
		}
		_exit(0);
	}
	signal_wait(looked);
	return pid;
}

/* The parent registers in it once the child has looked. */
static void waited_by_a_child(uint32_t events)
{
	struct signal_pipe looked = signal_pipe(), done = signal_pipe();
	struct pair p = pair_warm_open();
	int ep = ep_open();
	pid_t pid = child_shows(ep, looked, done);

	ep_add(ep, p.s, events, 1);
	for (int i = 0; i < 2; i++) {
		send_pattern(p.c, 0, 10);
		signal_wait(done);
		recv_pattern(p.s, 0, 10);
		if (events & EPOLLONESHOT)
			ep_mod(ep, p.s, events, 2);
		signal_send(looked);
	}
	say("child: %d", child_status(pid));
	close(ep);
	pair_close(p);
}

CASE(handed_by_a_fork, READY)
{
	waited_by_a_child(EPOLLIN);
	waited_by_a_child(EPOLLIN | EPOLLET);
	waited_by_a_child(EPOLLIN | EPOLLONESHOT);
}

/* The parent waits there, too, for a peer that makes no call. */
CASE(handed_by_a_fork_silent, ANYWAY)
{
	struct signal_pipe looked = signal_pipe(), ready = signal_pipe();
	struct signal_pipe over = signal_pipe();
	struct pair p = pair_open();
	int ep = ep_open();
	char buf[8];

	ep_show(ep, 0);
	pid_t peer = fork();
	NEED(peer >= 0);
	if (peer == 0) {
		close(p.s);
		for (int i = 0; i < 200; i++) {
			send_all(p.c, "12345678", 8);
			recv_all(p.c, buf, 8);
		}
		send_pattern(p.c, 0, 10);
		signal_send(ready);
		signal_wait(over);
		_exit(0);
	}
	close(p.c);
	for (int i = 0; i < 200; i++) {
		recv_all(p.s, buf, 8);
		send_all(p.s, buf, 8);
	}
	signal_wait(ready);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		close(p.s);
		say_as("child");
		ep_show(ep, 0);
		signal_send(looked);
		signal_wait(over);
		_exit(0);
	}
	signal_wait(looked);
	ep_add(ep, p.s, EPOLLIN, 1);
	ep_show(ep, 1000);
	recv_pattern(p.s, 0, 10);
	signal_send(over);
	signal_send(over);
	say("child: %d", child_status(child));
	say("peer: %d", child_status(peer));
	close(ep);
	close(p.s);
}
