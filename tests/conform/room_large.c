/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: send buffers that are larger than the largest ring, with nobody reading. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "conform/cases.h"

#define LARGE 8000000
#define MUCH  6000000

/* Warm, and p.s has a large send buffer: set before the upgrade, or after. */
static struct pair large_pair(bool early)
{
	struct pair p = pair_open();
	int large = LARGE;
	for (int turn = 0; turn < 2; turn++)
		if (turn == early)
			pair_warm(p);
		else if (setsockopt(p.s, SOL_SOCKET, SO_SNDBUFFORCE, &large,
				    sizeof large) != 0)
			skip("SO_SNDBUFFORCE needs root");
	return p;
}

/* Without waiting, in pieces. */
static size_t send_most(int fd, size_t off, size_t most, size_t piece)
{
	uint8_t *buf = malloc(piece);
	NEED(buf);
	size_t done = 0;
	ssize_t n;
	do {
		size_t len = most - done < piece ? most - done : piece;
		for (size_t i = 0; i < len; i++)
			buf[i] = pattern(off + done + i);
		n = send(fd, buf, len, MSG_DONTWAIT);
		done += n > 0 ? (size_t)n : 0;
	} while (n > 0 && done < most);
	free(buf);
	return done;
}

static void goes_on(struct pair p, size_t sent)
{
	recv_pattern(p.c, 0, sent);
	pair_warm(p);
	pair_close(p);
}

CASE(room_large_blocking, DIRECT)
{
	struct pair p = large_pair(true);
	send_pattern(p.s, 0, MUCH);
	say("sent");
	goes_on(p, MUCH);
}

CASE(room_large_blocking_late, DIRECT)
{
	struct pair p = large_pair(false);
	send_pattern(p.s, 0, MUCH);
	say("sent");
	goes_on(p, MUCH);
}

/* By a timeout that is never reached, the library waits itself. */
CASE(room_large_timeout, DIRECT)
{
	struct pair p = large_pair(true);
	struct timeval long_time = {50, 0};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_SNDTIMEO, &long_time, sizeof long_time) == 0);
	send_pattern(p.s, 0, MUCH);
	say("sent");
	goes_on(p, MUCH);
}

CASE(room_large_nonblocking, DIRECT)
{
	struct pair p = large_pair(true);
	say("sent %zu", send_most(p.s, 0, MUCH, 100000));
	goes_on(p, MUCH);
}

CASE(room_large_nonblocking_at_once, DIRECT)
{
	struct pair p = large_pair(true);
	say("sent %zu", send_most(p.s, 0, MUCH, MUCH));
	goes_on(p, MUCH);
}

/* Nearly all of the ring is in use, and TCP would be writable. */
CASE(room_large_ready, DIRECT)
{
	struct pair p = large_pair(true);
	struct epoll_event ev = {.events = EPOLLOUT};
	int ep = epoll_create1(0);
	size_t sent = 0;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	while (sent < MUCH) {
		struct pollfd f = {p.s, POLLOUT, 0};
		ev.events = 0;
		say("epoll %d", epoll_wait(ep, &ev, 1, -1));
		NEED(poll(&f, 1, -1) == 1);
		say("poll %s", poll_names(f.revents));
		sent += send_most(p.s, sent, 200000, 50000);
	}
	say("sent %zu", sent);
	goes_on(p, sent);
}
