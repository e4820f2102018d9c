/* SPDX-License-Identifier: Apache-2.0 */
/* A receive that began in the ring goes on in the kernel, when the direction has gone back to TCP. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/kernel.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/rx_rest.h"
#include "conn/switch.h"
#include "ring/iov.h"

/* Under the lock, until it is dropped, the number is the connection's: of what a call holds a close takes it, too. */
static bool number_begin(struct wait *w)
{
	struct lock *lock = &w->s->slot->rx_lock;
	lock_take(lock);
	if (wait_is_open(w))
		return true;
	lock_drop(lock);
	return false;
}

/* Amid a call, with nothing to take: -ENODATA at the end, or else -EAGAIN. */
static int is_empty(struct wait *w)
{
	int queued = 0, r = 0;
	if (!number_begin(w))
		return -EBADF;
	if (rx_is_tcp_over(w->s, w->fd))
		r = -ENODATA;
	else if (REAL(ioctl)(w->fd, FIONREAD, &queued) == 0 && queued == 0)
		r = -EAGAIN;
	lock_drop(&w->s->slot->rx_lock);
	return r;
}

/* Not by libc's: a thread must not end there. */
static ssize_t take(struct wait *w, struct iov_cursor *to, int flags)
{
	struct iovec part = iov_part(to, SIZE_MAX);
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
	if (!number_begin(w))
		return -EBADF;
	ssize_t n = kernel_recvmsg(w->fd, &msg, flags | MSG_DONTWAIT);
	lock_drop(&w->s->slot->rx_lock);
	return n;
}

ssize_t rx_rest_in_kernel(struct wait *w, struct iov_cursor *to, int flags, bool amid)
{
	struct sock *s = w->s;
	/* Before it is counted: what undoes these is a list. */
	int r = w->held || wait_hold(w) ? 0 : -EBADF;
	if (r == 0 && amid)
		r = is_empty(w);
	if (r < 0)
		return r;
	enum sock_way way = rx_enter(s, w->fd);
	if (way == SOCK_DIRECT)
		return 0;
	ssize_t n = way == SOCK_COUNTED ? COUNTED(counted_rx_over, s, take(w, to, flags))
					: take(w, to, flags);
	if (n < 0)
		return n;
	iov_skip(to, (size_t)n);
	return n == 0 ? -ENODATA : n;
}

ssize_t rx_rest_at_once(struct wait *w, struct iov_cursor *to, int flags)
{
	ssize_t n = 0;
	if (!(flags & MSG_PEEK) && !iov_at_end(to) &&
	    gate_is_kernel(gate_state(&w->s->slot->gate_rx)) && !rx_is_at_mark(w->fd))
		n = rx_rest_in_kernel(w, to, flags | MSG_DONTWAIT, true);
	return n > 0 ? n : 0;
}

bool rx_is_marked(const struct wait *w, int flags)
{
	int lowat = 1;
	socklen_t len = sizeof(lowat);
	return w->deadline_ns && !(flags & MSG_DONTWAIT) &&
	       REAL(getsockopt)(w->fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) == 0 &&
	       lowat > 1;
}

ssize_t rx_rest_at_mark(struct wait *w, struct iov_cursor *to, int flags)
{
	struct pollfd p = {.fd = w->fd, .events = POLLIN | POLLRDHUP};
	if (kernel_poll(&p, 1, 0) != 0) {
		ssize_t n = rx_rest_in_kernel(w, to, flags, false);
		return n == -EAGAIN ? 0 : n; /* another thread was faster */
	}
	ssize_t n = wait_for(w);
	if (n != -EAGAIN && n != -EINTR && n != SOCK_KERNEL)
		return n;
	/* Also what is there when the time is over, or a handler has run. */
	ssize_t some = rx_rest_in_kernel(w, to, flags, false);
	return some > 0 ? some : n;
}
