/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: bytes that nobody pushes, which TCP holds back for a while and then sends all the same. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

static void corked(int fd, int on)
{
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0);
}

static int queued(int fd)
{
	int count = -1;
	NEED(ioctl(fd, FIONREAD, &count) == 0);
	return count;
}

/* Who is told of them is told how many. */
static void told(struct pair p, const char *what, int flags)
{
	char buf[64];
	NEED(send(p.c, "held", 4, flags) == 4);
	NEED(wait_events(p.s, POLLIN) & POLLIN);
	say("%s: %d", what, queued(p.s));
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say("left: %d", queued(p.s));
}

CASE(held_then_counted, STAYS)
{
	struct pair p = pair_warm_open();
	told(p, "more to come", MSG_MORE);
	corked(p.c, 1);
	told(p, "corked", 0);
	told(p, "corked once more", 0);
	corked(p.c, 0);
	pair_close(p);
}

/* The first two of the bytes are read, and those behind them are counted with the rest. */
CASE(held_behind_others, STAYS)
{
	struct pair p = pair_warm_open();
	char buf[64];
	send_all(p.c, "sent", 4);
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	wait_inq(p.s, 8);
	recv_all(p.s, buf, 2);
	say("left: %d", queued(p.s));
	recv_all(p.s, buf, 6);
	say("%.6s %d", buf, queued(p.s));
	pair_close(p);
}

static bool is_held(struct pair p)
{
	char buf[4];
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	bool seen = poll(&f, 1, 0) == 1;
	recv_all(p.s, buf, 4);
	return !seen;
}

/* Of several, since a machine may be slower than the time for which bytes are held. */
static bool ever_held(struct pair p)
{
	for (int i = 0; i < 10; i++)
		if (is_held(p))
			return true;
	return false;
}

/* Each time anew. */
CASE(held_once_more, STAYS)
{
	struct pair p = pair_warm_open();
	int on = 1;
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	say("the first: %d", ever_held(p));
	say("the second: %d", ever_held(p));
	send_all(p.s, "answer", 6);
	char buf[6];
	recv_all(p.c, buf, 6);
	say("after an answer: %d", ever_held(p));
	pair_close(p);
}

/* Nobody rings for them: whoever sleeps in an epoll instance looks by itself. */
static void slept_for(uint32_t events, int flags)
{
	char buf[64];
	struct pair p = pair_warm_open();
	struct epoll_event ev = {.events = events};
	int instance = epoll_create1(EPOLL_CLOEXEC);
	NEED(instance >= 0);
	NEED(epoll_ctl(instance, EPOLL_CTL_ADD, p.s, &ev) == 0);
	for (int i = 0; i < 2; i++) {
		corked(p.c, flags == 0);
		NEED(send(p.c, "held", 4, flags) == 4);
		say_result("told", epoll_wait(instance, &ev, 1, 3000));
		say("events: %#x", ev.events);
		say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
		ev.events = events;
		NEED(epoll_ctl(instance, EPOLL_CTL_MOD, p.s, &ev) == 0);
	}
	close(instance);
	pair_close(p);
}

CASE(held_slept_for, DIRECT)
{
	slept_for(EPOLLIN, MSG_MORE);
	slept_for(EPOLLIN, 0);
	slept_for(EPOLLIN | EPOLLONESHOT, 0);
}

CASE(held_slept_for_edge, DIRECT)
{
	slept_for(EPOLLIN | EPOLLET, MSG_MORE);
	slept_for(EPOLLIN | EPOLLET, 0);
}

/* Once they are taken there is nothing to wait for but the next bytes. */
static long slept_times(void)
{
	struct rusage used;
	NEED(getrusage(RUSAGE_THREAD, &used) == 0);
	return used.ru_nvcsw;
}

CASE(held_taken_and_slept, DIRECT)
{
	char buf[64];
	struct pair p = pair_warm_open();
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	struct timeval second = {.tv_sec = 1};
	struct epoll_event ev = {.events = EPOLLIN};
	int instance = epoll_create1(EPOLL_CLOEXEC);
	NEED(instance >= 0);
	NEED(epoll_ctl(instance, EPOLL_CTL_ADD, p.s, &ev) == 0);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second) == 0);
	corked(p.c, 1);
	NEED(send(p.c, "held", 4, 0) == 4);
	recv_all(p.s, buf, 4);
	long before = slept_times();
	say_result("told", epoll_wait(instance, &ev, 1, 1000));
	say("often in epoll_wait: %d", slept_times() - before > 20);
	before = slept_times();
	say_result("told", poll(&f, 1, 1000));
	say("often in poll: %d", slept_times() - before > 20);
	before = slept_times();
	say_result("received", recv(p.s, buf, sizeof buf, 0));
	say("often in recv: %d", slept_times() - before > 20);
	close(instance);
	pair_close(p);
}

/* ---- and whose connection goes to another holder meanwhile ---- */

enum handover { BY_EXEC, BY_MESSAGE, BY_MARK };

static void hand_over(struct pair p, enum handover how)
{
	int channel[2], mark = 2;
	pid_t pid;
	switch (how) {
	case BY_EXEC:
		pid = fork();
		if (pid == 0) {
			execlp("true", "true", NULL);
			_exit(1);
		}
		NEED(child_status(pid) == 0);
		return;
	case BY_MESSAGE:
		NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
		send_fd(channel[0], p.s);
		NEED(close(receive_fd(channel[1])) == 0);
		return;
	case BY_MARK:
		NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0);
	}
}

/* Bytes that the peer has been told of are there, cork or not. Those that are held wait on. */
static void handed_over(enum handover how)
{
	char buf[64];
	struct pair p = pair_warm_open();
	NEED(send(p.c, "seen", 4, 0) == 4);
	wait_inq(p.s, 4);
	corked(p.c, 1);
	hand_over(p, how);
	say("before the cork: %d", queued(p.s));
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_close(p);

	p = pair_warm_open();
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	hand_over(p, how);
	say("more to come: %d", queued(p.s));
	NEED(wait_events(p.s, POLLIN) & POLLIN);
	say("at last: %d", queued(p.s));
	pair_close(p);

	p = pair_warm_open();
	NEED(send(p.c, "seen", 4, 0) == 4);
	wait_inq(p.s, 4);
	NEED(send(p.c, "held", 4, MSG_MORE) == 4);
	hand_over(p, how);
	say("some seen, more to come: %d", queued(p.s));
	wait_inq(p.s, 8);
	pair_close(p);
}

CASE(held_over_an_exec, DIRECT)
{
	handed_over(BY_EXEC);
}

CASE(held_over_a_message, DIRECT)
{
	handed_over(BY_MESSAGE);
}

CASE(held_over_a_mark, DIRECT)
{
	handed_over(BY_MARK);
}

/* ---- and lie behind others ---- */

static struct pair both_open(void)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "sent", 4);
	corked(p.c, 1);
	send_all(p.c, "held", 4);
	return p;
}

/* Once they are due, whoever takes more than a call brings has taken all. */
CASE(held_come_together, STAYS)
{
	char buf[64];
	struct pair p = both_open();
	usleep(400000);
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say_result("once more", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_close(p);
	p = both_open();
	usleep(400000);
	struct iovec pieces[] = {{buf, 3}, {buf + 3, sizeof buf - 3}};
	say_result("in pieces", readv(p.s, pieces, 2));
	pair_close(p);
	p = both_open();
	usleep(400000);
	say_result("peeked", recv(p.s, buf, sizeof buf, MSG_PEEK));
	pair_close(p);
}

CASE(held_peeked_all, STAYS)
{
	char buf[8];
	struct pair p = both_open();
	say_result("peeked", recv(p.s, buf, sizeof buf, MSG_PEEK | MSG_WAITALL));
	say_result("received", recv(p.s, buf, sizeof buf, 0));
	pair_close(p);
}

/* After the edge of the last of them one receive takes all: there will be no other edge. */
CASE(held_edge_of_all, STAYS)
{
	char buf[64];
	struct pair p = both_open();
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int instance = epoll_create1(EPOLL_CLOEXEC);
	NEED(instance >= 0);
	NEED(epoll_ctl(instance, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say_result("told", epoll_wait(instance, &ev, 1, 3000));
	say_result("told once more", epoll_wait(instance, &ev, 1, 3000));
	say_result("received", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say_result("and then", epoll_wait(instance, &ev, 1, 0));
	close(instance);
	pair_close(p);
}

static void peer_dies(int fd, void *arg)
{
	(void)arg;
	send_all(fd, "sent", 4);
	corked(fd, 1);
	send_all(fd, "held", 4);
	kill(getpid(), SIGKILL);
}

/* Its FIN brings them. */
CASE(held_by_the_dead, DIRECT)
{
	char buf[64];
	pid_t pid;
	int fd = peer_start(peer_dies, NULL, &pid);
	say("status: %d", child_status(pid));
	NEED(wait_events(fd, POLLRDHUP) & POLLRDHUP);
	say_result("received", recv(fd, buf, sizeof buf, 0));
	say_result("the end", recv(fd, buf, sizeof buf, 0));
	close(fd);
}

/* What the kernel would have had in its queue is unread. */
CASE(held_left_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	corked(p.c, 1);
	send_all(p.c, "held", 4);
	usleep(400000);
	close(p.s);
	char byte;
	NEED(wait_events(p.c, POLLIN) & POLLIN);
	say_result("received", recv(p.c, &byte, 1, 0));
	close(p.c);
}

static void peer_reads_nothing(int fd, void *arg)
{
	(void)fd;
	(void)arg;
	pause();
}

CASE(held_left_by_the_dead, DIRECT)
{
	char byte;
	pid_t pid;
	int fd = peer_start(peer_reads_nothing, NULL, &pid);
	corked(fd, 1);
	send_all(fd, "held", 4);
	usleep(400000);
	NEED(kill(pid, SIGKILL) == 0);
	say("status: %d", child_status(pid));
	NEED(wait_events(fd, POLLIN) & POLLIN);
	say_result("received", recv(fd, &byte, 1, 0));
	close(fd);
}
