/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT is raised, and lowered, while a call waits for bytes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

struct receive {
	struct worker worker;
	int fd, flags;
	size_t len;
	_Atomic ssize_t result;
	int error;
};

enum { ASLEEP = -100 };

static void receive(void *arg)
{
	struct receive *r = arg;
	char buf[256];
	ssize_t n = recv(r->fd, buf, r->len, r->flags);
	r->error = errno;
	r->result = n;
}

static void show(const struct receive *r)
{
	wait_crowd_asleep(&r->worker.tid, 1);
	if (r->result == ASLEEP)
		say("it sleeps");
	else
		say("it has %zd", r->result);
}

static struct pair receive_start(struct receive *r, int flags)
{
	struct pair p = pair_warm_open();
	*r = (struct receive){.fd = p.s, .flags = flags, .len = 100, .result = ASLEEP};
	return p;
}

static void sleep_begins(struct receive *r)
{
	worker_start(&r->worker, receive, r);
	wait_crowd_asleep(&r->worker.tid, 1);
}

static void receive_end(struct receive *r, struct pair p)
{
	worker_join(&r->worker);
	errno = r->error;
	say_result("recv", r->result);
	mark(p.s, 1);
	pair_close(p);
}

static void send_some(struct pair p, size_t len, int queued)
{
	char buf[64] = {0};
	send_all(p.c, buf, len);
	wait_inq(p.s, queued);
}

static void raised(int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	sleep_begins(&r);
	mark(p.s, 50);
	show(&r);
	send_some(p, 10, 10);
	show(&r);
	send_all(p.c, "0123456789012345678901234567890123456789", 40);
	receive_end(&r, p);
}

CASE(lowat_raised, DIRECT)
{
	raised(0);
}

CASE(lowat_raised_peek, DIRECT)
{
	raised(MSG_PEEK);
}

static void lowered(int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	mark(p.s, 20);
	show(&r);
	mark(p.s, 5);
	receive_end(&r, p);
}

CASE(lowat_lowered, DIRECT)
{
	lowered(0);
}

CASE(lowat_lowered_peek, DIRECT)
{
	lowered(MSG_PEEK);
}

CASE(lowat_raised_end, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	receive_end(&r, p);
}

CASE(lowat_raised_reset, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct linger now = {1, 0};
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	NEED(close(p.c) == 0);
	worker_join(&r.worker);
	errno = r.error;
	say_result("recv", r.result);
	close(p.s);
}

/* What is there is taken when the time is over. */
CASE(lowat_raised_timeout, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct timeval soon = {1, 0};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	receive_end(&r, p);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Or when a signal comes. */
CASE(lowat_raised_signal, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct sigaction sa = {.sa_handler = nothing};
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(pthread_kill((pthread_t)r.worker.thread, SIGUSR1) == 0);
	receive_end(&r, p);
}

/* A receive that begins when it is raised has the mark for its own. */
CASE(lowat_raised_before, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	mark(p.s, 50);
	sleep_begins(&r);
	send_some(p, 10, 10);
	show(&r);
	send_some(p, 40, 0);
	receive_end(&r, p);
}

static void poll_there(void *arg)
{
	struct receive *r = arg;
	struct pollfd f = {r->fd, POLLIN, 0};
	r->result = poll(&f, 1, -1);
}

static void select_there(void *arg)
{
	struct receive *r = arg;
	fd_set in;
	FD_ZERO(&in);
	FD_SET(r->fd, &in);
	r->result = select(r->fd + 1, &in, NULL, NULL, NULL);
}

static void epoll_there(void *arg)
{
	struct receive *r = arg;
	struct epoll_event ev = {.events = EPOLLIN | (uint32_t)r->flags};
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, r->fd, &ev) == 0);
	r->result = epoll_wait(ep, &ev, 1, -1);
	close(ep);
}

static void raised_ready(void (*there)(void *), int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	worker_start(&r.worker, there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	send_some(p, 40, 50);
	worker_join(&r.worker);
	say("ready: %zd", r.result);
	pair_close(p);
}

CASE(lowat_raised_poll, DIRECT)
{
	raised_ready(poll_there, 0);
}

CASE(lowat_raised_select, DIRECT)
{
	raised_ready(select_there, 0);
}

CASE(lowat_raised_epoll, DIRECT)
{
	raised_ready(epoll_there, 0);
}

CASE(lowat_raised_edge, DIRECT)
{
	raised_ready(epoll_there, EPOLLET);
}

/* ---- set while bytes are unread: these count as all others ---- */

static int ready_now(int fd)
{
	struct pollfd f = {fd, POLLIN, 0};
	return poll(&f, 1, 0);
}

static void over_unread(struct pair p, const char *what)
{
	say("%s", what);
	mark(p.s, 50);
	say_result("poll", ready_now(p.s));
	mark(p.s, 5);
	say_result("poll, less", ready_now(p.s));
	mark(p.s, 50);
	send_some(p, 40, 50);
	say_result("poll, more", ready_now(p.s));
}

CASE(lowat_set_over_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	send_some(p, 10, 10);
	over_unread(p, "unread");
	say_result("recv", recv(p.s, buf, 41, MSG_DONTWAIT));
	say_result("poll, rest", ready_now(p.s));
	say_result("recv", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_close(p);
}

static void peek_at(int fd, int offset)
{
	char buf[8] = {0};
	socklen_t len = sizeof offset;
	if (offset >= 0)
		NEED(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, len) == 0);
	say_result("peek", recv(fd, buf, 3, MSG_PEEK));
	say("%s", buf);
	NEED(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len) == 0);
	say("offset %d", offset);
}

CASE(peek_offset_set_over_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = {0};
	send_all(p.c, "0123456789abcdef", 16);
	wait_inq(p.s, 16);
	peek_at(p.s, 4);
	peek_at(p.s, -1);
	say_result("recv", recv(p.s, buf, 5, 0));
	say("%s", buf);
	peek_at(p.s, -1);
	peek_at(p.s, 0);
	pair_close(p);
}

/* The other end is in a process that sleeps. */
static void send_and_wait(int fd, void *arg)
{
	char byte;
	(void)arg;
	send_all(fd, "0123456789", 10);
	NEED(read(fd, &byte, 1) == 1);
	send_all(fd, "0123456789012345678901234567890123456789", 40);
	NEED(read(fd, &byte, 1) == 1);
}

CASE(lowat_set_over_unread_of_another, DIRECT)
{
	pid_t pid;
	int fd = peer_start(send_and_wait, NULL, &pid);
	char buf[64];
	wait_inq(fd, 10);
	wait_asleep(pid, pid);
	mark(fd, 50);
	say_result("poll", ready_now(fd));
	send_all(fd, "x", 1);
	wait_inq(fd, 50);
	say_result("poll, more", ready_now(fd));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	send_all(fd, "x", 1);
	say("status %d", child_status(pid));
}

/* The sender has left shared memory, with bytes unread there, and sent more over TCP. */
CASE(lowat_set_over_both_ways, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipe_ends[2], queued = -1;
	char buf[64];
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	NEED(pipe(pipe_ends) == 0);
	NEED(fcntl(p.c, F_SETFL, O_NONBLOCK) == 0);
	say_result("splice",
		   splice(p.c, NULL, pipe_ends[1], NULL, 10, SPLICE_F_NONBLOCK));
	send_all(p.c, "x", 1);
	wait_inq(p.s, 11);
	mark(p.s, 11);
	say_result("FIONREAD", ioctl(p.s, FIONREAD, &queued));
	say("%d", queued);
	say_result("poll", ready_now(p.s));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	pair_close(p);
}
