/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what is refused changes nothing, and an error waits for the call that is to tell it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/bad.h"
#include "conform/call.h"

/* ---- flags, bit by bit ---- */

static void send_bits(struct pair p, int flags)
{
	struct iovec iov = {"abc", 3};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	say_result(" send", send(p.s, "abc", 3, flags));
	say_result(" sendmsg", sendmsg(p.s, &msg, flags));
	say_result(" sendto nobody", sendto(p.s, "abc", 3, flags, NULL, 55));
}

static void recv_bits(struct pair p, int flags)
{
	char buf[3];
	struct iovec iov = {buf, 3};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	say_result(" recv", recv(p.s, buf, 3, flags));
	ssize_t n = recvmsg(p.s, &msg, flags);
	say_result(" recvmsg", n);
	say(" flags %#x", (unsigned)msg.msg_flags);
}

static void vector_bits(struct pair p, int flags)
{
	char buf[3];
	struct iovec iov = {buf, 3};
	say_result(" preadv2", preadv2(p.s, &iov, 1, -1, flags));
	iov = (struct iovec){"abc", 3};
	say_result(" pwritev2", pwritev2(p.s, &iov, 1, -1, flags));
}

static void each_bit(void (*run)(struct pair p, int flags))
{
	signal(SIGPIPE, SIG_IGN);
	for (int bit = 0; bit < 32; bit++) {
		struct pair p = stage_open(WARM);
		stage_send(p.c, p.s, WARM, 10);
		nonblock(p.s, true);
		say("bit %d", bit);
		run(p, (int)(1u << bit));
		bad_after(p, " after");
		state_close(p);
	}
}

CASE(bad_flags_send, DIRECT)
{
	each_bit(send_bits);
}

CASE(bad_flags_recv, DIRECT)
{
	each_bit(recv_bits);
}

CASE(bad_flags_vector, DIRECT)
{
	each_bit(vector_bits);
}

CASE(bad_offsets, DIRECT)
{
	static const off_t offsets[] = {0, 1, -2, LONG_MIN, LONG_MAX};
	char buf[3];
	struct iovec iov = {buf, 3};
	struct pair p = stage_open(WARM);
	stage_send(p.c, p.s, WARM, 10);
	for (size_t i = 0; i < COUNT_OF(offsets); i++) {
		say_result("preadv2", preadv2(p.s, &iov, 1, offsets[i], 0));
		say_result("pwritev2", pwritev2(p.s, &iov, 1, offsets[i], 0));
		say_result("preadv", preadv(p.s, &iov, 1, offsets[i]));
		say_result("pread", pread(p.s, buf, 3, offsets[i]));
		say_result("pwrite", pwrite(p.s, buf, 3, offsets[i]));
	}
	volatile int none = -1, many = UIO_MAXIOV + 1;
	say_result("readv of -1", readv(p.s, &iov, none));
	say_result("writev of 1025", writev(p.s, &iov, many));
	bad_after(p, "after");
	state_close(p);
}

/* ---- shutdown ---- */

static const int wrong[] = {3, -1, 4, -2, INT_MAX, INT_MIN};

CASE(shutdown_wrong_how, STAYS)
{
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < COUNT_OF(wrong); i++) {
		struct pair p = stage_open(WARM);
		stage_send(p.c, p.s, WARM, 10);
		say_result("shutdown", shutdown(p.s, wrong[i]));
		say_result("of the peer", shutdown(p.c, wrong[i]));
		bad_after(p, "after");
		send_pattern(p.c, 3, 30);
		recv_pattern(p.s, 3, 30);
		state_close(p);
	}
}

/* Refused on what is not connected: but the kernel notes what is asked for. */
CASE(shutdown_then_connect, DIRECT)
{
	signal(SIGPIPE, SIG_IGN);
	pair_close(pair_warm_open());
	for (int how = -1; how <= 3; how++) {
		struct sockaddr_storage to;
		socklen_t len = sizeof to;
		char buf[30];
		uint16_t port;
		int listener = listen_any(AF_INET, &port);
		struct pair p = {.s = socket(AF_INET, SOCK_STREAM, 0)};
		NEED(getsockname(listener, (struct sockaddr *)&to, &len) == 0);
		say_result("shutdown", shutdown(p.s, how));
		say_result("connect", connect(p.s, (struct sockaddr *)&to, len));
		p.c = accept(listener, NULL, NULL);
		NEED(p.c >= 0);
		/* As far as it goes, so that it may be upgraded. */
		for (int i = 0; i < 40; i++) {
			if (send(p.s, "x", 1, MSG_DONTWAIT) == 1)
				recv_all(p.c, buf, 1);
			send_all(p.c, "y", 1);
			wait_inq(p.s, 1);
			recv_all(p.s, buf, 1);
		}
		nonblock(p.s, true);
		say_result("recv", recv(p.s, buf, 1, 0));
		send_all(p.c, "0123456789", 10);
		wait_inq(p.s, 10);
		recv_all(p.s, buf, 10);
		say_result("recv", recv(p.s, buf, 1, 0));
		bad_after(p, "after");
		pair_close(p);
		close(listener);
	}
}

/* A listener that is shut for reading listens no more, and may connect. */
CASE(shutdown_listener, DIRECT)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof to;
	uint16_t port;
	struct pair p;
	int listener = listen_any(AF_INET, &port);
	p.s = listen_any(AF_INET, &port);
	NEED(getsockname(listener, (struct sockaddr *)&to, &len) == 0);
	say_result("for writing", shutdown(p.s, SHUT_WR));
	say_result("for reading", shutdown(p.s, SHUT_RD));
	say_result("connect", connect(p.s, (struct sockaddr *)&to, len));
	p.c = accept(listener, NULL, NULL);
	NEED(p.c >= 0);
	pair_warm(p);
	nonblock(p.s, true);
	char byte;
	say_result("recv", recv(p.s, &byte, 1, 0));
	bad_after(p, "after");
	pair_close(p);
}

/* ---- a peek, and the error behind it ---- */

static void reset(int fd)
{
	struct linger now = {1, 0};
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	NEED(close(fd) == 0);
}

static void tell_error(int fd, int what)
{
	struct pollfd pf = {fd, POLLIN | POLLOUT, 0};
	struct msghdr msg = {0};
	int error = -1;
	socklen_t len = sizeof error;
	if (what == 0) {
		NEED(poll(&pf, 1, 0) >= 0);
		say(" poll %s", poll_names(pf.revents));
	} else if (what == 1) {
		NEED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
		say(" error %s", errno_name(error));
	} else if (what == 2) {
		say_result(" send", send(fd, "x", 1, MSG_NOSIGNAL));
	} else {
		say_result(" recvmsg", recvmsg(fd, &msg, MSG_DONTWAIT));
	}
}

static void peek_before(int leave, int flags, int what)
{
	char buf[30];
	int on = 1;
	struct pair p = stage_open(WARM);
	send_pattern(p.c, 0, 10);
	wait_inq(p.s, 10);
	/* Leads back to TCP, before or behind more bytes. */
	if (leave)
		NEED(ioctl(p.c, FIOASYNC, &on) == 0);
	if (leave == 2) {
		send_pattern(p.c, 10, 10);
		wait_inq(p.s, 20);
	}
	if (flags & MSG_OOB) { /* a clean end */
		NEED(close(p.c) == 0);
		wait_events(p.s, POLLRDHUP);
	} else {
		reset(p.c);
		wait_events(p.s, POLLHUP);
	}
	flags &= ~MSG_OOB;
	say("leave %d, flags %#x", leave, (unsigned)flags);
	for (int i = 0; i < 3; i++)
		say_result(" peek", recv(p.s, buf, sizeof buf, flags));
	tell_error(p.s, what);
	tell_error(p.s, 0);
	nonblock(p.s, true);
	p.c = -1;
	bad_after(p, " after");
	state_close(p);
}

CASE(peek_before_error, DIRECT)
{
	static const int flags[] = {MSG_PEEK, MSG_PEEK | MSG_DONTWAIT,
				    MSG_PEEK | MSG_WAITALL, MSG_PEEK | MSG_TRUNC,
				    MSG_PEEK | MSG_OOB};
	for (int leave = 0; leave < 3; leave++)
		for (size_t f = 0; f < COUNT_OF(flags); f++)
			for (int what = 0; what < 4; what++)
				peek_before(leave, flags[f], what);
}

/* ---- an error that ends a blocked call which has moved something ---- */

CASE(error_behind_blocked_send, DIRECT)
{
	for (int how = 0; how < 2; how++)
		for (int what = 0; what < 4; what++) {
			struct worker t;
			struct pair p = stage_open(WARM);
			struct call c = {p.s, BULK_ROOM, MSG_NOSIGNAL, 0, 0};
			call_start(&t, call_send, &c);
			if (how)
				reset(p.c);
			else /* with bytes unread */
				close(p.c);
			worker_join(&t);
			say("first: %s", c.result > 0 ? "some" : "none");
			tell_error(p.s, what);
			tell_error(p.s, 0);
			say_result("send", send(p.s, "x", 1, MSG_NOSIGNAL));
			p.c = -1;
			bad_after(p, "after");
			state_close(p);
		}
}

CASE(error_behind_blocked_receive, DIRECT)
{
	for (int how = 0; how < 2; how++)
		for (int what = 0; what < 4; what++) {
			struct worker t;
			struct pair p = stage_open(WARM);
			struct call c = {p.s, BULK_ROOM, MSG_WAITALL, 0, 0};
			if (how)
				NEED(send(p.s, "unread", 6, 0) == 6);
			call_start(&t, call_recv, &c);
			send_pattern(p.c, 0, 1000);
			wait_inq(p.s, 0);
			if (how)
				close(p.c);
			else
				reset(p.c);
			worker_join(&t);
			say("first: %zd", c.result);
			tell_error(p.s, what);
			tell_error(p.s, 0);
			say_result("send", send(p.s, "x", 1, MSG_NOSIGNAL));
			p.c = -1;
			bad_after(p, "after");
			state_close(p);
		}
}
