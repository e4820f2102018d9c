/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: connect to AF_UNSPEC, which dissolves a connection, in each of its states. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/bad.h"
#include "conform/ready_epoll.h"

static int dissolve(int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	return connect(fd, &nobody, sizeof nobody);
}

static void tell(const char *who, int fd)
{
	struct pollfd pf = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	char buf[100];
	int queued = -1, r;
	NEED(poll(&pf, 1, 0) >= 0);
	r = ioctl(fd, FIONREAD, &queued);
	say("%s: poll %s, queued %d %s", who, poll_names(pf.revents), r < 0 ? -1 : queued,
	    r < 0 ? errno_name(errno) : "");
	for (int i = 0; i < 3; i++)
		say_result(" recv", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	for (int i = 0; i < 2; i++)
		say_result(" send", send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	pf.revents = 0;
	NEED(poll(&pf, 1, 0) >= 0);
	say(" poll %s", poll_names(pf.revents));
}

/* The same socket, connected once more. */
static void again(int fd)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof to;
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	struct pair p = {.s = fd};
	NEED(getsockname(listener, (struct sockaddr *)&to, &len) == 0);
	say_result("connect again", connect(fd, (struct sockaddr *)&to, len));
	p.c = accept(listener, NULL, NULL);
	NEED(p.c >= 0);
	pair_warm(p);
	stage_send(p.c, p.s, COLD, 1000);
	recv_pattern(p.s, 0, 1000);
	NEED(close(p.c) == 0);
	wait_events(fd, POLLRDHUP);
	char byte;
	say_result("its end", recv(fd, &byte, 1, 0));
	say_result("dissolved again", dissolve(fd));
	NEED(close(listener) == 0);
}

/* The same socket, as a listener. */
static void listening(int fd)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	socklen_t len = sizeof to;
	struct pair p;
	say_result("listen", listen(fd, 5));
	NEED(getsockname(fd, (struct sockaddr *)&to, &len) == 0);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p.c = socket(AF_INET, SOCK_STREAM, 0);
	NEED(connect(p.c, (struct sockaddr *)&to, sizeof to) == 0);
	p.s = accept(fd, NULL, NULL);
	NEED(p.s >= 0);
	pair_warm(p);
	stage_send(p.c, p.s, COLD, 1000);
	recv_pattern(p.s, 0, 1000);
	pair_close(p);
}

/* Between them they cover what may be left in either direction. */
static const char *const states[] = {
	"empty",
	"10 bytes",
	"300 bytes",
	"10 bytes, end",
	"10 bytes, closed",
	"reset",
	"10 bytes, reset",
	"shut for reading",
	"both ends",
	"full",
	"10 bytes, shut",
	"closed with unread",
	"shut for writing",
	"end read",
	"10 bytes, shut for writing",
};

static void each_state(bool connects, enum stage stage)
{
	alarm(GRID_SECONDS);
	for (size_t i = 0; i < COUNT_OF(states); i++)
		for (size_t k = 0; k < grid_states_count; k++) {
			if (strcmp(grid_states[k].name, states[i]) != 0)
				continue;
			struct pair p = state_open(&grid_states[k], stage);
			say("%s", states[i]);
			say_result("dissolve", dissolve(p.s));
			tell("own", p.s);
			if (p.c >= 0 && !grid_states[k].full) {
				wait_events(p.c, POLLHUP);
				tell("other", p.c);
			}
			say_result("once more", dissolve(p.s));
			if (connects)
				again(p.s);
			else
				listening(p.s);
			state_close(p);
		}
}

CASE(dissolve_warm, DIRECT)
{
	each_state(true, WARM);
}

CASE(dissolve_midway, DIRECT)
{
	each_state(true, MIDWAY);
}

CASE(dissolve_one_way, DIRECT)
{
	each_state(true, ONE_WAY);
}

CASE(dissolve_listen, DIRECT)
{
	each_state(false, WARM);
}

/* ---- unread bytes of ours at the other end ---- */

CASE(dissolve_unread_there, DIRECT)
{
	for (int i = 0; i < 10; i++) {
		struct pair p = stage_open(WARM);
		send_pattern(p.s, 0, 100);
		wait_inq(p.c, 100);
		send_pattern(p.c, 0, 100);
		wait_inq(p.s, 100);
		say_result("dissolve", dissolve(p.s));
		tell("own", p.s);
		wait_events(p.c, POLLHUP);
		tell("other", p.c);
		state_close(p);
	}
}

/* ---- threads asleep ---- */

struct sleeper {
	int fd, how;
	ssize_t result;
	int error;
};

static void sleep_on(void *arg)
{
	static char much[1 << 20];
	struct sleeper *w = arg;
	struct pollfd pf = {w->fd, POLLIN | POLLRDHUP, 0};
	errno = 0;
	if (w->how == 0)
		w->result = recv(w->fd, much, 10, 0);
	else if (w->how == 1)
		while ((w->result = send(w->fd, much, sizeof much, MSG_NOSIGNAL)) > 0)
			;
	else
		w->result = poll(&pf, 1, -1) == 1 ? pf.revents : -1;
	w->error = errno;
}

static void asleep(bool own, int how)
{
	struct worker t;
	struct pair p = stage_open(WARM);
	struct sleeper w = {own ? p.s : p.c, how, 0, 0};
	if (how != 1) /* unread where it does not matter to the sleeper */
		send_pattern(w.fd, 0, 10);
	worker_start(&t, sleep_on, &w);
	wait_asleep(getpid(), t.tid);
	say_result(own ? "own" : "other", dissolve(p.s));
	worker_join(&t);
	if (how == 2)
		say(" poll %s", poll_names((int)w.result));
	else
		say(" %s: %s", how ? "send" : "recv",
		    w.result < 0 ? errno_name(w.error)
		    : w.result	 ? "some"
				 : "end");
	state_close(p);
}

CASE(dissolve_asleep, DIRECT)
{
	for (int how = 0; how < 3; how++)
		for (int own = 0; own < 2; own++)
			asleep(own, how);
}

/* ---- a socket that two processes have ---- */

CASE(dissolve_shared, DIRECT)
{
	struct pair p = stage_open(WARM);
	int status;
	send_pattern(p.c, 0, 10);
	wait_inq(p.s, 10);
	pid_t child = fork();
	if (child == 0) {
		say_as("child");
		say_result("dissolve", dissolve(p.s));
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child);
	tell("own", p.s);
	wait_events(p.c, POLLHUP);
	tell("other", p.c);
	state_close(p);
}

/* ---- registered with epoll ---- */

CASE(dissolve_epoll, DIRECT)
{
	for (int edge = 0; edge < 2; edge++) {
		uint32_t want = EPOLLIN | EPOLLRDHUP | (edge ? (uint32_t)EPOLLET : 0);
		struct epoll_event event = {want, {.u32 = 1}};
		struct pair p = stage_open(WARM);
		int instance = epoll_create1(0);
		NEED(epoll_ctl(instance, EPOLL_CTL_ADD, p.s, &event) == 0);
		send_pattern(p.c, 0, 10);
		wait_inq(p.s, 10);
		say_result("events", epoll_wait(instance, &event, 1, 5000));
		say("%s", poll_names((int)event.events));
		say_result("dissolve", dissolve(p.s));
		say_result("events", epoll_wait(instance, &event, 1, 5000));
		say("%s", poll_names((int)event.events));
		tell("own", p.s);
		again(p.s);
		close(instance);
		state_close(p);
	}
}

/* Amid a connection's way back to TCP, since the instance is waited for itself. */
CASE(dissolve_nested, DIRECT)
{
	static const uint32_t events[] = {EPOLLRDNORM, EPOLLIN, EPOLLIN | EPOLLRDHUP};

	for (int i = 0; i < 12; i++) {
		struct pair p = pair_warm_open();
		int in = ep_open(), out = ep_open(), fd = i & 2 ? p.c : p.s;

		if (i & 1)
			ep_add(out, in, EPOLLIN, 2);
		else
			say_result("itself", ep_ctl(in, EPOLL_CTL_ADD, in, EPOLLIN, 3));
		ep_add(in, fd, events[i / 4] | EPOLLET, 1);
		ep_show(in, 0);
		say_result("dissolve", dissolve(fd));
		ep_show(in, SOON);
		ep_show(in, 0);
		ep_show(out, 0);
		close(in);
		close(out);
		pair_close(p);
	}
}

/* The registered number is closed, and another one has the connection. */
CASE(dissolve_by_duplicate, DIRECT)
{
	static const uint32_t events[] = {EPOLLIN, EPOLLRDHUP, EPOLLOUT};

	for (int i = 0; i < 12; i++) {
		struct pair p = pair_warm_open();
		int ep = ep_open(), number = dup(p.s);
		uint32_t want = events[i / 4] | (i & 1 ? (uint32_t)EPOLLET : 0);

		send_pattern(p.s, 0, 10);
		ep_add(ep, number, want, want & EPOLLET ? 1 | MAY_REPEAT : 1);
		if (i & 2) {
			close(p.c);
			wait_events(p.s, POLLHUP);
		}
		ep_show(ep, 0);
		close(number);
		say_result("dissolve", dissolve(p.s));
		ep_show(ep, 0);
		ep_show(ep, 0);
		close(ep);
		close(p.s);
		if (!(i & 2))
			close(p.c);
	}
}
