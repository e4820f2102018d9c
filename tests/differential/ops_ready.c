/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that ask what is ready, with a signal pending, and of epoll with little room. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

static atomic_int came;

static void on_signal(int number)
{
	(void)number;
	atomic_fetch_add(&came, 1);
}

static int the_set(struct dice *d, struct pollfd *p, int most)
{
	static const short masks[] = {POLLIN,		POLLOUT, POLLRDHUP,
				      POLLIN | POLLOUT, 0,	 POLLPRI};
	int n = (int)dice(d, (unsigned)most + 1);
	for (int i = 0; i < n; i++) {
		struct descriptor *s = any_of(d, SOCKET);
		p[i] = (struct pollfd){s ? s->fd : -1, masks[dice(d, 6)], 0x77};
	}
	return n;
}

/* A call that lets a pending signal in: it is told, or stays pending. */
static void op_pending(struct dice *d)
{
	static const char *const ways[] = {"ppoll", "pselect", "epoll_pwait",
					   "epoll_pwait2"};
	struct pollfd p[5];
	struct epoll_event ev[8];
	unsigned way = dice(d, 4);
	int n = the_set(d, p, 5), r = -1, e = -1;
	struct timespec none = {0, 0}, *time = once_in(d, 2) ? &none : NULL;
	struct sigaction a = {.sa_handler = on_signal,
			      .sa_flags = once_in(d, 2) ? SA_RESTART : 0},
			 was;
	sigset_t usr, before, empty;
	fd_set in, out;
	if (way == 1) {
		FD_ZERO(&in);
		FD_ZERO(&out);
		for (int i = 0; i < n; i++) {
			if (p[i].fd >= 0 && p[i].events & POLLIN)
				FD_SET(p[i].fd, &in);
			if (p[i].fd >= 0 && p[i].events & POLLOUT)
				FD_SET(p[i].fd, &out);
		}
	} else if (way > 1) {
		e = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
		for (int i = 0; i < n; i++) {
			ev[0] = (struct epoll_event){(uint32_t)p[i].events,
						     {.fd = p[i].fd}};
			if (p[i].fd >= 0)
				epoll_ctl(e, EPOLL_CTL_ADD, p[i].fd, &ev[0]);
		}
	}
	sigemptyset(&empty);
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	came = 0;
	NEED(sigaction(SIGUSR1, &a, &was) == 0);
	NEED(sigprocmask(SIG_BLOCK, &usr, &before) == 0);
	NEED(raise(SIGUSR1) == 0);
	if (way == 0)
		r = ppoll(p, (nfds_t)n, time, &empty);
	else if (way == 1)
		r = pselect(FD_SETSIZE > 200 ? 200 : FD_SETSIZE, &in, &out, NULL, time,
			    &empty);
	else if (way == 2)
		r = epoll_pwait(e, ev, 8, time ? 0 : -1, &empty);
	else
		r = epoll_pwait2(e, ev, 8, time, &empty);
	int err = errno, told = came;
	NEED(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	NEED(sigaction(SIGUSR1, &was, NULL) == 0);
	errno = err;
	tell("%s(%d, %s) = %s: handled %d, then %d", ways[way], n,
	     time ? "0" : "for ever", result(r), told, (int)came);
	for (int i = 0; way == 0 && i < n; i++)
		tell("  %d %s: %s", p[i].fd, events_of_poll((unsigned)p[i].events),
		     r < 0 ? "?"
			   : events_of_poll((unsigned)(unsigned short)p[i].revents));
	if (e >= 0)
		NEED(close(e) == 0);
}

/* Levels that hold go round: each is told in the end. In which order is not looked at (docs/contract.md). */
static void op_rotate(struct dice *d)
{
	struct epoll_event ev[MOST_DESCRIPTORS];
	static const uint32_t masks[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT,
					 EPOLLRDHUP};
	int most = 1 + (int)dice(d, 6), registered = 0, ready, found = 0;
	uint32_t mask = masks[dice(d, 4)];
	bool told[MOST_DESCRIPTORS] = {false};
	int e = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
	for (int i = 0; i < descriptor_count; i++) {
		ev[0] = (struct epoll_event){mask, {.u32 = (uint32_t)i}};
		if (descriptors[i].kind == SOCKET && !once_in(d, 4) &&
		    epoll_ctl(e, EPOLL_CTL_ADD, descriptors[i].fd, &ev[0]) == 0)
			registered++;
	}
	ready = epoll_wait(e, ev, MOST_DESCRIPTORS, 0);
	tell("of %d ready %s", registered, result(ready));
	bool doubled = false, over = false;
	for (int left = 30 * ready; left > 0; left -= most) {
		int n = epoll_wait(e, ev, most, 0);
		bool now[MOST_DESCRIPTORS] = {false};
		over |= n > most || n <= 0;
		for (int i = 0; i < n; i++) {
			unsigned who = ev[i].data.u32;
			doubled |= now[who];
			now[who] = true;
			found += !told[who];
			told[who] = true;
		}
	}
	tell("by %d each: %d%s%s", most, found, doubled ? ", twice in one" : "",
	     over ? ", wrong count" : "");
	for (int i = 0; i < MOST_DESCRIPTORS; i++)
		if (told[i])
			tell("  %d", descriptors[i].fd);
	NEED(close(e) == 0);
}

static void op_wait_odd(struct dice *d)
{
	struct descriptor *e = any_of(d, EPOLL), *s = any_of(d, SOCKET);
	struct epoll_event ev[4];
	int r;
	unsigned way = dice(d, 7);
	if (!e || !s || perform_depth) {
		tell("nothing");
		return;
	}
	if (way == 0)
		r = epoll_wait(e->fd, ev, 0, 0);
	else if (way == 1)
		r = (int)syscall(SYS_epoll_wait, e->fd, ev, -1, 0);
	else if (way == 2)
		r = epoll_wait(s->fd, ev, 4, 0);
	else if (way == 3)
		r = epoll_wait(150, ev, 4, 0);
	else if (way == 4)
		r = epoll_ctl(e->fd, 17, s->fd, ev);
	else if (way == 5)
		r = epoll_ctl(e->fd, EPOLL_CTL_DEL, s->fd, bad_page());
	else
		r = epoll_ctl(e->fd, EPOLL_CTL_MOD, e->fd, ev);
	tell("%u(%d, %d) = %s", way, e->fd, s->fd, result(r));
}

/* What is for once, and is armed again, while another number has the connection as well. */
static void op_once(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	struct epoll_event ev[4];
	uint8_t bytes[64];
	if (!s || room_to_send(other, true) < 1000 ||
	    descriptor_count > MOST_DESCRIPTORS - 4) {
		tell("nothing");
		return;
	}
	int e = out_of_the_way(epoll_create1(EPOLL_CLOEXEC)),
	    twin = out_of_the_way(dup(s->fd)), second = out_of_the_way(dup(e)), n;
	struct epoll_event one = {EPOLLIN | EPOLLONESHOT | (once_in(d, 2) ? EPOLLET : 0),
				  {.u32 = 1}},
			   two = {EPOLLIN | EPOLLET, {.u32 = 2}},
			   out = {EPOLLOUT | EPOLLONESHOT, {.u32 = 1}};
	NEED(epoll_ctl(e, EPOLL_CTL_ADD, s->fd, &one) == 0);
	if (once_in(d, 2))
		NEED(epoll_ctl(second, EPOLL_CTL_ADD, twin, &two) == 0);
	for (int i = 0; i < 4; i++) {
		size_t len = 1 + dice(d, 60);
		if (once_in(d, 2)) {
			fill_bytes(other, bytes, len);
			ssize_t sent = send(other->fd, bytes, len, MSG_DONTWAIT);
			tell("send = %s", result(sent));
			was_sent(other, sent);
		}
		settle();
		n = epoll_wait(once_in(d, 2) ? e : second, ev, 4, 0);
		/* Of the edge-triggered one an edge more may be told. */
		for (int k = 0; k < n; k++)
			if (ev[k].data.u32 == 1)
				tell("  1: %s", events_of_epoll(ev[k].events));
		switch (dice(d, 4)) {
		case 0:
			tell("MOD = %s",
			     result(epoll_ctl(e, EPOLL_CTL_MOD, s->fd, &one)));
			break;
		case 1:
			tell("MOD = %s",
			     result(epoll_ctl(second, EPOLL_CTL_MOD, s->fd, &out)));
			break;
		case 2:
			n = (int)recv(twin, bytes, sizeof bytes, MSG_DONTWAIT);
			tell("recv = %s: %08x", result(n),
			     n > 0 ? checksum(bytes, (size_t)n) : 0);
			was_received(s, n);
			break;
		}
	}
	tell("DEL = %s", result(epoll_ctl(e, EPOLL_CTL_DEL, s->fd, NULL)));
	NEED(close(e) == 0 && close(second) == 0 && close(twin) == 0);
}

/* A chain of instances, the last of which is waited for by poll. */
static void op_nested(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	/* One deeper is as deep as the kernel allows, and may be readable without an event (docs/contract.md). */
	int depth = 1 + (int)dice(d, 3), e[4], r;
	uint8_t bytes[64];
	struct epoll_event ev = {EPOLLIN, {.u32 = 9}}, got[4];
	if (!s || unread(s) || room_to_send(other, true) < 1000) {
		tell("nothing");
		return;
	}
	e[0] = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
	NEED(epoll_ctl(e[0], EPOLL_CTL_ADD, s->fd, &ev) == 0);
	for (int i = 1; i <= depth; i++) {
		e[i] = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
		r = epoll_ctl(e[i], EPOLL_CTL_ADD, e[i - 1], &ev);
		if (i == depth)
			tell("chain of %d = %s", depth, result(r));
	}
	struct pollfd p = {e[depth], POLLIN, 0};
	r = poll(&p, 1, 0);
	tell("before: %s", result(r));
	size_t len = 1 + dice(d, 64);
	fill_bytes(other, bytes, len);
	ssize_t n = send(other->fd, bytes, len, MSG_DONTWAIT);
	was_sent(other, n);
	settle();
	r = once_in(d, 2) ? poll(&p, 1, 0) : poll(&p, 1, 1000);
	tell("sent %s: %s", result(n), result(r));
	for (int i = depth; i >= 0; i--) {
		r = epoll_wait(e[i], got, 4, 0);
		tell("  of %d: %s", i, result(r));
	}
	if (once_in(d, 2)) {
		n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
		was_received(s, n);
		r = epoll_wait(e[depth], got, 4, 0);
		tell("received %s: %s", result(n), result(r));
	}
	for (int i = 0; i <= depth; i++)
		NEED(close(e[i]) == 0);
}

static void op_select_many(struct dice *d)
{
	fd_set set[3];
	static const int tops[] = {0, 1, 20, 64, 199, 200, -1};
	int top = tops[dice(d, 7)], r;
	struct timeval t = {0, once_in(d, 8) ? -1 : 0};
	for (int k = 0; k < 3; k++) {
		FD_ZERO(&set[k]);
		for (int i = 0; i < descriptor_count; i++)
			if (descriptors[i].kind == SOCKET && once_in(d, 2))
				FD_SET(descriptors[i].fd, &set[k]);
	}
	r = select(top, &set[0], once_in(d, 4) ? NULL : &set[1],
		   once_in(d, 4) ? NULL : &set[2], &t);
	tell("(%d, %ld) = %s: %08x %08x %08x", top, (long)t.tv_usec, result(r),
	     checksum(&set[0], 25), checksum(&set[1], 25), checksum(&set[2], 25));
}

const struct op ops_ready[] = {
	{"pending", op_pending, 8},
	{"rotate", op_rotate, 5},
	{"wait-odd", op_wait_odd, 3},
	{"once", op_once, 6},
	{"nested", op_nested, 5},
	{"select-many", op_select_many, 5},
	{NULL, NULL, 0},
};
