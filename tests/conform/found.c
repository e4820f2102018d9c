/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that random operations have found (tests/differential), cut down to what matters. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

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

/* An urgent byte has come behind what the peek has seen, and ends it. */
CASE(found_peek_all_urgent, DIRECT)
{
	struct pair p = pair_warm_open();
	char byte;
	send_pattern(p.c, 0, 31);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	NEED(wait_events(p.s, POLLPRI) & POLLPRI);
	peek_all(p, "peek");
	say_result("urgent", recv(p.s, &byte, 1, MSG_OOB));
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

/* A connection whose peer has closed it with bytes unread, and which nobody has asked since. */
static int reset_one(void)
{
	struct pair p = pair_warm_open();
	send_pattern(p.s, 0, 275);
	wait_inq(p.c, 275);
	NEED(close(p.c) == 0);
	wait_reset(p.s);
	return p.s;
}

static int receive_message(int fd)
{
	static char buf[10];
	struct iovec v = {buf, sizeof buf};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
	return recvmmsg(fd, &m, 1, MSG_DONTWAIT, NULL);
}

static void after_reset(int fd)
{
	char buf[10];
	say("poll: %s", poll_names(wait_events(fd, POLLHUP)));
	say_result("recvmmsg", receive_message(fd));
	say_result("recv", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	NEED(close(fd) == 0);
}

CASE(found_reset_told_to_splice, DIRECT)
{
	int pipe_fd[2], fd = reset_one();
	NEED(pipe2(pipe_fd, O_CLOEXEC) == 0);
	NEED(write(pipe_fd[1], "spliced", 7) == 7);
	say_result("splice", splice(pipe_fd[0], NULL, fd, NULL, 7, SPLICE_F_NONBLOCK));
	after_reset(fd);
}

CASE(found_reset_told_to_nothing_sent, DIRECT)
{
	int fd = reset_one();
	say_result("send", send(fd, "", 0, 0));
	after_reset(fd);
	fd = reset_one();
	struct msghdr m = {0};
	say_result("sendmsg", sendmsg(fd, &m, 0));
	after_reset(fd);
}

CASE(found_reset_past_shut_rd, DIRECT)
{
	struct pair p = pair_warm_open();
	NEED(shutdown(p.s, SHUT_RD) == 0);
	send_pattern(p.s, 0, 146);
	wait_inq(p.c, 146);
	NEED(close(p.c) == 0);
	wait_reset(p.s);
	char byte;
	say_result("recv", recv(p.s, &byte, 1, MSG_PEEK));
	after_reset(p.s);
}

CASE(found_reset_told_by_so_error, DIRECT)
{
	int fd = reset_one(), error = 0;
	socklen_t len = sizeof error;
	NEED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	say("SO_ERROR: %s", errno_name(error));
	after_reset(fd);
}

CASE(found_reset_told_to_recvmmsg, DIRECT)
{
	int fd = reset_one();
	say_result("recvmmsg", receive_message(fd));
	after_reset(fd);
}

/* ---- an own shutdown for reading does not end the edges of what comes by TCP ---- */

CASE(found_edge_past_shut_rd, DIRECT)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev = {EPOLLIN | EPOLLET, {.u64 = 17}};
	int pipe_fd[2], e = epoll_create1(EPOLL_CLOEXEC);
	NEED(e >= 0 && pipe2(pipe_fd, O_CLOEXEC) == 0);
	NEED(write(pipe_fd[1], "both of these", 13) == 13);
	send_pattern(p.c, 0, 20);
	NEED(splice(pipe_fd[0], NULL, p.c, NULL, 7, 0) == 7);
	NEED(epoll_ctl(e, EPOLL_CTL_ADD, p.s, &ev) == 0);
	NEED(shutdown(p.s, SHUT_RD) == 0);
	say_result("first", epoll_wait(e, &ev, 1, 0));
	say_result("nothing", epoll_wait(e, &ev, 1, 0));
	NEED(splice(pipe_fd[0], NULL, p.c, NULL, 6, 0) == 6);
	say_result("second", epoll_wait(e, &ev, 1, 1000));
	NEED(close(e) == 0);
	pair_close(p);
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

/* ---- unread bytes go along, although their sender, here too, does nothing meanwhile ---- */

CASE(found_handed_to_oneself, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	int channel[2];
	send_pattern(p.c, 0, 20);
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
	send_fd(channel[0], p.s);
	NEED(close(p.s) == 0);
	p.s = receive_fd(channel[1]);
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say_result("sent", send(p.s, "answer", 6, MSG_NOSIGNAL));
	say_result("received", recv(p.c, buf, sizeof buf, 0));
	pair_close(p);
}

/* ---- the same while a message has the socket ---- */

CASE(found_registered_passed, DIRECT)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev = {EPOLLIN | EPOLLOUT, {.u64 = 17}};
	int channel[2], e = epoll_create1(EPOLL_CLOEXEC);
	NEED(e >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, p.s, &ev) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
	send_pattern(p.s, 0, 30);
	send_fd(channel[0], p.s);
	NEED(close(p.s) == 0);
	memset(&ev, 0, sizeof ev);
	say_result("under way", epoll_wait(e, &ev, 1, 0));
	say("%s of %d", poll_names((int)ev.events), (int)ev.data.u64);
	NEED(close(channel[0]) == 0 && close(channel[1]) == 0);
	say_result("lost", epoll_wait(e, &ev, 1, 0));
	NEED(close(e) == 0 && close(p.c) == 0);
}

/* ---- an instance that is polled itself ---- */

CASE(found_polled_quiet, ANYWAY)
{
	static const uint32_t masks[] = {EPOLLIN,
					 EPOLLIN | EPOLLET,
					 EPOLLIN | EPOLLONESHOT,
					 EPOLLIN | EPOLLET | EPOLLONESHOT,
					 EPOLLPRI,
					 EPOLLPRI | EPOLLET,
					 EPOLLPRI | EPOLLONESHOT,
					 EPOLLPRI | EPOLLET | EPOLLONESHOT,
					 0,
					 EPOLLRDHUP | EPOLLET | EPOLLONESHOT};
	for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
		struct pair p = pair_warm_open();
		int e = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event ev = {masks[i], {.u64 = 17}};
		struct pollfd q = {e, POLLIN, 0};
		NEED(e >= 0 && epoll_ctl(e, EPOLL_CTL_ADD, p.s, &ev) == 0);
		say_result("polled", poll(&q, 1, 0));
		send_pattern(p.c, 0, 5);
		say_result("polled", poll(&q, 1, 0));
		say_result("waited", epoll_wait(e, &ev, 1, 0));
		say_result("polled", poll(&q, 1, 0));
		NEED(close(e) == 0);
		pair_close(p);
	}
}

/* One that is told once leaves in the midst of a look, which began behind the first. */
CASE(ep_once_amid, DIRECT)
{
	struct pair p[4];
	int ep = ep_open();

	for (int i = 0; i < 4; i++)
		p[i] = pair_warm_open();
	ep_add(ep, p[0].s, EPOLLIN | EPOLLONESHOT, 0);
	ep_add(ep, p[1].s, EPOLLIN | EPOLLOUT, 1);
	ep_add(ep, p[2].s, EPOLLIN | EPOLLOUT, 2);
	ep_show(ep, 0);
	send_pattern(p[0].c, 0, 10);
	ep_add(ep, p[3].s, EPOLLIN, 3);
	ep_show(ep, 0);
	ep_mod(ep, p[0].s, EPOLLIN | EPOLLONESHOT, 0);
	for (int i = 0; i < 4; i++)
		ep_show(ep, 0);
	for (int i = 0; i < 4; i++)
		pair_close(p[i]);
	close(ep);
}

/* ---- SO_RCVLOWAT past the peer's end: each wakes, as there is always enough ---- */

static void lowat_past_end(int bytes, uint32_t events)
{
	struct pair p = pair_warm_open();
	int ep = ep_open(), lowat = 50;

	ep_add(ep, p.s, events | EPOLLET, 1);
	send_pattern(p.c, 0, (size_t)bytes);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	ep_show(ep, SOON);
	ep_drain(ep);
	for (int i = 0; i < 2; i++) {
		NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat) == 0);
		ep_show(ep, 0);
		ep_show(ep, 0);
	}
	close(ep);
	pair_close(p);
}

CASE(found_lowat_past_end, DIRECT)
{
	lowat_past_end(0, EPOLLRDNORM);
	lowat_past_end(0, EPOLLIN);
	lowat_past_end(0, EPOLLRDHUP);
	lowat_past_end(10, EPOLLIN);
}

/*
 * In an instance that is watched, a registration that asks for errors alone: neither bytes nor room
 * make it readable. What is unread at both ends keeps the connection in memory for a while.
 */
CASE(found_watched_exclusive, DIRECT)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();

	send_pattern(p.s, 0, 947);
	send_pattern(p.c, 0, 13819);
	ep_add(out, in, EPOLLIN | EPOLLOUT, 2);
	ep_add(in, p.s, EPOLLEXCLUSIVE, 1);
	ep_show(out, 0);
	ep_show(in, 0);
	ep_show(out, 0);
	close(in);
	close(out);
	pair_close(p);
}

/* The connection goes back to TCP as its instance is watched. What comes then is told. */
static void told_then_watched(uint32_t events)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	char c;

	ep_add(in, p.s, events | EPOLLET, 1 | MAY_REPEAT);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN, 2 | MAY_REPEAT);
	for (int i = 0; i < 2; i++) {
		for (int again = 0; again < 3; again++) {
			say_result("there", recv(p.c, &c, 1, MSG_DONTWAIT));
			ep_show(out, 0);
		}
		ep_show(in, 0);
		send_pattern(p.c, 0, 10);
		ep_show(out, SOON);
		ep_show(in, 0);
		ep_show(out, 0);
		recv_pattern(p.s, 0, 10);
	}
	ep_mod(in, p.s, events | EPOLLET, 3 | MAY_REPEAT);
	ep_show(out, 0);
	ep_show(in, 0);
	ep_show(out, 0);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	ep_show(out, SOON);
	ep_show(in, 0);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(found_told_then_watched, DIRECT)
{
	told_then_watched(EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	told_then_watched(EPOLLIN);
}

/* ---- a peek sees on TCP, in shared memory and on TCP again, with those bytes asked for ---- */

/* By a program that has this end alone. */
static void shell_sends(struct pair p, const char *text)
{
	char line[64];
	int status;
	snprintf(line, sizeof line, "printf %s >&%d", text, p.c);
	NEED(fcntl(p.s, F_SETFD, FD_CLOEXEC) == 0);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	NEED(waitpid(pid, &status, 0) == pid);
	say("shell: %#x", (unsigned)status);
}

/* All of Viaduct's go, and what is unread is asked for. */
static void no_number_is_left(int fd)
{
	struct rlimit was, few;
	NEED(getrlimit(RLIMIT_NOFILE, &was) == 0);
	few = (struct rlimit){0, was.rlim_max};
	NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
	say_result("dup", dup(fd));
	NEED(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

CASE(found_peek_behind_executed, DIRECT)
{
	struct pair p = pair_open();
	static char buf[20000];
	size_t sent = 0;
	/* Nobody reads, so the first bytes lie on TCP, and the last ones in shared memory. */
	for (int i = 0; i < 30; i++, sent += 400) {
		send_pattern(p.c, sent, 400);
		NEED(recv(p.s, buf, 1, MSG_PEEK) == 1);
	}
	shell_sends(p, "behind");
	no_number_is_left(p.s);
	wait_inq(p.s, (int)sent + 6);
	ssize_t n = recv(p.s, buf, sizeof buf, MSG_PEEK);
	say_result("peek", n);
	say("ends with %.6s", n > 6 ? buf + n - 6 : "");
	say_result("read", recv(p.s, buf, sizeof buf, 0));
	say_result("and no more", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_warm(p);
	pair_close(p);
}

/* ---- asked for where the sender has ended: nobody sends those bytes again ---- */

static struct pair unread_behind_a_fin(void)
{
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 101);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	no_number_is_left(p.s);
	return p;
}

CASE(found_asked_then_closed, DIRECT)
{
	struct pair p = unread_behind_a_fin();
	NEED(close(p.s) == 0);
	wait_reset(p.c);
	say_result("send", send(p.c, "x", 1, MSG_NOSIGNAL));
	close(p.c);
}

CASE(found_asked_then_read, DIRECT)
{
	struct pair p = unread_behind_a_fin();
	char buf[200];
	say_result("read", recv(p.s, buf, sizeof buf, 0));
	say_result("end", recv(p.s, buf, sizeof buf, 0));
	NEED(close(p.s) == 0);
	say_result("send", send(p.c, "x", 1, MSG_NOSIGNAL));
	close(p.c);
}

struct end {
	bool asks, shuts, peer_shuts, closes;
};

static void end_unread(int fd, void *arg)
{
	const struct end *e = arg;
	if (e->shuts)
		NEED(shutdown(fd, SHUT_WR) == 0);
	wait_inq(fd, 101);
	if (e->peer_shuts)
		NEED(wait_events(fd, POLLRDHUP) & POLLRDHUP);
	if (e->asks)
		no_number_is_left(fd);
	if (e->closes)
		NEED(close(fd) == 0);
	_exit(0);
}

static void ends_with_unread(struct end e)
{
	struct sockaddr_in name;
	socklen_t len = sizeof name;
	pid_t pid;
	char byte;
	int status, fd = peer_start(end_unread, &e, &pid);
	send_pattern(fd, 0, 101);
	if (e.peer_shuts)
		NEED(shutdown(fd, SHUT_WR) == 0);
	NEED(waitpid(pid, &status, 0) == pid);
	say("asks %d, shuts %d, peer shuts %d, closes %d", e.asks, e.shuts, e.peer_shuts,
	    e.closes);
	say_result("name", getpeername(fd, (struct sockaddr *)&name, &len));
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	say_result("receive", recv(fd, &byte, 1, MSG_DONTWAIT));
	say_result("and again", send(fd, "x", 1, MSG_NOSIGNAL));
	close(fd);
}

CASE(found_ends_with_unread, DIRECT)
{
	for (unsigned i = 0; i < 16; i++) {
		struct end e = {i & 8, i & 1, i & 2, i & 4};
		ends_with_unread(e);
	}
}
