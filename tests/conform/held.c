/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: bytes that nobody pushes, which TCP holds back for a while and then sends all the same. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "conform/cases.h"

static void corked(int fd, int on)
{
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0);
}

static int queued(int fd)
{
	int count = -1;
	NEED(ioctl(fd, FIONREAD, &count) == 0);
	return count;
}

/* Who is told of them is told how many. */
static void told(struct pair p, const char *what, int flags)
{
	char buf[64];
	NEED(send(p.c, "held", 4, flags) == 4);
	NEED(wait_events(p.s, POLLIN) & POLLIN);
	say("%s: %d", what, queued(p.s));
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say("left: %d", queued(p.s));
}

CASE(held_then_counted, STAYS)
{
	struct pair p = pair_warm_open();
	told(p, "more to come", MSG_MORE);
	corked(p.c, 1);
	told(p, "corked", 0);
	told(p, "corked once more", 0);
	corked(p.c, 0);
	pair_close(p);
}

/* The first two of the bytes are read, and those behind them are counted with the rest. */
CASE(held_behind_others, STAYS)
{
	struct pair p = pair_warm_open();
	char buf[64];
	send_all(p.c, "sent", 4);
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	wait_inq(p.s, 8);
	recv_all(p.s, buf, 2);
	say("left: %d", queued(p.s));
	recv_all(p.s, buf, 6);
	say("%.6s %d", buf, queued(p.s));
	pair_close(p);
}

static bool is_held(struct pair p)
{
	char buf[4];
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	bool seen = poll(&f, 1, 0) == 1;
	recv_all(p.s, buf, 4);
	return !seen;
}

/* Of several, since a machine may be slower than the time for which bytes are held. */
static bool ever_held(struct pair p)
{
	for (int i = 0; i < 10; i++)
		if (is_held(p))
			return true;
	return false;
}

/* Each time anew. */
CASE(held_once_more, STAYS)
{
	struct pair p = pair_warm_open();
	int on = 1;
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	say("the first: %d", ever_held(p));
	say("the second: %d", ever_held(p));
	send_all(p.s, "answer", 6);
	char buf[6];
	recv_all(p.c, buf, 6);
	say("after an answer: %d", ever_held(p));
	pair_close(p);
}
