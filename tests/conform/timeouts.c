/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: how long a call may block, and what a signal or a stop makes of it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

static void set_time(int fd, int name, long sec, long usec)
{
	struct timeval tv = {sec, usec};
	NEED(setsockopt(fd, SOL_SOCKET, name, &tv, sizeof tv) == 0);
}

static void say_time(int fd, int name)
{
	struct timeval tv = {7, 7};
	socklen_t len = sizeof tv;
	NEED(getsockopt(fd, SOL_SOCKET, name, &tv, &len) == 0);
	say("is %ld s %ld us", (long)tv.tv_sec, (long)tv.tv_usec);
}

/* What the C library makes of microseconds beyond an int, and the kernel of those that are negative. */
CASE(timeout_odd_microseconds, DIRECT)
{
	static const struct timeval odd[] = {
		{0, 1l << 32}, {0, (1l << 32) + 9999}, {0, LONG_MIN}, {3, 1l << 31},
		{0, -1},       {1, -1000000},	       {1, -1990000}, {2, -1990000}};
	struct pair p = pair_warm_open();
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		struct timeval tv = odd[i];
		fd_set set;
		FD_ZERO(&set);
		FD_SET(p.s, &set);
		say_result("select", select(p.s + 1, &set, NULL, NULL, &tv));
		/* Not those that wait for hours. */
		tv = odd[i];
		FD_SET(p.s, &set);
		if (tv.tv_usec < 0)
			say_result("by its number",
				   syscall(SYS_select, p.s + 1, &set, NULL, NULL, &tv));
	}
	pair_close(p);
}

/* ---- times that are for ever ---- */

static const long ages[] = {9220000000,	      9223372036,      9223372037, 18446744074,
			    4611686018427387, LONG_MAX / 1000, LONG_MAX};

CASE(timeout_of_ages_recv, DIRECT)
{
	struct pair p = pair_warm_open();
	for (unsigned i = 0; i < sizeof ages / sizeof *ages; i++) {
		struct call c = {.fd = p.s, .len = 5};
		struct worker t;
		set_time(p.s, SO_RCVTIMEO, ages[i], 999999);
		call_start(&t, call_recv, &c);
		send_all(p.c, "hello", 5);
		call_end(&t, &c);
	}
	pair_close(p);
}

CASE(timeout_of_ages_send, DIRECT)
{
	struct pair p = pair_warm_open();
	for (unsigned i = 0; i < sizeof ages / sizeof *ages; i++) {
		struct call c = {.fd = p.s, .len = BULK};
		struct worker t;
		set_time(p.s, SO_SNDTIMEO, ages[i], 0);
		call_start(&t, call_send, &c);
		read_bulk(p.c, BULK);
		call_end(&t, &c);
	}
	pair_close(p);
}

static void say_byte_in(const char *name, int result, int fd)
{
	char byte;
	say_result(name, result);
	recv_all(fd, &byte, 1);
}

/* The same time for all that waits otherwise. */
CASE(timeout_of_ages_ready, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	for (unsigned i = 0; i < sizeof ages / sizeof *ages; i++) {
		struct timespec ts = {ages[i], 999999999};
		struct timeval tv = {ages[i], 999999};
		struct pollfd f = {p.s, POLLIN, 0};
		struct mmsghdr m = {
			.msg_hdr = {.msg_iov = &(struct iovec){bulk_room(), 1},
				    .msg_iovlen = 1}};
		fd_set set;
		FD_ZERO(&set);
		for (int way = 0; way < 5; way++) {
			pid_t pid = fork();
			NEED(pid >= 0);
			if (pid == 0) {
				wait_asleep(getppid(), getppid());
				send_all(p.c, "x", 1);
				_exit(0);
			}
			FD_SET(p.s, &set);
			if (way == 0)
				say_byte_in("ppoll", ppoll(&f, 1, &ts, NULL), p.s);
			else if (way == 1)
				say_byte_in("select",
					    select(p.s + 1, &set, NULL, NULL, &tv), p.s);
			else if (way == 2)
				say_byte_in("pselect",
					    pselect(p.s + 1, &set, NULL, NULL, &ts, NULL),
					    p.s);
			else if (way == 3)
				say_byte_in("epoll", epoll_pwait2(ep, &ev, 1, &ts, NULL),
					    p.s);
			else
				say_result("recvmmsg", recvmmsg(p.s, &m, 1, 0, &ts));
			NEED(child_status(pid) == 0);
		}
		say("left: %d", ts.tv_sec > 1000000000);
	}
	close(ep);
	pair_close(p);
}

/* ---- times that are over before they begin ---- */

static void try_all(struct pair p)
{
	char buf[8];
	struct mmsghdr m = {
		.msg_hdr = {.msg_iov = &(struct iovec){buf, 8}, .msg_iovlen = 1}};
	say_result("recv", recv(p.s, buf, 8, 0));
	say_result("read", read(p.s, buf, 8));
	say_result("peek", recv(p.s, buf, 8, MSG_PEEK | MSG_WAITALL));
	say_result("recvmmsg", recvmmsg(p.s, &m, 1, 0, NULL));
	send_all(p.c, "abc", 3);
	wait_inq(p.s, 3);
	say_result("part", recv(p.s, buf, 8, MSG_WAITALL));
	ssize_t more, sent = send(p.s, bulk_room(), BULK, 0);
	say("some %d", sent > 0 && sent < BULK);
	/* An acknowledgement that comes late makes room once more. */
	while ((more = send(p.s, bulk_room(), BULK, 0)) > 0)
		sent += more;
	say_result("full", more);
	read_bulk(p.c, (size_t)sent);
}

static void negative(struct pair p)
{
	set_time(p.s, SO_RCVTIMEO, -1, 0);
	set_time(p.s, SO_SNDTIMEO, LONG_MIN, 999999);
	say_time(p.s, SO_RCVTIMEO);
	try_all(p);
	/* And back. */
	struct call c = {.fd = p.s, .len = 5};
	struct worker t;
	set_time(p.s, SO_RCVTIMEO, 0, 0);
	call_start(&t, call_recv, &c);
	send_all(p.c, "hello", 5);
	call_end(&t, &c);
	set_time(p.s, SO_SNDTIMEO, 0, 0);
	c.len = BULK;
	call_start(&t, call_send, &c);
	read_bulk(p.c, BULK);
	call_end(&t, &c);
}

CASE(timeout_negative, DIRECT)
{
	struct pair p = pair_warm_open();
	negative(p);
	pair_close(p);
}

CASE(timeout_negative_before, DIRECT)
{
	struct pair p = pair_open();
	set_time(p.s, SO_RCVTIMEO, -5, 0);
	set_time(p.s, SO_SNDTIMEO, -5, 0);
	/* Its own receives do not wait, so each is made when there is something. */
	for (int i = 0; i < 200; i++) {
		char buf[8];
		send_all(p.c, "hello", 5);
		wait_events(p.s, POLLIN);
		recv_all(p.s, buf, 5);
		send_all(p.s, "hello", 5);
		recv_all(p.c, buf, 5);
	}
	try_all(p);
	pair_close(p);
}

CASE(timeout_negative_by_numbers, DIRECT)
{
	struct pair p = pair_warm_open();
	static const int names[] = {20, 21, 66, 67};
	char buf[8];
	for (int i = 0; i < 4; i++) {
		struct timeval tv = {-1, 0}, none = {0};
		bool rx = names[i] == 20 || names[i] == 66;
		ssize_t sent = 0;
		say_result("set", syscall(SYS_setsockopt, p.s, SOL_SOCKET, names[i], &tv,
					  (socklen_t)sizeof tv));
		if (rx)
			say_result("recv", recv(p.s, buf, 8, 0));
		else
			sent = send(p.s, bulk_room(), BULK, 0);
		if (!rx)
			say("some %d", sent > 0 && sent < BULK);
		if (sent > 0)
			read_bulk(p.c, (size_t)sent);
		NEED(setsockopt(p.s, SOL_SOCKET, names[i], &none, sizeof none) == 0);
	}
	pair_close(p);
}

static void by_dup(struct pair p)
{
	int other = dup(p.s);
	set_time(other, SO_RCVTIMEO, -1, 0);
	close(other);
}

static void by_child(struct pair p)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		set_time(p.s, SO_RCVTIMEO, -1, 0);
		_exit(0);
	}
	NEED(child_status(pid) == 0);
}

/* The kernel takes whole seconds out of the microseconds first, and looks at the sign behind that. */
CASE(timeout_select_by_number, DIRECT)
{
	struct pair p = pair_warm_open();
	const struct timeval times[] = {{-1, 0},
					{-1, 1999999},
					{-1, 1000000},
					{-1, 2000000},
					{0, 1000000},
					{1, -1},
					{0, -1},
					{2, -1000000},
					{LONG_MAX, 999999},
					{LONG_MAX, 1000000}};
	send_all(p.c, "hello", 5);
	wait_events(p.s, POLLIN);
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		struct timeval tv = times[i];
		fd_set set;
		FD_ZERO(&set);
		FD_SET(p.s, &set);
		say_result("select", syscall(SYS_select, p.s + 1, &set, NULL, NULL, &tv));
	}
	pair_close(p);
}

CASE(timeout_negative_by_others, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8];
	by_dup(p);
	say_result("recv", recv(p.s, buf, 8, 0));
	set_time(p.s, SO_RCVTIMEO, 0, 0);
	by_child(p);
	say_result("recv", recv(p.s, buf, 8, 0));
	pair_close(p);
}

static struct pair from_listener(long sec, long then)
{
	uint16_t port;
	struct pair p;
	int listener = listen_any(AF_INET, &port);
	struct pollfd f = {listener, POLLIN, 0};
	set_time(listener, SO_RCVTIMEO, sec, 0);
	set_time(listener, SO_SNDTIMEO, sec, 0);
	p.c = connect_to(AF_INET, port);
	NEED(poll(&f, 1, -1) == 1);
	set_time(listener, SO_RCVTIMEO, then, 0);
	set_time(listener, SO_SNDTIMEO, then, 0);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	close(listener);
	return p;
}

CASE(timeout_inherited, ANYWAY)
{
	static const long of[][2] = {{-1, -1}, {-1, 0}, {0, -1}, {-1, 60}, {60, -1}};
	for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
		struct pair p = from_listener(of[i][0], of[i][1]);
		char buf[8];
		for (int k = 0; k < 200; k++) {
			send_all(p.c, "hello", 5);
			wait_events(p.s, POLLIN);
			recv_all(p.s, buf, 5);
			send_all(p.s, "hello", 5);
			recv_all(p.c, buf, 5);
		}
		say_time(p.s, SO_RCVTIMEO);
		if (of[i][0] == -1)
			try_all(p);
		else
			negative(p);
		pair_close(p);
	}
}

CASE(timeout_wrong, DIRECT)
{
	struct pair p = pair_warm_open();
	static const struct timeval wrong[] = {
		{1, 1000000}, {1, -1}, {-1, -1}, {-1, 1000000}, {0, LONG_MAX}};
	struct timeval tv = {1, 0};
	struct call c = {.fd = p.s, .len = 5};
	struct worker t;
	for (int name = SO_RCVTIMEO; name <= SO_SNDTIMEO; name++) {
		for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
			say_result("wrong", setsockopt(p.s, SOL_SOCKET, name, &wrong[i],
						       sizeof tv));
		say_result("short", setsockopt(p.s, SOL_SOCKET, name, &tv, 15));
		say_result("less", setsockopt(p.s, SOL_SOCKET, name, &tv, (socklen_t)-1));
		say_result("nowhere", setsockopt(p.s, SOL_SOCKET, name, NULL, 16));
		say_result("far", setsockopt(p.s, SOL_SOCKET, name, (void *)16, 16));
		say_time(p.s, name);
	}
	call_start(&t, call_recv, &c);
	send_all(p.c, "hello", 5);
	call_end(&t, &c);
	pair_close(p);
}

/* sendfile may wait so long for each of its pieces, write in all. */
static void read_slowly(int fd, void *arg)
{
	static char to[300000];
	ssize_t n;
	(void)arg;
	do {
		usleep(100000);
		n = recv(fd, to, sizeof to, 0);
	} while (n > 0);
	NEED(n == 0);
}

CASE(timeout_sendfile, DIRECT)
{
	char name[] = "/tmp/conform-XXXXXX";
	int file = mkstemp(name);
	pid_t pid;
	int fd = peer_start(read_slowly, NULL, &pid);
	NEED(file >= 0 && unlink(name) == 0 && ftruncate(file, BULK) == 0);
	set_time(fd, SO_SNDTIMEO, 1, 500000);
	say_result("sendfile", sendfile(fd, file, NULL, BULK));
	close(file);
	close(fd);
	say("status %d", child_status(pid));
}

/* ---- a stop in mid-call, or a signal ---- */

enum mid { STOP, RESTARTING, ENDING };

struct stopper {
	struct signal_pipe begins;
	enum mid mid;
	bool then_sends; /* the call goes on: it gets what it waits for */
	size_t unread;	 /* to be read in the end */
};

static void stop_peer(int fd, void *arg)
{
	struct stopper *st = arg;
	pid_t pid = getppid();
	signal_wait(st->begins);
	wait_asleep(pid, pid);
	if (st->mid == STOP) {
		NEED(kill(pid, SIGSTOP) == 0);
		/* Not a child of ours: its state tells. */
		usleep(50000);
		NEED(kill(pid, SIGCONT) == 0);
	} else {
		NEED(kill(pid, SIGUSR1) == 0);
	}
	if (st->then_sends) {
		wait_asleep(pid, pid);
		usleep(50000);
		send_all(fd, "hello", 5);
	}
	signal_wait(st->begins);
	if (st->unread) {
		int error;
		shutdown(fd, SHUT_WR);
		recv_to_end(fd, &error);
	}
}

static void nothing(int sig)
{
	(void)sig;
}

static int stop_start(struct stopper *st, pid_t *pid)
{
	struct sigaction act = {.sa_handler = nothing,
				.sa_flags = st->mid == RESTARTING ? SA_RESTART : 0};
	if (st->mid != STOP)
		NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	st->begins = signal_pipe();
	return peer_start(stop_peer, st, pid);
}

static void stop_end(struct stopper *st, int fd, pid_t pid)
{
	signal_send(st->begins);
	close(fd);
	say("status %d", child_status(pid));
}

static void recv_stopped(enum mid mid, long sec, int flags, size_t len, bool sends)
{
	struct stopper st = {.mid = mid, .then_sends = sends};
	char buf[16];
	pid_t pid;
	int fd = stop_start(&st, &pid);
	set_time(fd, SO_RCVTIMEO, sec, 0);
	signal_send(st.begins);
	say_result("recv", recv(fd, buf, len, flags));
	stop_end(&st, fd, pid);
}

CASE(stopped_recv_timed, DIRECT)
{
	for (enum mid mid = STOP; mid <= ENDING; mid++) {
		recv_stopped(mid, 600, 0, 5, false);
		recv_stopped(mid, 600, MSG_WAITALL, 5, false);
		recv_stopped(mid, 600, MSG_PEEK, 5, false);
		recv_stopped(mid, 9220000000, 0, 5, false);
	}
}

CASE(stopped_recv, DIRECT)
{
	recv_stopped(STOP, 0, 0, 5, true);
	recv_stopped(RESTARTING, 0, 0, 5, true);
	recv_stopped(ENDING, 0, 0, 5, false);
	recv_stopped(STOP, 0, MSG_WAITALL, 5, true);
	recv_stopped(RESTARTING, 0, MSG_WAITALL, 5, true);
	recv_stopped(RESTARTING, 0, MSG_PEEK, 5, true);
	for (enum mid mid = STOP; mid <= ENDING; mid++)
		recv_stopped(mid, 0, 0, 0, false);
}

static void recv_part_stopped(enum mid mid, int flags, long sec)
{
	struct stopper st = {.mid = mid};
	struct pair p = pair_warm_open();
	struct worker t;
	struct call c = {.fd = p.s, .len = 5, .flags = flags};
	pid_t pid;
	int fd = stop_start(&st, &pid);
	set_time(p.s, SO_RCVTIMEO, sec, 0);
	send_all(p.c, "ab", 2);
	signal_send(st.begins);
	/* In this thread: that is the one that is waited for, and gets the signal. */
	(void)t;
	c.result = recv(c.fd, bulk_room(), c.len, c.flags);
	say_result("part", c.result);
	stop_end(&st, fd, pid);
	pair_close(p);
}

CASE(stopped_recv_part, DIRECT)
{
	for (enum mid mid = STOP; mid <= ENDING; mid++) {
		recv_part_stopped(mid, MSG_WAITALL, 0);
		recv_part_stopped(mid, MSG_WAITALL, 600);
		recv_part_stopped(mid, MSG_WAITALL | MSG_PEEK, 0);
	}
}

static void send_stopped(enum mid mid, long sec, bool full)
{
	struct stopper st = {.mid = mid, .unread = 1};
	pid_t pid;
	int fd = stop_start(&st, &pid);
	set_time(fd, SO_SNDTIMEO, sec, 0);
	/* TCP takes some more once it has been full, as bytes go on to the other end. */
	for (int seen = 0; full && seen < 50; usleep(1000))
		seen = send(fd, bulk_room(), BULK, MSG_DONTWAIT) > 0 ? 0 : seen + 1;
	signal_send(st.begins);
	ssize_t n = send(fd, bulk_room(), BULK, 0);
	if (n > 0)
		say("part %d", n < BULK);
	else
		say_result("send", n);
	shutdown(fd, SHUT_WR);
	stop_end(&st, fd, pid);
}

CASE(stopped_send, DIRECT)
{
	for (enum mid mid = STOP; mid <= ENDING; mid++) {
		send_stopped(mid, 0, false);
		send_stopped(mid, 600, false);
		send_stopped(mid, 600, true);
	}
	send_stopped(ENDING, 0, true);
}

static void ready_stopped(enum mid mid, int way)
{
	bool sends = mid == STOP && way < 4;
	struct stopper st = {.mid = mid, .then_sends = sends};
	struct epoll_event ev = {.events = EPOLLIN};
	const struct timespec ts = {600, 0};
	struct timeval tv = {600, 0};
	pid_t pid;
	int fd = stop_start(&st, &pid), ep = epoll_create1(0), outer = epoll_create1(0);
	struct pollfd f = {fd, POLLIN, 0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	if (way > 5)
		NEED(epoll_ctl(outer, EPOLL_CTL_ADD, ep, &ev) == 0);
	signal_send(st.begins);
	switch (way) {
	case 0:
		say_result("poll", poll(&f, 1, 600000));
		break;
	case 1:
		say_result("ppoll", ppoll(&f, 1, &ts, NULL));
		break;
	case 2:
		say_result("select", select(fd + 1, &set, NULL, NULL, &tv));
		break;
	case 3:
		say_result("pselect", pselect(fd + 1, &set, NULL, NULL, NULL, NULL));
		break;
	case 4:
		say_result("epoll", epoll_wait(ep, &ev, 1, 600000));
		break;
	case 5:
		say_result("epoll", epoll_pwait2(ep, &ev, 1, NULL, NULL));
		break;
	case 6:
		say_result("outer", epoll_wait(outer, &ev, 1, 600000));
		break;
	default:
		say_result("outer", epoll_pwait2(outer, &ev, 1, NULL, NULL));
	}
	close(ep);
	close(outer);
	stop_end(&st, fd, pid);
}

CASE(stopped_ready, DIRECT)
{
	for (enum mid mid = STOP; mid <= ENDING; mid++)
		for (int way = 0; way < 8; way++)
			ready_stopped(mid, way);
}
