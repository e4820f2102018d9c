/* SPDX-License-Identifier: Apache-2.0 */
/* A child of viaductd that looks at what one process has sent: it may hang, and viaductd does not. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/near_helper.h"

#define SOCK	     0 /* the numbers of the only two descriptors that it has of its parent's */
#define LINE	     1
#define HEAR_AT_ONCE 16
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
	       option_of(fds[NEAR_PROBE], SO_TYPE) == SOCK_DGRAM &&
	       option_of(fds[NEAR_PROBE], SO_PROTOCOL) == IPPROTO_UDP;
}

int32_t near_take_message(int sock, struct local_message *m, int fds[NEAR_FDS])
{
	union control control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	if (n <= 0)
		return n < 0 ? -errno : 0;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(NEAR_FDS * sizeof(int)) || CMSG_NXTHDR(&msg, c) ||
	    msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC))
		return -EBADF;
	memcpy(fds, CMSG_DATA(c), NEAR_FDS * sizeof(int));
	return are_harmless(fds) ? (int32_t)n : -EBADF;
}

static void answer(const struct near_report *report, const struct near_fds *fds)
{
	/* The line has room for all that is under way. */
	if (near_line_send(LINE, report, sizeof(*report), fds) < 0)
		_exit(1);
}

/* What is of another kind is closed by the end of this process, which nobody waits for. */
static void take(struct near_report *report, uint32_t uid)
{
	struct near_fds out = {.count = 0};
	int fds[NEAR_FDS];

	report->result = near_take_message(SOCK, &report->m, fds);
	if (report->result <= 0) {
		answer(report, NULL);
		_exit(0);
	}
	report->status = near_place_take(uid, &report->m, fds, &report->place);
	if (report->status == LOCAL_OK)
		out = (struct near_fds){.fd = {report->place.diag, report->place.probe},
					.count = NEAR_PLACE_FDS};
	answer(report, &out);
	for (int i = 0; i < NEAR_FDS; i++)
		close(fds[i]);
}

static bool hear(int probe, const uint8_t due[NEAR_SECRET_BYTES])
{
	uint8_t said[NEAR_SECRET_BYTES];

	/* Others may have sent something before it was aimed, of no byte, too. That nobody was at the
	 * other address yet is said as an error, once. */
	for (int i = 0; i < HEAR_AT_ONCE; i++) {
		ssize_t n = recv(probe, said, sizeof(said), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n == sizeof(said) && !sodium_memcmp(said, due, sizeof(said)))
			return true;
	}
	return false;
}

static bool step(int probe, const struct near_order *o)
{
	union address name;
	socklen_t size = address_of_end(&o->peer, &name);

	if (connect(probe, &name.any, size) < 0)
		return false;
	/* An error that an earlier datagram has drawn is said now, once, and nothing is sent. */
	for (int i = 0; i < 2; i++)
		if (send(probe, o->secret, sizeof(o->secret),
			 MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			break;
	return hear(probe, o->due);
}

static void carry_out(const struct near_order *o, int fd, uint32_t uid)
{
	struct near_report report;

	memset(&report, 0, sizeof(report));
	report.kind = o->kind;
	report.near = o->near;
	report.round = o->round;
	if (o->kind == ORDER_TAKE)
		take(&report, uid);
	else if (o->kind == ORDER_STEP)
		report.result = step(fd, o);
	else
		report.result = near_place_holds(uid, &o->local, &o->peer, fd, o->cookie);
	if (o->kind == ORDER_TAKE)
		return;
	answer(&report, NULL);
	close(fd);
}

/* What strangers have sent is not to be used with more rights than theirs. */
static bool drop_rights(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
	struct __user_cap_data_struct own[_LINUX_CAPABILITY_U32S_3];

	/* A filter of system calls may have none of it, where there is nothing to drop. */
	return syscall(SYS_capset, &head, none) == 0 ||
	       (syscall(SYS_capget, &head, own) == 0 && own[0].permitted == 0 &&
		own[1].permitted == 0);
}

void near_child(int sock, int line, uint32_t uid)
{
	struct near_order order;
	struct near_fds fds;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!drop_rights())
		_exit(1);
	/* Nothing else of ours, since it may stay for long. */
	sock = fcntl(sock, F_DUPFD, LINE + 1);
	line = fcntl(line, F_DUPFD, LINE + 1);
	/* One of another process's may be the last by now: closer.c. */
	closer_guard(true);
	if (dup2(sock, SOCK) < 0 || dup2(line, LINE) < 0 ||
	    close_range(LINE + 1, ~0u, 0) < 0)
		_exit(1);
	closer_guard(false);
	while (near_line_receive(LINE, &order, sizeof(order), 0, &fds) ==
	       (ssize_t)sizeof(order))
		if (order.kind == ORDER_TAKE || fds.count == 1)
			carry_out(&order, fds.fd[0], uid);
	_exit(0);
}
