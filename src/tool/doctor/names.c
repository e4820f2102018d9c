/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the rendezvous: abstract AF_UNIX names, and bells between users by netlink. */
#include <errno.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tool/doctor/doctor.h"

static int sent_descriptor(int by, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	char byte = 'd';
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(by, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

/* A descriptor of ours, or -errno. */
static int received_descriptor(int from)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	int fd;

	if (recvmsg(from, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return -errno;
	if (m.msg_controllen < CMSG_LEN(sizeof(int)) ||
	    control.head.cmsg_type != SCM_RIGHTS)
		return -EMFILE;
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

/* The call that failed, with errno; NULL when all went well. */
static const char *meeting_fault(int listener, int ends[2])
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t peer_len = sizeof(peer), len;
	int fd, r;

	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			  (size_t)snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
					   "viaduct-doctor.%d", (int)getpid()));
	if (bind(listener, (struct sockaddr *)&name, len) != 0 ||
	    listen(listener, 1) != 0)
		return "listening on an abstract name";
	if (connect(ends[0], (struct sockaddr *)&name, len) != 0)
		return "connecting to an abstract name";
	ends[1] = accept(listener, NULL, NULL);
	if (ends[1] < 0)
		return "accepting on an abstract name";
	if (getsockopt(ends[1], SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) != 0 ||
	    peer.pid != getpid() || peer.uid != geteuid())
		return "asking who connected (SO_PEERCRED)";
	r = sent_descriptor(ends[0], listener);
	fd = r < 0 ? r : received_descriptor(ends[1]);
	errno = fd < 0 ? -fd : 0;
	if (fd < 0)
		return "passing a descriptor";
	close(fd);
	return NULL;
}

void check_unix_names(struct finding *f)
{
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int ends[2] = {socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), -1};
	const char *fault = "making an AF_UNIX socket";

	if (listener >= 0 && ends[0] >= 0)
		fault = meeting_fault(listener, ends);
	if (fault)
		found_refused(f, fault, errno);
	else
		found(f, "two ends met at an abstract name and passed a descriptor");
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	if (listener >= 0)
		close(listener);
}

/* Ports from here up are nobody's process number: see src/rendezvous/farbell.c. */
static int bell_make(uint32_t *port)
{
	struct sockaddr_nl name = {.nl_family = AF_NETLINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK), r = 0;

	if (fd < 0)
		return -errno;
	if (getrandom(&name.nl_pid, sizeof(name.nl_pid), GRND_NONBLOCK) < 0)
		r = -errno;
	*port = name.nl_pid |= 0x80000000u;
	if (r == 0 && bind(fd, (struct sockaddr *)&name, sizeof(name)) != 0)
		r = -errno;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

/* Rings from a to b. 0 or -errno. */
static int bell_ring(int a, int b, uint32_t port)
{
	const struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_pid = port};
	const struct nlmsghdr nothing = {.nlmsg_len = sizeof(nothing)};
	struct nlmsghdr got;

	if (connect(a, (const struct sockaddr *)&to, sizeof(to)) != 0 ||
	    send(a, &nothing, sizeof(nothing), MSG_DONTWAIT) < 0 ||
	    recv(b, &got, sizeof(got), MSG_DONTWAIT) < 0)
		return -errno;
	return 0;
}

void check_other_users(struct finding *f)
{
	uint32_t ports[2] = {0};
	int a = bell_make(&ports[0]), b = a < 0 ? a : bell_make(&ports[1]);
	int r = b < 0 ? b : bell_ring(a, b, ports[1]);

	if (a >= 0)
		close(a);
	if (b >= 0)
		close(b);
	if (r == 0) {
		found(f, "a doorbell between two users was rung and heard");
		return;
	}
	found_refused(f, "a doorbell between two users (netlink)", -r);
	found_trouble(
		f, FINDING_NOTE,
		"Connections whose ends belong to different users stay on TCP.",
		"Allow AF_NETLINK sockets in the filter of system calls (seccomp) or "
		"the security policy of this container or service.");
}
