/* SPDX-License-Identifier: Apache-2.0 */
/* Edges of connections in epoll instances that are themselves waited for: none is told twice. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
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

/* ---- the connection comes to an instance that is in an outer one already ---- */

static const uint32_t wishes[] = {EPOLLIN,
				  EPOLLOUT,
				  EPOLLIN | EPOLLOUT,
				  EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI,
				  EPOLLRDHUP,
				  EPOLLPRI,
				  EPOLLRDNORM,
				  0};
#define WISHES (int)(sizeof(wishes) / sizeof(*wishes))

static void joins(uint32_t how, uint32_t outer, bool bytes)
{
	for (int i = 0; i < WISHES; i++) {
		struct pair p = pair_warm_open();
		int in = ep_open(), out = ep_open();

		ep_add(out, in, EPOLLIN | outer, 2);
		ep_show(out, 0);
		if (bytes)
			send_pattern(p.c, 0, 10);
		ep_add(in, p.s, wishes[i] | how, 1);
		for (int k = 0; k < 4; k++) {
			ep_show(out, 0);
			poll_show(in);
			ep_show(in, 0);
		}
		ep_show(out, 0);
		poll_show(in);
		close(in);
		close(out);
		pair_close(p);
	}
}

CASE(nested_joins_edge, DIRECT)
{
	joins(EPOLLET, 0, false);
	joins(EPOLLET, EPOLLET, false);
}

CASE(nested_joins_edge_bytes, DIRECT)
{
	joins(EPOLLET, 0, true);
	joins(EPOLLET, EPOLLET, true);
}

CASE(nested_joins_oneshot, DIRECT)
{
	joins(EPOLLONESHOT, 0, false);
	joins(EPOLLONESHOT | EPOLLET, EPOLLET, true);
}

/* ---- who is not let in watches nothing ---- */

CASE(nested_refused, STAYS)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), other = ep_open();
	struct pollfd entry = {.fd = in, .events = POLLIN};
	const struct timespec none = {0, -1};
	fd_set set;

	ep_add(in, p.s, EPOLLIN | EPOLLOUT | EPOLLET, 1);
	say_result("itself", ep_ctl(in, EPOLL_CTL_ADD, in, EPOLLIN, 2));
	ep_add(in, other, EPOLLIN, 3);
	say_result("a loop", ep_ctl(other, EPOLL_CTL_ADD, in, EPOLLIN, 4));
	say_result("exclusive",
		   ep_ctl(other, EPOLL_CTL_ADD, in, EPOLLIN | EPOLLEXCLUSIVE, 5));
	say_result("no instance", ep_ctl(p.c, EPOLL_CTL_ADD, in, EPOLLIN, 6));
	say_result("nothing", ep_ctl(-1, EPOLL_CTL_ADD, in, EPOLLIN, 7));
	say_result("not there", ep_ctl(other, EPOLL_CTL_MOD, in, EPOLLIN, 8));
	say_result("not there", ep_ctl(other, EPOLL_CTL_DEL, in, EPOLLIN, 9));
	say_result("no such call", ep_ctl(other, 99, in, EPOLLIN, 10));
	say_result("ppoll", ppoll(&entry, 1, &none, NULL));
	FD_ZERO(&set);
	FD_SET(in, &set);
	say_result("pselect", pselect(in + 1, &set, NULL, NULL, &none, NULL));
	for (uint64_t i = 0; i < 3; i++) {
		ep_show(in, 0);
		send_pattern(p.c, 10 * i, 10);
		ep_show(in, SOON);
		recv_pattern(p.s, 10 * i, 10);
		send_pattern(p.s, 10 * i, 10);
		recv_pattern(p.c, 10 * i, 10);
	}
	close(in);
	close(other);
	pair_close(p);
}

CASE(nested_too_deep, STAYS)
{
	struct pair p = pair_warm_open();
	int ep[4], in = ep_open();

	for (int i = 0; i < 4; i++)
		ep[i] = ep_open();
	ep_add(in, p.s, EPOLLIN, 1);
	for (int i = 1; i < 4; i++)
		ep_add(ep[i - 1], ep[i], EPOLLIN, 2);
	ep_add(in, ep_open(), EPOLLIN, 3);
	say_result("too deep", ep_ctl(ep[3], EPOLL_CTL_ADD, in, EPOLLIN, 4));
	send_pattern(p.c, 0, 10);
	ep_show(in, SOON);
	recv_pattern(p.s, 0, 10);
	send_pattern(p.s, 0, 10);
	recv_pattern(p.c, 0, 10);
	pair_close(p);
}

/* ---- what is unread has been told, and comes once more by TCP ---- */

static void told_before(uint32_t events)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	send_pattern(p.c, 0, 100);
	ep_add(in, p.s, events | EPOLLET, 1 | MAY_REPEAT);
	ep_add(in, p.c, EPOLLPRI, 2);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN, 3 | MAY_REPEAT);
	ep_show(out, 0);
	recv_pattern(p.s, 0, 10);
	ep_show(out, 0);
	for (uint64_t i = 0; i < 3; i++) {
		send_pattern(p.c, 100 + i, 1);
		wait_inq(p.s, 91 + (int)i);
		ep_show(out, SOON);
		ep_show(in, 0);
		ep_show(out, 0);
		ep_show(in, 0);
	}
	recv_pattern(p.s, 10, 93);
	ep_show(out, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_told_unread, DIRECT)
{
	told_before(EPOLLIN);
	told_before(EPOLLRDNORM);
	told_before(EPOLLIN | EPOLLOUT | EPOLLRDHUP);
}

/* ---- what is unread is partly with TCP, and partly in shared memory ---- */

/* 850 bytes over TCP are unread, and 200 more that came once the connection was upgraded. */
static struct pair parted_open(void)
{
	struct pair p = pair_open();

	send_pattern(p.c, 0, 1000);
	wait_inq(p.s, 1000);
	recv_pattern(p.s, 0, 100);
	for (uint64_t i = 0; i < 40; i++) {
		send_pattern(p.s, i, 1);
		recv_pattern(p.c, i, 1);
	}
	recv_pattern(p.s, 100, 50);
	send_pattern(p.c, 1000, 200);
	wait_inq(p.s, 1050);
	return p;
}

static void parted(uint32_t events, size_t more, bool late)
{
	struct pair p = parted_open();
	int in = ep_open(), out = ep_open();
	char byte;

	ep_add(in, p.s, events | EPOLLET, 1 | MAY_REPEAT);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN, 2 | MAY_REPEAT);
	if (more && !late)
		send_pattern(p.c, 1200, more);
	else
		say_result("recv", recv(p.c, &byte, 1, MSG_DONTWAIT));
	if (more && late)
		send_pattern(p.c, 1200, more);
	wait_inq(p.s, 1050 + (int)more);
	for (int i = 0; i < 3; i++) {
		ep_show(out, 0);
		ep_show(in, 0);
	}
	recv_pattern(p.s, 150, 1050 + more);
	ep_show(out, 0);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(nested_told_parted, ANYWAY)
{
	parted(EPOLLIN, 0, false);
	parted(EPOLLRDNORM, 0, false);
	parted(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, 0, false);
}

CASE(nested_parted_more, ANYWAY)
{
	parted(EPOLLIN, 10, false);
	parted(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, 10, false);
	parted(EPOLLIN, 10, true);
	parted(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, 10, true);
}

/* ---- what else is in an instance that is looked at from outside stays as it is ---- */

static void add_one(int fd)
{
	uint64_t one = 1;

	NEED(write(fd, &one, sizeof(one)) == sizeof(one));
}

static int event_open(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	NEED(fd >= 0);
	return fd;
}

/* A number that has become another descriptor's, while the first one lives by a duplicate. */
CASE(nested_beside_reused, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), first, copy, second;

	ep_add(in, p.s, EPOLLIN | EPOLLET, 1);
	ep_show(in, 0);
	first = event_open();
	ep_add(in, first, EPOLLIN | EPOLLET, 2);
	copy = dup(first);
	close(first);
	second = event_open();
	say("the same number: %d", first == second);
	ep_add(in, second, EPOLLIN | EPOLLET, 3);
	add_one(copy);
	poll_show(in);
	ep_show(in, 0);
	add_one(second);
	poll_show(in);
	ep_show(in, 0);
	close(in);
	close(copy);
	close(second);
	pair_close(p);
}

/* Several with the same data, of which one is disarmed and its peer has gone. */
CASE(nested_beside_alike, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), ready = event_open(), later = event_open(), ends[2];

	NEED(pipe(ends) == 0);
	ep_add(in, p.s, EPOLLIN | EPOLLET, 1);
	ep_add(in, ends[0], EPOLLIN | EPOLLONESHOT, 7);
	ep_add(in, ready, EPOLLIN | EPOLLET, 7);
	ep_add(in, later, EPOLLIN | EPOLLET, 7);
	add_one(ready);
	NEED(write(ends[1], "z", 1) == 1);
	ep_show(in, 0);
	ep_show(in, 0);
	add_one(later);
	poll_show(in);
	ep_show(in, 0);
	ep_show(in, 0);
	close(ends[1]);
	poll_show(in);
	ep_show(in, 0);
	close(in);
	close(ready);
	close(later);
	close(ends[0]);
	pair_close(p);
}

/* With a closed number of the connection, whose duplicate lives: a look is no edge to who watches. */
CASE(nested_beside_orphan, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open(), ready = event_open(), kept;

	ep_add(in, p.s, EPOLLIN | EPOLLET, 1);
	ep_add(in, ready, EPOLLIN | EPOLLET, 2);
	ep_show(in, 0);
	kept = dup(p.s);
	close(p.s);
	p.s = kept;
	add_one(ready);
	ep_add(out, in, EPOLLIN | EPOLLET, 3);
	for (int i = 0; i < 3; i++) {
		poll_show(in);
		ep_show(out, 0);
	}
	ep_show(in, 0);
	close(in);
	close(out);
	close(ready);
	pair_close(p);
}

/* ---- the instance has something else to say when it comes to be waited for ---- */

enum beside { PLAIN_PIPE, NEW_CONNECTION, NEW_SILENT };

static void told_beside(enum beside what, uint32_t outer)
{
	struct pair p = parted_open(), q = pair_warm_open(), r = pair_warm_open();
	int in = ep_open(), out = ep_open(), pipe_fds[2];

	NEED(pipe(pipe_fds) == 0);
	ep_add(in, p.s, EPOLLRDNORM | EPOLLET, 1 | MAY_REPEAT);
	ep_add(in, r.s, EPOLLIN | EPOLLET, 3 | MAY_REPEAT);
	ep_show(in, 0);
	if (what == PLAIN_PIPE) {
		NEED(write(pipe_fds[1], "x", 1) == 1);
		ep_add(in, pipe_fds[0], EPOLLIN, 4);
	} else {
		ep_add(in, q.s, what == NEW_CONNECTION ? EPOLLOUT : EPOLLRDHUP, 5);
	}
	send_pattern(r.c, 0, 10);
	wait_inq(r.s, 10);
	ep_add(out, in, EPOLLIN | outer, 6 | MAY_REPEAT);
	ep_show(out, 0);
	ep_show(in, 0);
	ep_show(out, 0);
	ep_show(in, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(in);
	close(out);
	pair_close(p);
	pair_close(q);
	pair_close(r);
}

CASE(nested_told_beside, DIRECT)
{
	for (enum beside what = PLAIN_PIPE; what <= NEW_SILENT; what++)
		told_beside(what, 0);
}

static void silent_beside(uint32_t events)
{
	struct pair p = parted_open(), q = pair_warm_open();
	int in = ep_open(), out = ep_open();

	ep_add(in, p.s, events | EPOLLET, 1 | MAY_REPEAT);
	ep_show(in, 0);
	ep_add(in, q.s, EPOLLRDHUP, 2);
	ep_add(out, in, EPOLLIN, 3 | MAY_REPEAT);
	ep_show(out, 0);
	ep_show(in, 0);
	send_pattern(p.c, 1200, 10);
	wait_inq(p.s, 1060);
	ep_show(out, SOON);
	ep_show(in, 0);
	ep_show(out, 0);
	close(in);
	close(out);
	pair_close(p);
	pair_close(q);
}

CASE(nested_silent_beside, DIRECT)
{
	silent_beside(EPOLLIN);
	silent_beside(EPOLLRDNORM);
	silent_beside(EPOLLIN | EPOLLOUT);
}

static void reset(int fd)
{
	struct linger now = {.l_onoff = 1};

	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
	close(fd);
}

/* The connection goes back to TCP and is reset, both since the last look. */
static void reset_after_all(uint32_t events)
{
	struct pair p = pair_warm_open();
	int outer = ep_open(), ep = ep_open();
	char byte;

	send_all(p.c, "x", 1);
	ep_add(outer, ep, EPOLLIN | EPOLLET, 1);
	ep_add(ep, p.s, events, 2 | MAY_REPEAT);
	ep_show(ep, 0);
	NEED(recv(p.c, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	reset(p.c);
	usleep(10000);
	ep_show(ep, 0);
	ep_show(ep, 0);
	close(outer);
	close(ep);
	close(p.s);
}

CASE(nested_edge_reset_of_urgent, ANYWAY)
{
	reset_after_all(EPOLLPRI | EPOLLET);
}

CASE(nested_edge_reset_of_ends, ANYWAY)
{
	reset_after_all(EPOLLRDHUP | EPOLLET);
}

CASE(nested_edge_reset_of_bytes, ANYWAY)
{
	reset_after_all(EPOLLIN | EPOLLET);
}

/* A connection with nothing to tell joins others of which all has been told. */
CASE(nested_edge_of_a_silent_one, ANYWAY)
{
	static const uint32_t events[] = {EPOLLIN, EPOLLIN | EPOLLET};

	for (int i = 0; i < 4; i++) {
		struct pair p = pair_warm_open(), q = pair_warm_open();
		int outer = ep_open(), ep = ep_open(), ready = eventfd(1, EFD_CLOEXEC);

		NEED(ready >= 0);
		ep_add(ep, p.s, EPOLLIN, 1);
		ep_add(ep, ready, EPOLLIN, 2);
		ep_add(outer, ep, EPOLLIN | EPOLLET, 3 | MAY_REPEAT);
		ep_show(outer, 0);
		ep_show(outer, 0);
		ep_add(ep, q.s, events[i / 2], 4);
		ep_show(outer, 0);
		if (i & 1)
			ep_mod(ep, q.s, EPOLLOUT, 5);
		else
			send_pattern(q.c, 0, 10);
		wait_events(q.s, i & 1 ? POLLOUT : POLLIN);
		ep_show(outer, 0);
		ep_show(ep, 0);
		close(outer);
		close(ep);
		close(ready);
		pair_close(p);
		pair_close(q);
	}
}

/* ---- the process forks: children one after the other, of which none is left to use the instance ---- */

/* The connection comes to shared memory with bytes of TCP's unread, and leaves it as the outer one begins to watch. */
CASE(nested_edge_told_then_forked_again, READY)
{
	static const uint32_t events[] = {EPOLLIN | EPOLLET,
					  EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLLIN};

	for (int i = 0; i < 12; i++) {
		struct pair p = pair_open();
		int in = ep_open(), outer;
		char byte;

		NEED(recv(p.c, &byte, 1, MSG_DONTWAIT) < 0);
		if (i < 6)
			NEED(recv(p.s, &byte, 1, MSG_DONTWAIT) < 0);
		ep_show(in, 0);
		a_child();
		ep_add(in, p.s, events[i / 2 % 3], 1 | MAY_REPEAT);
		send_pattern(p.c, 0, 211);
		send_pattern(p.s, 0, 145);
		ep_show(in, -1);
		outer = ep_open();
		ep_add(outer, in, i & 1 ? EPOLLIN | EPOLLET : EPOLLIN, 2 | MAY_REPEAT);
		a_child();
		ep_show(outer, 0);
		ep_show(in, 0);
		a_child();
		ep_show(outer, 0);
		recv_pattern(p.s, 0, 211);
		ep_show(outer, 0);
		ep_show(in, 0);
		close(outer);
		close(in);
		pair_close(p);
	}
}

/* ---- a way down that is asked to take unread bytes along, when it is behind us ---- */

/* Where it is watched its connection leaves shared memory. What the peer has sent there has been told, and lies unread: at
 * the exec, which fails, it is asked to send that once more. What it sends from then on is an edge each time. */
CASE(nested_edge_behind_an_exec_that_failed, READY)
{
	static const char *const none[] = {"none", NULL};

	for (int i = 0; i < 2; i++) {
		struct pair p = pair_warm_open();
		int in = ep_open(), on = 1;

		NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
		send_pattern(p.c, 0, 7);
		poll_show(in);
		ep_add(in, p.s, EPOLLIN | (i ? EPOLLRDHUP : 0) | EPOLLET, 1 | MAY_REPEAT);
		poll_show(in);
		ep_show(in, 0);
		NEED(execv("/nowhere", (char *const *)none) < 0);
		for (uint64_t at = 7; at < 37; at += 10) {
			send_pattern(p.c, at, 10);
			poll_show(in);
			ep_show(in, 0);
		}
		recv_pattern(p.s, 0, 37);
		ep_show(in, 0);
		close(in);
		pair_close(p);
	}
}

/* One of two has been told all, and the other has something to tell. */
CASE(nested_edge_told_beside_news_then_forked, READY)
{
	const uint32_t both = EPOLLIN | EPOLLOUT | EPOLLET;

	for (int i = 0; i < 3; i++) {
		struct pair p = pair_warm_open(), q = pair_warm_open();
		int in = ep_open();
		char byte;

		poll_show(in);
		ep_add(in, p.s, both, 1 | MAY_REPEAT);
		if (i)
			ep_add(in, q.s, both, 2 | MAY_REPEAT);
		poll_show(in);
		ep_show(in, 0);
		NEED(recv(p.c, &byte, 1, MSG_DONTWAIT) < 0);
		if (!i)
			ep_add(in, q.s, both, 2 | MAY_REPEAT);
		NEED(recv(q.c, &byte, 1, MSG_DONTWAIT) < 0);
		if (i)
			send_pattern(i == 1 ? q.c : p.c, 0, 7);
		a_child();
		poll_show(in);
		ep_show(in, 0);
		ep_show(in, 0);
		close(in);
		pair_close(p);
		pair_close(q);
	}
}
