/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that travel in AF_UNIX messages (SCM_RIGHTS). */
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/sigsafe.h"
#include "conn/passed.h"
#include "conn/received.h"
#include "preload/hook.h"
#include "preload/lent.h"
#include "readiness/ready.h"

/* So long the peers of the sockets in an epoll instance are waited for, all together. */
#define HOOK_INSTANCE_MS 500

/* Descriptors in one message at most. */
#define SCM_MAX 253

/* The kernel has not looked at it yet: nothing in it can be trusted to be there. */
static void each_descriptor(const struct msghdr *msg, int channel,
			    void (*visit)(int fd, int channel))
{
	const char *at = msg->msg_control;
	size_t left = msg->msg_controllen;
	struct cmsghdr c;

	while (left >= sizeof(c) && crit_copy(&c, at, sizeof(c)) == 0 &&
	       c.cmsg_len >= CMSG_LEN(0) && c.cmsg_len <= left) {
		size_t step = CMSG_ALIGN(c.cmsg_len);
		int fd;

		if (c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS)
			for (size_t i = CMSG_LEN(0); i + sizeof(fd) <= c.cmsg_len;
			     i += sizeof(fd))
				if (crit_copy(&fd, at + i, sizeof(fd)) == 0)
					visit(fd, channel);
		if (step >= left)
			return;
		at += step;
		left -= step;
	}
}

/* For one message; of the thread that sends it. */
static _Thread_local int64_t instance_end_ms __attribute__((tls_model("initial-exec")));

/* One bound for all sockets of an instance. */
static void instance_down(struct sock *s, int fd)
{
	int64_t left = instance_end_ms - hook_now_ms();

	sock_down_wait(s, fd, VD_REASON_EPOLL, left > 0 ? (int)left : 0);
}

static void visit_sent(int fd, int channel)
{
	struct sock *s = fd_sock(fd);

	if (!s) {
		lent_passing(fd);
		instance_end_ms = hook_now_ms() + HOOK_INSTANCE_MS;
		ready_epoll_passing(fd, instance_down);
		return;
	}

	passed_begin(s, fd, channel);
	sock_passed(s);
	if (hook_is_stranded(s, fd, VD_REASON_PASSED))
		sock_sever(s, fd);
}

static void visit_received(int fd, int channel)
{
	hook_opened(fd);
	if (hook_active && !hook_is_borrowed())
		received_open(fd, channel, false);
}

static void visit_peeked(int fd, int channel)
{
	hook_opened(fd);
	received_open(fd, channel, true);
}

/* Whoever receives the descriptor does not know our ring. */
void rights_sending(int channel, const struct msghdr *msg)
{
	each_descriptor(msg, channel, visit_sent);
}

/* The lowest free number, or -1. */
static int lowest_free(void)
{
	int fd;

	low_begin();
	fd = (int)kernel_call4(SYS_eventfd2, 0, EFD_CLOEXEC, 0, 0);
	if (fd >= 0)
		kernel_close(fd);
	low_end();
	return fd;
}

void rights_room_slow(const struct msghdr *msg, unsigned messages)
{
	int saved = errno, fd, below, count = SCM_MAX;
	struct sock_room room = {fds_given(), false};
	struct msghdr head;

	/* A bad pointer is the kernel's to refuse. */
	if (!msg || messages == 0 || crit_copy(&head, msg, sizeof(head)) < 0 ||
	    !head.msg_control || head.msg_controllen < CMSG_LEN(sizeof(int)))
		return;
	if (messages == 1 && head.msg_controllen < CMSG_LEN(SCM_MAX * sizeof(int)))
		count = (int)((head.msg_controllen - CMSG_LEN(0)) / sizeof(int));
	fd = lowest_free();
	if (fd >= 0 && fds_excess(fd + count, &below) <= 0) {
		/* Relaxed: a hint. */
		store_relaxed(&hook_is_short, false);
	} else {
		while (hook_make_room(count, 0, &room))
			;
	}
	errno = saved;
}

void rights_received(int channel, struct msghdr *msg, int flags)
{
	int saved = errno;

	each_descriptor(msg, channel, flags & MSG_PEEK ? visit_peeked : visit_received);
	errno = saved;
}
