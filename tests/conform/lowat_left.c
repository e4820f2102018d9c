/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT over bytes of a peer that has left shared memory, and sends by TCP what comes after them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

static void show_mark(int fd)
{
	int bytes = -1;
	socklen_t len = sizeof bytes;
	NEED(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, &len) == 0);
	say("mark %d", bytes);
}

/* 10 bytes by the ring, of which 6 have been asked for, and 5 behind them by TCP. */
static struct pair left_open(void)
{
	struct pair p = pair_warm_open();
	int pipe_ends[2];
	send_all(p.c, "012345", 6);
	wait_inq(p.s, 6);
	send_all(p.c, "6789", 4);
	NEED(pipe(pipe_ends) == 0);
	NEED(fcntl(p.c, F_SETFL, O_NONBLOCK) == 0);
	NEED(splice(p.c, NULL, pipe_ends[1], NULL, 10, SPLICE_F_NONBLOCK) < 0);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	send_all(p.c, "abcde", 5);
	wait_inq(p.s, 15);
	return p;
}

static void more(struct pair p, size_t len, int queued)
{
	char buf[64];
	memset(buf, '.', sizeof buf);
	send_all(p.c, buf, len);
	wait_inq(p.s, queued);
}

static int ready_now(int fd)
{
	struct pollfd f = {fd, POLLIN, 0};
	return poll(&f, 1, 0);
}

static void take(int fd, size_t len)
{
	char buf[128] = {0};
	ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);
	say_result("recv", n);
	say("%.15s", buf);
}

CASE(lowat_left_level, DIRECT)
{
	struct pair p = left_open();
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	mark(p.s, 50);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	take(p.s, 4);
	show_mark(p.s);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	more(p, 38, 49);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 50);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	take(p.s, 3);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	mark(p.s, 47);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	take(p.s, 3);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	show_mark(p.s);
	take(p.s, 100);
	more(p, 46, 46);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 47);
	say("poll %d, epoll %d", ready_now(p.s), epoll_wait(ep, &ev, 1, 0));
	close(ep);
	pair_close(p);
}

CASE(lowat_left_edge, DIRECT)
{
	struct pair p = left_open();
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int ep = epoll_create1(0);
	mark(p.s, 50);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say("few %d", epoll_wait(ep, &ev, 1, 0));
	take(p.s, 4);
	say("part %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 38, 49);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 50);
	say("enough %d", epoll_wait(ep, &ev, 1, 0));
	say("again %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 10, 60);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	say("again %d", epoll_wait(ep, &ev, 1, 0));
	take(p.s, 3);
	say("part %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 58);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	take(p.s, 100);
	close(ep);
	pair_close(p);
}

/* ---- with a sleeper ---- */

struct sleeper {
	struct worker worker;
	int fd, flags;
	_Atomic int result;
	int error;
};

enum { ASLEEP = -100 };

static void poll_there(void *arg)
{
	struct sleeper *r = arg;
	struct pollfd f = {r->fd, POLLIN, 0};
	r->result = poll(&f, 1, -1);
}

static void select_there(void *arg)
{
	struct sleeper *r = arg;
	fd_set in;
	FD_ZERO(&in);
	FD_SET(r->fd, &in);
	r->result = select(r->fd + 1, &in, NULL, NULL, NULL);
}

static void epoll_there(void *arg)
{
	struct sleeper *r = arg;
	struct epoll_event ev = {.events = EPOLLIN | (uint32_t)r->flags};
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, r->fd, &ev) == 0);
	r->result = epoll_wait(ep, &ev, 1, -1);
	close(ep);
}

static void recv_there(void *arg)
{
	struct sleeper *r = arg;
	char buf[128];
	ssize_t n = recv(r->fd, buf, sizeof buf, r->flags);
	r->error = errno;
	r->result = (int)n;
}

static void show(const struct sleeper *r)
{
	wait_crowd_asleep(&r->worker.tid, 1);
	if (r->result == ASLEEP)
		say("it sleeps");
	else
		say("it has %d", r->result);
}

static void sleep_begins(struct sleeper *r, void (*there)(void *))
{
	r->result = ASLEEP;
	worker_start(&r->worker, there, r);
	show(r);
}

static void sleep_ends(struct sleeper *r)
{
	worker_join(&r->worker);
	errno = r->error;
	say_result("woken", r->result);
}

static void woken(void (*there)(void *), int flags)
{
	struct pair p = left_open();
	struct sleeper r = {.fd = p.s, .flags = flags};
	mark(p.s, 50);
	sleep_begins(&r, there);
	take(p.s, 4);
	show(&r);
	more(p, 38, 49);
	show(&r);
	more(p, 1, 50);
	sleep_ends(&r);
	take(p.s, 100);
	/* With all of the ring read, it is TCP's alone. */
	sleep_begins(&r, there);
	more(p, 49, 49);
	show(&r);
	more(p, 1, 50);
	sleep_ends(&r);
	pair_close(p);
}

CASE(lowat_left_poll, DIRECT)
{
	woken(poll_there, 0);
}

CASE(lowat_left_select, DIRECT)
{
	woken(select_there, 0);
}

CASE(lowat_left_epoll, DIRECT)
{
	woken(epoll_there, 0);
}

CASE(lowat_left_epoll_edge, DIRECT)
{
	woken(epoll_there, EPOLLET);
}

/* All that ends a sleep. */
static void ended(void (*end)(struct pair *p), void (*there)(void *), int flags)
{
	struct pair p = left_open();
	struct sleeper r = {.fd = p.s, .flags = flags};
	mark(p.s, 50);
	sleep_begins(&r, there);
	end(&p);
	sleep_ends(&r);
	show_mark(p.s);
	take(p.s, 100);
	take(p.s, 100);
	pair_close(p);
}

static void end_by_mark(struct pair *p)
{
	mark(p->s, 12);
}

static void end_by_shutdown(struct pair *p)
{
	NEED(shutdown(p->c, SHUT_WR) == 0);
}

static void end_by_own_shutdown(struct pair *p)
{
	NEED(shutdown(p->s, SHUT_RD) == 0);
}

static void end_by_bytes(struct pair *p)
{
	char buf[64] = {0};
	send_all(p->c, buf, 60);
}

CASE(lowat_left_lowered, DIRECT)
{
	ended(end_by_mark, poll_there, 0);
	ended(end_by_mark, epoll_there, EPOLLET);
}

CASE(lowat_left_end, DIRECT)
{
	ended(end_by_shutdown, poll_there, 0);
	ended(end_by_shutdown, epoll_there, EPOLLET);
	ended(end_by_shutdown, recv_there, 0);
	ended(end_by_shutdown, recv_there, MSG_PEEK);
}

CASE(lowat_left_own_end, DIRECT)
{
	ended(end_by_own_shutdown, poll_there, 0);
	ended(end_by_own_shutdown, epoll_there, 0);
	ended(end_by_own_shutdown, recv_there, 0);
}

CASE(lowat_left_receive, DIRECT)
{
	ended(end_by_bytes, recv_there, 0);
	ended(end_by_bytes, recv_there, MSG_PEEK);
	ended(end_by_bytes, recv_there, MSG_TRUNC);
}

CASE(lowat_left_timeout, DIRECT)
{
	struct timeval soon = {0, 100000};
	struct pair p = left_open();
	char buf[128];
	mark(p.s, 50);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	say_result("few", recv(p.s, buf, 4, 0));
	say_result("peek", recv(p.s, buf, sizeof buf, MSG_PEEK));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say_result("none", recv(p.s, buf, sizeof buf, 0));
	more(p, 60, 60);
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	pair_close(p);
}

/* A child that takes a part of them leaves the rest to its parent, by the same mark. */
CASE(lowat_left_child, DIRECT)
{
	struct pair p = left_open();
	struct sleeper r = {.fd = p.s};
	mark(p.s, 50);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		char buf[4];
		_exit(recv(p.s, buf, sizeof buf, MSG_DONTWAIT) == 4 ? 0 : 1);
	}
	say("child %d", child_status(pid));
	sleep_begins(&r, poll_there);
	more(p, 38, 49);
	show(&r);
	more(p, 1, 50);
	sleep_ends(&r);
	take(p.s, 100);
	pair_close(p);
}

/* ---- carried by an exec to an image that has the mark from the one before ---- */

static void send_when_told(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	send_all(fd, "0123456789", 10);
	for (int i = 0; i < 2; i++) {
		signal_wait(go[0]);
		send_pattern(fd, 0, i == 0 ? 38 : 1);
		signal_send(go[1]);
	}
	signal_wait(go[0]);
}

enum { CONN = 200, GO, WENT };

static void carried_is_told(void)
{
	const struct signal_pipe go = {{-1, GO}}, went = {{WENT, -1}};
	struct sleeper r = {.fd = CONN};
	show_mark(CONN);
	say("few %d", ready_now(CONN));
	take(CONN, 4);
	say("part %d", ready_now(CONN));
	sleep_begins(&r, poll_there);
	signal_send(go);
	signal_wait(went);
	wait_inq(CONN, 44);
	show(&r);
	mark(CONN, 45);
	signal_send(go);
	sleep_ends(&r);
	signal_wait(went);
	show_mark(CONN);
	take(CONN, 7);
	say("few %d", ready_now(CONN));
	take(CONN, 100);
	signal_send(go);
}

CASE(lowat_left_carried, DIRECT)
{
	struct signal_pipe go[2];
	pid_t pid;
	const char *text = getenv("LOWAT_PEER");
	if (!text) {
		go[0] = signal_pipe();
		go[1] = signal_pipe();
		int fd = peer_start(send_when_told, go, &pid);
		char number[32];
		wait_inq(fd, 10);
		mark(fd, 50);
		NEED(dup2(fd, CONN) == CONN && dup2(go[0].fd[1], GO) == GO &&
		     dup2(go[1].fd[0], WENT) == WENT);
		close(fd);
		snprintf(number, sizeof number, "%d", (int)pid);
		NEED(setenv("LOWAT_PEER", number, 1) == 0);
		execl("/proc/self/exe", "cases", "lowat_left_carried", (char *)NULL);
		broken("exec");
	}
	carried_is_told();
	say("status %d", child_status((pid_t)strtol(text, NULL, 10)));
}
