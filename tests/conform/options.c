/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: socket options, also those that a connection has from its listener. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

#ifndef TCP_TX_DELAY
#define TCP_TX_DELAY 37
#endif

/* How a receive looks, with all that comes beside the bytes. */
static void say_message(int fd, size_t len)
{
	char buf[256], control[512];
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	say_result("message", recvmsg(fd, &msg, 0));
	say("flags %x", (unsigned)msg.msg_flags);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		say("beside it: level %d, type %d, %zu bytes", c->cmsg_level,
		    c->cmsg_type, c->cmsg_len);
}

static int listener_with(int family, int level, int name, int value, uint16_t *port)
{
	int listener = listen_any(family, port);
	say_result("set", setsockopt(listener, level, name, &value, sizeof value));
	return listener;
}

static struct pair pair_of(int listener, int family, uint16_t port)
{
	struct pair p = {.c = connect_to(family, port)};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	return p;
}

static void look(struct pair p)
{
	pair_warm(p);
	for (int i = 0; i < 2; i++) {
		send_pattern(p.c, 0, 100);
		wait_inq(p.s, 100);
		say_message(p.s, 40);
		say_message(p.s, 60);
		send_pattern(p.s, 0, 100);
		wait_inq(p.c, 100);
		say_message(p.c, 100);
	}
	pair_close(p);
}

static void inherited(int level, int name, int value)
{
	uint16_t port;
	int listener = listener_with(AF_INET, level, name, value, &port), is = 0;
	struct pair p = pair_of(listener, AF_INET, port);
	socklen_t len = sizeof is;
	say_result("get", getsockopt(p.s, level, name, &is, &len));
	say("%d", is);
	look(p);
	/* Also what comes after. */
	look(pair_of(listener, AF_INET, port));
	close(listener);
}

static bool has_stamp(int fd)
{
	char byte, control[64];
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	NEED(recvmsg(fd, &msg, 0) == 1);
	return msg.msg_controllen > 0;
}

/* The kernel begins to stamp what comes some time after the first who wants it, and goes on while
 * there is one. */
static void await_stamps(void)
{
	uint16_t port;
	int on = 1;
	int listener = listen_any(AF_INET, &port);
	struct pair p = pair_of(listener, AF_INET, port);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	do
		send_all(p.c, "?", 1);
	while (!has_stamp(p.s));
}

CASE(inherited_timestamp, ON_TCP)
{
	await_stamps();
	inherited(SOL_SOCKET, SO_TIMESTAMP, 1);
}

CASE(inherited_timestamp_ns, ON_TCP)
{
	await_stamps();
	inherited(SOL_SOCKET, SO_TIMESTAMPNS, 1);
}

CASE(inherited_timestamp_new, ON_TCP)
{
	await_stamps();
	inherited(SOL_SOCKET, SO_TIMESTAMP_NEW, 1);
}

CASE(inherited_timestamp_ns_new, ON_TCP)
{
	await_stamps();
	inherited(SOL_SOCKET, SO_TIMESTAMPNS_NEW, 1);
}

CASE(inherited_timestamping, ON_TCP)
{
	await_stamps();
	inherited(SOL_SOCKET, SO_TIMESTAMPING,
		  1 << 3 | 1 << 4); /* receive, by software */
}

/* No send asks for it: then it changes nothing. */
CASE(inherited_zerocopy, STAYS)
{
	inherited(SOL_SOCKET, SO_ZEROCOPY, 1);
}

CASE(inherited_lowat, ON_TCP)
{
	inherited(SOL_SOCKET, SO_RCVLOWAT, 20);
}

/* A pace is TCP's to keep. Of ~0, that is, none, it stays where it is. */
CASE(inherited_pace, ON_TCP)
{
	inherited(SOL_SOCKET, SO_MAX_PACING_RATE, 1 << 24);
}

CASE(inherited_no_pace, STAYS)
{
	inherited(SOL_SOCKET, SO_MAX_PACING_RATE, -1);
}

CASE(paced_before, ON_TCP)
{
	struct pair p = pair_open();
	unsigned long rate = 1 << 24;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
	look(p);
}

CASE(paced_not, STAYS)
{
	struct pair p = pair_open();
	unsigned long rate = ~0ul;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0);
	look(p);
}

CASE(inherited_inq, DIRECT)
{
	inherited(IPPROTO_TCP, TCP_INQ, 1);
}

/* Kernels before 6.9 have it for datagrams alone. */
CASE(inherited_peek_offset, ON_TCP)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), offset = 2;
	if (setsockopt(listener, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset) < 0)
		skip("no SO_PEEK_OFF for TCP");
	struct pair p = pair_of(listener, AF_INET, port);
	char buf[16] = "";
	for (int i = 0; i < 20; i++) {
		send_all(p.c, "abcdefgh", 8);
		wait_inq(p.s, 8);
		say_result("peek", recv(p.s, buf, 3, MSG_PEEK));
		say("%.3s", buf);
		say_result("peek", recv(p.s, buf, 3, MSG_PEEK));
		say("%.3s", buf);
		recv_all(p.s, buf, 8);
		send_all(p.s, buf, 8);
		recv_all(p.c, buf, 8);
	}
	pair_close(p);
}

CASE(inherited_filter, ON_TCP)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
	struct sock_fprog program = {1, &all};
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	int r = setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program,
			   sizeof program);
	if (r < 0 && errno == EPERM)
		skip("this user may attach no filter");
	NEED(r == 0);
	look(pair_of(listener, AF_INET, port));
}

/* Set, and taken back: nothing is left of it. */
CASE(inherited_nothing, DIRECT)
{
	uint16_t port;
	int listener = listener_with(AF_INET, SOL_SOCKET, SO_TIMESTAMP, 1, &port),
	    off = 0;
	NEED(setsockopt(listener, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof off) == 0);
	look(pair_of(listener, AF_INET, port));
}

CASE(inherited_by_message, ON_TCP)
{
	int way[2], listener;
	uint16_t port;
	await_stamps();
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0);
	listener = listener_with(AF_INET, SOL_SOCKET, SO_TIMESTAMP, 1, &port);
	send_fd(way[0], listener);
	NEED(close(listener) == 0);
	look(pair_of(receive_fd(way[1]), AF_INET, port));
}

/* The one that it was sent to sets the option. */
static void peer_sets(int way)
{
	int fd = receive_fd(way), on = 1;
	NEED(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	NEED(write(way, "", 1) == 1);
	_exit(0);
}

CASE(inherited_from_another, ON_TCP)
{
	int way[2];
	uint16_t port;
	char byte;
	await_stamps();
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0);
	pid_t pid = fork();
	if (pid == 0)
		peer_sets(way[1]);
	int listener = listen_any(AF_INET, &port);
	send_fd(way[0], listener);
	NEED(read(way[0], &byte, 1) == 1);
	NEED(child_status(pid) == 0);
	look(pair_of(listener, AF_INET, port));
}

CASE(inherited_by_exec, ON_TCP)
{
	const char *given = getenv("LISTENER");
	uint16_t port;
	if (given) {
		struct sockaddr_in at;
		socklen_t len = sizeof at;
		await_stamps();
		NEED(getsockname(atoi(given), (struct sockaddr *)&at, &len) == 0);
		look(pair_of(atoi(given), AF_INET, ntohs(at.sin_port)));
		return;
	}
	char text[16];
	snprintf(text, sizeof text, "%d",
		 listener_with(AF_INET, SOL_SOCKET, SO_TIMESTAMP, 1, &port));
	NEED(setenv("LISTENER", text, 1) == 0);
	execl("/proc/self/exe", "cases", "inherited_by_exec", (char *)NULL);
	broken("exec");
}

/* Before and after a fork: the child's listener is the parent's. */
CASE(inherited_from_a_child, ON_TCP)
{
	uint16_t port;
	await_stamps();
	int listener = listen_any(AF_INET, &port), on = 1;
	pid_t pid = fork();
	if (pid == 0) {
		NEED(setsockopt(listener, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
		_exit(0);
	}
	NEED(child_status(pid) == 0);
	look(pair_of(listener, AF_INET, port));
}

CASE(set_before_connect, ON_TCP)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), on = 1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	await_stamps();
	struct pair p = {.c = socket(AF_INET, SOCK_STREAM, 0)};
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	NEED(connect(p.c, (struct sockaddr *)&to, sizeof to) == 0);
	p.s = accept(listener, NULL, NULL);
	look(p);
}

/* What a cork holds back is not due because the connection is upgraded meanwhile. The kernel
 * lets go of it after a fifth of a second: then once more. */
static bool stays_corked(int listener, uint16_t port, int flags)
{
	struct pair p = pair_of(listener, AF_INET, port);
	char buf[64];
	bool held = true;
	int off = 0;
	for (int i = 0; i < 30; i++) {
		NEED(send(p.s, "x", 1, flags) == 1);
		held &= recv(p.c, buf, sizeof buf, MSG_DONTWAIT) < 0;
		if (!held)
			break;
	}
	if (held) {
		NEED(setsockopt(p.s, IPPROTO_TCP, TCP_CORK, &off, sizeof off) == 0);
		recv_all(p.c, buf, 30);
		pair_warm(p);
	}
	pair_close(p);
	return held;
}

static bool ever_stays_corked(int listener, uint16_t port, int flags)
{
	for (int i = 0; i < 20; i++)
		if (stays_corked(listener, port, flags))
			return true;
	return false;
}

CASE(inherited_cork, DIRECT)
{
	uint16_t port;
	int listener = listener_with(AF_INET, IPPROTO_TCP, TCP_CORK, 1, &port);
	say("held: %d", ever_stays_corked(listener, port, 0));
}

CASE(more_amid_an_upgrade, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	say("held: %d", ever_stays_corked(listener, port, MSG_MORE));
}

/* ---- all others ---- */

static const struct {
	int level, name, value;
} options[] = {
	{SOL_SOCKET, SO_DEBUG, 0},
	{SOL_SOCKET, SO_REUSEADDR, 1},
	{SOL_SOCKET, SO_DONTROUTE, 0},
	{SOL_SOCKET, SO_BROADCAST, 1},
	{SOL_SOCKET, SO_KEEPALIVE, 1},
	{SOL_SOCKET, SO_OOBINLINE, 1},
	{SOL_SOCKET, SO_NO_CHECK, 1},
	{SOL_SOCKET, SO_PRIORITY, 3},
	{SOL_SOCKET, SO_REUSEPORT, 1},
	{SOL_SOCKET, SO_PASSCRED, 1},
	{SOL_SOCKET, SO_MARK, 0},
	{SOL_SOCKET, SO_RXQ_OVFL, 1},
	{SOL_SOCKET, SO_WIFI_STATUS, 1},
	{SOL_SOCKET, SO_NOFCS, 1},
	{SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1},
	{SOL_SOCKET, SO_BUSY_POLL, 0},
	{SOL_SOCKET, SO_MAX_PACING_RATE, 1 << 30},
	{IPPROTO_TCP, TCP_NODELAY, 1},
	{IPPROTO_TCP, TCP_KEEPIDLE, 100},
	{IPPROTO_TCP, TCP_KEEPINTVL, 10},
	{IPPROTO_TCP, TCP_KEEPCNT, 5},
	{IPPROTO_TCP, TCP_SYNCNT, 3},
	{IPPROTO_TCP, TCP_LINGER2, 10},
	{IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
	{IPPROTO_TCP, TCP_WINDOW_CLAMP, 30000},
	{IPPROTO_TCP, TCP_QUICKACK, 1},
	{IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, 100000},
	{IPPROTO_TCP, TCP_NOTSENT_LOWAT, 100000},
	{IPPROTO_TCP, TCP_SAVE_SYN, 1},
	{IPPROTO_TCP, TCP_INQ, 1},
	{IPPROTO_IP, IP_TOS, 16},
	{IPPROTO_IP, IP_TTL, 70},
	{IPPROTO_IP, IP_PKTINFO, 1},
	{IPPROTO_IP, IP_RECVTOS, 1},
	{IPPROTO_IP, IP_RECVTTL, 1},
	{IPPROTO_IP, IP_RECVOPTS, 1},
	{IPPROTO_IP, IP_RETOPTS, 1},
	{IPPROTO_IP, IP_RECVERR, 1},
	{IPPROTO_IP, IP_MTU_DISCOVER, 2},
	{IPPROTO_IP, IP_FREEBIND, 1},
	{IPPROTO_IP, IP_MINTTL, 1},
	{IPPROTO_IP, IP_CHECKSUM, 1},
	{IPPROTO_IP, IP_RECVORIGDSTADDR, 1},
	{IPPROTO_IPV6, IPV6_UNICAST_HOPS, 70},
	{IPPROTO_IPV6, IPV6_RECVERR, 1},
	{IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},
	{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
	{IPPROTO_IPV6, IPV6_RECVTCLASS, 1},
	{IPPROTO_IPV6, IPV6_TCLASS, 4},
	{IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 1},
	{IPPROTO_IPV6, IPV6_MINHOPCOUNT, 1},
};

static void say_option(int fd, size_t i)
{
	int value = 0;
	socklen_t len = sizeof value;
	int r = getsockopt(fd, options[i].level, options[i].name, &value, &len);
	say_result("get", r);
	/* Quick acknowledgements are as the kernel will have them. */
	if (r == 0 && options[i].name != TCP_QUICKACK)
		say("%d", value);
}

/* One option each at the end: how it is told, and what a receive is like with it. */
static void sweep(int family, bool on_listener)
{
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		uint16_t port;
		int listener = listen_any(family, &port);
		if (listener < 0)
			skip("no IPv6");
		say("option %d of level %d", options[i].name, options[i].level);
		int fd = listener;
		struct pair p;
		if (!on_listener) {
			p = pair_of(listener, family, port);
			pair_warm(p);
			fd = p.s;
		}
		say_result("set", setsockopt(fd, options[i].level, options[i].name,
					     &options[i].value, sizeof(int)));
		if (on_listener)
			p = pair_of(listener, family, port);
		say_option(p.s, i);
		send_pattern(p.c, 0, 100);
		wait_inq(p.s, 100);
		say_message(p.s, 30);
		say_option(p.s, i);
		say_message(p.s, 70);
		pair_warm(p);
		pair_close(p);
		close(listener);
	}
}

CASE(options_in_midstream, DIRECT)
{
	sweep(AF_INET, false);
}

CASE(options_in_midstream_ipv6, DIRECT)
{
	sweep(AF_INET6, false);
}

CASE(options_of_the_listener, DIRECT)
{
	sweep(AF_INET, true);
}

CASE(options_of_the_listener_ipv6, DIRECT)
{
	sweep(AF_INET6, true);
}

/* Urgent data in its place in the stream. */
static void urgent_inline(struct pair p)
{
	char buf[16] = "";
	int mark = -1;
	pair_warm(p);
	send_all(p.c, "before", 6);
	say_result("send urgent", send(p.c, "!", 1, MSG_OOB));
	send_all(p.c, "after", 5);
	wait_events(p.s, POLLPRI);
	say_result("recv", recv(p.s, buf, 16, 0));
	say("%.6s", buf);
	say_result("at the mark", ioctl(p.s, SIOCATMARK, &mark));
	say("%d", mark);
	say_result("recv urgent", recv(p.s, buf, 1, MSG_OOB));
	recv_all(p.s, buf, 6);
	say("%.6s", buf);
	pair_warm(p);
	pair_close(p);
}

CASE(urgent_in_line, DIRECT)
{
	struct pair p = pair_warm_open();
	int on = 1;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	urgent_inline(p);
}

CASE(inherited_urgent_in_line, DIRECT)
{
	uint16_t port;
	int listener = listener_with(AF_INET, SOL_SOCKET, SO_OOBINLINE, 1, &port);
	urgent_inline(pair_of(listener, AF_INET, port));
}

/* Under repair nothing that is unread can be read, but looked at in the queue that is chosen. */
CASE(repair_of_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	int on = 1, off = 0;
	char buf[16];
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	if (setsockopt(p.s, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) < 0)
		skip("this user may not repair connections");
	for (int queue = 0; queue <= 1; queue++) { /* none, and that of receives */
		say_result("queue", setsockopt(p.s, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue,
					       sizeof queue));
		say_result("look", recv(p.s, buf, 16, MSG_PEEK | MSG_DONTWAIT));
		say_result("recv", recv(p.s, buf, 16, MSG_DONTWAIT));
	}
	say_result("off", setsockopt(p.s, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off));
	say_result("recv", recv(p.s, buf, 16, MSG_DONTWAIT));
	pair_close(p);
}
