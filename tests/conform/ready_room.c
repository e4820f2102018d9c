/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of epoll: room as an edge, and registrations that were deleted and made again. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define ROOM (EPOLLIN | EPOLLOUT | EPOLLET)

static void empty(int fd, size_t bytes)
{
	static char room[65536];

	while (bytes > 0) {
		ssize_t n =
			recv(fd, room, bytes < sizeof(room) ? bytes : sizeof(room), 0);

		NEED(n > 0);
		bytes -= (size_t)n;
	}
}

/* A program that has met EAGAIN registers then. */
CASE(ep_edge_of_room_after_add, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();
	size_t sent = send_until_full(p.c);

	ep_add(ep, p.c, ROOM, 1);
	ep_show(ep, 0);
	empty(p.s, sent);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	sent = send_until_full(p.c);
	ep_mod(ep, p.c, ROOM, 2);
	ep_show(ep, 0);
	empty(p.s, sent);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

/* Another sleep on the same connection takes the wake-up that was on its way. */
CASE(ep_edge_of_room_beside_poll, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open(), other[2];
	struct pollfd in = {.fd = p.c, .events = POLLIN};
	struct epoll_event ev;
	size_t sent;

	NEED(pipe(other) == 0);
	ep_add(ep, p.c, ROOM, 1);
	ep_show(ep, 0);
	/* For so long nothing comes that nobody looks at it without being told. */
	ep_add(ep, other[0], EPOLLIN, 2);
	NEED(write(other[1], "x", 1) == 1);
	for (int i = 0; i < 300; i++)
		NEED(epoll_wait(ep, &ev, 1, 0) == 1 && ev.data.u64 == 2);
	NEED(ep_ctl(ep, EPOLL_CTL_DEL, other[0], 0, 0) == 0);
	sent = send_until_full(p.c);
	say("poll: %d", poll(&in, 1, 20));
	empty(p.s, sent);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(other[0]);
	close(other[1]);
	close(ep);
	pair_close(p);
}

static bool has_room_by_poll(int fd, int other)
{
	struct pollfd out = {.fd = fd, .events = POLLOUT};

	(void)other;
	return poll(&out, 1, 0) > 0;
}

static bool has_room_by_select(int fd, int other)
{
	struct timeval none = {0, 0};
	fd_set out;

	(void)other;
	FD_ZERO(&out);
	FD_SET(fd, &out);
	return select(fd + 1, NULL, &out, NULL, &none) > 0;
}

static bool has_room_by_epoll(int fd, int other)
{
	struct epoll_event ev;

	(void)fd;
	return epoll_wait(other, &ev, 1, 0) > 0;
}

/* A look finds no room, though no send has failed. */
static void looks(bool (*has_room)(int fd, int other))
{
	static const char bytes[4096];
	struct pair p = pair_warm_open();
	int ep = ep_open(), other = ep_open();
	size_t sent = 0;

	ep_add(other, p.c, EPOLLOUT, 2);
	ep_add(ep, p.c, ROOM, 1);
	ep_show(ep, 0);
	for (; has_room(p.c, other); sent += sizeof(bytes))
		NEED(send(p.c, bytes, sizeof(bytes), MSG_DONTWAIT) == sizeof(bytes));
	ep_show(ep, 0);
	empty(p.s, sent);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	close(other);
	pair_close(p);
}

CASE(ep_edge_of_room_after_poll, DIRECT)
{
	looks(has_room_by_poll);
}

CASE(ep_edge_of_room_after_select, DIRECT)
{
	looks(has_room_by_select);
}

CASE(ep_edge_of_room_after_another_wait, DIRECT)
{
	looks(has_room_by_epoll);
}

static void send_bulk(void *arg)
{
	send_all(*(int *)arg, bulk_room(), BULK_ROOM);
}

/* A send that has waited for room makes an edge as one that has failed does. */
CASE(ep_edge_of_room_after_blocked_send, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker w;
	int ep = ep_open();

	ep_add(ep, p.c, ROOM, 1);
	ep_show(ep, 0);
	worker_start(&w, send_bulk, &p.c);
	wait_asleep(getpid(), w.tid);
	empty(p.s, BULK_ROOM);
	worker_join(&w);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

static void show_soon(void *arg)
{
	ep_show(*(int *)arg, SOON);
}

/* The connection is filled while somebody sleeps for its edges. */
CASE(ep_edge_of_room_for_a_sleeper, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker w;
	int ep = ep_open();
	size_t sent;

	ep_add(ep, p.c, ROOM, 1);
	ep_show(ep, 0);
	for (int i = 0; i < 3; i++) {
		worker_start(&w, show_soon, &ep);
		wait_asleep(getpid(), w.tid);
		sent = send_until_full(p.c);
		empty(p.s, sent);
		worker_join(&w);
		ep_show(ep, 0);
	}
	close(ep);
	pair_close(p);
}

/* Its copy of the instance says that the connection is not in it; the kernel's set has it. */
static void waits_in_a_child(uint32_t events)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();
	struct epoll_event ev;
	pid_t child;

	ep_add(ep, p.s, events, 1);
	ep_show(ep, 0);
	NEED(ep_ctl(ep, EPOLL_CTL_DEL, p.s, 0, 0) == 0);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		epoll_wait(ep, &ev, 1, 2000);
		_exit(3);
	}
	wait_asleep(child, child);
	ep_add(ep, p.s, events, 2);
	send_pattern(p.c, 0, 10);
	say("child: %d", child_status(child));
	recv_pattern(p.s, 0, 10);
	ep_drain(ep);
	send_pattern(p.c, 10, 10);
	ep_show(ep, SOON);
	recv_pattern(p.s, 10, 10);
	close(ep);
	pair_close(p);
}

CASE(ep_deleted_and_a_child_waits, ANYWAY)
{
	waits_in_a_child(EPOLLIN);
}

CASE(ep_deleted_and_a_child_waits_for_edges, ANYWAY)
{
	waits_in_a_child(EPOLLIN | EPOLLET);
}

/* What was deleted from a nested instance, has woken it in vain, and comes again. */
CASE(ep_deleted_from_a_nested_one, ANYWAY)
{
	struct pair p = pair_warm_open();
	int ep[7];

	for (int i = 0; i < 7; i++)
		ep[i] = ep_open();
	ep_add(ep[0], ep[1], EPOLLIN, 1);
	ep_add(ep[1], p.s, EPOLLIN, 2);
	ep_show(ep[0], 0);
	NEED(ep_ctl(ep[1], EPOLL_CTL_DEL, p.s, 0, 0) == 0);
	send_pattern(p.c, 0, 10);
	ep_show(ep[1], 20);
	ep_show(ep[0], 20);
	for (int i = 2; i < 7; i++)
		say_result("nest", ep_ctl(ep[i], EPOLL_CTL_ADD, ep[i == 2 ? 0 : i - 1],
					  EPOLLIN, 1));
	say_result("again", ep_ctl(ep[1], EPOLL_CTL_ADD, p.s, EPOLLIN, 3));
	ep_show(ep[1], SOON);
	for (int i = 0; i < 7; i++)
		close(ep[i]);
	pair_close(p);
}

/* ---- room that one lacks on TCP, and another finds in memory ---- */

static struct pair pair_narrow_open(void)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), bytes = 4096;
	struct pair p;

	NEED(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
	p.c = connect_to(AF_INET, port);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
	close(listener);
	return p;
}

/* Whether room is told of, now or within that time. */
static bool is_room_told(int ep, int timeout)
{
	struct epoll_event ev;
	bool told = false;

	for (; epoll_wait(ep, &ev, 1, told ? 0 : timeout) > 0;
	     told |= ev.events & EPOLLOUT)
		;
	return told;
}

static void lacked(uint32_t mask, bool is_read)
{
	struct pair p = pair_narrow_open();
	int ep = ep_open(), unread = 0;
	size_t sent = 0;
	bool told;
	char byte;

	ep_add(ep, p.c, mask | EPOLLET, 1);
	ep_show(ep, 0);
	for (int i = 0; i < 20; i++) {
		sent += send_until_full(p.c);
		usleep(5000);
	}
	ep_drain(ep);
	/* The other way, until it is upgraded. */
	for (int i = 0; i < 60; i++) {
		send_pattern(p.s, (uint64_t)i, 1);
		if (i == 0 && !is_read)
			unread++;
		else
			recv_pattern(p.c, (uint64_t)(i - unread), 1);
		if (i % 8 == 0)
			sent -= recv(p.s, &byte, 1, 0) == 1;
	}
	sent += send(p.c, "x", 1, MSG_DONTWAIT) == 1;
	/* Memory has room as soon as what is sent goes there; TCP has it later. */
	told = is_room_told(ep, 0);
	empty(p.s, sent);
	say("room: %d", told || is_room_told(ep, SOON));
	close(ep);
	pair_close(p);
}

CASE(ep_edge_of_room_lacked_before, READY)
{
	for (int i = 0; i < 4; i++) {
		say("%d", i);
		lacked(i & 1 ? EPOLLOUT : EPOLLIN | EPOLLOUT, i & 2);
	}
}

/* ---- a connection that goes back to TCP amid the call, beside others that fill the rest of the array ---- */

static void goes_back_beside(int others, int room)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev[16];
	int ep = ep_open(), ready[8], ends[2], seen = 0, n;

	NEED(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "four", 4) == 4);
	/* What is spliced to has the connection go back, as the other end sees at its next call. */
	NEED(splice(ends[0], NULL, p.c, NULL, 4, 0) == 4);
	ep_add(ep, p.s, EPOLLOUT, 0);
	for (int i = 0; i < others; i++) {
		NEED((ready[i] = eventfd(1, EFD_CLOEXEC)) >= 0);
		ep_add(ep, ready[i], EPOLLIN, (uint64_t)i + 1);
	}
	n = epoll_wait(ep, ev, room, 0);
	for (int i = 0; i < n; i++)
		seen |= 1 << ev[i].data.u64;
	say("%d beside, room for %d: %d, of it %#x", others, room, n, seen);
	for (int i = 0; i < others; i++)
		close(ready[i]);
	close(ends[0]);
	close(ends[1]);
	close(ep);
	pair_close(p);
}

CASE(ep_goes_back_beside_others, READY)
{
	for (int others = 1; others <= 8; others++)
		for (int room = others + 1; room <= 10; room++)
			goes_back_beside(others, room);
}
