/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT over unread bytes of a sender that makes no call: what it holds back, and a splice. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

#define SOON 20000

/* The last of them wait for more, and count when that has been for long enough. */
static void send_with_more(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	char byte;
	send_all(fd, "0123456789", 10);
	signal_wait(go[0]);
	NEED(send(fd, "0123456", 7, MSG_MORE) == 7);
	signal_send(go[1]);
	signal_wait(go[0]);
	send_pattern(fd, 0, 60);
	signal_send(go[1]);
	NEED(read(fd, &byte, 1) == 1);
}

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

static int ready_now(int fd)
{
	struct pollfd f = {fd, POLLIN, 0};
	return poll(&f, 1, 0);
}

static int sender_start(struct signal_pipe *go, pid_t *pid)
{
	go[0] = signal_pipe();
	go[1] = signal_pipe();
	int fd = peer_start(send_with_more, go, pid);
	wait_inq(fd, 10);
	return fd;
}

static void go_on(struct signal_pipe *go)
{
	signal_send(go[0]);
	signal_wait(go[1]);
}

static void sender_end(int fd, pid_t pid)
{
	mark(fd, 1);
	send_all(fd, "x", 1);
	say("status %d", child_status(pid));
	close(fd);
}

CASE(lowat_silent_held, DIRECT)
{
	struct signal_pipe go[2];
	pid_t pid;
	char buf[100];
	int fd = sender_start(go, &pid);
	go_on(go);
	wait_inq(fd, 17);
	mark(fd, 50);
	say_result("poll", ready_now(fd));
	go_on(go);
	wait_inq(fd, 77);
	say_result("poll, more", ready_now(fd));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	sender_end(fd, pid);
}

/* It waits for no mark. */
CASE(lowat_silent_splice, DIRECT)
{
	struct signal_pipe go[2];
	pid_t pid;
	int ends[2], fd = sender_start(go, &pid);
	NEED(pipe(ends) == 0);
	mark(fd, 50);
	say_result("splice", splice(fd, NULL, ends[1], NULL, 100, 0));
	go_on(go);
	go_on(go);
	wait_inq(fd, 67);
	say_result("poll, more", ready_now(fd));
	sender_end(fd, pid);
}

static void hear_reset(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	struct pollfd f = {fd, POLLIN, 0};
	char byte;
	send_all(fd, "0123456789", 10);
	signal_wait(go[0]);
	NEED(poll(&f, 1, SOON) == 1);
	NEED(recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET);
}

/* What a receive has left, or all where there was none, and nobody will read, resets the connection. */
static void closed_with_unread(bool receives)
{
	struct signal_pipe go[2];
	pid_t pid;
	char buf[4];
	go[0] = signal_pipe();
	int fd = peer_start(hear_reset, go, &pid);
	wait_inq(fd, 10);
	mark(fd, 50);
	if (receives)
		say_result("recv", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	close(fd);
	signal_send(go[0]);
	say("status %d", child_status(pid));
}

CASE(lowat_silent_closed, DIRECT)
{
	closed_with_unread(true);
	closed_with_unread(false);
}

__attribute__((weak)) void viaduct_test_bounce(int fd);

/* 9 bytes by TCP, of which the other end reads 4, then 10 by the ring. */
static void send_both_ways(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	char byte;
	if (viaduct_test_bounce)
		viaduct_test_bounce(fd);
	send_all(fd, "012345678", 9);
	for (int i = 0; i < 4; i++) {
		signal_wait(go[0]);
		NEED(recv(fd, &byte, 1, MSG_DONTWAIT) < 0);
		signal_send(go[1]);
	}
	send_all(fd, "ABCDEFGHIJ", 10);
	signal_send(go[1]);
	signal_wait(go[0]);
	send_pattern(fd, 0, 60);
	signal_send(go[1]);
	NEED(read(fd, &byte, 1) == 1);
}

static void show_both(int fd, int ep)
{
	struct epoll_event ev;
	say("poll %d, epoll %d", ready_now(fd), epoll_wait(ep, &ev, 1, 0));
}

/* TCP's bytes and those behind them in the ring are enough together. */
CASE(lowat_silent_between, DIRECT)
{
	const int marks[] = {15, 50, 10, 16, 11};
	struct epoll_event ev = {.events = EPOLLIN};
	struct signal_pipe go[2] = {signal_pipe(), signal_pipe()};
	pid_t pid;
	char buf[100];
	int ep = epoll_create1(0), fd = peer_start(send_both_ways, go, &pid);
	wait_inq(fd, 9);
	for (int i = 0; i < 4; i++) {
		recv_all(fd, buf, 1);
		go_on(go);
	}
	signal_wait(go[1]);
	wait_inq(fd, 15);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	for (int i = 0; i < 5; i++) {
		mark(fd, marks[i]);
		show_both(fd, ep);
	}
	say_result("part", recv(fd, buf, 2, 0));
	mark(fd, 14);
	show_both(fd, ep);
	mark(fd, 13);
	show_both(fd, ep);
	go_on(go);
	wait_inq(fd, 73);
	show_both(fd, ep);
	close(ep);
	sender_end(fd, pid);
}
