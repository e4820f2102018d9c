/* SPDX-License-Identifier: Apache-2.0 */
/* Epoll instances that are themselves waited for: in poll, in select, in other instances. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static void poll_show(int fd, int timeout)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	int rc = poll(&p, 1, timeout);

	say("poll: %d %s", rc, poll_names(p.revents));
}

static void select_show(int fd)
{
	struct timeval now = {0, 0};
	fd_set r, w;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(fd, &r);
	FD_SET(fd, &w);
	say("select: %d", select(fd + 1, &r, &w, NULL, &now));
	say("in: %d, out: %d", FD_ISSET(fd, &r) != 0, FD_ISSET(fd, &w) != 0);
}

/* Whatever looks at an instance from outside, without a wait. */
static void look_all(int in, int out)
{
	poll_show(in, 0);
	select_show(in);
	ep_show(out, 0);
	poll_show(out, 0);
}

/* ---- the connection stays as it is: the other end does nothing ---- */

CASE(nested_idle, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN, 1);
	poll_show(in, 0);
	poll_show(in, 1);
	select_show(in);
	ep_add(out, in, EPOLLIN, 2);
	look_all(in, out);
	ep_show(in, 0);
	look_all(in, out);
	ep_show(out, 1);
	close(in);
	close(out);
	pair_close(p);
}

/* What is there stays told until it is read, and no longer. */
static void level(uint32_t inner, uint32_t outer)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	uint64_t at = 0;

	send_pattern(p.c, at, 100);
	ep_add(in, p.s, EPOLLIN | inner, 1);
	ep_add(out, in, EPOLLIN | outer, 2 | (outer ? MAY_REPEAT : 0));
	for (int i = 0; i < 4; i++) {
		ep_show(out, SOON);
		ep_show(out, 0);
		poll_show(in, 0);
		ep_show(in, 0);
		poll_show(in, 0);
		ep_show(out, 0);
		ep_show(in, 0);
		recv_pattern(p.s, at, 50);
		look_all(in, out);
		recv_pattern(p.s, at + 50, 50);
		look_all(in, out);
		ep_show(in, 0);
		at += 100;
		send_pattern(p.c, at, 100);
	}
	recv_pattern(p.s, at, 100);
	look_all(in, out);
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_level_level, STAYS)
{
	level(0, 0);
}

CASE(nested_level_edge, STAYS)
{
	level(0, EPOLLET);
}

CASE(nested_edge_level, STAYS)
{
	level(EPOLLET, 0);
}

CASE(nested_edge_edge, STAYS)
{
	level(EPOLLET, EPOLLET);
}

/* An arrival is an edge to who looks from outside, also with the last one unread. */
CASE(nested_edge_each, STAYS)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN, 1);
	ep_add(out, in, EPOLLIN | EPOLLET, 2 | MAY_REPEAT);
	ep_show(out, 0);
	for (int i = 0; i < 5; i++) {
		send_pattern(p.c, 10 * (uint64_t)i, 10);
		wait_inq(p.s, 10 * (i + 1));
		ep_show(out, SOON);
		ep_show(out, 0);
	}
	ep_show(in, 0);
	ep_show(out, 0);
	recv_pattern(p.s, 0, 50);
	ep_show(out, 0);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

/* ---- with others beside it ---- */

CASE(nested_serves_the_rest, DIRECT)
{
	struct pair p = pair_warm_open();
	struct signal_pipe other = signal_pipe(), inside = signal_pipe();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN, 1);
	ep_add(in, inside.fd[0], EPOLLIN | EPOLLET, 3);
	ep_add(out, in, EPOLLIN, 2);
	ep_add(out, other.fd[0], EPOLLIN, 4);
	for (int i = 0; i < 3; i++) {
		ep_show(out, 0);
		signal_send(other);
		ep_show(out, -1);
		signal_wait(other);
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		ep_show(out, -1);
		/* The pipe's edge is inside, and stays there whoever looks. */
		signal_send(inside);
		look_all(in, out);
		ep_show(in, 0);
		recv_pattern(p.s, 100 * (uint64_t)i, 100);
		look_all(in, out);
		signal_send(inside);
		look_all(in, out);
		ep_show(in, 0);
		look_all(in, out);
	}
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_deep, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep[4];

	for (int i = 0; i < 4; i++)
		ep[i] = ep_open();
	ep_add(ep[0], p.s, EPOLLIN, 1);
	for (int i = 1; i < 4; i++)
		ep_add(ep[i], ep[i - 1], EPOLLIN, (uint64_t)i + 1);
	say_result("loop", ep_ctl(ep[0], EPOLL_CTL_ADD, ep[3], EPOLLIN, 9));
	for (int i = 0; i < 3; i++) {
		look_all(ep[2], ep[3]);
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		for (int k = 3; k >= 0; k--)
			ep_show(ep[k], SOON);
		look_all(ep[2], ep[3]);
		recv_pattern(p.s, 100 * (uint64_t)i, 100);
		look_all(ep[2], ep[3]);
		for (int k = 3; k >= 0; k--)
			ep_show(ep[k], 0);
	}
	for (int i = 0; i < 4; i++)
		close(ep[i]);
	pair_close(p);
}

/* ---- as deep as the kernel allows ---- */

CASE(nested_deepest, ANYWAY)
{
	struct pair p = pair_warm_open();
	int ep[8];

	for (int i = 0; i < 8; i++)
		ep[i] = ep_open();
	ep_add(ep[0], p.s, EPOLLIN, 1);
	for (int i = 1; i < 8; i++)
		say_result("add", ep_ctl(ep[i], EPOLL_CTL_ADD, ep[i - 1], EPOLLIN, 2));
	send_pattern(p.c, 0, 100);
	ep_show(ep[4], SOON);
	for (int i = 0; i < 8; i++)
		close(ep[i]);
	pair_close(p);
}

/* ---- sleeps ---- */

struct sleeper {
	int fd, how;
};

static void sleep_on(void *arg)
{
	struct sleeper *s = arg;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	struct epoll_event ev = {0};
	fd_set r;
	int n;

	FD_ZERO(&r);
	FD_SET(s->fd, &r);
	if (s->how == 0)
		n = poll(&p, 1, -1);
	else if (s->how == 1)
		n = select(s->fd + 1, &r, NULL, NULL, NULL);
	else
		n = epoll_wait(s->fd, &ev, 1, -1);
	say("woken: %d %d", n, (int)ev.data.u64);
}

static void wake_a_sleeper(int how, bool at_out, uint32_t inner, uint32_t outer)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN | inner, 1);
	ep_add(out, in, EPOLLIN | outer, 2);
	for (int i = 0; i < 5; i++) {
		struct sleeper s = {at_out ? out : in, how};
		struct worker w;

		worker_start(&w, sleep_on, &s);
		wait_asleep(getpid(), w.tid);
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		worker_join(&w);
		poll_show(in, 0);
		ep_show(in, 0);
		recv_pattern(p.s, 100 * (uint64_t)i, 100);
		poll_show(in, 0);
		ep_show(in, 0);
		ep_show(out, 0);
	}
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_sleep_poll, DIRECT)
{
	wake_a_sleeper(0, false, 0, 0);
}

CASE(nested_sleep_poll_of_outer, DIRECT)
{
	wake_a_sleeper(0, true, 0, 0);
}

CASE(nested_sleep_select, DIRECT)
{
	wake_a_sleeper(1, false, EPOLLET, 0);
}

CASE(nested_sleep_outer, DIRECT)
{
	wake_a_sleeper(2, true, 0, 0);
}

CASE(nested_sleep_outer_edge, DIRECT)
{
	wake_a_sleeper(2, true, EPOLLET, EPOLLET);
}

/* ---- what else changes an instance ---- */

CASE(nested_changes, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open(), d = dup(in);

	ep_add(out, in, EPOLLIN, 2);
	ep_add(out, d, EPOLLIN, 3);
	send_pattern(p.c, 0, 100);
	ep_show(out, 0);
	ep_add(in, p.s, EPOLLIN | EPOLLONESHOT, 1);
	ep_show(out, SOON);
	ep_show(in, SOON);
	look_all(in, out);
	ep_mod(in, p.s, EPOLLIN | EPOLLONESHOT, 1);
	look_all(in, out);
	ep_show(in, SOON);
	look_all(in, out);
	ep_mod(in, p.s, EPOLLIN | EPOLLET, 1);
	look_all(in, out);
	ep_show(in, SOON);
	look_all(in, out);
	ep_mod(in, p.s, EPOLLOUT, 1);
	look_all(in, out);
	ep_mod(in, p.s, 0, 1);
	look_all(in, out);
	ep_mod(in, p.s, EPOLLIN, 1);
	look_all(in, out);
	say_result("del", ep_ctl(in, EPOLL_CTL_DEL, p.s, 0, 0));
	look_all(in, out);
	say_result("del", ep_ctl(in, EPOLL_CTL_DEL, p.s, 0, 0));
	ep_add(in, p.s, EPOLLIN, 4);
	look_all(in, out);
	close(in);
	ep_show(out, 0);
	poll_show(d, 0);
	close(d);
	ep_show(out, 0);
	poll_show(out, 0);
	close(out);
	recv_pattern(p.s, 0, 100);
	pair_close(p);
}

/* The end of the connection is news as well. */
CASE(nested_end, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN | EPOLLRDHUP, 1);
	ep_add(out, in, EPOLLIN, 2);
	look_all(in, out);
	send_pattern(p.c, 0, 100);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	wait_events(p.s, POLLRDHUP);
	look_all(in, out);
	ep_show(in, 0);
	recv_pattern(p.s, 0, 100);
	look_all(in, out);
	ep_show(in, 0);
	ep_mod(in, p.s, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
	ep_show(in, 0);
	look_all(in, out);
	close(p.s);
	look_all(in, out);
	ep_show(in, 0);
	close(p.c);
	close(in);
	close(out);
}

/* A full connection has room again. */
CASE(nested_room, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	uint8_t buf[4096] = {0};
	uint64_t sent = 0;
	ssize_t n;

	nonblock(p.c, true);
	while ((n = send(p.c, buf, sizeof(buf), 0)) > 0)
		sent += (uint64_t)n;
	ep_add(in, p.c, EPOLLOUT, 1);
	ep_add(out, in, EPOLLIN, 2);
	while (sent > 0) {
		n = recv(p.s, buf, sizeof(buf) < sent ? sizeof(buf) : sent, 0);
		NEED(n > 0);
		sent -= (uint64_t)n;
	}
	ep_show(out, SOON);
	ep_show(in, SOON);
	poll_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

/* ---- the other end is another process, which sleeps meanwhile ---- */

static void sends_and_waits(int fd, void *arg)
{
	struct signal_pipe *go = arg;

	for (int i = 0; i < 5; i++) {
		signal_wait(go[0]);
		send_pattern(fd, 100 * (uint64_t)i, 100);
		signal_send(go[1]);
	}
	signal_wait(go[0]);
}

CASE(nested_far_peer, DIRECT)
{
	struct signal_pipe go[2] = {signal_pipe(), signal_pipe()};
	pid_t pid;
	int fd = peer_start(sends_and_waits, go, &pid), in = ep_open(), out = ep_open();

	ep_add(in, fd, EPOLLIN, 1);
	ep_add(out, in, EPOLLIN, 2);
	for (int i = 0; i < 5; i++) {
		look_all(in, out);
		signal_send(go[0]);
		signal_wait(go[1]);
		wait_inq(fd, 100);
		look_all(in, out);
		ep_show(out, -1);
		ep_show(in, 0);
		look_all(in, out);
		ep_show(in, 0);
		recv_pattern(fd, 100 * (uint64_t)i, 100);
		look_all(in, out);
		ep_show(in, 0);
	}
	signal_send(go[0]);
	say("peer: %d", child_status(pid));
	close(in);
	close(out);
	close(fd);
}

/* ---- several connections, and less room than events ---- */

CASE(nested_takes_turns, DIRECT)
{
	struct pair p[4];
	int in = ep_open(), out = ep_open();
	struct epoll_event ev[2];

	for (int i = 0; i < 4; i++) {
		p[i] = pair_warm_open();
		send_pattern(p[i].c, 0, 10);
		ep_add(in, p[i].s, EPOLLIN, (uint64_t)i);
	}
	ep_add(out, in, EPOLLIN, 9);
	for (int i = 0; i < 6; i++) {
		int n;

		ep_show(out, 0);
		n = epoll_wait(in, ev, 2, 0);
		say("%d: %d %d", n, (int)ev[0].data.u64, (int)ev[1].data.u64);
	}
	for (int i = 0; i < 4; i++) {
		ep_show(in, 0);
		recv_pattern(p[i].s, 0, 10);
		poll_show(in, 0);
	}
	for (int i = 0; i < 4; i++)
		pair_close(p[i]);
	close(in);
	close(out);
}

/* ---- a child has what its parent made ---- */

CASE(nested_inherited, ANYWAY)
{
	struct signal_pipe go = signal_pipe();
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	pid_t child;

	ep_add(in, p.s, EPOLLIN, 1);
	ep_add(out, in, EPOLLIN, 2);
	ep_show(out, 0);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		say_as("child");
		look_all(in, out);
		signal_send(go);
		for (int i = 0; i < 5; i++) {
			ep_show(out, -1);
			ep_show(in, -1);
			recv_pattern(p.s, 100 * (uint64_t)i, 100);
			look_all(in, out);
			send_pattern(p.s, (uint64_t)i, 1);
		}
		_exit(0);
	}
	signal_wait(go);
	for (int i = 0; i < 5; i++) {
		send_pattern(p.c, 100 * (uint64_t)i, 100);
		recv_pattern(p.c, (uint64_t)i, 1);
	}
	say("child: %d", child_status(child));
	look_all(in, out);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

/* ---- the outer one asks for another key than the one that an instance wakes for ---- */

static void other_key(int op, uint32_t outer)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, EPOLLIN | EPOLLOUT, 1);
	ep_show(in, 0);
	if (op == EPOLL_CTL_MOD)
		ep_add(out, in, 0, 2);
	NEED(ep_ctl(out, op, in, outer, 3) == 0);
	ep_show(out, 0);
	send_pattern(p.c, 0, 10);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_other_key, DIRECT)
{
	other_key(EPOLL_CTL_ADD, EPOLLRDNORM);
	other_key(EPOLL_CTL_ADD, EPOLLRDNORM | EPOLLONESHOT);
	other_key(EPOLL_CTL_ADD, EPOLLRDNORM | EPOLLET);
	other_key(EPOLL_CTL_MOD, EPOLLRDNORM);
	other_key(EPOLL_CTL_MOD, EPOLLRDNORM | EPOLLET);
}

/* ---- the look itself goes on with the way back to TCP, for which doorbells ring ---- */

CASE(nested_with_peer, DIRECT)
{
	static const uint32_t events[] = {EPOLLPRI | EPOLLET | EPOLLONESHOT, EPOLLPRI,
					  EPOLLIN, EPOLLIN | EPOLLET};

	for (int i = 0; i < 4; i++) {
		struct pair p = pair_warm_open();
		int in = ep_open();
		struct pollfd fds[] = {{.fd = in, .events = POLLIN},
				       {.fd = p.c, .events = POLLOUT},
				       {.fd = in, .events = POLLRDNORM}};

		ep_add(in, p.s, events[i], 1);
		say_result("poll", poll(fds, 3, 0));
		for (int k = 0; k < 3; k++)
			say("%d: %s", k, poll_names(fds[k].revents));
		poll_show(in, 0);
		ep_show(in, 0);
		close(in);
		pair_close(p);
	}
}

/* ---- what has been told is no edge again when the outer one comes ---- */

CASE(nested_told_edge, DIRECT)
{
	static const uint32_t events[] = {EPOLLRDNORM, EPOLLIN, EPOLLIN | EPOLLOUT,
					  EPOLLIN | EPOLLRDHUP};

	for (int i = 0; i < 4; i++) {
		struct pair p = pair_warm_open();
		int in = ep_open(), out = ep_open();

		NEED(shutdown(p.s, SHUT_RD) == 0);
		ep_add(in, p.s, events[i] | EPOLLET, 1);
		ep_show(in, 0);
		ep_show(in, 0);
		ep_add(out, in, EPOLLIN, 2);
		ep_show(out, 0);
		close(in);
		close(out);
		pair_close(p);
	}
}
