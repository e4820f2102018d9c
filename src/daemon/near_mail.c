/* SPDX-License-Identifier: Apache-2.0 */
/* Takes messages with descriptors from processes that are not trusted. */
/*
 * A descriptor may be anything, and to close one may take as long as its maker likes: a file of
 * FUSE is flushed by a server, a TCP socket may linger. So the message is taken in a child process, which
 * hands on what is of the kinds that are due, and ends. What else there was is closed by that end, which
 * nobody waits for.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define CHILD_MS 3000 /* for what needs microseconds, where there is a processor */

/* Those that may not have ended yet. */
static struct child {
	pid_t pid; /* 0: free */
	uint32_t uid;
} children[RELAY_NEAR_CHILDREN];

/* What the child says. */
struct report {
	int32_t result; /* of recvmsg, or -errno */
	struct local_message m;
};

/* As many as the kernel lets go with a message: what finds no room is closed at once. */
#define FDS_MAX 253

union control {
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	struct cmsghdr head;
};

/* By its name, since any other question may go to whoever has made the file. */
static bool is_space(int fd)
{
	char path[32], name[5];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, name, sizeof(name)) == sizeof(name) &&
	       !memcmp(name, "net:[", sizeof(name));
}

static int option_of(int fd, int option)
{
	socklen_t size = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

/* Of the kinds that are due, none of which is long in closing. */
static bool are_harmless(const int fds[NEAR_FDS])
{
	int domain = option_of(fds[NEAR_PROBE], SO_DOMAIN);

	return option_of(fds[NEAR_DIAG], SO_DOMAIN) == AF_NETLINK &&
	       is_space(fds[NEAR_SPACE]) && (domain == AF_INET || domain == AF_INET6) &&
	       option_of(fds[NEAR_PROBE], SO_TYPE) == SOCK_DGRAM;
}

/* Descriptors of a message; how many, or -1 when there are others than those of a MEET. These are closed
 * by the end of the process. */
static int fds_of(struct msghdr *msg, int fds[NEAR_FDS])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c)
		return msg->msg_flags & MSG_CTRUNC ? -1 : 0;
	if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(NEAR_FDS * sizeof(int)) ||
	    msg->msg_flags & MSG_CTRUNC || CMSG_NXTHDR(msg, c))
		return -1;
	memcpy(fds, CMSG_DATA(c), NEAR_FDS * sizeof(int));
	return NEAR_FDS;
}

/* What the child has handed on, and did not find room here, is harmless. */
static void close_all(struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	for (size_t at = 0; c && CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
	     at += sizeof(int)) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
		close(fd);
	}
}

static ssize_t take(int sock, void *to, size_t bytes, int flags, int fds[NEAR_FDS],
		    int *count)
{
	union control control;
	struct iovec iov = {to, bytes};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	do
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR && !(flags & MSG_DONTWAIT));
	*count = 0;
	if (n < 0)
		return -errno;
	*count = fds_of(&msg, fds);
	if (*count < 0 && !(flags & MSG_DONTWAIT))
		close_all(&msg);
	return msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
}

static void hand_on(int sock, struct report *report, const int *fds, int count)
{
	union control control = {.head = {.cmsg_len = CMSG_LEN(NEAR_FDS * sizeof(int)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {report, sizeof(*report)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count == NEAR_FDS) {
		memcpy(CMSG_DATA(&control.head), fds, NEAR_FDS * sizeof(int));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(NEAR_FDS * sizeof(int));
	}
	sendmsg(sock, &msg, MSG_NOSIGNAL);
}

/* Has nothing of ours but these two, since it may stay for long. */
static void be_child(int from, int to)
{
	struct report report;
	int fds[NEAR_FDS], count = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	from = fcntl(from, F_DUPFD, 2);
	to = fcntl(to, F_DUPFD, 2);
	if (dup2(from, 0) < 0 || dup2(to, 1) < 0 || close_range(2, ~0u, 0) < 0)
		_exit(1);
	memset(&report, 0, sizeof(report));
	report.result =
		(int32_t)take(0, &report.m, sizeof(report.m), MSG_DONTWAIT, fds, &count);
	if (count > 0 && (report.result <= 0 || !are_harmless(fds)))
		count = -1;
	if (count < 0)
		report.result = -EBADF;
	hand_on(1, &report, fds, count);
	_exit(0);
}

/* A place for one more child, or NULL. */
static struct child *free_child(uint32_t uid)
{
	struct child *found = NULL;
	unsigned same = 0;

	for (int i = 0; i < RELAY_NEAR_CHILDREN; i++) {
		struct child *c = &children[i];

		if (c->pid && waitpid(c->pid, NULL, WNOHANG) != 0)
			c->pid = 0;
		if (!c->pid)
			found = c;
		else
			same += c->uid == uid;
	}
	return same < RELAY_NEAR_CHILDREN_UID ? found : NULL;
}

static ssize_t hear_child(int sock, struct local_message *m, int fds[NEAR_FDS],
			  unsigned *count)
{
	const struct timeval most = {.tv_sec = CHILD_MS / 1000};
	struct report report;
	int came;
	ssize_t n;

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	n = take(sock, &report, sizeof(report), 0, fds, &came);
	*count = came > 0 ? (unsigned)came : 0;
	if (n == sizeof(report)) {
		memcpy(m, &report.m, sizeof(*m));
		return report.result;
	}
	/* These it has found harmless. */
	for (; *count > 0; --*count)
		close(fds[*count - 1]);
	return n < 0 ? n == -EAGAIN ? -ETIMEDOUT : n : -EPIPE;
}

/* The guard's alarm may interrupt it. */
static bool await(pid_t pid)
{
	pid_t r;

	do
		r = waitpid(pid, NULL, 0);
	while (r < 0 && errno == EINTR);
	return r == pid;
}

ssize_t near_mail_take(int sock, uint32_t uid, struct local_message *m, int fds[NEAR_FDS],
		       unsigned *count)
{
	struct child *c = free_child(uid);
	int pair[2];
	ssize_t n;

	*count = 0;
	if (!c)
		return -EBUSY;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	c->pid = fork();
	if (c->pid == 0)
		be_child(sock, pair[1]);
	n = c->pid < 0 ? -errno : 0;
	close(pair[1]);
	if (n == 0) {
		c->uid = uid;
		n = hear_child(pair[0], m, fds, count);
		/* Then it has nothing whose closing takes time. */
		if (n != -EBADF && n != -ETIMEDOUT && await(c->pid))
			c->pid = 0;
	} else {
		c->pid = 0;
	}
	close(pair[0]);
	return n;
}
