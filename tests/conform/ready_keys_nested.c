/* SPDX-License-Identifier: Apache-2.0 */
/* What wakes an edge-triggered registration whose instance is itself polled, or in another one. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static const uint32_t masks[] = {
	EPOLLIN,
	EPOLLOUT,
	EPOLLRDHUP,
	EPOLLPRI,
	EPOLLRDNORM,
	EPOLLWRNORM,
	EPOLLIN | EPOLLOUT,
	EPOLLIN | EPOLLRDHUP,
	EPOLLOUT | EPOLLRDHUP,
	0,
};
#define MASKS (sizeof(masks) / sizeof(masks[0]))

/* How the instance is watched. */
enum way { POLLED, LEVEL, EDGE, ONCE_EACH, WAYS };

struct watched {
	struct pair p;
	int in, outer;
	enum way way;
};

static struct watched watch(uint32_t mask, enum way way)
{
	static const uint32_t outer[] = {0, EPOLLIN, EPOLLIN | EPOLLET,
					 EPOLLIN | EPOLLET};
	struct watched w = {
		.p = pair_warm_open(), .in = ep_open(), .outer = ep_open(), .way = way};

	if (way != POLLED)
		ep_add(w.outer, w.in, outer[way], 2 | MAY_REPEAT);
	ep_add(w.in, w.p.s, mask | EPOLLET, 1 | MAY_REPEAT);
	return w;
}

static void show(struct watched *w, const char *what)
{
	say("%s", what);
	for (int i = 0; i < 3; i++) {
		struct pollfd p = {.fd = w->in, .events = POLLIN};

		if (w->way != ONCE_EACH && poll(&p, 1, 0) > 0)
			say("poll: IN edge");
		if (w->way != POLLED)
			ep_show(w->outer, 0);
		if (w->way != ONCE_EACH || i == 1)
			ep_show(w->in, 0);
	}
}

static void unwatch(struct watched *w)
{
	close(w->outer);
	close(w->in);
	pair_close(w->p);
}

static void bytes(struct watched *w)
{
	for (uint64_t at = 0; at < 200; at += 100) {
		send_pattern(w->p.c, at, 100);
		wait_inq(w->p.s, (int)at + 100);
		show(w, "bytes");
	}
	recv_pattern(w->p.s, 0, 50);
	show(w, "half read");
	recv_pattern(w->p.s, 50, 150);
	show(w, "read");
	send_pattern(w->p.s, 0, 100);
	recv_pattern(w->p.c, 0, 100);
	show(w, "answered");
	send_pattern(w->p.c, 200, 1);
	wait_inq(w->p.s, 1);
	show(w, "a byte");
	recv_pattern(w->p.s, 200, 1);
}

static void ends(struct watched *w)
{
	NEED(shutdown(w->p.c, SHUT_WR) == 0);
	wait_events(w->p.s, POLLRDHUP);
	show(w, "end");
	send_pattern(w->p.s, 100, 100);
	recv_pattern(w->p.c, 100, 100);
	show(w, "answered");
	NEED(shutdown(w->p.s, SHUT_WR) == 0);
	wait_events(w->p.s, POLLHUP);
	show(w, "both ended");
}

static void each(enum way way)
{
	for (size_t i = 0; i < MASKS; i++)
		for (int first = 0; first < 2; first++) {
			struct watched w = watch(masks[i], way);

			say("mask %zu", i);
			if (first)
				show(&w, "added");
			bytes(&w);
			ends(&w);
			unwatch(&w);
		}
}

CASE(nested_key_polled, READY)
{
	each(POLLED);
}

CASE(nested_key_level, READY)
{
	each(LEVEL);
}

CASE(nested_key_edge, READY)
{
	each(EDGE);
}

CASE(nested_key_once_each, READY)
{
	each(ONCE_EACH);
}

static void read_all(struct pair p)
{
	static char buf[65536];
	int queued;

	do {
		while (recv(p.c, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		NEED(ioctl(p.s, SIOCOUTQ, &queued) == 0);
	} while (queued > 0);
	while (recv(p.c, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/* What is asked for changes while it is watched. */
static void changed(uint32_t first, uint32_t then, enum way way)
{
	struct watched w = watch(first, way);
	uint64_t at = 0;

	show(&w, "added");
	for (int i = 0; i < 4; i++, at += 10) {
		send_pattern(w.p.c, at, 10);
		wait_inq(w.p.s, (int)at + 10);
		if (i & 1)
			show(&w, "bytes");
		ep_mod(w.in, w.p.s, (i & 1 ? first : then) | EPOLLET, 1 | MAY_REPEAT);
		show(&w, i & 1 ? "first" : "then");
		if (i == 2) {
			send_until_no_room(w.p.s);
			show(&w, "full");
			read_all(w.p);
			wait_events(w.p.s, POLLOUT);
			show(&w, "drained");
		}
	}
	recv_pattern(w.p.s, 0, 40);
	show(&w, "read");
	unwatch(&w);
}

CASE(nested_key_changed, READY)
{
	for (enum way way = POLLED; way < WAYS; way++) {
		changed(EPOLLOUT, EPOLLIN | EPOLLOUT, way);
		changed(EPOLLIN, EPOLLOUT, way);
		changed(EPOLLOUT, EPOLLRDHUP, way);
		changed(EPOLLWRNORM | EPOLLRDHUP, EPOLLRDNORM, way);
	}
}

/* ---- what wakes without a byte ---- */

static void lowat(struct watched *w, int bytes)
{
	NEED(setsockopt(w->p.s, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0);
	show(w, "mark");
}

static void marks(enum way way, uint32_t mask, bool unread)
{
	struct watched w = watch(mask, way);

	show(&w, "added");
	if (unread) {
		send_pattern(w.p.c, 0, 100);
		wait_inq(w.p.s, 100);
		show(&w, "bytes");
	}
	lowat(&w, 50);
	lowat(&w, 50);
	lowat(&w, 200);
	if (!unread) {
		send_pattern(w.p.c, 0, 100);
		wait_inq(w.p.s, 100);
		show(&w, "bytes");
	}
	lowat(&w, 1);
	lowat(&w, 1);
	recv_pattern(w.p.s, 0, 100);
	show(&w, "read");
	lowat(&w, 2);
	unwatch(&w);
}

CASE(nested_key_of_marks, READY)
{
	for (enum way way = POLLED; way < WAYS; way++)
		for (int i = 0; i < 4; i++)
			marks(way, i & 1 ? EPOLLIN : EPOLLIN | EPOLLOUT, i & 2);
}

static void set_option(struct watched *w, int level, int name, int value,
		       const char *what)
{
	NEED(setsockopt(w->p.s, level, name, &value, sizeof(value)) == 0);
	show(w, what);
}

CASE(nested_key_of_bounds, READY)
{
	for (enum way way = POLLED; way < WAYS; way++)
		for (size_t i = 0; i < MASKS; i++) {
			struct watched w = watch(masks[i], way);

			show(&w, "added");
			set_option(&w, SOL_SOCKET, SO_SNDBUF, 100000, "sent");
			set_option(&w, SOL_SOCKET, SO_RCVBUF, 100000, "received");
			set_option(&w, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 50000, "not sent");
			set_option(&w, SOL_SOCKET, SO_KEEPALIVE, 1, "another");
			NEED(shutdown(w.p.c, SHUT_WR) == 0);
			wait_events(w.p.s, POLLRDHUP);
			show(&w, "end");
			set_option(&w, SOL_SOCKET, SO_SNDBUF, 90000, "after it");
			unwatch(&w);
		}
}

CASE(nested_key_of_own_end, READY)
{
	for (enum way way = POLLED; way < WAYS; way++)
		for (size_t i = 0; i < MASKS; i++) {
			struct watched w = watch(masks[i], way);

			say("%d, mask %zu", way, i);
			show(&w, "added");
			NEED(shutdown(w.p.s, SHUT_RD) == 0);
			show(&w, "reading ended");
			send_pattern(w.p.c, 0, 100);
			wait_inq(w.p.s, 100);
			show(&w, "bytes");
			NEED(shutdown(w.p.s, SHUT_WR) == 0);
			wait_events(w.p.c, POLLRDHUP);
			unwatch(&w);
		}
}
