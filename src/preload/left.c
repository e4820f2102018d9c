/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of a process behind a filter that still has bytes of a ring to read: its own call, and those. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "base/atomic.h"
#include "preload/hook.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

#define LEFT_IN (POLLIN | POLLRDNORM)

static bool has_left(int fd)
{
	struct sock *s = fd < 0 ? NULL : fd_sock(fd);

	return s && left_bytes(s) > 0;
}

bool left_poll_is_ready(struct pollfd *fds, unsigned long n)
{
	for (nfds_t i = 0; i < n; i++)
		if ((fds[i].events & LEFT_IN) && has_left(fds[i].fd))
			return true;
	return false;
}

int left_poll_add(struct pollfd *fds, unsigned long n, int result)
{
	for (nfds_t i = 0; result >= 0 && i < n; i++) {
		if (!(fds[i].events & LEFT_IN) || !has_left(fds[i].fd))
			continue;
		result += !fds[i].revents;
		fds[i].revents |= fds[i].events & LEFT_IN;
	}
	return result;
}

bool left_select_is_ready(int n, const fd_set *in, struct left_sets *was)
{
	int found = 0;

	if (!in || n <= 0)
		return false;
	for (int fd = 0; fd < n && fd < fd_limit() && found < LEFT_MOST; fd++)
		if ((((const unsigned long *)in)[fd / 64] >> (fd % 64) & 1) &&
		    has_left(fd))
			was->fd[found++] = fd;
	was->count = found;
	return found > 0;
}

int left_select_add(fd_set *in, const struct left_sets *was, int result)
{
	for (int i = 0; result >= 0 && i < was->count; i++) {
		unsigned long *word = &((unsigned long *)in)[was->fd[i] / 64];
		unsigned long bit = 1ul << (was->fd[i] % 64);

		result += !(*word & bit);
		*word |= bit;
	}
	return result;
}

/*
 * What the program has made and registered since, the newest last: for an instance that was known before in place of
 * what stood there. Any thread and handler may come at any point, and no call can be made to wait for one: so what is
 * written is whole in each word.
 */
#define SINCE_MOST 128
#define SINCE_MADE -1		/* for fd: another instance has that number now */
#define SINCE_TOLD (1ull << 32) /* beside the events, which are none once it is deleted */
static struct since {
	_Atomic int instance; /* its number plus 1. Written last */
	int fd;
	_Atomic uint64_t events, data;
} since[SINCE_MOST];
static _Atomic int since_used;

static struct since *since_find(int epfd, int fd)
{
	int used = load_relaxed(&since_used);

	for (int i = (used < SINCE_MOST ? used : SINCE_MOST) - 1; i >= 0; i--)
		if (load_acquire(&since[i].instance) == epfd + 1 &&
		    (since[i].fd == fd || since[i].fd == SINCE_MADE))
			return &since[i];
	return NULL;
}

/* Beyond those nothing is noted: what is left is not told of there. */
static void since_add(int epfd, int fd, uint32_t events, uint64_t data)
{
	int i = load_relaxed(&since_used);

	if (i >= SINCE_MOST || (i = atomic_fetch_add(&since_used, 1)) >= SINCE_MOST)
		return;
	since[i].fd = fd;
	store_relaxed(&since[i].events, events);
	store_relaxed(&since[i].data, data);
	store_release(&since[i].instance, epfd + 1);
}

void left_epoll_made(int epfd)
{
	since_add(epfd, SINCE_MADE, 0, 0);
}

int left_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	int result = REAL(epoll_ctl)(epfd, op, fd, ev);
	uint32_t events = result == 0 && op != EPOLL_CTL_DEL ? ev->events : 0;
	uint64_t data = events ? ev->data.u64 : 0;
	struct since *e;

	if (result < 0 || !has_left(fd))
		return result;
	e = since_find(epfd, fd);
	if (e && e->fd == fd) {
		store_relaxed(&e->data, data);
		store_relaxed(&e->events, events);
	} else {
		since_add(epfd, fd, events, data);
	}
	return result;
}

/* `take`: it is told of. */
static bool epoll_has(int epfd, int fd, struct epoll_event *ev, bool take)
{
	struct since *e = has_left(fd) ? since_find(epfd, fd) : NULL;
	uint64_t events;

	if (!e)
		return has_left(fd) && ready_left(epfd, fd_sock(fd), ev, take);
	events = load_relaxed(&e->events);
	if (!(events & LEFT_IN) || (events & SINCE_TOLD))
		return false;
	if (take && (events & (EPOLLET | EPOLLONESHOT)))
		atomic_fetch_or(&e->events, SINCE_TOLD);
	*ev = (struct epoll_event){events & LEFT_IN, {.u64 = load_relaxed(&e->data)}};
	return true;
}

bool left_epoll_is_ready(int epfd)
{
	struct epoll_event ev;

	for (int fd = 0; fd < fd_limit(); fd++)
		if (epoll_has(epfd, fd, &ev, false))
			return true;
	return false;
}

int left_epoll_add(int epfd, struct epoll_event *ev, int max, int n)
{
	for (int fd = 0; n >= 0 && fd < fd_limit(); fd++) {
		struct epoll_event one;
		int i = 0;

		if (!epoll_has(epfd, fd, &one, false))
			continue;
		while (i < n && ev[i].data.u64 != one.data.u64)
			i++;
		if (i == max)
			continue;
		epoll_has(epfd, fd, &one, true);
		if (i < n)
			ev[i].events |= one.events;
		else
			ev[n++] = one;
	}
	return n;
}
