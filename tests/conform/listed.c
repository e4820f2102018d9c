/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls and options that programs use beside the ordinary ones. */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/grid.h"

/* ---- pipes ---- */

CASE(tee_and_vmsplice, DIRECT)
{
	struct pair p = pair_warm_open();
	static char text[] = "through two pipes";
	struct iovec iov = {text, sizeof text};
	char buf[64] = "";
	int one[2], two[2];
	NEED(pipe(one) == 0 && pipe(two) == 0);
	say_result("vmsplice", vmsplice(one[1], &iov, 1, 0));
	say_result("tee", tee(one[0], two[1], sizeof text, 0));
	say_result("splice", splice(two[0], NULL, p.c, NULL, sizeof text, 0));
	recv_all(p.s, buf, sizeof text);
	say("%s", buf);
	say_result("splice the other", splice(one[0], NULL, p.s, NULL, 7, 0));
	recv_all(p.c, buf, 7);
	say("%.7s", buf);
	say_result("tee of it", tee(p.c, two[1], 5, 0));
	say_result("tee into it", tee(one[0], p.c, 5, 0));
	say_result("vmsplice into it", vmsplice(p.c, &iov, 1, 0));
	send_pattern(p.s, 0, 100);
	wait_inq(p.c, 100);
	say_result("splice out", splice(p.c, NULL, two[1], NULL, 100, SPLICE_F_NONBLOCK));
	nonblock(p.c, true);
	say_result("nothing more", splice(p.c, NULL, two[1], NULL, 100, 0));
	nonblock(p.c, false);
	for (size_t i = 0; i < 100; i++)
		NEED(read(two[0], buf, 1) == 1 && (uint8_t)buf[0] == pattern(i));
	pair_warm(p);
	pair_close(p);
}

/* ---- many descriptors ---- */

static void allow_many(void)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < 4000)
		skip("too few descriptors are allowed");
}

CASE(poll_thousands, DIRECT)
{
	enum { COUNT = 3000 };
	static struct pollfd fds[COUNT];
	struct pair p = pair_warm_open();
	int pipes[2], closed;
	allow_many();
	NEED(pipe(pipes) == 0);
	closed = dup(pipes[0]);
	close(closed);
	for (int i = 0; i < COUNT; i++)
		fds[i] = (struct pollfd){i % 3 ? pipes[0] : -1, POLLIN, 0};
	fds[17] = fds[2998] = (struct pollfd){p.s, POLLIN, 0};
	fds[1500] = (struct pollfd){p.c, POLLIN | POLLOUT, 0};
	fds[2000] = (struct pollfd){closed, POLLIN, 0};
	say_result("poll", poll(fds, COUNT, 0));
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	say_result("poll", poll(fds, COUNT, -1));
	for (int i = 0; i < COUNT; i++)
		if (fds[i].revents)
			say("%d: %s", i, poll_names(fds[i].revents));
	pair_close(p);
}

CASE(select_many, DIRECT)
{
	struct pair p = pair_warm_open();
	struct timeval now = {0, 0};
	int pipes[2], high = fcntl(p.s, F_DUPFD, 900);
	fd_set r, w;
	allow_many();
	NEED(pipe(pipes) == 0 && high >= 900 && high < FD_SETSIZE);
	FD_ZERO(&r);
	FD_ZERO(&w);
	for (int fd = pipes[1] + 1; fd < 800; fd++) {
		NEED(dup2(pipes[0], fd) == fd);
		FD_SET(fd, &r);
	}
	FD_SET(p.s, &r);
	FD_SET(high, &r);
	FD_SET(p.c, &w);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	say_result("select", select(high + 1, &r, &w, NULL, NULL));
	say("%d %d %d", FD_ISSET(p.s, &r), FD_ISSET(high, &r), FD_ISSET(p.c, &w));
	close(high);
	FD_SET(high, &r);
	say_result("one is closed", select(high + 1, &r, NULL, NULL, &now));
	pair_close(p);
}

/* ---- signals for readiness ---- */

static volatile sig_atomic_t told, told_fd;

static void on_ready(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	told_fd = info->si_fd;
	told++;
}

/* A signal of one's own choice, which names the descriptor. */
CASE(signal_driven_chosen, DIRECT)
{
	struct pair p = pair_warm_open();
	struct sigaction act = {.sa_sigaction = on_ready,
				.sa_flags = SA_RESTART | SA_SIGINFO};
	char byte;
	NEED(sigaction(SIGUSR2, &act, NULL) == 0);
	say_result("F_SETSIG", fcntl(p.s, F_SETSIG, SIGUSR2));
	say("F_GETSIG: %d", fcntl(p.s, F_GETSIG) == SIGUSR2);
	NEED(fcntl(p.s, F_SETOWN, getpid()) == 0);
	NEED(fcntl(p.s, F_SETFL, fcntl(p.s, F_GETFL) | O_ASYNC) == 0);
	for (int i = 0; i < 5; i++) {
		int before = told;
		send_all(p.c, "x", 1);
		while (told == before)
			usleep(100);
		NEED(told_fd == p.s);
		recv_all(p.s, &byte, 1);
	}
	say("signals came");
	pair_close(p);
}

static volatile sig_atomic_t ticks;

static void on_tick(int sig)
{
	(void)sig;
	ticks++;
}

static void send_long(void *arg)
{
	for (uint64_t i = 0; i < 64; i++)
		send_pattern(*(int *)arg, i * 65536, 65536);
	shutdown(*(int *)arg, SHUT_WR);
}

static void tick_during(int flags)
{
	struct pair p = pair_warm_open();
	struct sigaction act = {.sa_handler = on_tick, .sa_flags = flags};
	struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	struct worker w;
	int error;
	NEED(sigaction(SIGALRM, &act, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
	worker_start(&w, send_long, &p.c);
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	worker_join(&w);
	while (ticks == 0)
		usleep(100);
	NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
	say("error %d", error);
	pair_close(p);
}

CASE(timer_during_transfer, DIRECT)
{
	tick_during(SA_RESTART);
}

/* send_all and recv_to_end go on after EINTR. */
CASE(timer_interrupts_transfer, DIRECT)
{
	tick_during(0);
}

/* ---- options ---- */

static void say_option(int fd, int level, int name, const char *text, int value)
{
	socklen_t len = sizeof value;
	say("%s: set %d", text, setsockopt(fd, level, name, &value, len));
	value = -1;
	int r = getsockopt(fd, level, name, &value, &len);
	say("%s: get %d, %d", text, r, value);
}

CASE(options_of_time, DIRECT)
{
	struct pair p = pair_warm_open();
	say_option(p.c, IPPROTO_TCP, TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT", 5000);
	say_option(p.c, IPPROTO_TCP, TCP_KEEPIDLE, "TCP_KEEPIDLE", 10);
	say_option(p.c, IPPROTO_TCP, TCP_KEEPINTVL, "TCP_KEEPINTVL", 3);
	say_option(p.c, IPPROTO_TCP, TCP_KEEPCNT, "TCP_KEEPCNT", 4);
	say_option(p.c, SOL_SOCKET, SO_KEEPALIVE, "SO_KEEPALIVE", 1);
	say_option(p.c, IPPROTO_TCP, TCP_LINGER2, "TCP_LINGER2", 20);
	say_option(p.c, IPPROTO_TCP, TCP_DEFER_ACCEPT, "TCP_DEFER_ACCEPT", 0);
	say_option(p.c, SOL_SOCKET, SO_PRIORITY, "SO_PRIORITY", 3);
	say_option(p.c, IPPROTO_IP, IP_TOS, "IP_TOS", 0x10);
	pair_warm(p);
	pair_close(p);
}

CASE(tcp_info_state, DIRECT)
{
	struct pair p = pair_warm_open();
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	NEED(getsockopt(p.c, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	say("state %d, length %d", info.tcpi_state, len > 100);
	shutdown(p.s, SHUT_WR);
	wait_events(p.c, POLLRDHUP);
	NEED(getsockopt(p.c, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	say("state %d", info.tcpi_state);
	pair_close(p);
}

/* Urgent data among the others, where the program wants it so. */
CASE(urgent_inline, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	int on = 1, at_mark = -1;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	send_all(p.c, "before", 6);
	say_result("send urgent", send(p.c, "!", 1, MSG_OOB));
	send_all(p.c, "after", 5);
	wait_events(p.s, POLLPRI);
	wait_inq(p.s, 12);
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say("%.6s", buf);
	NEED(ioctl(p.s, SIOCATMARK, &at_mark) == 0);
	say("at the mark: %d", at_mark);
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say("%.6s", buf);
	say_result("recv urgent", recv(p.s, buf, 1, MSG_OOB));
	pair_close(p);
}

static void receive_200(void *arg)
{
	char buf[200];
	int fd = *(int *)arg;
	say_result("asleep", recv(fd, buf, sizeof buf, MSG_WAITALL));
}

/* The receiver is ready for shared memory; the sender stays on TCP before it has answered. */
static struct pair urgent_unanswered(bool in_line)
{
	struct pair p = pair_open();
	struct worker w;
	int on = in_line;
	NEED(setsockopt(p.c, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	worker_start(&w, receive_200, &p.c);
	wait_asleep(getpid(), w.tid);
	send_pattern(p.s, 0, 200);
	worker_join(&w);
	send_pattern(p.c, 0, 900);
	say_result("send urgent", send(p.s, "abc", 3, MSG_OOB));
	send_all(p.s, "def", 3);
	wait_events(p.c, POLLPRI);
	wait_inq(p.c, in_line ? 6 : 2);
	return p;
}

static void urgent_calls(bool in_line)
{
	for (int way = 0; way < 5; way++) {
		static const char *const names[] = {"recv", "all", "peek", "readv",
						    "recvmmsg"};
		struct pair p = urgent_unanswered(in_line);
		char buf[2][50] = {""};
		struct iovec v[2] = {{buf[0], 1}, {buf[1], 50}};
		struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}},
				       {.msg_hdr = {.msg_iov = v + 1, .msg_iovlen = 1}}};
		ssize_t n = way == 0   ? recv(p.c, buf, sizeof buf, MSG_DONTWAIT)
			    : way == 1 ? recv(p.c, buf, sizeof buf, MSG_WAITALL)
			    : way == 2 ? recv(p.c, buf, sizeof buf, MSG_PEEK)
			    : way == 3 ? readv(p.c, v, 2)
				       : recvmmsg(p.c, m, 2, MSG_DONTWAIT, NULL);
		say_result(names[way], n);
		say("%.2s, %.2s, %u and %u", buf[0], buf[1], m[0].msg_len, m[1].msg_len);
		for (int i = 0; i < 3; i++) {
			n = recv(p.c, buf[0], sizeof buf, MSG_DONTWAIT);
			say_result("then", n);
			say("%.*s", n > 0 ? (int)n : 0, buf[0]);
		}
		pair_close(p);
	}
}

CASE(urgent_inline_unanswered, READY)
{
	urgent_calls(true);
}

CASE(urgent_unanswered, READY)
{
	urgent_calls(false);
}

/* Where the mark is, before all that lies in front of it has been read. */
static void urgent_mark(bool in_line)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	int on = in_line, at_mark = -1;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
	send_all(p.c, "before", 6);
	say_result("send urgent", send(p.c, "!", 1, MSG_OOB));
	send_all(p.c, "after", 5);
	wait_events(p.s, POLLPRI);
	wait_inq(p.s, in_line ? 12 : 6);
	for (size_t read = 0; read <= 6; read += 2) {
		NEED(ioctl(p.s, SIOCATMARK, &at_mark) == 0);
		say("%zu read, at the mark: %d %d", read, at_mark, sockatmark(p.s));
		say_result("peek", recv(p.s, buf, 2, MSG_PEEK));
		say_result("recv", recv(p.s, buf, 2, 0));
		say("%.2s", buf);
	}
	say("behind it: %d", sockatmark(p.s));
	pair_close(p);
	say_result("of no descriptor", sockatmark(-1));
}

CASE(urgent_mark_ahead, DIRECT)
{
	urgent_mark(false);
}

CASE(urgent_mark_ahead_in_line, DIRECT)
{
	urgent_mark(true);
}

void __backtrace_symbols_fd(void *const *buffer, int size, int fd);

/* The C library's own write. */
CASE(backtrace_between, DIRECT)
{
	struct pair p = pair_warm_open();
	void *nowhere = NULL;
	char buf[64] = "";
	send_all(p.c, "before", 6);
	backtrace_symbols_fd(&nowhere, 1, p.c);
	send_all(p.c, "after", 5);
	__backtrace_symbols_fd(&nowhere, 1, p.c);
	shutdown(p.c, SHUT_WR);
	for (ssize_t n, at = 0;
	     (n = recv(p.s, buf + at, sizeof buf - 1 - (size_t)at, 0)) > 0;)
		at += n;
	say("%s", buf);
	pair_close(p);
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Two listeners on one port: whoever accepts, the connection is one. */
CASE(reuse_port, DIRECT)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof at;
	struct pollfd ready[2];
	int on = 1, listeners[2];
	for (int i = 0; i < 2; i++) {
		listeners[i] = socket(AF_INET, SOCK_STREAM, 0);
		NEED(setsockopt(listeners[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) ==
		     0);
		NEED(bind(listeners[i], (struct sockaddr *)&at, sizeof at) == 0);
		NEED(listen(listeners[i], 8) == 0);
		NEED(getsockname(listeners[i], (struct sockaddr *)&at, &len) == 0);
		ready[i] = (struct pollfd){listeners[i], POLLIN, 0};
	}
	for (int i = 0; i < 10; i++) {
		struct pair p = {.c = connect_to(AF_INET, ntohs(at.sin_port))};
		say_result("poll", poll(ready, 2, -1));
		p.s = accept(listeners[ready[0].revents ? 0 : 1], NULL, NULL);
		NEED(p.s >= 0);
		pair_warm(p);
		pair_close(p);
	}
}

static struct pair open_fast(bool by_option)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), on = 5;
	struct sockaddr_in to = loopback(port);
	struct pair p = {.c = socket(AF_INET, SOCK_STREAM, 0)};
	say_result("TCP_FASTOPEN",
		   setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &on, sizeof on));
	if (by_option) {
		on = 1;
		say_result("TCP_FASTOPEN_CONNECT",
			   setsockopt(p.c, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on,
				      sizeof on));
		say_result("connect", connect(p.c, (struct sockaddr *)&to, sizeof to));
		say_result("first", send(p.c, "first", 5, 0));
	} else {
		say_result("first", sendto(p.c, "first", 5, MSG_FASTOPEN,
					   (struct sockaddr *)&to, sizeof to));
	}
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	close(listener);
	return p;
}

static void use_fast(struct pair p)
{
	char buf[8] = "";
	recv_all(p.s, buf, 5);
	say("%s", buf);
	pair_warm(p);
	send_pattern(p.s, 0, 5000);
	recv_pattern(p.c, 0, 5000);
	pair_close(p);
}

CASE(fast_open, DIRECT)
{
	use_fast(open_fast(false));
}

CASE(fast_open_by_option, DIRECT)
{
	use_fast(open_fast(true));
}

/* ---- other programs ---- */

CASE(popen_and_system, DIRECT)
{
	struct pair p = pair_warm_open();
	char line[16] = "";
	for (int i = 0; i < 3; i++) {
		send_pattern(p.c, 0, 300);
		say_result("system", system("exit 3"));
		FILE *f = popen("echo from below", "r");
		NEED(f && fgets(line, sizeof line, f));
		say("%.10s", line);
		say_result("pclose", pclose(f));
		recv_pattern(p.s, 0, 300);
		pair_warm(p);
	}
	pair_close(p);
}
