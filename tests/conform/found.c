/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that random operations have found (tests/differential), cut down to what matters. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- a peek that waits for all: the end ends it ---- */

static void peek_all(struct pair p, const char *name)
{
	char buf[100];
	say_result(name, recv(p.s, buf, sizeof buf, MSG_PEEK | MSG_WAITALL));
	say_result("and again", recv(p.s, buf, sizeof buf, MSG_PEEK | MSG_WAITALL));
	say_result("read", recv(p.s, buf, sizeof buf, 0));
	say_result("end", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
}

CASE(found_peek_all_shut_here, DIRECT)
{
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 31);
	NEED(shutdown(p.s, SHUT_RD) == 0);
	peek_all(p, "peek");
	pair_close(p);
}

CASE(found_peek_all_shut_there, DIRECT)
{
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 31);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	peek_all(p, "peek");
	pair_close(p);
}

CASE(found_peek_all_closed, DIRECT)
{
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 31);
	NEED(close(p.c) == 0);
	wait_events(p.s, POLLRDHUP);
	peek_all(p, "peek");
	NEED(close(p.s) == 0);
}

CASE(found_peek_all_reset, DIRECT)
{
	struct pair p = pair_warm_open();
	send_pattern(p.s, 0, 10);
	send_pattern(p.c, 0, 31);
	wait_inq(p.c, 10);
	wait_inq(p.s, 31);
	NEED(close(p.c) == 0);
	wait_events(p.s, POLLHUP);
	peek_all(p, "peek");
	NEED(close(p.s) == 0);
}

/* ---- a reset that a call of the kernel's has told is not told again ---- */

/* Without a look at its readiness, by which the error could become known. */
static void wait_reset(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	do
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	while (info.tcpi_state != TCP_CLOSE);
}

CASE(found_reset_told_to_splice, DIRECT)
{
	struct pair p = pair_warm_open();
	struct mmsghdr m[3] = {0};
	struct iovec v[3];
	char buf[3][10];
	int pipe_fd[2];
	for (int i = 0; i < 3; i++) {
		v[i] = (struct iovec){buf[i], sizeof buf[i]};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	NEED(pipe2(pipe_fd, O_CLOEXEC) == 0);
	NEED(write(pipe_fd[1], "spliced", 7) == 7);
	send_pattern(p.s, 0, 275);
	wait_inq(p.c, 275);
	NEED(close(p.c) == 0);
	wait_reset(p.s);
	NEED(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	say_result("splice", splice(pipe_fd[0], NULL, p.s, NULL, 7, SPLICE_F_NONBLOCK));
	say("poll: %s", poll_names(wait_events(p.s, POLLHUP)));
	say_result("recvmmsg", recvmmsg(p.s, m, 3, MSG_DONTWAIT, NULL));
	say_result("recv", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	NEED(close(p.s) == 0);
}

/* ---- a registration lives as long as some process has the socket ---- */

CASE(found_registered_elsewhere, DIRECT)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev = {EPOLLOUT, {.u64 = 17}};
	struct signal_pipe go = signal_pipe();
	int e = epoll_create1(EPOLL_CLOEXEC);
	NEED(e >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say_result("before", epoll_wait(e, &ev, 1, 0));
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		signal_wait(go);
		_exit(0);
	}
	NEED(close(p.s) == 0);
	memset(&ev, 0, sizeof ev);
	say_result("closed here", epoll_wait(e, &ev, 1, 0));
	say("%s of %d", poll_names((int)ev.events), (int)ev.data.u64);
	signal_send(go);
	say("child: %d", child_status(pid));
	say_result("closed there", epoll_wait(e, &ev, 1, 0));
	NEED(close(e) == 0 && close(p.c) == 0);
}
