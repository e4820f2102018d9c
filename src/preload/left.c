/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of a process behind a filter that still has bytes of a ring to read: its own call, and those. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

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

bool left_epoll_is_ready(int epfd)
{
	struct epoll_event ev;

	for (int fd = 0; fd < fd_limit(); fd++)
		if (has_left(fd) && ready_left(epfd, fd_sock(fd), &ev, false))
			return true;
	return false;
}

int left_epoll_add(int epfd, struct epoll_event *ev, int max, int n)
{
	for (int fd = 0; n >= 0 && fd < fd_limit(); fd++) {
		struct epoll_event one;
		int i = 0;

		if (!has_left(fd) || !ready_left(epfd, fd_sock(fd), &one, false))
			continue;
		while (i < n && ev[i].data.u64 != one.data.u64)
			i++;
		if (i == max)
			continue;
		ready_left(epfd, fd_sock(fd), &one, true);
		if (i < n)
			ev[i].events |= one.events;
		else
			ev[n++] = one;
	}
	return n;
}
