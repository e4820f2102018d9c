/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that travel in AF_UNIX messages (SCM_RIGHTS). */
#include <string.h>
#include <sys/socket.h>

#include "hook/hook.h"

static void each_descriptor(struct msghdr *msg, void (*visit)(int fd))
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
		    c->cmsg_len < CMSG_LEN(0))
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			visit(fd);
		}
	}
}

static void visit_sent(int fd)
{
	struct sock *s = fd_sock(fd);

	if (s)
		hook_take_down(s, fd, VD_REASON_PASSED);
}

static void visit_received(int fd)
{
	hook_opened(fd);
}

/* Whoever receives the descriptor does not know our ring. */
void rights_sending(const struct msghdr *msg)
{
	each_descriptor((struct msghdr *)msg, visit_sent);
}

void rights_received(struct msghdr *msg)
{
	int saved = errno;

	each_descriptor(msg, visit_received);
	errno = saved;
}
