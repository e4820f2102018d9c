/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between viaductd and the children that touch what strangers have sent. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/near_helper.h"

union control {
	char bytes[CMSG_SPACE(NEAR_PLACE_FDS * sizeof(int))];
	struct cmsghdr head;
};

int near_line_send(int line, const void *what, size_t bytes, const struct near_fds *fds)
{
	size_t room = fds ? (size_t)fds->count * sizeof(int) : 0;
	union control control = {.head = {.cmsg_len = CMSG_LEN(room),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {(void *)what, bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (room > 0) {
		memcpy(CMSG_DATA(&control.head), fds->fd, room);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(room);
	}
	return sendmsg(line, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t near_line_receive(int line, void *to, size_t bytes, int flags,
			  struct near_fds *fds)
{
	union control control;
	struct iovec iov = {to, bytes};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n;
	struct cmsghdr *c;

	do
		n = recvmsg(line, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	fds->count = 0;
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		fds->count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds->fd, CMSG_DATA(c), (size_t)fds->count * sizeof(int));
	}
	if (!(msg.msg_flags & MSG_CTRUNC))
		return n;
	/* There was no room for one: both ends are ours, so these are harmless. */
	for (; fds->count > 0; fds->count--)
		close(fds->fd[fds->count - 1]);
	fds->count = -1;
	return n;
}
