/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbells between two users: a netlink socket of each end, which never leaves it. */
#include <errno.h>
#include <linux/netlink.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/real.h"
#include "rendezvous/farbell.h"
#include "rendezvous/socket_cache.h"

/* Programs that choose a port take their process number, and the kernel does so for them:
 * all of those lie below. */
#define FARBELL_PORTS 0x80000000u
#define FARBELL_TRIES 16

/* 0 or -errno. */
static int farbell_bind(int fd)
{
	struct sockaddr_nl name = {.nl_family = AF_NETLINK};
	uint32_t number;

	for (int i = 0; i < FARBELL_TRIES; i++) {
		long n = kernel_call4(SYS_getrandom, (long)&number, sizeof(number),
				      GRND_NONBLOCK, 0);
		if (n != sizeof(number))
			return n < 0 ? (int)n : -EAGAIN;
		name.nl_pid = number | FARBELL_PORTS;
		if (REAL(bind)(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

int farbell_create(uint64_t netns)
{
	/* The kernel's least: the first ring always fits, and a flood takes no memory. */
	const int room = 1;
	int fd = kept_socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK, netns), r;

	if (fd < 0)
		return fd;
	r = farbell_bind(fd);
	if (r == 0 &&
	    REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) != 0)
		r = -errno;
	if (r == 0)
		return fd;
	fds_close(fd);
	return r;
}

uint32_t farbell_port(int fd)
{
	struct sockaddr_nl name = {.nl_pid = 0};
	socklen_t len = sizeof(name);

	return kernel_getsockname(fd, (struct sockaddr *)&name, &len) == 0 ? name.nl_pid
									   : 0;
}

int farbell_connect(int fd, uint32_t port)
{
	const struct sockaddr_nl peer = {.nl_family = AF_NETLINK, .nl_pid = port};

	if (port == 0) /* the kernel's */
		return -EPROTO;
	return kernel_connect(fd, (const struct sockaddr *)&peer, sizeof(peer));
}

bool farbell_is_pair(int fd)
{
	socklen_t len = sizeof(int);
	int domain = -1;

	return REAL(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       domain == AF_UNIX;
}

/* Not through libc's send and recv: those are cancellation points. */
static long ring(int fd)
{
	/* A peer may have named somebody else's port: to whoever that is, it says nothing. */
	static const struct nlmsghdr nothing = {.nlmsg_len = sizeof(nothing),
						.nlmsg_type = NLMSG_NOOP};

	return kernel_call6(SYS_sendto, fd, (long)&nothing, sizeof(nothing),
			    MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
}

void farbell_ring(int fd)
{
	ring(fd);
}

bool farbell_is_over(int fd)
{
	long r = farbell_is_pair(fd) ? ring(fd) : 0;

	/* The first who is told so loses the connection by that. */
	return r == -ECONNREFUSED || r == -ENOTCONN || r == -EPIPE || r == -ECONNRESET;
}

int farbell_answer(int fd)
{
	struct nlmsghdr said;
	int n = 0;

	/* Any length will do, but an error: EAGAIN, or the one that it reports is gone. */
	while (n < FARBELL_MOST && kernel_call6(SYS_recvfrom, fd, (long)&said,
						sizeof(said), MSG_DONTWAIT, 0, 0) >= 0)
		n++;
	return n;
}
