/* SPDX-License-Identifier: Apache-2.0 */
/* Every interposed name of the same call moves the same stream, and unknown ones pass. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/libc_names.h"

static void say_text(const char *name, ssize_t n, const char *buf)
{
	if (n < 0)
		say_result(name, n);
	else
		say("%s: %zd %.*s", name, n, (int)n, buf);
}

CASE(hooks_checked_names, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd poll_fd = {.fd = p.c, .events = POLLIN | POLLOUT};
	struct sockaddr_storage from;
	socklen_t from_len = sizeof from;
	struct timespec zero = {0, 0};
	char buf[64];

	send_all(p.s, "abcdefghijkl", 12);
	wait_inq(p.c, 12);
	say_text("__read_chk", __read_chk(p.c, buf, 3, sizeof buf), buf);
	say_text("__recv_chk", __recv_chk(p.c, buf, 3, sizeof buf, MSG_PEEK), buf);
	say_text("__recvfrom_chk",
		 __recvfrom_chk(p.c, buf, 3, sizeof buf, 0, (void *)&from, &from_len),
		 buf);
	say("from_len: %u", from_len);
	say_result("__poll_chk", __poll_chk(&poll_fd, 1, 0, sizeof poll_fd));
	say("%s", poll_names(poll_fd.revents));
	say_result("__ppoll_chk", __ppoll_chk(&poll_fd, 1, &zero, NULL, sizeof poll_fd));
	say("%s", poll_names(poll_fd.revents));
	say_text("__read", __read(p.c, buf, 3), buf);
	say_result("__poll", __poll(&poll_fd, 1, 0));
	say_result("__write", __write(p.c, "xyz", 3));
	say_result("__send", __send(p.c, "uvw", 3, 0));
	recv_all(p.s, buf, 6);
	say_text("got", 6, buf);
	pair_close(p);
}

CASE(hooks_syscall_data, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	struct iovec iov = {(char *)"two", 3}, in = {buf, 3};
	struct msghdr out = {.msg_iov = &iov, .msg_iovlen = 1};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_flags = 99};
	struct mmsghdr many = {.msg_hdr = {.msg_iov = &in, .msg_iovlen = 1}};

	say_result("write", syscall(SYS_write, p.s, "one", 3));
	say_result("writev", syscall(SYS_writev, p.s, &iov, 1));
	say_result("sendto", syscall(SYS_sendto, p.s, "abc", 3, 0, NULL, 0));
	say_result("sendmsg", syscall(SYS_sendmsg, p.s, &out, 0));
	say_result("pwritev2", syscall(SYS_pwritev2, p.s, &iov, 1, -1L, -1L, 0));
	wait_inq(p.c, 15);
	say_text("read", syscall(SYS_read, p.c, buf, 3), buf);
	say_text("readv", syscall(SYS_readv, p.c, &in, 1), buf);
	say_text("recvfrom", syscall(SYS_recvfrom, p.c, buf, 3, 0, NULL, NULL), buf);
	say_text("recvmsg", syscall(SYS_recvmsg, p.c, &msg, 0), buf);
	say("flags: %x", msg.msg_flags);
	say_result("recvmmsg", syscall(SYS_recvmmsg, p.c, &many, 1, 0, NULL));
	say_text("in it", many.msg_len, buf);
	say_result("empty", syscall(SYS_recvfrom, p.c, buf, 3, MSG_DONTWAIT, NULL, NULL));
	pair_close(p);
}

CASE(hooks_syscall_wait, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd poll_fd = {.fd = p.c, .events = POLLIN};
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7}, got = {0, {0}};
	struct timespec zero = {0, 0};
	struct timeval none = {0, 0};
	int ep = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC), count = 0;
	fd_set set;

	NEED(ep >= 0);
	say_result("epoll_ctl", syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, p.c, &ev));
	say_result("poll before", syscall(SYS_poll, &poll_fd, 1UL, 0));
	say_result("epoll before", syscall(SYS_epoll_wait, ep, &got, 1, 0));
	send_all(p.s, "x", 1);
	wait_inq(p.c, 1);
	say_result("poll", syscall(SYS_poll, &poll_fd, 1UL, -1));
	say_result("ppoll", syscall(SYS_ppoll, &poll_fd, 1UL, &zero, NULL, 8UL));
	FD_ZERO(&set);
	FD_SET(p.c, &set);
	say_result("select", syscall(SYS_select, p.c + 1, &set, NULL, NULL, &none));
	say_result("pselect6",
		   syscall(SYS_pselect6, p.c + 1, &set, NULL, NULL, &zero, NULL));
	say("set: %d", FD_ISSET(p.c, &set) != 0);
	say_result("epoll_wait", syscall(SYS_epoll_wait, ep, &got, 1, -1));
	say("event %x data %u", got.events, got.data.u32);
	say_result("epoll_pwait", syscall(SYS_epoll_pwait, ep, &got, 1, 0, NULL, 8UL));
	say_result("ioctl", syscall(SYS_ioctl, p.c, FIONREAD, &count));
	say("count: %d", count);
	say_result("close", syscall(SYS_close, ep));
	say_result("again", syscall(SYS_close, ep));
	pair_close(p);
}

CASE(hooks_vector_flags, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8];
	struct iovec iov = {buf, 4}, many[1025] = {{buf, 4}};
	int negative = -(int)(getpid() > 0); /* not for the compiler to see */

	say_result("nowait", preadv2(p.c, &iov, 1, -1, RWF_NOWAIT));
	say_result("offset", preadv2(p.c, &iov, 1, 0, 0));
	say_result("pread", pread(p.c, buf, 4, 0));
	say_result("pwrite", pwrite(p.c, "abcd", 4, 0));
	memcpy(buf, "abcd", 4);
	say_result("pwritev2", pwritev2(p.s, &iov, 1, -1, 0));
	say_text("preadv2", preadv2(p.c, &iov, 1, -1, 0), buf);
	say_result("empty write", write(p.c, buf, 0));
	say_result("empty read", read(p.c, buf, 0));
	say_result("empty send", send(p.c, buf, 0, 0));
	say_result("too many", readv(p.c, many, 1025));
	say_result("negative", readv(p.c, many, negative));
	iov.iov_len = (size_t)-1;
	say_result("negative length", readv(p.c, &iov, 1));
	pair_close(p);
}

/* Which flags a socket takes depends on the kernel; those that it takes move the bytes. */
CASE(hooks_vector_every_flag, DIRECT)
{
	struct pair p = pair_warm_open();
	char in[8];
	struct iovec to = {in, 4}, from = {(char *)"abcd", 4};

	for (int flag = 1; flag <= 1 << 11; flag *= 2) {
		say("flag %#x", (unsigned)flag);
		ssize_t n = pwritev2(p.c, &from, 1, -1, flag);
		say_result("pwritev2", n);
		if (n == 4)
			say_text("received", recv(p.s, in, sizeof in, 0), in);
		send_all(p.c, "efgh", 4);
		n = preadv2(p.s, &to, 1, -1, flag);
		say_text("preadv2", n, in);
		if (n < 0)
			say_text("received", recv(p.s, in, sizeof in, 0), in);
	}
	say_result("append, and not", pwritev2(p.c, &from, 1, -1, 0x30));
	say_result("negative offset", pwritev2(p.c, &from, 1, -2, RWF_SYNC));
	pair_warm(p);
	shutdown(p.c, SHUT_WR);
	say_result("no signal", pwritev2(p.c, &from, 1, -1, 0x100));
	pair_close(p);
}

/* The same socket under many numbers: the connection ends with the last of them. */
CASE(hooks_duplicates, DIRECT)
{
	struct pair p = pair_warm_open();
	int a = dup(p.c), b = fcntl(p.c, F_DUPFD_CLOEXEC, 100), c = dup2(p.c, 90);
	int d = dup3(p.c, 91, O_CLOEXEC), pipe_fd[2];
	char buf[8];

	NEED(a >= 0 && b >= 100 && c == 90 && d == 91 && pipe(pipe_fd) == 0);
	say("flags: %d %d %d %d", fcntl(a, F_GETFD), fcntl(b, F_GETFD), fcntl(c, F_GETFD),
	    fcntl(d, F_GETFD));
	say_result("same", dup2(c, c) - c);
	say_result("dup3 same", dup3(c, c, 0));
	say_result("dup3 flags", dup3(c, 92, O_NONBLOCK));
	say_result("bad source", dup2(93, c));
	send_all(p.s, "abcde", 5);
	say_text("dup", recv(a, buf, 1, 0), buf);
	say_text("fcntl", recv(b, buf, 1, 0), buf);
	say_text("dup2", recv(c, buf, 1, 0), buf);
	say_text("dup3", recv(d, buf, 1, 0), buf);
	say_result("close", close(p.c));
	/* A number that was the socket's is now a pipe's. */
	say_result("reuse", dup2(pipe_fd[0], c) - c);
	say_result("write", write(pipe_fd[1], "pipe", 4));
	say_text("read", read(c, buf, 4), buf);
	close(b);
	close(d);
	say_text("last", recv(a, buf, 1, 0), buf);
	send_all(a, "bye", 3);
	close(a);
	recv_all(p.s, buf, 3);
	say_text("peer", 3, buf);
	say_result("end", recv(p.s, buf, 1, 0));
	close(p.s);
	close(c);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

/* A number freed by the kernel's own hand comes back as something else. */
CASE(hooks_number_reused, DIRECT)
{
	struct pair p = pair_warm_open();
	int fd = p.c, file, sv[2];
	char buf[8];

	send_all(p.c, "end", 3);
	close(p.c);
	do {
		file = open("/dev/zero", O_RDONLY);
		NEED(file >= 0);
	} while (file < fd);
	say("same number: %d", file == fd);
	buf[0] = 1;
	say_result("read", read(file, buf, 4));
	say("zero: %d", buf[0]);
	close(file);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	say("same number: %d", sv[0] == fd);
	say_result("send", send(sv[1], "unix", 4, 0));
	say_text("recv", recv(sv[0], buf, 4, 0), buf);
	recv_all(p.s, buf, 3);
	say_result("peer's end", recv(p.s, buf, 1, 0));
	close(p.s);
	close(sv[0]);
	close(sv[1]);
}

/* close_range takes what is the program's: the other connection goes on. */
CASE(hooks_close_range, DIRECT)
{
	struct pair keep = pair_warm_open(), gone;
	int low[2];
	char buf[8];

	/* Far above the pair that stays, far below anything a library would use. */
	gone = pair_warm_open();
	low[0] = dup2(gone.c, 60);
	low[1] = dup2(gone.s, 61);
	NEED(low[0] == 60 && low[1] == 61);
	close(gone.c);
	close(gone.s);
	say_result("wrong order", close_range(61, 60, 0));
	say_result("wrong flag", close_range(60, 61, 1 << 30));
	say_result("cloexec", close_range(60, 61, CLOSE_RANGE_CLOEXEC));
	say("flags: %d %d", fcntl(60, F_GETFD), fcntl(61, F_GETFD));
	send_all(60, "abc", 3);
	recv_all(61, buf, 3);
	say_result("all above", close_range(60, ~0U, 0));
	say_result("gone", fcntl(60, F_GETFD));
	say_result("gone", send(61, "x", 1, 0));
	for (int i = 0; i < 100; i++) {
		send_all(keep.c, "abcd", 4);
		recv_all(keep.s, buf, 4);
		send_all(keep.s, "abcd", 4);
		recv_all(keep.c, buf, 4);
	}
	say("the other lives");
	closefrom(60);
	send_all(keep.c, "abcd", 4);
	recv_all(keep.s, buf, 4);
	pair_close(keep);
}

static void sleep_in_recv(void *arg)
{
	char buf[8];

	recv(*(int *)arg, buf, sizeof buf, 0);
}

static void cancel_in_recv(struct pair p)
{
	struct worker w;
	char buf[8];

	worker_start(&w, sleep_in_recv, &p.c);
	wait_asleep(getpid(), w.tid);
	NEED(pthread_cancel(w.thread) == 0);
	worker_join(&w);
	pair_warm(p);
	send_all(p.s, "abcd", 4);
	recv_all(p.c, buf, 4);
	say("after it: %.4s", buf);
	pair_close(p);
}

/* A thread cancelled in the kernel's receive is not inside it any more: the upgrade comes. */
CASE(hooks_cancelled_cold, DIRECT)
{
	cancel_in_recv(pair_open());
}

/* Cancelled while it waits for the ring, it leaves the connection as it was. */
CASE(hooks_cancelled_warm, DIRECT)
{
	cancel_in_recv(pair_warm_open());
}

static sigjmp_buf out_of_recv;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(out_of_recv, 1);
}

static void jump_in_recv(struct pair p)
{
	struct itimerval soon = {.it_value.tv_usec = 50000};
	char buf[8];

	signal(SIGALRM, jump);
	if (sigsetjmp(out_of_recv, 1) == 0) {
		setitimer(ITIMER_REAL, &soon, NULL);
		recv(p.c, buf, sizeof buf, 0);
		say("not reached");
	}
	pair_warm(p);
	send_all(p.s, "abcd", 4);
	recv_all(p.c, buf, 4);
	say("after it: %.4s", buf);
	pair_close(p);
}

/* The old way to bound a receive: a signal handler that jumps out of it. */
CASE(hooks_jump_cold, DIRECT)
{
	jump_in_recv(pair_open());
}

CASE(hooks_jump_warm, DIRECT)
{
	jump_in_recv(pair_warm_open());
}
