/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: options that another thread sets while a call is under way. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

static void set_int(int fd, int name, int value)
{
	NEED(setsockopt(fd, SOL_SOCKET, name, &value, sizeof value) == 0);
}

static void set_ms(int fd, int name, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	NEED(setsockopt(fd, SOL_SOCKET, name, &tv, sizeof tv) == 0);
}

/* ---- what may be set ---- */

static void by_fcntl(int fd)
{
	NEED(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
}

static void by_ioctl(int fd)
{
	int on = 1;
	NEED(ioctl(fd, FIONBIO, &on) == 0);
}

static void by_child(int fd)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		by_fcntl(fd);
		_exit(0);
	}
	NEED(child_status(pid) == 0);
}

static void by_times(int fd)
{
	set_ms(fd, SO_RCVTIMEO, 50);
	set_ms(fd, SO_SNDTIMEO, 50);
	usleep(300000);
}

static void by_no_time(int fd)
{
	struct timeval tv = {-1, 0};
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
	NEED(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
}

/* An option with which the connection has to be the kernel's. */
static void by_going(int fd)
{
	by_fcntl(fd);
	set_int(fd, SO_TIMESTAMP, 1);
}

static void by_going_timed(int fd)
{
	by_times(fd);
	set_int(fd, SO_TIMESTAMP, 1);
	usleep(300000);
}

static void (*const ways[])(int) = {by_fcntl,	by_ioctl, by_child,	 by_times,
				    by_no_time, by_going, by_going_timed};
#define WAYS (sizeof ways / sizeof *ways)

/* A receive that has to wait for all its bytes does. */
static void recv_set(void (*set)(int), size_t first, int flags, long ms)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 10, .flags = flags};
	struct worker t;
	if (ms)
		set_ms(p.s, SO_RCVTIMEO, (int)ms);
	call_start(&t, call_recv, &c);
	if (first) {
		send_all(p.c, "abcdefghij", first);
		wait_inq(p.s, flags & MSG_PEEK ? (int)first : 0);
		wait_crowd_asleep(&t.tid, 1);
	}
	set(p.s);
	send_all(p.c, "abcdefghij", 3);
	if (!(flags & MSG_PEEK) && (flags & MSG_WAITALL))
		wait_inq(p.s, 0);
	wait_crowd_asleep(&t.tid, 1);
	if (first)
		send_all(p.c, "abcdefghij", 7 - first);
	call_end(&t, &c);
	/* What comes next goes by what was set. */
	if (flags & MSG_PEEK)
		recv_all(p.s, bulk_room(), 10);
	pair_close(p);
}

CASE(midcall_recv_all, DIRECT)
{
	for (unsigned i = 0; i < WAYS; i++)
		recv_set(ways[i], 4, MSG_WAITALL, 0);
}

CASE(midcall_recv_all_timed, DIRECT)
{
	for (unsigned i = 0; i < WAYS; i++)
		recv_set(ways[i], 4, MSG_WAITALL, 600000);
}

CASE(midcall_recv, DIRECT)
{
	for (unsigned i = 0; i < WAYS; i++) {
		recv_set(ways[i], 0, 0, 0);
		recv_set(ways[i], 0, 0, 600000);
	}
}

CASE(midcall_recv_peek, DIRECT)
{
	for (unsigned i = 0; i < WAYS; i++)
		recv_set(ways[i], 4, MSG_PEEK | MSG_WAITALL, 0);
}

/* It ends before an urgent byte, also behind bytes that come when the connection has gone back to TCP. */
static void peek_urgent(bool ours_goes, size_t first, size_t more)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 10, .flags = MSG_PEEK | MSG_WAITALL};
	struct timespec begin, end;
	struct worker t;
	set_ms(p.s, SO_RCVTIMEO, 4000);
	NEED(clock_gettime(CLOCK_MONOTONIC, &begin) == 0);
	call_start(&t, call_recv, &c);
	if (first)
		send_all(p.c, "abcdefghij", first);
	wait_inq(p.s, (int)first);
	wait_crowd_asleep(&t.tid, 1);
	set_int(ours_goes ? p.s : p.c, SO_TIMESTAMP, 1);
	if (more)
		send_all(p.c, "abcdefghij", more);
	wait_inq(p.s, (int)(first + more));
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	call_end(&t, &c);
	NEED(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
	say("late: %d", end.tv_sec - begin.tv_sec >= 3);
	pair_close(p);
}

CASE(midcall_recv_peek_urgent, DIRECT)
{
	for (int ours_goes = 0; ours_goes < 2; ours_goes++) {
		peek_urgent(ours_goes, 4, 0);
		peek_urgent(ours_goes, 4, 2);
		peek_urgent(ours_goes, 0, 2);
	}
}

/* A time that was there is kept, too. */
CASE(midcall_recv_untimed, DIRECT)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 10};
	struct worker t;
	set_ms(p.s, SO_RCVTIMEO, 700);
	call_start(&t, call_recv, &c);
	set_ms(p.s, SO_RCVTIMEO, 0);
	call_end(&t, &c);
	call_start(&t, call_recv, &c);
	set_ms(p.s, SO_RCVTIMEO, 100);
	usleep(300000);
	send_all(p.c, "hello", 5);
	call_end(&t, &c);
	pair_close(p);
}

/* A write that has to send all its bytes does. */
static void send_set(void (*set)(int), int ms)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = BULK};
	struct worker t;
	if (ms)
		set_ms(p.s, SO_SNDTIMEO, ms);
	call_start(&t, call_send, &c);
	set(p.s);
	read_bulk(p.c, BULK);
	call_end(&t, &c);
	pair_close(p);
}

CASE(midcall_send, DIRECT)
{
	for (unsigned i = 0; i < WAYS; i++) {
		send_set(ways[i], 0);
		send_set(ways[i], 600000);
	}
}

/* ---- buffers that become larger ---- */

/* Both ends have small buffers: larger ones than these take less than Viaduct's middle area. */
static struct pair small_pair(void)
{
	struct pair p = pair_warm_open();
	set_int(p.s, SO_SNDBUF, 8192);
	set_int(p.c, SO_RCVBUF, 8192);
	return p;
}

enum { MORE = 300000, LARGE = 212992 };

static void raise_send(struct pair p)
{
	set_int(p.s, SO_SNDBUF, LARGE);
}

static void raise_receive(struct pair p)
{
	set_int(p.c, SO_RCVBUF, LARGE);
}

static void room_raised(void (*raise)(struct pair))
{
	struct pair p = small_pair();
	struct call c = {.fd = p.s, .len = MORE};
	struct worker t;
	call_start(&t, call_send, &c);
	raise(p);
	call_end(&t, &c);
	read_bulk(p.c, MORE);
	pair_close(p);
}

CASE(midcall_send_buffer, DIRECT)
{
	room_raised(raise_send);
}

CASE(midcall_receive_buffer, DIRECT)
{
	room_raised(raise_receive);
}

/* More than Viaduct's largest area: TCP takes it. */
CASE(midcall_send_buffer_large, DIRECT)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 6000000};
	struct worker t;
	int large = 8000000;
	call_start(&t, call_send, &c);
	if (setsockopt(p.s, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large) != 0)
		skip("SO_SNDBUFFORCE needs root");
	call_end(&t, &c);
	read_bulk(p.c, 6000000);
	pair_warm(p);
	pair_close(p);
}

struct waiter {
	int fd, ep, result;
	short events;
};

static void wait_poll(void *arg)
{
	struct waiter *w = arg;
	struct pollfd f = {w->fd, POLLOUT, 0};
	w->result = poll(&f, 1, -1);
	w->events = f.revents;
}

static void wait_epoll(void *arg)
{
	struct waiter *w = arg;
	struct epoll_event ev;
	w->result = epoll_wait(w->ep, &ev, 1, -1);
	w->events = (short)ev.events;
}

static void ready_raised(void (*wait)(void *), uint32_t trigger)
{
	struct pair p = small_pair();
	struct waiter w = {.fd = p.s, .ep = epoll_create1(0)};
	struct epoll_event ev = {.events = EPOLLOUT | trigger};
	struct worker t;
	size_t sent = 0;
	ssize_t n;
	NEED(epoll_ctl(w.ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	NEED(epoll_wait(w.ep, &ev, 1, -1) == 1);
	while ((n = send(p.s, bulk_room(), BULK, MSG_DONTWAIT)) > 0)
		sent += (size_t)n;
	worker_start(&t, wait, &w);
	wait_crowd_asleep(&t.tid, 1);
	raise_send(p);
	worker_join(&t);
	say("%d: %s", w.result, poll_names(w.events));
	n = send(p.s, bulk_room(), 1000, MSG_DONTWAIT);
	say_result("more", n);
	read_bulk(p.c, sent + 1000);
	close(w.ep);
	pair_close(p);
}

CASE(midcall_buffer_poll, DIRECT)
{
	ready_raised(wait_poll, 0);
}

CASE(midcall_buffer_epoll, DIRECT)
{
	ready_raised(wait_epoll, 0);
}

CASE(midcall_buffer_edge, DIRECT)
{
	ready_raised(wait_epoll, EPOLLET);
}

static void set_tcp(int fd, int name, int value)
{
	NEED(setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value) == 0);
}

/* What is held back goes by what is set when it is written. */
CASE(midcall_cork, DIRECT)
{
	static const int names[] = {TCP_CORK, TCP_NODELAY};
	for (int i = 0; i < 2; i++) {
		struct pair p = pair_warm_open();
		struct call c = {.fd = p.s, .len = BULK};
		struct worker t;
		call_start(&t, call_send, &c);
		set_tcp(p.s, names[i], 1);
		read_bulk(p.c, BULK);
		call_end(&t, &c);
		set_tcp(p.s, names[i], 0);
		pair_close(p);
	}
}
