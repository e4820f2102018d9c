/* SPDX-License-Identifier: Apache-2.0 */
/* What the other end sees of bytes that are held back, in a sleep and once they were let go. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "held.h"

/* More than TCP's time, and than the step of a coarse clock. */
#define DUE_MS 240

static uint8_t into[65536];

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until the time is over, and the kernel has nothing to send either. */
void held_wait_due(const struct hold *h)
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

/* What has come is received, and what is told of it is the sum. */
void held_take(struct hold *h, size_t most)
{
	struct descriptor *to = of_end(h->to);
	h->taken = true;
	if (most > sizeof h->into - h->got)
		most = sizeof h->into - h->got;
	ssize_t n = recv(to->fd, h->into + h->got, most, MSG_DONTWAIT);
	was_received(to, n);
	h->got += n > 0 ? (size_t)n : 0;
}

/* ---- a sleep on the other end ---- */

static atomic_int alarms;

static void on_alarm(int number)
{
	(void)number;
	atomic_fetch_add(&alarms, 1);
}

/* Of signals that come all the time, or none. */
static void alarm_every_us(int us, bool restart)
{
	struct sigaction a = {.sa_handler = on_alarm,
			      .sa_flags = restart ? SA_RESTART : 0};
	struct itimerval t = {{0, us}, {0, us}};
	if (us)
		NEED(sigaction(SIGALRM, &a, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &t, NULL) == 0);
}

/* Until it is ready, with so long a sleep at once. */
static void sleep_in_poll(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	int r;
	do
		r = poll(&p, 1, ms);
	while (r == 0 || (r < 0 && errno == EINTR));
	tell("poll = %s: %s", result(r), events_of_poll((unsigned)p.revents));
}

static void sleep_in_select(int fd)
{
	fd_set in;
	int r;
	do {
		FD_ZERO(&in);
		FD_SET(fd, &in);
		r = select(fd + 1, &in, NULL, NULL, NULL);
	} while (r < 0 && errno == EINTR);
	tell("select = %s", result(r));
}

static void sleep_in_epoll(struct hold *h, int ms)
{
	struct epoll_event ev = {0};
	int r;
	do
		r = epoll_wait(h->instance, &ev, 1, ms);
	while (r == 0 || (r < 0 && errno == EINTR));
	tell("epoll = %s: %s", result(r), events_of_epoll(ev.events));
	/* Of the first piece alone, or of all. */
	h->told = true;
}

static void sleep_until_ready(struct dice *d, struct hold *h, int fd)
{
	int ms = once_in(d, 2) ? -1 : 1 + (int)dice(d, 30);
	switch (dice(d, 6)) {
	case 0:
		sleep_in_poll(fd, ms);
		break;
	case 1:
		sleep_in_select(fd);
		break;
	case 2:
	case 3:
		if (h->instance >= 0 && !h->told && !h->before)
			sleep_in_epoll(h, ms);
		break;
	case 4:
		if (h->outer >= 0 && !h->told && !h->before)
			sleep_in_poll(h->outer, ms);
	}
}

static ssize_t once_more(unsigned way, int fd, uint8_t *at, size_t len)
{
	struct iovec v[2] = {{at, len / 2}, {at + len / 2, len - len / 2}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	switch (way) {
	case 0:
		return recv(fd, at, len, 0);
	case 1:
		recv(fd, at, len, MSG_PEEK);
		return recvmsg(fd, &m, 0);
	case 2:
		recv(fd, at, len, MSG_PEEK | MSG_WAITALL);
		return recv(fd, at, len, 0);
	case 3:
		return readv(fd, v, 2);
	default:
		return recv(fd, at, len, MSG_WAITALL);
	}
}

void held_sleep(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	struct timeval short_time = {0, 1000 + (int)dice(d, 40000)}, none = {0, 0};
	bool times = once_in(d, 3);
	unsigned way = dice(d, 5);
	if (h->taken || !unread(to) || raw_option(to->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		held_wait_due(h);
		return;
	}
	bool alarmed = once_in(d, 3);
	if (alarmed)
		alarm_every_us(1000 + (int)dice(d, 9000), once_in(d, 2));
	sleep_until_ready(d, h, to->fd);
	if (times)
		setsockopt(to->fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof none);
	h->taken = true;
	while (unread(to)) {
		ssize_t n = once_more(way, to->fd, h->into + h->got, unread(to));
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			tell("once more = %s", result(n));
			break;
		}
		was_received(to, n);
		h->got += n > 0 ? (size_t)n : 0;
		if (n < 0 && is_nonblocking(to->fd))
			poll(&(struct pollfd){to->fd, POLLIN, 0}, 1, 5);
	}
	if (alarmed)
		alarm_every_us(0, false);
	if (times)
		setsockopt(to->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
}

/* ---- and is seen by the other end ---- */

/* By some of the calls that tell: one may take what the next then finds. */
static void tell_ready(struct dice *d, struct hold *h, const char *when)
{
	struct descriptor *to = of_end(h->to);
	struct pollfd p = {to->fd, POLLIN | POLLRDHUP | POLLOUT, 0};
	struct epoll_event ev[2];
	unsigned calls = dice(d, 8);
	int n = -1;
	if (calls & 1) {
		n = poll(&p, 1, 0);
		tell("%s: poll(%d) = %s: %s", when, to->fd, result(n),
		     events_of_poll((unsigned)p.revents));
	}
	if (calls & 2) {
		ioctl(to->fd, FIONREAD, &n);
		tell("%d are there", n);
	}
	if (h->instance < 0 || h->taken || h->told || !(calls & 4))
		return;
	if (h->outer >= 0) {
		p = (struct pollfd){h->outer, POLLIN, 0};
		n = poll(&p, 1, 0);
		/* With others it may be so without an event (docs/contract.md). */
		if (h->events == EPOLLIN)
			tell("outer = %s", result(n));
	}
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
	switch (dice(d, 7)) {
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
	case 5:
		return recv(fd, into, sizeof into, MSG_DONTWAIT | MSG_TRUNC);
	case 4:
		return recvmsg(fd, &m, MSG_DONTWAIT);
	default:
		return recv(fd, into, sizeof into, MSG_DONTWAIT);
	}
}

void held_see(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	settle();
	if (!h->taken)
		tell_ready(d, h, "then");
	size_t all = unread(to);
	if (h->taken) {
		held_take(h, 40000);
		tell("in all %zu: %08x", h->got, checksum(h->into, h->got));
	} else if (once_in(d, 6)) {
		tell("left for others");
		return;
	} else if (all && raw_option(to->fd, SOL_SOCKET, SO_RCVLOWAT) <= 1) {
		ssize_t n = receive(d, to->fd, all);
		tell("(%d of %zu) = %s: %08x", to->fd, all, result(n),
		     checksum(into, n > 0 ? (size_t)n : 0));
		was_received(to, n);
	}
	tell_ready(d, h, "at last");
}
