/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each way for a peer to end, with bytes unread here and there, seen by each call. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/grid_state.h"

/* ---- what is unread, and how the peer ends ---- */

/* Bytes of p.s that p.c has not read: by the ring, by TCP, or the first by TCP. */
enum unread { NOTHING, BY_RING, BY_TCP, BY_BOTH };
static const char *const unread_names[] = {"none", "ring", "TCP", "TCP and ring"};

static const enum stage stages[] = {WARM, WARM, COLD, MIDWAY};

enum way { BY_CLOSE, BY_RESET, BY_EXIT, BY_KILL };

struct ending {
	enum way way;
	bool in_child;
	enum unread unread; /* of ours, at the peer */
	bool ours;	    /* and bytes of the peer's here */
	bool half;	    /* the peer has shut down for writing before */
	struct signal_pipe peer, here;
};

/* The peer's part before it ends, behind what warms up. */
static void peer_prepares(struct ending *e, int fd)
{
	if (e->ours)
		send_pattern(fd, 0, 10);
	if (e->half)
		NEED(shutdown(fd, SHUT_WR) == 0);
}

static void peer_ends(struct ending *e, int fd)
{
	struct linger now = {1, 0};
	switch (e->way) {
	case BY_RESET:
		NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
		NEED(close(fd) == 0);
		break;
	case BY_CLOSE:
		NEED(close(fd) == 0);
		break;
	case BY_EXIT:
		break;
	case BY_KILL:
		raise(SIGKILL);
	}
}

static void in_turns(int fd, bool first)
{
	char buf[8];
	for (int i = 0; i < 2 * STAGE_TURNS; i++) {
		if (first)
			send_all(fd, "in turn", 8);
		recv_all(fd, buf, 8);
		if (!first)
			send_all(fd, "in turn", 8);
	}
}

static void peer_runs(int fd, void *arg)
{
	struct ending *e = arg;
	char byte;
	if (e->unread != BY_TCP)
		in_turns(fd, true);
	signal_send(e->peer);
	if (e->unread == BY_BOTH) {
		wait_inq(fd, 4);
		NEED(recv(fd, &byte, 1, MSG_PEEK) == 1);
		signal_send(e->peer);
	}
	if (e->unread != NOTHING)
		wait_inq(fd, 10);
	peer_prepares(e, fd);
	signal_send(e->peer);
	signal_wait(e->here);
	peer_ends(e, fd);
	_exit(0);
}

static int child_here(struct ending *e, pid_t *pid)
{
	int fd;
	e->peer = signal_pipe();
	e->here = signal_pipe();
	fd = peer_start_cold(peer_runs, e, pid);
	if (e->unread != BY_TCP)
		in_turns(fd, false);
	signal_wait(e->peer);
	if (e->unread == BY_BOTH) {
		bounce(fd);
		send_pattern(fd, 0, 4);
		signal_wait(e->peer);
		send_pattern(fd, 4, 6);
	} else if (e->unread != NOTHING) {
		send_pattern(fd, 0, 10);
	}
	signal_wait(e->peer);
	return fd;
}

static struct pair both_here(struct ending *e)
{
	struct pair p = stage_open(stages[e->unread]);
	char byte;
	if (e->unread == BY_BOTH) {
		send_pattern(p.s, 0, 4);
		wait_inq(p.c, 4);
		NEED(recv(p.c, &byte, 1, MSG_PEEK) == 1);
		send_pattern(p.s, 4, 6);
	} else if (e->unread != NOTHING) {
		send_pattern(p.s, 0, 10);
	}
	if (e->unread != NOTHING)
		wait_inq(p.c, 10);
	peer_prepares(e, p.c);
	return p;
}

/* The kernel's state, without Viaduct's knowledge: nobody has looked at the connection. */
static int kernel_state(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	long r;
	register long r10 __asm__("r10") = (long)&info;
	register long r8 __asm__("r8") = (long)&len;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(SYS_getsockopt), "D"((long)fd), "S"((long)IPPROTO_TCP),
			   "d"((long)TCP_INFO), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return info.tcpi_state;
}

/* ---- what the other end sees ---- */

struct line {
	char text[900];
	size_t len;
};

static void add(struct line *l, const char *name, long r)
{
	int n = r >= 0 ? snprintf(l->text + l->len, sizeof l->text - l->len, " %s %ld",
				  name, r)
		       : snprintf(l->text + l->len, sizeof l->text - l->len, " %s %s",
				  name, errno_name(errno));
	l->len += (size_t)n;
	NEED(l->len < sizeof l->text);
}

static void add_events(struct line *l, const char *name, int events)
{
	l->len += (size_t)snprintf(l->text + l->len, sizeof l->text - l->len, " %s %s",
				   name, poll_names(events));
	NEED(l->len < sizeof l->text);
}

static void see_recv(struct line *l, int fd, int flags)
{
	char buf[64];
	add(l, flags & MSG_PEEK ? "peek" : "recv",
	    recv(fd, buf, sizeof buf, flags | MSG_DONTWAIT));
}

static void see_send(struct line *l, int fd)
{
	add(l, "send", send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	usleep(500);
}

static void see_error(struct line *l, int fd)
{
	int error = 0;
	socklen_t len = sizeof error;
	NEED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	errno = error;
	add(l, "error", error ? -1 : 0);
}

static void see_poll(struct line *l, int fd, int more)
{
	struct pollfd p = {fd, (short)(POLLIN | POLLOUT | more), 0};
	NEED(poll(&p, 1, 0) >= 0);
	add_events(l, "poll", p.revents);
}

static void see_select(struct line *l, int fd)
{
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	NEED(select(fd + 1, &in, &out, NULL, &(struct timeval){0, 0}) >= 0);
	add(l, FD_ISSET(fd, &in) ? "select in" : "select", FD_ISSET(fd, &out) != 0);
}

static void see_epoll(struct line *l, int ep)
{
	struct epoll_event ev[4] = {0}, again[4];
	NEED(epoll_wait(ep, ev, 4, 0) >= 0);
	/* What memory tells at the first look may come before what the kernel knows of a peer that was
	 * killed. The second one tells all that holds. */
	if (epoll_wait(ep, again, 4, 0) > 0)
		ev[0] = again[0];
	add_events(l, "epoll", (int)ev[0].events);
}

/*
 * r: recv, w: send, p: poll, q: without POLLRDHUP, s: select, e: SO_ERROR, k: peek, l: epoll_wait.
 * First, before the peer ends: L and E add it to an epoll instance, E by edges, and a thread sleeps
 * in R: recv, P: poll, W: epoll_wait.
 */
static const char *const looks[] = {
	"rrrpe", "rwrwre",   "wrwrpe",	 "prprp",    "pwpwprp",	   "eeprrw", "krkrp",
	"kkewr", "Llrlrlrl", "Elrlrlrl", "Llwlwlrl", "Elwlwlrlrl", "Elelrl", "erp",
	"rpe",	 "per",	     "kwkrr",	 "qrqe",     "srse",	   "Rrerp",  "Rwrwe",
	"Rpe",	 "Prerp",    "Pwre",	 "Wrerp",    "Wwre",
};

/* A send asks nobody whether the peer, killed unseen, is there. */
static bool is_known_before_send(const char *look, bool sleeps)
{
	size_t send = strcspn(look, "w");
	return strcspn(look, sleeps ? "peqslRPW" : "peqsl") <= send;
}

static void see(struct line *l, int fd, const char *look, int ep)
{
	for (; *look; look++) {
		switch (*look) {
		case 'r':
			see_recv(l, fd, 0);
			break;
		case 'k':
			see_recv(l, fd, MSG_PEEK);
			break;
		case 'w':
			see_send(l, fd);
			break;
		case 'p':
			see_poll(l, fd, POLLRDHUP);
			break;
		case 'q':
			see_poll(l, fd, 0);
			break;
		case 's':
			see_select(l, fd);
			break;
		case 'e':
			see_error(l, fd);
			break;
		case 'l':
			see_epoll(l, ep);
			break;
		}
	}
}

static int epoll_of(int fd, const char *look)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP};
	if (*look != 'L' && *look != 'E')
		return -1;
	int ep = epoll_create1(0);
	NEED(ep >= 0);
	if (*look == 'E')
		ev.events |= EPOLLET;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	/* What was there before. */
	epoll_wait(ep, &ev, 1, 0);
	return ep;
}

struct sleeper {
	struct worker worker;
	struct line line;
	int fd;
	char what;
};

static void sleep_there(void *arg)
{
	struct sleeper *me = arg;
	struct pollfd p = {me->fd, POLLIN | POLLRDHUP, 0};
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP};
	char buf[64];
	int ep;
	switch (me->what) {
	case 'R':
		add(&me->line, "slept in recv", recv(me->fd, buf, sizeof buf, 0));
		break;
	case 'P':
		NEED(poll(&p, 1, -1) == 1);
		add_events(&me->line, "slept in poll", p.revents);
		break;
	case 'W':
		ep = epoll_create1(0);
		NEED(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, me->fd, &ev) == 0);
		NEED(epoll_wait(ep, &ev, 1, -1) == 1);
		add_events(&me->line, "slept in epoll_wait", (int)ev.events);
		close(ep);
	}
}

static void one(struct ending *e, const char *look)
{
	struct sleeper sleeper = {.what = *look};
	bool sleeps = strchr("RPW", *look);
	struct line l = {.len = 0};
	struct pair p = {-1, -1};
	pid_t pid = 0;
	if (e->in_child)
		p.s = child_here(e, &pid);
	else
		p = both_here(e);
	if (e->ours)
		wait_inq(p.s, 10);
	while (e->half && kernel_state(p.s) != TCP_CLOSE_WAIT)
		usleep(100);
	int ep = epoll_of(p.s, look);
	sleeper.fd = p.s;
	if (sleeps)
		worker_start(&sleeper.worker, sleep_there, &sleeper);
	if (sleeps)
		wait_crowd_asleep(&sleeper.worker.tid, 1);
	if (e->in_child) {
		signal_send(e->here);
		child_status(pid);
	} else {
		peer_ends(e, p.c);
	}
	/* A reset may follow, or not. */
	for (int i = 0; i < 1000 && kernel_state(p.s) == TCP_ESTABLISHED; i++)
		usleep(100);
	usleep(500);
	if (sleeps) {
		worker_join(&sleeper.worker);
		l = sleeper.line;
	}
	see(&l, p.s, look, ep);
	say("unread %s%s%s, %s:%s", unread_names[e->unread], e->ours ? ", here too" : "",
	    e->half ? ", half" : "", look, l.text);
	if (ep >= 0)
		close(ep);
	state_close((struct pair){-1, p.s});
	if (e->in_child)
		for (int i = 0; i < 2; i++) {
			close(e->peer.fd[i]);
			close(e->here.fd[i]);
		}
}

static void sweep(enum way way, bool in_child)
{
	alarm(GRID_SECONDS);
	for (int state = 0; state < 16; state++)
		for (size_t i = 0; i < COUNT_OF(looks); i++) {
			struct ending e = {.way = way,
					   .in_child = in_child,
					   .unread = (enum unread)(state & 3),
					   .ours = state & 4,
					   .half = state & 8};
			/* docs/limits.md names both. */
			if (way == BY_KILL &&
			    (e.half || !is_known_before_send(looks[i], !e.ours)))
				continue;
			if (grid_visits())
				one(&e, looks[i]);
		}
}

CASE(grid_end_close, DIRECT)
{
	sweep(BY_CLOSE, false);
}

CASE(grid_end_reset, DIRECT)
{
	sweep(BY_RESET, false);
}

CASE(grid_end_child_close, DIRECT)
{
	sweep(BY_CLOSE, true);
}

CASE(grid_end_child_reset, DIRECT)
{
	sweep(BY_RESET, true);
}

CASE(grid_end_child_exit, DIRECT)
{
	sweep(BY_EXIT, true);
}

CASE(grid_end_child_kill, DIRECT)
{
	sweep(BY_KILL, true);
}
