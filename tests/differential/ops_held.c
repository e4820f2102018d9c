/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on bytes that are held back: TCP_CORK, MSG_MORE, SPLICE_F_MORE. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

/*
 * TCP holds them for 200 ms at most, and on a loaded machine these pass between any two calls. So no
 * line tells whether they have come before something let them go. What is received before that
 * counts in the sum alone, and whoever waits for the time waits until it is over.
 */

/* More than TCP's time, and than the step of a coarse clock. */
#define DUE_MS 240

static uint8_t bytes[65536], into[65536];

/* One connection, of which one end holds back what it sends. */
struct hold {
	int from, to; /* ends */
	int fd;	      /* by which it sends */
	int instance; /* of epoll, or -1; the receiver is registered there */
	uint32_t events;
	bool cork; /* else each call says that more is to come */
	bool taken,
		told; /* what has come before it was let go may have been received, or an event of it */
	unsigned pieces;
	size_t before, got; /* bytes that were unread at first; that have been received */
};

static int set_tcp(int fd, int name, int value)
{
	return setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

/* ---- a piece is sent ---- */

static ssize_t by_splice(int fd, size_t len)
{
	int p[2];
	NEED(pipe2(p, O_CLOEXEC) == 0 && write(p[1], bytes, len) == (ssize_t)len);
	ssize_t n = splice(p[0], NULL, fd, NULL, len, SPLICE_F_NONBLOCK | SPLICE_F_MORE);
	NEED(close(p[0]) == 0 && close(p[1]) == 0);
	return n;
}

static ssize_t by_sendfile(int fd, size_t len)
{
	off_t at = 0;
	int file = out_of_the_way(memfd_create("differential", MFD_CLOEXEC));
	NEED(write(file, bytes, len) == (ssize_t)len);
	ssize_t n = sendfile(fd, file, &at, len);
	NEED(close(file) == 0);
	return n;
}

/* In two messages. */
static ssize_t by_sendmmsg(int fd, size_t len, int flags)
{
	struct iovec v[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
	struct mmsghdr m[2] = {{{.msg_iov = &v[0], .msg_iovlen = 1}, 0},
			       {{.msg_iov = &v[1], .msg_iovlen = 1}, 0}};
	int n = sendmmsg(fd, m, 2, flags);
	return n < 0 ? n : (ssize_t)m[0].msg_len + (n == 2 ? m[1].msg_len : 0);
}

/* The last three say of no call that more is to come. */
static const char *const piece_ways[] = {"send",   "sendto", "sendmsg",	 "sendmmsg",
					 "splice", "write",  "sendfile", "writev"};

static ssize_t send_piece(int fd, unsigned way, size_t len, int flags)
{
	struct iovec v[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	switch (way) {
	case 0:
		return send(fd, bytes, len, flags);
	case 1:
		return sendto(fd, bytes, len, flags, NULL, 0);
	case 2:
		return sendmsg(fd, &m, flags);
	case 3:
		return by_sendmmsg(fd, len, flags);
	case 4:
		return by_splice(fd, len);
	case 5:
		return write(fd, bytes, len);
	case 6:
		return by_sendfile(fd, len);
	default:
		return writev(fd, v, 2);
	}
}

static void piece(struct dice *d, struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	unsigned way = dice(d, h->cork ? 8 : 5);
	int flags = h->cork && once_in(d, 2) ? 0 : MSG_MORE;
	size_t len = once_in(d, 8) ? 1 + dice(d, 5000) : 1 + dice(d, 300);
	/* By it a connection goes back to TCP. */
	if (way == 4 && !once_in(d, 3))
		way = 0;
	if (len > room_to_send(s, true))
		return;
	fill_bytes(s, bytes, len);
	ssize_t n = send_piece(h->fd, way, len, flags);
	tell("%s(%d, %zu%s) = %s", piece_ways[way], h->fd, len,
	     way < 4 && flags ? ", MORE" : "", result(n));
	was_sent(s, n);
	h->pieces++;
}

/* ---- what happens between two pieces ---- */

/* What has come is received, and what is told of it is the sum. */
static void take(struct hold *h, size_t most)
{
	struct descriptor *to = of_end(h->to);
	h->taken = true;
	if (h->got + most > sizeof into)
		return;
	ssize_t n = recv(to->fd, into + h->got, most, MSG_DONTWAIT);
	was_received(to, n);
	h->got += n > 0 ? (size_t)n : 0;
}

/* Looks of which nothing is told, because what they see is a matter of time. */
static void look_untold(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	struct pollfd p = {to->fd, POLLIN | POLLRDHUP, 0};
	struct epoll_event ev;
	int n;
	switch (dice(d, 5)) {
	case 0:
		recv(to->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
		break;
	case 1:
		poll(&p, 1, (int)dice(d, 3));
		break;
	case 2:
		ioctl(to->fd, FIONREAD, &n);
		break;
	case 3:
		recv(to->fd, bytes, 0, MSG_DONTWAIT);
		break;
	default:
		h->told |= h->instance >= 0;
		epoll_wait(h->instance, &ev, 1, (int)dice(d, 3));
	}
}

/* The same end by another number. */
static void by_duplicate(struct dice *d, struct hold *h)
{
	int was = h->fd;
	if (was != of_end(h->from)->fd)
		return;
	h->fd = out_of_the_way(dup(was));
	if (once_in(d, 2)) {
		piece(d, h);
		NEED(close(h->fd) == 0);
		h->fd = was;
	}
}

/* A forked child sends one. */
static void by_child(struct dice *d, struct hold *h)
{
	struct hold of_child = *h;
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		tell_who(" h");
		piece(d, &of_child);
		_exit(0);
	}
	int status = wait_for(pid);
	if (status)
		tell("status %#x", (unsigned)status);
	h->pieces++;
}

/* The other end sends, so that the connection earns an upgrade meanwhile. */
static void answers(struct dice *d, struct hold *h)
{
	unsigned turns = once_in(d, 3) ? 5 + dice(d, 60) : 1;
	struct descriptor *from = of_end(h->to), *to = of_end(h->from);
	size_t sum = 0;
	for (unsigned i = 0; i < turns && room_to_send(from, true) >= 100; i++) {
		size_t len = 1 + dice(d, 100);
		fill_bytes(from, bytes, len);
		was_sent(from, send(from->fd, bytes, len, MSG_DONTWAIT));
		settle();
		ssize_t n = recv(h->fd, bytes, sizeof bytes, MSG_DONTWAIT);
		was_received(to, n);
		sum += n > 0 ? (size_t)n : 0;
	}
	tell("%u answers: %zu", turns, sum);
}

/* In a message to oneself, or to a program that sends as well. */
static void hand_over(struct dice *d, struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	/* What is unread is sent once more for that (limits.md). */
	if (unread(s) || room_to_send(s, true) < 100) {
		tell("unread");
		return;
	}
	if (once_in(d, 2)) {
		carry(d, s);
		return;
	}
	int other = fd_in_message(s->fd);
	NEED(other >= 0);
	other = out_of_the_way(other);
	ssize_t n = send(other, bytes, 0, MSG_MORE);
	tell("none(%d) = %s", other, result(n));
	NEED(close(other) == 0);
}

static void tell_options(struct hold *h)
{
	int cork = -1, nodelay = -1;
	socklen_t len = sizeof cork;
	int r = getsockopt(h->fd, IPPROTO_TCP, TCP_CORK, &cork, &len);
	r |= getsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len);
	tell("options = %s: %d %d", result(r), cork, nodelay);
}

static void between(struct dice *d, struct hold *h)
{
	struct pollfd p = {h->fd, POLLOUT | POLLIN, 0};
	unsigned way = dice(d, 16);
	switch (way) {
	case 0:
		tell_options(h);
		break;
	case 1:
		by_duplicate(d, h);
		break;
	case 2:
		by_child(d, h);
		break;
	case 3:
	case 4:
		answers(d, h);
		break;
	case 5:
		hand_over(d, h);
		break;
	case 6:
		tell("none = %s", result(send(h->fd, bytes, 0, h->cork ? 0 : MSG_MORE)));
		break;
	case 7:
		tell("poll = %s", result(poll(&p, 1, 0)));
		tell("is %s", events_of_poll((unsigned)p.revents));
		break;
	case 8:
	case 9:
		take(h, once_in(d, 2) ? 1 + dice(d, 40) : 20000);
		break;
	case 10:
	case 11:
	case 12:
		look_untold(d, h);
		break;
	case 13:
		/* What is sent so far goes, and the next piece is held anew. */
		tell("push = %s", result(set_tcp(h->fd, TCP_NODELAY, 1)));
		break;
	case 14:
		settle();
		break;
	}
}

/* ---- and is let go ---- */

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until the time is over, and the kernel has nothing to send either. */
static void wait_due(const struct hold *h)
{
	struct timespec some = {0, 2000000};
	int64_t began = now_ms();
	settle_publish();
	while (now_ms() - began < DUE_MS ||
	       (shared->end[h->from].unsent && now_ms() - began < 3000)) {
		raw_call(SYS_nanosleep, (long)&some, 0, 0, 0, 0);
		settle_publish();
	}
}

/* Sleeps on the other end: by itself it hears of what is due. */
static void sleep_until_due(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	struct pollfd p = {to->fd, POLLIN, 0};
	struct epoll_event ev = {0};
	fd_set in;
	if (h->taken || !unread(to) || raw_option(to->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		wait_due(h);
		return;
	}
	switch (dice(d, 4)) {
	case 0:
		tell("poll = %s", result(poll(&p, 1, -1)));
		break;
	case 1:
		FD_ZERO(&in);
		FD_SET(to->fd, &in);
		tell("select = %s", result(select(to->fd + 1, &in, NULL, NULL, NULL)));
		break;
	case 2:
		if (!h->before && !is_nonblocking(to->fd))
			tell("peek = %s",
			     recv(to->fd, into, 1, MSG_PEEK) == 1 ? "1" : "?");
		break;
	default:
		if (h->instance >= 0 && !h->told) {
			int n = epoll_wait(h->instance, &ev, 1, -1);
			tell("epoll = %s: %s", result(n), events_of_epoll(ev.events));
			/* Of the first piece alone, or of all. */
			h->told = true;
		}
	}
	if (is_nonblocking(to->fd)) {
		wait_due(h);
		return;
	}
	size_t all = unread(to);
	ssize_t n = recv(to->fd, into, all, MSG_WAITALL);
	tell("waitall(%d, %zu) = %s: %08x", to->fd, all, result(n),
	     checksum(into, n > 0 ? (size_t)n : 0));
	was_received(to, n);
	h->taken = true;
}

/* The last piece, of which none follows. */
static void last_piece(struct hold *h)
{
	struct descriptor *s = of_end(h->from);
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
	switch (dice(d, 12)) {
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
		wait_due(h);
		break;
	case 8:
		sleep_until_due(d, h);
		break;
	default:
		tell("CORK = %s", result(set_tcp(h->fd, TCP_CORK, 0)));
	}
}

/* ---- and is seen by the other end ---- */

static void tell_ready(struct hold *h, const char *when)
{
	struct descriptor *to = of_end(h->to);
	struct pollfd p = {to->fd, POLLIN | POLLRDHUP | POLLOUT, 0};
	struct epoll_event ev[2];
	int n = poll(&p, 1, 0), queued = -1;
	tell("%s: poll(%d) = %s: %s", when, to->fd, result(n),
	     events_of_poll((unsigned)p.revents));
	ioctl(to->fd, FIONREAD, &queued);
	tell("%d are there", queued);
	if (h->instance < 0 || h->taken || h->told)
		return;
	n = epoll_wait(h->instance, ev, 2, 0);
	if (!(h->events & EPOLLET))
		tell("epoll = %s", result(n));
	/* An edge more than the kernel tells is told apart: see differential.py. */
	if (n > 0)
		tell("  epoll: %s%s", events_of_epoll(ev[0].events),
		     h->events & EPOLLET ? " edge" : "");
}

static ssize_t receive(struct dice *d, int fd, size_t all)
{
	struct iovec v[3] = {{into, all / 4},
			     {into + all / 4, all / 2},
			     {into + all / 4 + all / 2, all}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
	ssize_t n;
	switch (dice(d, 6)) {
	case 0:
		return recv(fd, into, all, MSG_WAITALL);
	case 1:
		n = recv(fd, into, sizeof into, MSG_PEEK | MSG_DONTWAIT);
		tell("peek(%d) = %s: %08x", fd, result(n),
		     checksum(into, n > 0 ? (size_t)n : 0));
		return recv(fd, into, 1 + dice(d, 400), MSG_DONTWAIT);
	case 2:
		n = recv(fd, into, all, MSG_PEEK | MSG_WAITALL);
		tell("peek all(%d) = %s: %08x", fd, result(n),
		     checksum(into, n > 0 ? (size_t)n : 0));
		return recv(fd, into, all, MSG_DONTWAIT);
	case 3:
		return readv(fd, v, 3);
	case 4:
		return recvmsg(fd, &m, MSG_DONTWAIT);
	default:
		return recv(fd, into, sizeof into, MSG_DONTWAIT);
	}
}

static void see(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	settle();
	if (!h->taken)
		tell_ready(h, "then");
	size_t all = unread(to);
	if (h->taken) {
		take(h, 40000);
		tell("in all %zu: %08x", h->got, checksum(into, h->got));
	} else if (once_in(d, 6)) {
		tell("left for others");
		return;
	} else if (all && raw_option(to->fd, SOL_SOCKET, SO_RCVLOWAT) <= 1) {
		ssize_t n = receive(d, to->fd, all);
		tell("(%d of %zu) = %s: %08x", to->fd, all, result(n),
		     checksum(into, n > 0 ? (size_t)n : 0));
		was_received(to, n);
	}
	tell_ready(h, "at last");
}

/* ---- operations ---- */

static void hold_begin(struct dice *d, struct hold *h, const struct descriptor *to)
{
	static const uint32_t some[] = {0, 0, EPOLLET, EPOLLONESHOT,
					EPOLLET | EPOLLONESHOT};
	h->before = unread(to);
	h->cork = once_in(d, 2);
	h->instance = -1;
	if (!h->before && once_in(d, 2)) {
		h->events = EPOLLIN | some[dice(d, 5)];
		struct epoll_event ev = {h->events, {.u32 = 1}};
		h->instance = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
		NEED(epoll_ctl(h->instance, EPOLL_CTL_ADD, to->fd, &ev) == 0);
		/* Some are watched by memory from here on. */
		epoll_wait(h->instance, &ev, 1, 0);
	}
	int r = h->cork ? set_tcp(h->fd, TCP_CORK, 1) : 0;
	tell("%s(%d) = %s, %zu unread", h->cork ? "CORK" : "MORE", h->fd, result(r),
	     h->before);
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
}

static void op_held(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || room_to_send(s, true) < 1000) {
		tell("nothing");
		return;
	}
	struct hold h = {.from = s->end, .to = other->end, .fd = s->fd};
	hold_begin(d, &h, other);
	for (unsigned i = 0, n = 1 + dice(d, 5); i < n; i++) {
		piece(d, &h);
		if (once_in(d, 2))
			between(d, &h);
	}
	let_go(d, &h);
	see(d, &h);
	hold_end(&h);
}

const struct op ops_held[] = {
	{"held", op_held, 20},
	{NULL, NULL, 0},
};
