/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: how connections come to be, and what was held back before the upgrade. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

static void use_and_close(struct pair p)
{
	pair_warm(p);
	send_pattern(p.c, 0, 100000);
	recv_pattern(p.s, 0, 100000);
	say("done");
	pair_close(p);
}

CASE(ipv6, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET6, &port);
	struct pair p = {.c = connect_to(AF_INET6, port)};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	use_and_close(p);
}

/* As one-shot servers do it: the listener goes as soon as somebody has come. */
CASE(listener_closed, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	struct pair p = {.c = connect_to(AF_INET, port)};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0 && close(listener) == 0);
	use_and_close(p);
}

static void serve_one(int listener)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	NEED(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	struct pair p = {.c = connect_to(AF_INET, ntohs(at.sin_port))};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	use_and_close(p);
}

/* As servers get it that a supervisor starts: this image has not called listen(). */
CASE(listener_by_exec, DIRECT)
{
	const char *given = getenv("LISTENER");
	char text[16];
	uint16_t port;
	if (given) {
		serve_one(atoi(given));
		return;
	}
	snprintf(text, sizeof text, "%d", listen_any(AF_INET, &port));
	NEED(setenv("LISTENER", text, 1) == 0);
	execl("/proc/self/exe", "cases", "listener_by_exec", (char *)NULL);
	broken("exec");
}

/* The sender keeps no descriptor of it, and so no hint. */
CASE(listener_by_message, DIRECT)
{
	int way[2], listener;
	uint16_t port;
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0);
	listener = listen_any(AF_INET, &port);
	send_fd(way[0], listener);
	NEED(close(listener) == 0);
	serve_one(receive_fd(way[1]));
}

CASE(v4_mapped, DIRECT)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6}, peer;
	socklen_t len = sizeof any;
	int listener = socket(AF_INET6, SOCK_STREAM, 0);
	if (listener < 0)
		skip("no IPv6");
	NEED(bind(listener, (struct sockaddr *)&any, sizeof any) == 0);
	NEED(listen(listener, 5) == 0);
	NEED(getsockname(listener, (struct sockaddr *)&any, &len) == 0);
	struct pair p = {.c = connect_to(AF_INET, ntohs(any.sin6_port))};
	len = sizeof peer;
	p.s = accept(listener, (struct sockaddr *)&peer, &len);
	NEED(p.s >= 0);
	say("mapped: %d, length %u", IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr), len);
	pair_warm(p);
	send_pattern(p.s, 0, 100000);
	recv_pattern(p.c, 0, 100000);
	say("done");
	pair_close(p);
}

CASE(nonblocking_connect, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), err = -1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	socklen_t len = sizeof err;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say_result("unconnected send", send(fd, "x", 1, MSG_NOSIGNAL));
	say_result("unconnected recv", recv(fd, &err, 1, 0));
	say("poll: %s", poll_names(wait_events(fd, POLLIN | POLLOUT)));
	say_result("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
	say("poll: %s", poll_names(wait_events(fd, POLLIN | POLLOUT)));
	say_result("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	say("%d", err);
	say_result("connect again", connect(fd, (struct sockaddr *)&to, sizeof to));
	say_result("and again", connect(fd, (struct sockaddr *)&to, sizeof to));
	nonblock(fd, false);
	struct pair p = {fd, accept(listener, NULL, NULL)};
	pair_warm(p);
	pair_close(p);
	say("done");
}

CASE(refused_connect, ANYWAY)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), err = -1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	socklen_t len = sizeof err;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	close(listener);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	say_result("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say_result("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
	say("poll: %s", poll_names(wait_events(fd, POLLIN | POLLOUT)));
	say_result("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
	say("%s", errno_name(err));
	say_result("recv", recv(fd, &err, 1, 0));
	close(fd);
}

CASE(accept4_nonblocking, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	char c;
	nonblock(listener, true);
	say_result("accept of none", accept(listener, NULL, NULL));
	struct pair p = {.c = connect_to(AF_INET, port)};
	wait_events(listener, POLLIN);
	p.s = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	NEED(p.s >= 0);
	say("flags: %d %d", !!(fcntl(p.s, F_GETFL) & O_NONBLOCK),
	    !!(fcntl(p.s, F_GETFD) & FD_CLOEXEC));
	say_result("recv", recv(p.s, &c, 1, 0));
	nonblock(p.s, false);
	pair_warm(p);
	nonblock(p.s, true);
	say_result("recv", recv(p.s, &c, 1, 0));
	pair_close(p);
}

CASE(accepted_after_close, ANYWAY)
{
	uint16_t port;
	int error, listener = listen_any(AF_INET, &port);
	int c = connect_to(AF_INET, port);
	send_pattern(c, 0, 5000);
	close(c);
	int s = accept(listener, NULL, NULL);
	NEED(s >= 0);
	say("got %lu", (unsigned long)recv_to_end(s, &error));
	say("then %s", error ? errno_name(error) : "the end");
	close(s);
}

CASE(connect_to_itself, ON_TCP)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t len = sizeof own;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char buf[8];
	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	NEED(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	NEED(getsockname(fd, (struct sockaddr *)&own, &len) == 0);
	say_result("connect", connect(fd, (struct sockaddr *)&own, sizeof own));
	for (int i = 0; i < 100; i++) {
		send_all(fd, "itself", 6);
		recv_all(fd, buf, 6);
		NEED(!memcmp(buf, "itself", 6));
	}
	send_pattern(fd, 0, 30000);
	recv_pattern(fd, 0, 30000);
	shutdown(fd, SHUT_WR);
	say_result("end", recv(fd, buf, 8, 0));
	close(fd);
}

/* ---- bytes that TCP holds back while the connection moves ---- */

/* The server writes, the client reads: what moves the connection, without a byte sent. */
static void one_way(struct pair p, int turns)
{
	char buf[8];
	for (int i = 0; i < turns; i++) {
		send_all(p.s, "one way", 7);
		recv_all(p.c, buf, 7);
	}
}

static void set_int(int fd, int name, int value)
{
	NEED(setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value) == 0);
}

static void read_text(int fd, size_t len)
{
	char buf[64] = "";
	recv_all(fd, buf, len);
	say("%s", buf);
}

CASE(corked_before_mark, DIRECT)
{
	struct pair p = pair_open();
	set_int(p.c, TCP_CORK, 1);
	send_all(p.c, "held ", 5);
	one_way(p, 50);
	send_all(p.c, "back ", 5);
	one_way(p, 50);
	send_all(p.c, "bytes", 5);
	set_int(p.c, TCP_CORK, 0);
	read_text(p.s, 15);
	pair_warm(p);
	pair_close(p);
}

CASE(corked_between, DIRECT)
{
	struct pair p = pair_open();
	set_int(p.c, TCP_CORK, 1);
	for (int i = 0; i < 30; i++) {
		send_pattern(p.c, (uint64_t)i * 100, 100);
		one_way(p, 2);
	}
	/* Linux pushes what is corked after 200 ms by itself. */
	recv_pattern(p.s, 0, 3000);
	int value = 0;
	socklen_t len = sizeof value;
	NEED(getsockopt(p.c, IPPROTO_TCP, TCP_CORK, &value, &len) == 0);
	say("still corked: %d", value);
	set_int(p.c, TCP_CORK, 0);
	pair_warm(p);
	pair_close(p);
}

CASE(more_before_mark, DIRECT)
{
	struct pair p = pair_open();
	NEED(send(p.c, "more ", 5, MSG_MORE) == 5);
	one_way(p, 50);
	NEED(send(p.c, "and more ", 9, MSG_MORE) == 9);
	one_way(p, 50);
	NEED(send(p.c, "done", 4, 0) == 4);
	read_text(p.s, 18);
	pair_warm(p);
	NEED(send(p.c, "more ", 5, MSG_MORE) == 5);
	NEED(send(p.c, "done", 4, 0) == 4);
	read_text(p.s, 9);
	/* Without an end, it comes all the same. */
	NEED(send(p.c, "more", 4, MSG_MORE) == 4);
	read_text(p.s, 4);
	pair_close(p);
}

CASE(nagle_before_mark, DIRECT)
{
	struct pair p = pair_open();
	set_int(p.c, TCP_NODELAY, 0);
	send_all(p.c, "a", 1);
	for (int i = 0; i < 200; i++) {
		send_all(p.c, "b", 1);
		send_all(p.c, "c", 1);
		one_way(p, 1);
	}
	char buf[401];
	recv_all(p.s, buf, 401);
	bool right = buf[0] == 'a';
	for (int i = 1; i < 401; i += 2)
		right = right && buf[i] == 'b' && buf[i + 1] == 'c';
	say("in order: %d", right);
	pair_warm(p);
	pair_close(p);
}

CASE(full_before_mark, DIRECT)
{
	struct pair p = pair_open();
	uint64_t sent = 0;
	uint8_t buf[1000];
	nonblock(p.c, true);
	for (;;) {
		for (size_t i = 0; i < sizeof buf; i++)
			buf[i] = pattern(sent + i);
		ssize_t r = send(p.c, buf, sizeof buf, 0);
		if (r < 0)
			break;
		sent += (uint64_t)r;
	}
	nonblock(p.c, false);
	one_way(p, 50);
	recv_pattern(p.s, 0, sent);
	one_way(p, 50);
	send_pattern(p.c, sent, 5000);
	recv_pattern(p.s, sent, 5000);
	say("in order");
	pair_warm(p);
	pair_close(p);
}

CASE(fin_before_mark, ANYWAY)
{
	struct pair p = pair_open();
	int error;
	send_pattern(p.c, 0, 100000);
	shutdown(p.c, SHUT_WR);
	one_way(p, 50);
	recv_pattern(p.s, 0, 40000);
	one_way(p, 50);
	recv_pattern(p.s, 40000, 60000);
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	say("then %s", error ? errno_name(error) : "the end");
	send_pattern(p.s, 3, 50000);
	recv_pattern(p.c, 3, 50000);
	pair_close(p);
}

/* ---- errno ---- */

static void set_errno(void)
{
	errno = 4242;
}

/* Programs look at errno after success: it must be as it was. */
static void errno_check(const char *what)
{
	static int told;
	if (errno != 4242 && told++ < 10)
		say("%s changed errno to %s", what, errno_name(errno));
	set_errno();
}

static void errno_ways(struct pair p, int ep)
{
	struct pollfd pf = {p.s, POLLIN, 0};
	struct epoll_event ev;
	struct iovec iov = {(char[]){"writev"}, 6};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	char buf[64];
	set_errno();
	NEED(send(p.c, "send", 4, 0) == 4);
	errno_check("send");
	NEED(write(p.c, "write", 5) == 5);
	errno_check("write");
	NEED(writev(p.c, &iov, 1) == 6);
	errno_check("writev");
	NEED(poll(&pf, 1, -1) == 1);
	errno_check("poll");
	NEED(epoll_wait(ep, &ev, 1, -1) == 1);
	errno_check("epoll_wait");
	NEED(recv(p.s, buf, 4, MSG_WAITALL) == 4);
	errno_check("recv");
	NEED(recvmsg(p.s, &msg, 0) > 0);
	errno_check("recvmsg");
	NEED(read(p.s, buf, sizeof buf) > 0);
	errno_check("read");
	NEED(sendmsg(p.s, &msg, 0) == 6);
	errno_check("sendmsg");
	NEED(readv(p.c, &iov, 1) > 0);
	errno_check("readv");
	NEED(poll(&pf, 1, 0) >= 0);
	errno_check("poll");
}

CASE(errno_kept, DIRECT)
{
	uint16_t port;
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	set_errno();
	int listener = listen_any(AF_INET, &port);
	errno_check("listen");
	struct pair p = {.c = connect_to(AF_INET, port)};
	errno_check("connect");
	p.s = accept(listener, NULL, NULL);
	errno_check("accept");
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	errno_check("epoll_ctl");
	for (int i = 0; i < 100; i++)
		errno_ways(p, ep);
	NEED(fcntl(p.c, F_SETFL, O_RDWR) == 0);
	errno_check("fcntl");
	int other = dup(p.c);
	errno_check("dup");
	NEED(close(other) == 0);
	errno_check("close");
	NEED(shutdown(p.c, SHUT_WR) == 0);
	errno_check("shutdown");
	NEED(close(p.c) == 0);
	errno_check("close");
	char c;
	while (recv(p.s, &c, 1, 0) == 1)
		;
	errno_check("recv at the end");
	NEED(close(p.s) == 0);
	errno_check("close");
	say("done");
}

/* Two listen on a port, as at a server's restart; the first ends, and the second serves on. */
CASE(setup_second_listener, DIRECT)
{
	const int one = 1;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l[2];

	for (int i = 0; i < 2; i++) {
		l[i] = socket(AF_INET, SOCK_STREAM, 0);
		NEED(setsockopt(l[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
		NEED(bind(l[i], (struct sockaddr *)&a, len) == 0);
		NEED(listen(l[i], 8) == 0);
		NEED(getsockname(l[i], (struct sockaddr *)&a, &len) == 0);
	}
	close(l[0]);
	for (int i = 0; i < 3; i++) {
		struct pair p = {socket(AF_INET, SOCK_STREAM, 0), -1};

		NEED(connect(p.c, (struct sockaddr *)&a, len) == 0);
		p.s = accept(l[1], NULL, NULL);
		NEED(p.s >= 0);
		pair_warm(p);
		pair_close(p);
		usleep(50000); /* longer than it is left alone after a failure */
	}
	close(l[1]);
	say("served");
}

/* To lo, which is how all goes that stays on the host. */
static void bind_to_lo(int fd)
{
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo") != 0)
		skip("SO_BINDTODEVICE is not allowed");
}

static void bound_pair(int family, bool listener, bool connector)
{
	uint16_t port;
	int l = listen_any(family, &port);
	struct pair p = {socket(family, SOCK_STREAM, 0), -1};
	struct sockaddr_storage at;
	socklen_t len = sizeof at;

	if (listener)
		bind_to_lo(l);
	if (connector)
		bind_to_lo(p.c);
	NEED(getsockname(l, (struct sockaddr *)&at, &len) == 0);
	NEED(connect(p.c, (struct sockaddr *)&at, len) == 0);
	p.s = accept(l, NULL, NULL);
	NEED(p.s >= 0);
	close(l);
	use_and_close(p);
}

CASE(setup_listener_of_device, DIRECT)
{
	bound_pair(AF_INET, true, false);
}

CASE(setup_connector_of_device, DIRECT)
{
	bound_pair(AF_INET6, false, true);
}

CASE(setup_both_of_device, DIRECT)
{
	bound_pair(AF_INET6, true, true);
}
