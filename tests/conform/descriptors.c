/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a program near its limit of descriptors has all of them, upgraded or not. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/descriptors.h"

static void pairs_open(struct pair *p, int count)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	for (int i = 0; i < count; i++) {
		p[i].c = connect_to(AF_INET, port);
		p[i].s = accept(listener, NULL, NULL);
		NEED(p[i].s >= 0);
	}
	NEED(close(listener) == 0);
	for (int i = 0; i < count; i++)
		pair_warm(p[i]);
}

/* ---- ways to make descriptors ---- */

int make_dup(int *fds)
{
	fds[0] = dup(0);
	return fds[0] < 0 ? -1 : 1;
}

static int make_dupfd(int *fds)
{
	fds[0] = fcntl(0, F_DUPFD, 3);
	return fds[0] < 0 ? -1 : 1;
}

/* There are lower numbers, which will not do. */
static int make_dupfd_high(int *fds)
{
	fds[0] = fcntl(0, F_DUPFD_CLOEXEC, LIMIT * 3 / 4);
	return fds[0] < 0 ? -1 : 1;
}

static int make_open(int *fds)
{
	fds[0] = open("/dev/null", O_RDONLY);
	return fds[0] < 0 ? -1 : 1;
}

int make_socket(int *fds)
{
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	return fds[0] < 0 ? -1 : 1;
}

int make_pipe(int *fds)
{
	return pipe(fds) < 0 ? -1 : 2;
}

static int make_pair(int *fds)
{
	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 ? -1 : 2;
}

static int make_epoll(int *fds)
{
	fds[0] = epoll_create1(0);
	return fds[0] < 0 ? -1 : 1;
}

static int make_eventfd(int *fds)
{
	fds[0] = eventfd(0, 0);
	return fds[0] < 0 ? -1 : 1;
}

static const struct {
	const char *name;
	int (*make)(int *fds);
} makers[] = {{"dup", make_dup},
	      {"F_DUPFD", make_dupfd},
	      {"open", make_open},
	      {"socket", make_socket},
	      {"pipe", make_pipe},
	      {"socketpair", make_pair},
	      {"epoll_create", make_epoll},
	      {"eventfd", make_eventfd},
	      {"F_DUPFD from a number", make_dupfd_high}};
#define MAKERS (sizeof makers / sizeof *makers)

static int fill_quietly(int (*make)(int *fds), int *fds)
{
	int count = 0, n;
	while ((n = make(fds + count)) > 0)
		count += n;
	return count;
}

int fill(int (*make)(int *fds), int *fds)
{
	int count = fill_quietly(make, fds);
	say("%d, then %s", count, errno_name(errno));
	return count;
}

void empty(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		NEED(close(fds[i]) == 0);
}

static int taken[2 * LIMIT];

/* ---- both ends in this process ---- */

static void turns(const struct pair *p, int count)
{
	for (int i = 0; i < count; i++) {
		send_pattern(p[i].c, (uint64_t)i, 100);
		recv_pattern(p[i].s, (uint64_t)i, 100);
		send_pattern(p[i].s, (uint64_t)i, 200);
		recv_pattern(p[i].c, (uint64_t)i, 200);
	}
}

static void say_ends(const struct pair *p, int count)
{
	int error;
	for (int i = 0; i < count; i++) {
		NEED(close(p[i].c) == 0);
		NEED(recv_to_end(p[i].s, &error) == 0 && error == 0);
		NEED(close(p[i].s) == 0);
	}
	say("all ended");
}

static void fill_with(size_t maker)
{
	struct pair p[PAIRS];
	set_limit(LIMIT);
	pairs_open(p, PAIRS);
	int count = fill(makers[maker].make, taken);
	turns(p, PAIRS);
	empty(taken, count);
	turns(p, PAIRS);
	say_ends(p, PAIRS);
	count = fill(makers[maker].make, taken);
	empty(taken, count);
}

CASE(descriptors_dup, DIRECT)
{
	fill_with(0);
}

CASE(descriptors_dupfd, DIRECT)
{
	fill_with(1);
}

CASE(descriptors_open, DIRECT)
{
	fill_with(2);
}

CASE(descriptors_socket, DIRECT)
{
	fill_with(3);
}

CASE(descriptors_pipe, DIRECT)
{
	fill_with(4);
}

CASE(descriptors_socketpair, DIRECT)
{
	fill_with(5);
}

CASE(descriptors_epoll, DIRECT)
{
	fill_with(6);
}

CASE(descriptors_eventfd, DIRECT)
{
	fill_with(7);
}

CASE(descriptors_dupfd_high, DIRECT)
{
	fill_with(8);
}

/* More connections, of which the early ones were upgraded. */
CASE(descriptors_accept, DIRECT)
{
	struct pair p[LIMIT];
	uint16_t port;
	int count = 0, late;
	set_limit(LIMIT);
	int listener = listen_any(AF_INET, &port);
	for (; count < (LIMIT - 8) / 2; count++) {
		p[count].c = connect_to(AF_INET, port);
		p[count].s = accept(listener, NULL, NULL);
		NEED(p[count].s >= 0);
		pair_warm(p[count]);
	}
	int extra = connect_to(AF_INET, port);
	int rest = fill(make_dup, taken);
	nonblock(listener, true);
	say_result("accept", accept(listener, NULL, NULL));
	say_result("accept4", accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	/* It has waited in the queue. */
	NEED(close(taken[--rest]) == 0);
	late = accept(listener, NULL, NULL);
	NEED(late >= 0);
	pair_warm((struct pair){extra, late});
	turns(p, count);
	empty(taken, rest);
	turns(p, count);
	say_ends(p, count);
}

/* Received over AF_UNIX, one by one. */
static int channel[2];

static int make_received(int *fds)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	send_fd(channel[0], 0);
	NEED(recvmsg(channel[1], &msg, 0) == 1);
	if (msg.msg_flags & MSG_CTRUNC) {
		errno = EMFILE;
		return -1;
	}
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof *fds);
	return 1;
}

CASE(descriptors_received, DIRECT)
{
	struct pair p[PAIRS];
	set_limit(LIMIT);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pairs_open(p, PAIRS);
	int count = fill(make_received, taken);
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}

/* The limit is lowered, to numbers that Viaduct holds or below them. */
static void lowered(rlim_t first, rlim_t then)
{
	struct pair p[PAIRS];
	set_limit(first);
	pairs_open(p, PAIRS);
	set_limit(then);
	int count = fill(make_dup, taken);
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}

CASE(descriptors_lowered, DIRECT)
{
	lowered(512, 300);
}

CASE(descriptors_lowered_far, DIRECT)
{
	lowered(1024, LIMIT);
}

CASE(descriptors_raised, DIRECT)
{
	lowered(LIMIT, 2 * LIMIT);
}

/* ---- what is under way when a connection is handed back ---- */

CASE(descriptors_unread, DIRECT)
{
	struct pair p[PAIRS];
	set_limit(LIMIT);
	pairs_open(p, PAIRS);
	for (int i = 0; i < PAIRS; i++) {
		send_pattern(p[i].c, 0, UNREAD);
		send_pattern(p[i].s, 7, UNREAD);
	}
	int count = fill(make_dup, taken);
	for (int i = 0; i < PAIRS; i++) {
		wait_inq(p[i].s, UNREAD);
		send_pattern(p[i].c, UNREAD, UNREAD);
		recv_pattern(p[i].s, 0, 2 * UNREAD);
		recv_pattern(p[i].c, 7, UNREAD);
	}
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}

#define READERS 8

static void read_pattern(void *arg)
{
	recv_pattern(*(int *)arg, 3, UNREAD);
}

static void write_much(void *arg)
{
	send_pattern(*(int *)arg, 9, 12u << 20);
}

/* Threads sleep in a receive, and some for room, on connections that are handed back. */
static void fill_beside(void (*run)(void *arg))
{
	struct pair p[PAIRS];
	struct worker w[READERS];
	pid_t tids[READERS];
	set_limit(LIMIT + 2 * READERS);
	pairs_open(p, PAIRS);
	for (int i = 0; i < READERS; i++) {
		worker_start(&w[i], run, &p[i].s);
		tids[i] = w[i].tid;
	}
	wait_crowd_asleep(tids, READERS);
	/* More than TCP takes without a reader stays in the ring, and its doorbells with it. */
	int count =
		run == write_much ? fill_quietly(make_dup, taken) : fill(make_dup, taken);
	for (int i = 0; i < READERS; i++) {
		if (run == read_pattern)
			send_pattern(p[i].c, 3, UNREAD);
		else
			recv_pattern(p[i].c, 9, 12u << 20);
		worker_join(&w[i]);
	}
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}

CASE(descriptors_asleep_reading, DIRECT)
{
	fill_beside(read_pattern);
}

CASE(descriptors_asleep_writing, DIRECT)
{
	fill_beside(write_much);
}

struct loop {
	int epfd;
	uint32_t events;
	struct pair *p;
	int got[PAIRS];
};

/* Takes UNREAD bytes of each connection, one event at a time. */
static void run_loop(void *arg)
{
	struct loop *l = arg;
	char buf[512];
	for (int open = PAIRS; open > 0;) {
		struct epoll_event ev;
		if (epoll_wait(l->epfd, &ev, 1, -1) != 1)
			continue;
		int i = (int)ev.data.u32, before = l->got[i];
		ssize_t n;
		while ((n = recv(l->p[i].s, buf, sizeof buf, MSG_DONTWAIT)) > 0) {
			for (ssize_t k = 0; k < n; k++)
				NEED((uint8_t)buf[k] ==
				     pattern((uint64_t)(l->got[i] + k)));
			l->got[i] += (int)n;
		}
		NEED(n < 0 && errno == EAGAIN && l->got[i] <= UNREAD);
		open -= l->got[i] == UNREAD && before < UNREAD;
		ev.events = l->events;
		if (l->events & EPOLLONESHOT)
			NEED(epoll_ctl(l->epfd, EPOLL_CTL_MOD, l->p[i].s, &ev) == 0);
	}
}

static void epoll_beside(uint32_t events)
{
	static struct loop l;
	struct pair p[PAIRS];
	struct worker w;
	set_limit(LIMIT);
	l.p = p;
	l.epfd = epoll_create1(0);
	l.events = events;
	pairs_open(p, PAIRS);
	for (uint32_t i = 0; i < PAIRS; i++) {
		struct epoll_event ev = {.events = events, .data.u32 = i};
		NEED(epoll_ctl(l.epfd, EPOLL_CTL_ADD, p[i].s, &ev) == 0);
	}
	worker_start(&w, run_loop, &l);
	wait_crowd_asleep(&w.tid, 1);
	int count = fill(make_dup, taken);
	for (int part = 0; part < UNREAD; part += 1000)
		for (int i = 0; i < PAIRS; i++)
			send_pattern(p[i].c, (uint64_t)part, 1000);
	worker_join(&w);
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}

CASE(descriptors_epoll_level, DIRECT)
{
	epoll_beside(EPOLLIN);
}

CASE(descriptors_epoll_edge, DIRECT)
{
	epoll_beside(EPOLLIN | EPOLLOUT | EPOLLET);
}

CASE(descriptors_epoll_oneshot, DIRECT)
{
	epoll_beside(EPOLLIN | EPOLLONESHOT);
}

static void run_poll(void *arg)
{
	struct pair *p = arg;
	struct pollfd fds[PAIRS];
	for (int i = 0; i < PAIRS; i++)
		fds[i] = (struct pollfd){.fd = p[i].s, .events = POLLIN};
	for (int left = PAIRS; left > 0;) {
		NEED(poll(fds, PAIRS, -1) > 0);
		for (int i = 0; i < PAIRS; i++) {
			if (fds[i].fd < 0 || !fds[i].revents)
				continue;
			recv_pattern(fds[i].fd, (uint64_t)i, UNREAD);
			fds[i].fd = -1;
			left--;
		}
	}
}

CASE(descriptors_asleep_polling, DIRECT)
{
	struct pair p[PAIRS];
	struct worker w;
	set_limit(LIMIT);
	pairs_open(p, PAIRS);
	worker_start(&w, run_poll, p);
	wait_crowd_asleep(&w.tid, 1);
	int count = fill(make_dup, taken);
	for (int i = 0; i < PAIRS; i++)
		send_pattern(p[i].c, (uint64_t)i, UNREAD);
	worker_join(&w);
	turns(p, PAIRS);
	empty(taken, count);
	say_ends(p, PAIRS);
}
