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

ssize_t rx_rest_in_kernel(struct sock *s, int fd, struct iov_cursor *to, int flags,
			  bool amid)
{
	struct iovec part = iov_part(to, SIZE_MAX);
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
	int queued = 0;
	bool over = amid && rx_is_tcp_over(s, fd);
	if (over || (amid && REAL(ioctl)(fd, FIONREAD, &queued) == 0 && queued == 0))
		return over ? -ENODATA : -EAGAIN;
	flags |= MSG_DONTWAIT;
	enum sock_way way = rx_enter(s, fd);
	if (way == SOCK_DIRECT)
		return 0;
	ssize_t n = way == SOCK_COUNTED
			    ? COUNTED(counted_rx_over, s, REAL(recvmsg)(fd, &msg, flags))
			    : REAL(recvmsg)(fd, &msg, flags);
	if (n < 0)
		return -errno;
	iov_skip(to, (size_t)n);
	return n == 0 ? -ENODATA : n;
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
		ssize_t n = rx_rest_in_kernel(w->s, w->fd, to, flags, false);
		return n == -EAGAIN ? 0 : n; /* another thread was faster */
	}
	ssize_t n = wait_for(w);
	if (n != -EAGAIN && n != -EINTR)
		return n;
	/* Also what is there when the time is over, or a handler has run. */
	ssize_t some = rx_rest_in_kernel(w->s, w->fd, to, flags, false);
	return some > 0 ? some : n;
}
