/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on bytes that are held back: TCP_CORK, MSG_MORE, SPLICE_F_MORE. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "held.h"

/* ---- what lets them go ---- */

/* The last piece, of which none follows. */
static void last_piece(struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	uint8_t bytes[10];
	fill_bytes(s, bytes, 10);
	ssize_t n = send(h->fd, bytes, 10, MSG_DONTWAIT);
	tell("last(%d) = %s", h->fd, result(n));
	was_sent(s, n);
	if (h->cork)
		tell("CORK = %s", result(set_tcp(h->fd, TCP_CORK, 0)));
}

static void uncork_by_child(struct hold *h)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		_exit(set_tcp(h->fd, TCP_CORK, 0) != 0);
	tell("status %#x", (unsigned)wait_for(pid));
}

static void shut(struct hold *h)
{
	tell("shutdown(%d) = %s", h->fd, result(shutdown(h->fd, SHUT_WR)));
	shared->end[h->from].shut_write = true;
}

/* False: the end that holds is not closed. */
static bool close_it(struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	/* Else somebody else holds on; and with bytes unread it resets. */
	if (end_of(s)->holders > 1 || unread(s) || h->fd != s->fd)
		return false;
	tell("close(%d) = %s", h->fd, result(close(h->fd)));
	descriptor_gone(s);
	h->fd = -1;
	return true;
}

static void let_go(struct dice *d, struct hold *h)
{
	unsigned way = dice(d, 13);
	/* A last piece and a close are left out where somebody else receives a known count. */
	if (h->asleep && (way < 2 || way == 3 || way == 8))
		way = 7;
	switch (way) {
	case 0:
	case 1:
		last_piece(h);
		break;
	case 2:
		shut(h);
		break;
	case 3:
		if (close_it(h))
			break;
		/* fallthrough */
	case 4:
	case 5:
		tell("NODELAY = %s", result(set_tcp(h->fd, TCP_NODELAY, 1)));
		break;
	case 6:
		uncork_by_child(h);
		break;
	case 7:
	case 9:
		held_wait_due(h);
		break;
	case 8:
		held_sleep(d, h);
		break;
	default:
		tell("CORK = %s", result(set_tcp(h->fd, TCP_CORK, 0)));
	}
}

/* ---- operations ---- */

static void hold_begin(struct dice *d, struct hold *h, const struct descriptor *to)
{
	static const uint32_t kinds[] = {0, 0, EPOLLET, EPOLLONESHOT,
					 EPOLLET | EPOLLONESHOT};
	struct descriptor *s = of_end(h->from);
	h->cork = once_in(d, 2);
	if (once_in(d, 3)) {
		uint8_t sent[200];
		size_t len = 1 + dice(d, sizeof sent);
		fill_bytes(s, sent, len);
		was_sent(s, send(h->fd, sent, len, MSG_DONTWAIT));
		settle();
	}
	h->before = unread(to);
	h->instance = h->outer = -1;
	if (once_in(d, 2)) {
		h->events = EPOLLIN | kinds[dice(d, 5)];
		struct epoll_event ev = {h->events, {.u32 = 1}};
		h->instance = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
		NEED(epoll_ctl(h->instance, EPOLL_CTL_ADD, to->fd, &ev) == 0);
		if (once_in(d, 3)) {
			struct epoll_event in = {EPOLLIN, {.u32 = 2}};
			h->outer = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
			NEED(epoll_ctl(h->outer, EPOLL_CTL_ADD, h->instance, &in) == 0);
		}
		/* Some are watched by memory from here on. */
		epoll_wait(h->instance, &ev, 1, 0);
	}
	int r = h->cork ? set_tcp(h->fd, TCP_CORK, 1) : 0;
	tell("%s(%d) = %s, %zu unread", h->cork ? "CORK" : "MORE", h->fd, result(r),
	     h->before);
}

/* From here on as at first, and what was held goes into the same ring. */
static void hold_again(struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	h->taken = h->told = false;
	h->before = unread(to);
	h->got = 0;
	if (h->instance < 0)
		return;
	struct epoll_event ev = {h->events, {.u32 = 1}};
	NEED(epoll_ctl(h->instance, EPOLL_CTL_MOD, to->fd, &ev) == 0);
	epoll_wait(h->instance, &ev, 1, 0);
}

static void hold_end(struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	if (h->fd >= 0) {
		int r = set_tcp(h->fd, TCP_CORK, 0);
		/* Of MSG_MORE alone, too, this lets go. */
		r |= set_tcp(h->fd, TCP_NODELAY, 1);
		tell("end(%d) = %s", h->fd, result(r));
		if (h->fd != s->fd)
			NEED(close(h->fd) == 0);
	}
	if (h->instance >= 0)
		NEED(close(h->instance) == 0);
	if (h->outer >= 0)
		NEED(close(h->outer) == 0);
}

static struct hold one;

static void op_held(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	struct hold *h = &one;
	if (!s || room_to_send(s, true) < 1000) {
		tell("nothing");
		return;
	}
	*h = (struct hold){.from = s->end, .to = other->end, .fd = s->fd};
	hold_begin(d, h, other);
	for (unsigned rounds = 1 + dice(d, 3);;) {
		for (unsigned i = 0, n = 1 + dice(d, 5); i < n; i++) {
			held_piece(d, h);
			if (once_in(d, 2))
				held_between(d, h);
		}
		let_go(d, h);
		held_see(d, h);
		if (--rounds == 0 || h->fd < 0 || shared->end[h->from].shut_write)
			break;
		hold_again(h);
		if (h->cork)
			tell("CORK = %s", result(set_tcp(h->fd, TCP_CORK, 1)));
	}
	hold_end(h);
}

/* ---- while somebody else sleeps in a receive ---- */

/* In memory that a forked child shares. */
struct receiver {
	int fd, instance;
	unsigned way;
	size_t len, got;
	ssize_t r;
	int err;
	uint8_t bytes[32768];
};

/* One receive, or what an event brings. */
static ssize_t receive_some(struct receiver *r)
{
	struct epoll_event ev = {EPOLLIN | (r->way == 3 ? EPOLLONESHOT : EPOLLET),
				 {.u32 = 0}};
	struct pollfd p = {r->fd, POLLIN, 0};
	uint8_t *at = r->bytes + r->got;
	size_t len = r->len - r->got;
	switch (r->way) {
	case 0:
		return recv(r->fd, at, len, MSG_WAITALL);
	case 1:
		return recv(r->fd, at, len, 0);
	case 2:
		poll(&p, 1, -1);
		return recv(r->fd, at, len, MSG_DONTWAIT);
	case 3:
		epoll_ctl(r->instance, EPOLL_CTL_MOD, r->fd, &ev);
		epoll_wait(r->instance, &ev, 1, -1);
		return recv(r->fd, at, len, MSG_DONTWAIT);
	case 4:
		recv(r->fd, at, len, MSG_PEEK | MSG_WAITALL);
		return recv(r->fd, at, len, 0);
	default: {
		/* No other wait before there is nothing left. */
		ssize_t n = recv(r->fd, at, len, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			epoll_wait(r->instance, &ev, 1, -1);
		return n;
	}
	}
}

static void watch(struct receiver *r)
{
	struct epoll_event ev = {EPOLLIN | (r->way == 3 ? EPOLLONESHOT : EPOLLET),
				 {.u32 = 0}};
	r->instance = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
	NEED(epoll_ctl(r->instance, EPOLL_CTL_ADD, r->fd, &ev) == 0);
}

static void *receive_all(void *arg)
{
	struct receiver *r = arg;
	while (r->got < r->len) {
		r->r = receive_some(r);
		r->err = errno;
		if (r->r == 0 || (r->r < 0 && errno != EAGAIN && errno != EINTR))
			break;
		r->got += r->r > 0 ? (size_t)r->r : 0;
	}
	return NULL;
}

static void send_all_pieces(struct dice *d, struct hold *h)
{
	/* Room there is: less than that is asked for. */
	for (int i = 0; h->left && i < 1000; i++) {
		held_piece(d, h);
		if (once_in(d, 3))
			held_between(d, h);
	}
	let_go(d, h);
}

static void op_held_asleep(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	struct hold *h = &one;
	if (!s || unread(other) || is_nonblocking(other->fd) ||
	    raw_option(other->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		tell("nothing");
		return;
	}
	*h = (struct hold){.from = s->end, .to = other->end, .fd = s->fd, .asleep = true};
	h->instance = h->outer = -1;
	h->cork = once_in(d, 2);
	h->left = 1 + dice(d, once_in(d, 4) ? 10000 : 1000);
	struct receiver *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(r != MAP_FAILED);
	*r = (struct receiver){.fd = other->fd, .way = dice(d, 6), .len = h->left};
	bool child = once_in(d, 3);
	pthread_t thread;
	pid_t pid = 0;
	tell("%s(%d) for %d, %zu by %u, %s", h->cork ? "CORK" : "MORE", h->fd, other->fd,
	     h->left, r->way, child ? "a child" : "a thread");
	if (child) {
		pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			watch(r);
			receive_all(r);
			_exit(0);
		}
	} else {
		/* Its numbers are taken before any that are told. */
		watch(r);
		NEED(pthread_create(&thread, NULL, receive_all, r) == 0);
	}
	if (h->cork)
		set_tcp(h->fd, TCP_CORK, 1);
	send_all_pieces(d, h);
	if (child)
		tell("status %#x", (unsigned)wait_for(pid));
	else
		NEED(pthread_join(thread, NULL) == 0 && close(r->instance) == 0);
	was_received(other, (ssize_t)r->got);
	errno = r->err;
	tell("%zu, %s: %08x", r->got, r->r > 0 ? "some" : result(r->r),
	     checksum(r->bytes, r->got));
	NEED(munmap(r, sizeof *r) == 0);
	hold_end(h);
}

const struct op ops_held[] = {
	{"held", op_held, 4},
	{"held-asleep", op_held_asleep, 2},
	{NULL, NULL, 0},
};
