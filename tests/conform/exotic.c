/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what makes a connection go back to TCP, and a lossy network. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <linux/kcm.h>
#include <linux/nbd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/grid.h"

CASE(urgent_data, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	int mark = -1;
	send_all(p.c, "before", 6);
	say_result("send urgent", send(p.c, "!", 1, MSG_OOB));
	send_all(p.c, "after", 5);
	wait_events(p.s, POLLPRI);
	say_result("recv", recv(p.s, buf, 16, 0));
	say("%.6s", buf);
	say_result("SIOCATMARK", ioctl(p.s, SIOCATMARK, &mark));
	say("%d", mark);
	say_result("recv urgent", recv(p.s, buf, 1, MSG_OOB));
	say("%.1s", buf);
	recv_all(p.s, buf, 5);
	say("%.5s", buf);
	say_result("recv urgent again", recv(p.s, buf, 1, MSG_OOB));
	pair_warm(p);
	pair_close(p);
}

/* Only the kernel knows of it, and of a connection that is over it tells the end each time. */
CASE(urgent_after_the_end, ANYWAY)
{
	struct pair p = pair_warm_open();
	struct timeval none = {0};
	fd_set except;

	send_all(p.c, "before", 6);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	wait_events(p.s, POLLPRI);
	NEED(shutdown(p.c, SHUT_WR) == 0 && shutdown(p.s, SHUT_WR) == 0);
	wait_events(p.s, POLLHUP);
	for (int i = 0; i < 2; i++) {
		struct pollfd f = {.fd = p.s, .events = POLLPRI};

		FD_ZERO(&except);
		FD_SET(p.s, &except);
		say_result("select", select(p.s + 1, NULL, NULL, &except, &none));
		say("%d", FD_ISSET(p.s, &except) != 0);
		say_result("poll", poll(&f, 1, 0));
		say("%s", poll_names(f.revents));
	}
	pair_close(p);
}

CASE(splice_in_and_out, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipes[2];
	NEED(pipe(pipes) == 0);
	send_pattern(p.c, 0, 3000);
	wait_inq(p.s, 3000);
	recv_pattern(p.s, 0, 1000);
	say_result("splice from it", splice(p.s, NULL, pipes[1], NULL, 2000, 0));
	say_result("splice into it", splice(pipes[0], NULL, p.s, NULL, 2000, 0));
	recv_pattern(p.c, 1000, 2000);
	pair_warm(p);
	pair_close(p);
}

CASE(splice_in_the_middle, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipes[2];
	NEED(pipe(pipes) == 0);
	send_pattern(p.c, 0, 40000);
	send_pattern(p.s, 9, 40000);
	uint64_t moved = 0;
	while (moved < 40000) {
		ssize_t r = splice(p.s, NULL, pipes[1], NULL, 8192, 0);
		NEED(r > 0);
		uint8_t buf[8192];
		NEED(read(pipes[0], buf, (size_t)r) == r);
		for (ssize_t i = 0; i < r; i++)
			NEED(buf[i] == pattern(moved + (uint64_t)i));
		moved += (uint64_t)r;
	}
	recv_pattern(p.c, 9, 40000);
	pair_warm(p);
	say("done");
	pair_close(p);
}

/* What the kernel refuses moves nothing, and waits for nothing. */
CASE(splice_refused, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipes[2], dead[2], file = open("/dev/null", O_RDWR);
	off64_t at = 0;
	char buf[32] = "";
	signal(SIGPIPE, SIG_IGN);
	NEED(file >= 0 && pipe(pipes) == 0 && pipe(dead) == 0 && close(dead[0]) == 0);
	send_all(p.c, "0123456789", 10);
	say_result("flags", splice(p.s, NULL, pipes[1], NULL, 5, 0x100));
	say_result("reading end", splice(p.s, NULL, pipes[0], NULL, 5, 0));
	say_result("writing end", splice(pipes[1], NULL, p.s, NULL, 5, 0));
	say_result("file", splice(p.s, NULL, file, NULL, 5, 0));
	say_result("file, out", splice(file, NULL, p.s, NULL, 5, 0));
	say_result("offset", splice(p.s, &at, pipes[1], NULL, 5, 0));
	say_result("offset there", splice(p.s, NULL, pipes[1], &at, 5, 0));
	say_result("no pipe", splice(p.s, NULL, 999, NULL, 5, 0));
	say_result("sockets", splice(p.s, NULL, p.c, NULL, 5, 0));
	say_result("nobody reads", splice(p.s, NULL, dead[1], NULL, 5, 0));
	say_result("some", splice(p.s, NULL, pipes[1], NULL, 5, 0));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say("%s", buf);
	pair_close(p);
}

/* A peer that does nothing with the connection meanwhile holds up no splice. */
CASE(splice_in_many_pieces, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipes[2];
	NEED(pipe(pipes) == 0);
	send_pattern(p.c, 0, 40000);
	wait_inq(p.s, 40000);
	nonblock(p.s, true);
	for (uint64_t moved = 0; moved < 40000; moved += 20) {
		NEED(splice(p.s, NULL, pipes[1], NULL, 20, SPLICE_F_NONBLOCK) == 20);
		NEED(splice(pipes[0], NULL, p.s, NULL, 20, SPLICE_F_NONBLOCK) == 20);
	}
	say_result("empty", splice(p.s, NULL, pipes[1], NULL, 20, SPLICE_F_NONBLOCK));
	recv_pattern(p.c, 0, 40000);
	nonblock(p.s, false);
	pair_warm(p);
	pair_close(p);
}

CASE(aio_on_it, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	send_all(p.c, "one ", 4);
	struct aiocb cb = {.aio_fildes = p.c, .aio_buf = "two ", .aio_nbytes = 4};
	const struct aiocb *list[] = {&cb};
	say_result("aio_write", aio_write(&cb));
	while (aio_error(&cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	say_result("aio_return", aio_return(&cb));
	send_all(p.c, "three", 5);
	recv_all(p.s, buf, 13);
	say("%s", buf);
	pair_close(p);
}

/* As a device of the kernel's does with a socket that it was given. */
static ssize_t past_everybody(long nr, int fd, void *data, size_t len)
{
	ssize_t result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(nr), "D"(fd), "S"(data), "d"(len)
			 : "rcx", "r11", "memory");
	return result;
}

CASE(handed_to_the_kernel, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	NEED(null >= 0);
	/* There may be no such device here: it is told after the socket has been prepared. */
	say_result("NBD_SET_SOCK", ioctl(null, NBD_SET_SOCK, p.c));
	send_all(p.s, "request", 7);
	for (size_t n = 0; n < 7;) {
		ssize_t r = past_everybody(SYS_read, p.c, buf + n, 7 - n);
		NEED(r > 0);
		n += (size_t)r;
	}
	say("%.7s", buf);
	say_result("write", past_everybody(SYS_write, p.c, "reply", 5));
	recv_all(p.s, buf, 5);
	say("%.5s", buf);
	pair_close(p);
	p = pair_warm_open();
	struct kcm_attach attach = {.fd = p.s};
	say_result("SIOCKCMATTACH", ioctl(null, SIOCKCMATTACH, &attach));
	say_result("with a bad pointer", ioctl(null, SIOCKCMATTACH, (void *)8));
	say_result("write", past_everybody(SYS_write, p.s, "reply", 5));
	recv_all(p.c, buf, 5);
	say("%.5s", buf);
	pair_close(p);
	close(null);
}

CASE(zero_copy, DIRECT)
{
	struct pair p = pair_warm_open();
	int one = 1;
	static char data[20000];
	send_all(p.c, "abc", 3);
	say_result("SO_ZEROCOPY",
		   setsockopt(p.c, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
	say_result("send", send(p.c, data, sizeof data, MSG_ZEROCOPY));
	recv_all(p.s, data, 3);
	say("%.3s", data);
	recv_all(p.s, data, sizeof data);
	wait_events(p.c, POLLERR);
	struct msghdr msg = {0};
	char control[128];
	msg.msg_control = control;
	msg.msg_controllen = sizeof control;
	say_result("error queue", recvmsg(p.c, &msg, MSG_ERRQUEUE));
	say("flags %#x", msg.msg_flags);
	send_all(p.c, "def", 3);
	recv_all(p.s, data, 3);
	say("%.3s", data);
	pair_close(p);
}

static _Atomic int io_signals;

static void on_io(int sig)
{
	(void)sig;
	io_signals++;
}

CASE(signal_driven, DIRECT)
{
	struct pair p = pair_warm_open();
	struct sigaction sa = {.sa_handler = on_io, .sa_flags = SA_RESTART};
	char buf[8];
	sigaction(SIGIO, &sa, NULL);
	NEED(fcntl(p.s, F_SETOWN, getpid()) == 0);
	NEED(fcntl(p.s, F_SETFL, fcntl(p.s, F_GETFL) | O_ASYNC | O_NONBLOCK) == 0);
	for (int i = 0; i < 5; i++) {
		int before = io_signals;
		send_all(p.c, "x", 1);
		while (io_signals == before)
			usleep(100);
		recv_all(p.s, buf, 1);
	}
	say("signals came");
	pair_close(p);
}

CASE(reconnect_unspec, ANYWAY)
{
	struct pair p = pair_warm_open();
	struct sockaddr unspec = {.sa_family = AF_UNSPEC};
	char c;
	say_result("disconnect", connect(p.c, &unspec, sizeof unspec));
	say_result("send", send(p.c, "x", 1, MSG_NOSIGNAL));
	say_result("the other end", recv(p.s, &c, 1, 0));
	pair_close(p);
}

CASE(shut_listener, ANYWAY)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	say_result("shutdown", shutdown(listener, SHUT_RDWR));
	say_result("accept", accept(listener, NULL, NULL));
	close(listener);
}

CASE(other_sockets, ANYWAY)
{
	int pair[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in any = {.sin_family = AF_INET};
	socklen_t len = sizeof any;
	char buf[64];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	say_result("write", write(pair[0], "abc", 3));
	say_result("read", read(pair[1], buf, 64));
	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	NEED(bind(udp, (struct sockaddr *)&any, sizeof any) == 0);
	NEED(getsockname(udp, (struct sockaddr *)&any, &len) == 0);
	NEED(connect(udp, (struct sockaddr *)&any, len) == 0);
	say_result("send", send(udp, "abc", 3, 0));
	say_result("recv, truncated", recv(udp, buf, 2, MSG_TRUNC));
	say("poll: %s", poll_names(wait_events(udp, POLLIN | POLLOUT)));
}

/* ---- a lossy network ----
 * From after the handshake on: Linux forgets a connection whose last ACK and repeated
 * SYN-ACK are both lost, and its accept waits for ever where the other end is silent. */

static void loopback_up(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	NEED(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &ifr) == 0);
	close(fd);
}

static void own_network(void)
{
	if (unshare(CLONE_NEWNET) != 0)
		skip("no right to make a network namespace");
	loopback_up();
}

static void rules(const char *text)
{
	FILE *nft = popen("nft -f - >/dev/null 2>&1", "w");
	NEED(nft);
	fputs(text, nft);
	if (pclose(nft) != 0)
		skip("nft is missing or cannot do this here");
}

/* The child that sets the rules does not get it. */
static struct pair pair_apart(void)
{
	struct pair p = pair_open();
	NEED(fcntl(p.c, F_SETFD, FD_CLOEXEC) == 0);
	NEED(fcntl(p.s, F_SETFD, FD_CLOEXEC) == 0);
	return p;
}

/* The output hook drops before the packet leaves: TCP sees a local congestion. */
CASE(dropped_locally, DIRECT)
{
	own_network();
	struct pair p = pair_apart();
	rules("table ip t {\n"
	      "  chain out { type filter hook output priority 0;\n"
	      "    meta l4proto tcp numgen random mod 100 < 8 drop\n"
	      "  }\n"
	      "}\n");
	for (uint64_t i = 0; i < 12; i++) {
		send_pattern(p.c, i * 20000, 20000);
		send_pattern(p.s, i * 30000, 30000);
		recv_pattern(p.s, i * 20000, 20000);
		recv_pattern(p.c, i * 30000, 30000);
	}
	pair_warm(p);
	say("all arrived");
	pair_close(p);
}

CASE(dropped_on_arrival, DIRECT)
{
	own_network();
	struct pair p = pair_apart();
	rules("table ip t {\n"
	      "  chain in { type filter hook input priority 0;\n"
	      "    meta l4proto tcp numgen random mod 100 < 8 drop\n"
	      "  }\n"
	      "}\n");
	for (uint64_t i = 0; i < 12; i++) {
		send_pattern(p.c, i * 20000, 20000);
		send_pattern(p.s, i * 30000, 30000);
		recv_pattern(p.s, i * 20000, 20000);
		recv_pattern(p.c, i * 30000, 30000);
	}
	pair_warm(p);
	say("all arrived");
	pair_close(p);
}

/* What shared memory tells of the end may come before the bytes that are on TCP. */
CASE(end_before_the_bytes, DIRECT)
{
	own_network();
	struct pair p = pair_warm_open();
	struct epoll_event ev;
	char byte;
	int ep = epoll_create1(0);
	ev = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	send_pattern(p.c, 0, 10);
	wait_inq(p.s, 10);
	bounce(p.c);
	rules("table ip t {\n"
	      "  chain in { type filter hook input priority 0; meta l4proto tcp drop\n"
	      "  }\n"
	      "}\n");
	send_pattern(p.c, 10, 100);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	/* The kernel has no word of the end yet. */
	NEED(epoll_wait(ep, &ev, 1, -1) == 1 && (ev.events & EPOLLIN));
	recv_pattern(p.s, 0, 10);
	NEED(recv(p.s, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	while (epoll_wait(ep, &ev, 1, 0) > 0)
		NEED(recv(p.s, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	rules("delete table ip t\n");
	NEED(epoll_wait(ep, &ev, 1, -1) == 1);
	say("%d", (ev.events & EPOLLIN) != 0);
	recv_pattern(p.s, 10, 100);
	say_result("recv", recv(p.s, &byte, 1, 0));
	close(ep);
	pair_close(p);
}

/* Both connect: the second half of the handshake is let through only after both asked. */
CASE(simultaneous_open, ON_TCP)
{
	own_network();
	rules("table ip t {\n"
	      "  chain in { type filter hook input priority 0;\n"
	      "    tcp flags & (syn | ack | rst) == syn counter drop\n"
	      "  }\n"
	      "}\n");
	struct sockaddr_in addr[2];
	int fd[2];
	for (int i = 0; i < 2; i++) {
		socklen_t len = sizeof addr[i];
		memset(&addr[i], 0, sizeof addr[i]);
		addr[i].sin_family = AF_INET;
		addr[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		NEED(bind(fd[i], (struct sockaddr *)&addr[i], len) == 0);
		NEED(getsockname(fd[i], (struct sockaddr *)&addr[i], &len) == 0);
	}
	for (int i = 0; i < 2; i++) {
		int r = connect(fd[i], (struct sockaddr *)&addr[1 - i], sizeof addr[0]);
		say_result("connect", r);
	}
	rules("flush ruleset\n");
	for (int i = 0; i < 2; i++) {
		say("events: %s", poll_names(wait_events(fd[i], POLLOUT)));
		nonblock(fd[i], false);
	}
	struct pair p = {fd[0], fd[1]};
	pair_warm(p);
	pair_close(p);
}

/* Crossed addresses: the redirect leads a connection to another one's server. */
CASE(redirected, ANYWAY)
{
	uint16_t port;
	char text[256];
	own_network();
	int listener = listen_any(AF_INET, &port);
	snprintf(text, sizeof text,
		 "table ip t {\n"
		 "  chain nat { type nat hook output priority -100;\n"
		 "    tcp dport 80 redirect to :%u\n"
		 "  }\n"
		 "}\n",
		 port);
	rules(text);
	struct pair p = {.c = connect_to(AF_INET, 80)};
	p.s = accept(listener, NULL, NULL);
	struct pair q = {.c = connect_to(AF_INET, port)};
	q.s = accept(listener, NULL, NULL);
	for (int i = 0; i < 5; i++) {
		pair_warm(p);
		pair_warm(q);
	}
	send_pattern(p.c, 0, 50000);
	send_pattern(q.c, 77, 50000);
	recv_pattern(p.s, 0, 50000);
	recv_pattern(q.s, 77, 50000);
	say("each its own");
	pair_close(p);
	pair_close(q);
}

/* ---- urgent data of an end that leaves its meeting for that ---- */

/* The accepted end has made its offer, and has not seen that it was taken. */
static struct pair half_met(void)
{
	struct pair p = pair_open();
	char byte;

	send_all(p.c, "x", 1);
	recv_all(p.s, &byte, 1);
	send_all(p.c, "y", 1);
	nonblock(p.c, true);
	return p;
}

static void urgent_show(int fd, int flags)
{
	struct pollfd f = {fd, POLLIN | POLLPRI, 0};
	char buf[16] = {0};
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, flags);

	say_result("recv", n);
	say("%s", n > 0 ? buf : "");
	say_result("poll", poll(&f, 1, 0));
	say("%s", poll_names(f.revents));
}

CASE(urgent_passed_with_nothing_behind, ANYWAY)
{
	struct pair p = half_met();

	NEED(send(p.s, "abU", 3, MSG_OOB) == 3);
	wait_events(p.c, POLLPRI);
	urgent_show(p.c, 0);
	urgent_show(p.c, MSG_PEEK);
	urgent_show(p.c, 0);
	urgent_show(p.c, 0);
	send_all(p.s, "cd", 2);
	wait_events(p.c, POLLIN);
	urgent_show(p.c, 0);
	pair_close(p);
}

CASE(urgent_passed_with_more_behind, ANYWAY)
{
	for (int flags = 0; flags <= MSG_PEEK; flags += MSG_PEEK) {
		struct pair p = half_met();

		NEED(send(p.s, "abU", 3, MSG_OOB) == 3);
		send_all(p.s, "cdef", 4);
		wait_events(p.c, POLLPRI);
		for (int i = 0; i < 3; i++)
			urgent_show(p.c, i == 1 ? flags : 0);
		pair_close(p);
	}
}

CASE(urgent_passed_at_the_end, ANYWAY)
{
	struct pair p = half_met();

	NEED(send(p.s, "U", 1, MSG_OOB) == 1);
	NEED(shutdown(p.s, SHUT_WR) == 0);
	wait_events(p.c, POLLRDHUP);
	urgent_show(p.c, 0);
	urgent_show(p.c, 0);
	pair_close(p);
}

CASE(urgent_passed_amid_messages, ANYWAY)
{
	for (int more = 0; more < 2; more++) {
		struct pair p = half_met();
		char buf[3][8] = {0};
		struct iovec part[3];
		struct mmsghdr messages[3] = {0};
		int n = 0, left = more ? 6 : 2;

		for (int i = 0; i < 3; i++) {
			part[i] = (struct iovec){buf[i], 7};
			messages[i].msg_hdr.msg_iov = &part[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		NEED(send(p.s, "abU", 3, MSG_OOB) == 3);
		if (more)
			send_all(p.s, "cdef", 4);
		wait_events(p.c, POLLPRI);
		/* One call may give fewer messages than there are. */
		for (; left > 0 && n >= 0; left -= (int)messages->msg_len) {
			n = recvmmsg(p.c, messages, 1, 0, NULL);
			say("%u: %.*s", messages->msg_len, (int)messages->msg_len,
			    buf[0]);
		}
		pair_close(p);
	}
}
