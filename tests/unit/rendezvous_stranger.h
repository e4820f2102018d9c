/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of other users' descriptors share. */
#ifndef UNIT_RENDEZVOUS_STRANGER_H
#define UNIT_RENDEZVOUS_STRANGER_H

#include <signal.h>
#include <sys/prctl.h>

#include "unit/rendezvous_forgery.h"
#include "unit/test.h"

enum { STRANGER = 12345 };

#define NEED_ROOT()                                                                      \
	do {                                                                             \
		if (geteuid() != 0)                                                      \
			SKIP("needs root");                                              \
	} while (0)

#define STRANGER_FN __attribute__((unused)) static

STRANGER_FN void become_stranger(void)
{
	REQUIRE(setresgid(STRANGER, STRANGER, STRANGER) == 0 &&
		setresuid(STRANGER, STRANGER, STRANGER) == 0);
}

STRANGER_FN bool send_fds(int sock, const void *data, size_t len, const int *fds,
			  int count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

STRANGER_FN void wait_for(int fd)
{
	char byte;

	CHECK_EQ(read(fd, &byte, 1), 0);
}

/* Leaves sockets that linger with the name, and none of them anywhere else. */
/* Once they have all gone, nothing is left of what came. */
STRANGER_FN void await_leftovers(struct leftovers before)
{
	while (leftovers_settle().fds > before.fds)
		usleep(1000);
	CHECK_EQ(leftovers_count().fds, before.fds);
	FDS_SETTLED();
}

#endif
