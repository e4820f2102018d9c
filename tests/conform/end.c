/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: how connections end, and in which order one learns of it. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

static _Atomic int pipes_broken;

static void on_pipe(int sig)
{
	(void)sig;
	pipes_broken++;
}

static void catch_pipe(void)
{
	struct sigaction sa = {.sa_handler = on_pipe};
	NEED(sigaction(SIGPIPE, &sa, NULL) == 0);
}

static void say_reads(int fd, int times)
{
	char buf[64];
	for (int i = 0; i < times; i++)
		say_result("recv", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
}

static void say_sends(int fd, int times)
{
	for (int i = 0; i < times; i++) {
		say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	}
}

static void say_poll(int fd)
{
	struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	poll(&p, 1, 0);
	say("poll: %s", poll_names(p.revents));
}

CASE(half_close, DIRECT)
{
	struct pair p = pair_warm_open();
	int error;
	send_pattern(p.c, 0, 70000);
	say_result("shutdown", shutdown(p.c, SHUT_WR));
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	say("error %d", error);
	say_poll(p.s);
	say_poll(p.c);
	send_pattern(p.s, 5, 70000);
	recv_pattern(p.c, 5, 70000);
	say_sends(p.c, 2);
	say_result("shutdown again", shutdown(p.c, SHUT_WR));
	say_result("shutdown of the other end", shutdown(p.s, SHUT_WR));
	wait_events(p.c, POLLIN);
	say_reads(p.c, 2);
	wait_events(p.s, POLLHUP);
	say_poll(p.s);
	say_poll(p.c);
	say_result("shutdown at the end", shutdown(p.s, SHUT_WR));
	pair_close(p);
}

CASE(shutdown_read, DIRECT)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "abc", 3);
	wait_inq(p.s, 3);
	say_result("shutdown", shutdown(p.s, SHUT_RD));
	say_poll(p.s);
	say_reads(p.s, 2);
	send_all(p.s, "still sending", 13);
	wait_inq(p.c, 13);
	say_reads(p.c, 2);
	pair_close(p);
}

CASE(shutdown_both, DIRECT)
{
	struct pair p = pair_warm_open();
	int error;
	send_pattern(p.c, 0, 5000);
	say_result("shutdown", shutdown(p.c, SHUT_RDWR));
	say_reads(p.c, 2);
	say_sends(p.c, 2);
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	say("error %d", error);
	say_result("bad how", shutdown(p.c, 77));
	pair_close(p);
}

CASE(reset_by_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "never read", 10);
	wait_inq(p.s, 10);
	NEED(close(p.s) == 0);
	say("events: %s", poll_names(wait_events(p.c, POLLERR)));
	say_reads(p.c, 3);
	say_sends(p.c, 2);
	say_poll(p.c);
	close(p.c);
}

CASE(reset_seen_by_sender, DIRECT)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "never read", 10);
	wait_inq(p.s, 10);
	NEED(close(p.s) == 0);
	wait_events(p.c, POLLERR);
	say_sends(p.c, 2);
	say_reads(p.c, 2);
	close(p.c);
}

CASE(reset_seen_by_so_error, DIRECT)
{
	struct pair p = pair_warm_open();
	int err = -1;
	socklen_t len = sizeof err;
	send_all(p.c, "never read", 10);
	wait_inq(p.s, 10);
	NEED(close(p.s) == 0);
	wait_events(p.c, POLLERR);
	say_result("SO_ERROR", getsockopt(p.c, SOL_SOCKET, SO_ERROR, &err, &len));
	say("%s", errno_name(err));
	say_poll(p.c);
	say_reads(p.c, 2);
	say_sends(p.c, 1);
	close(p.c);
}

/* What the other end sent before its reset can still be read. */
CASE(reset_behind_data, DIRECT)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "never read", 10);
	wait_inq(p.s, 10);
	send_all(p.s, "last words", 10);
	wait_inq(p.c, 10);
	NEED(close(p.s) == 0);
	wait_events(p.c, POLLERR);
	say_poll(p.c);
	say_reads(p.c, 3);
	close(p.c);
}

/* The next request on a connection that the other end closed meanwhile, with all read. */
CASE(late_request, DIRECT)
{
	struct pair p = pair_warm_open();
	NEED(close(p.s) == 0);
	say_sends(p.c, 1);
	wait_events(p.c, POLLHUP);
	say_reads(p.c, 2);
	say_sends(p.c, 1);
	close(p.c);
}

struct doomed {
	struct signal_pipe read, go;
};

static void read_and_die(int fd, void *arg)
{
	struct doomed *d = arg;
	for (uint64_t turn = 0; turn < 64; turn++) {
		recv_pattern(fd, turn * 1000, 1000);
		signal_send(d->read);
	}
	signal_wait(d->go);
	raise(SIGKILL);
}

/* Killed with bytes of ours unread, and has never sent: we have never received. */
static int one_way_until_killed(void)
{
	struct doomed d = {signal_pipe(), signal_pipe()};
	pid_t pid;
	int fd = peer_start_cold(read_and_die, &d, &pid);
	for (uint64_t turn = 0; turn < 64; turn++) {
		send_pattern(fd, turn * 1000, 1000);
		signal_wait(d.read); /* so that what can be upgraded is */
	}
	send_all(fd, "never read", 10);
	signal_send(d.go);
	say("status %d", child_status(pid));
	say("events: %s", poll_names(wait_events(fd, POLLERR)));
	return fd;
}

CASE(reset_by_death_one_way, DIRECT)
{
	struct pair p = pair_warm_open(); /* shows that there is a direct path */
	catch_pipe();
	int fd = one_way_until_killed();
	say_result("first send", send(fd, "x", 1, 0));
	say("signals %d", pipes_broken);
	say_result("second send", send(fd, "x", 1, 0));
	say("signals %d", pipes_broken);
	say_poll(fd);
	say_reads(fd, 2);
	close(fd);
	pair_close(p);
}

CASE(reset_by_death_one_way_read, DIRECT)
{
	struct pair p = pair_warm_open();
	int fd = one_way_until_killed();
	say_reads(fd, 2);
	say_sends(fd, 2);
	close(fd);
	pair_close(p);
}

CASE(linger_zero, DIRECT)
{
	struct pair p = pair_warm_open();
	struct linger linger = {1, 0};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	NEED(close(p.s) == 0);
	say("events: %s", poll_names(wait_events(p.c, POLLERR)));
	say_reads(p.c, 2);
	say_sends(p.c, 1);
	close(p.c);
}

CASE(linger_waits, DIRECT)
{
	struct pair p = pair_warm_open();
	struct linger linger = {1, 5};
	int error;
	send_pattern(p.s, 0, 50000);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	say_result("close", close(p.s));
	say("got %lu", (unsigned long)recv_to_end(p.c, &error));
	say("error %d", error);
	close(p.c);
}

CASE(broken_pipe, DIRECT)
{
	struct pair p = pair_warm_open();
	catch_pipe();
	NEED(close(p.s) == 0);
	say("events: %s", poll_names(wait_events(p.c, POLLIN | POLLRDHUP)));
	say_reads(p.c, 2);
	say_result("first send", send(p.c, "x", 1, 0));
	say("events: %s", poll_names(wait_events(p.c, POLLERR | POLLHUP)));
	say("signals %d", pipes_broken);
	say_result("second send", send(p.c, "x", 1, 0));
	say("signals %d", pipes_broken);
	say_result("without signal", send(p.c, "x", 1, MSG_NOSIGNAL));
	say("signals %d", pipes_broken);
	say_result("write", write(p.c, "x", 1));
	say("signals %d", pipes_broken);
	say_reads(p.c, 1);
	close(p.c);
}

/* The end has come while nobody looked, and the next thing is a send. */
static void send_after_end(int fd)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name), info_len = sizeof(struct tcp_info);
	struct tcp_info info = {0};
	catch_pipe();
	while (info.tcpi_state != TCP_CLOSE_WAIT)
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_len) == 0);
	say_result("first send", send(fd, "x", 1, 0));
	say("events: %s", poll_names(wait_events(fd, POLLERR | POLLHUP)));
	say_reads(fd, 2);
	say_result("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
	say_result("second send", send(fd, "x", 1, 0));
	say("signals %d", pipes_broken);
	close(fd);
}

CASE(broken_pipe_unseen, DIRECT)
{
	struct pair p = pair_warm_open();
	NEED(close(p.s) == 0);
	send_after_end(p.c);
}

static void exit_at_once(int fd, void *arg)
{
	(void)fd;
	(void)arg;
	exit(0);
}

CASE(broken_pipe_unseen_exit, DIRECT)
{
	pid_t pid;
	int fd = peer_start(exit_at_once, NULL, &pid);
	say("status %d", child_status(pid));
	send_after_end(fd);
}

CASE(broken_pipe_own, DIRECT)
{
	struct pair p = pair_warm_open();
	catch_pipe();
	shutdown(p.c, SHUT_WR);
	say_result("send", send(p.c, "x", 1, 0));
	say("signals %d", pipes_broken);
	say_result("write of nothing", write(p.c, "", 0));
	say("signals %d", pipes_broken);
	say_result("without signal", send(p.c, "x", 1, MSG_NOSIGNAL));
	say("signals %d", pipes_broken);
	pair_close(p);
}

static volatile sig_atomic_t pipe_code, pipe_is_ours;

static void tell_pipe(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	pipe_code = info->si_code;
	pipe_is_ours = info->si_pid == getpid() && info->si_uid == getuid();
	pipes_broken++;
}

static void die_with_unread(int fd, void *arg)
{
	(void)arg;
	wait_inq(fd, 5);
	kill(getpid(), SIGKILL);
}

/* What a handler is told of the signal, where the kernel has sent none. */
CASE(broken_pipe_told, DIRECT)
{
	struct sigaction act = {.sa_sigaction = tell_pipe, .sa_flags = SA_SIGINFO};
	struct pair p = pair_warm_open();
	int way[2];
	pid_t pid;
	int fd = peer_start(die_with_unread, NULL, &pid);
	NEED(sigaction(SIGPIPE, &act, NULL) == 0 && pipe(way) == 0 && close(way[0]) == 0);
	send_pattern(fd, 0, 5);
	say("status %d", child_status(pid));
	say_reads(fd, 2);
	say_result("send", send(fd, "x", 1, 0));
	say("signals %d, %d %d", pipes_broken, pipe_code, pipe_is_ours);
	pipe_code = 1;
	send_pattern(p.c, 0, 5);
	wait_inq(p.s, 5);
	say_result("splice", splice(p.s, NULL, way[1], NULL, 5, 0));
	say("signals %d, %d %d", pipes_broken, pipe_code, pipe_is_ours);
	close(fd);
	pair_close(p);
}

static void killed_by_pipe(int fd, void *arg)
{
	char c;
	(void)arg;
	NEED(recv(fd, &c, 1, 0) == 0);
	for (;;)
		if (send(fd, "x", 1, 0) < 0)
			say_result("send", -1);
}

CASE(broken_pipe_kills, DIRECT)
{
	pid_t pid;
	int fd = peer_start(killed_by_pipe, NULL, &pid);
	close(fd);
	say("status %d", child_status(pid));
}

CASE(close_after_both_fins, DIRECT)
{
	struct pair p = pair_warm_open();
	shutdown(p.c, SHUT_WR);
	shutdown(p.s, SHUT_WR);
	say("events: %s", poll_names(wait_events(p.c, POLLHUP)));
	say_reads(p.c, 2);
	say_reads(p.s, 2);
	say_sends(p.s, 1);
	pair_close(p);
}

/* ---- everything that was written arrives ---- */

enum way { BY_CLOSE, BY_EXIT, BY__EXIT, BY_RETURN, BY_EXEC, BY_KILL, BY_ABORT };

static void write_and_go(int fd, void *arg)
{
	enum way way = *(enum way *)arg;
	send_pattern(fd, 0, 300000);
	switch (way) {
	case BY_CLOSE:
		NEED(close(fd) == 0);
		return;
	case BY_EXIT:
		exit(0);
	case BY__EXIT:
		_exit(0);
	case BY_RETURN:
		return;
	case BY_EXEC:
		NEED(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, 4) == 0);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	case BY_KILL:
		raise(SIGKILL);
		return;
	case BY_ABORT:
		abort();
	}
}

static void delivered(enum way way)
{
	pid_t pid;
	int error, fd = peer_start(write_and_go, &way, &pid);
	say("got %lu", (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
	say("status %d", child_status(pid));
	close(fd);
}

CASE(delivered_by_close, DIRECT)
{
	delivered(BY_CLOSE);
}

CASE(delivered_by_exit, DIRECT)
{
	delivered(BY_EXIT);
}

CASE(delivered_by__exit, DIRECT)
{
	delivered(BY__EXIT);
}

CASE(delivered_by_return, DIRECT)
{
	delivered(BY_RETURN);
}

CASE(delivered_by_exec, DIRECT)
{
	delivered(BY_EXEC);
}

CASE(delivered_by_kill, DIRECT)
{
	delivered(BY_KILL);
}

CASE(delivered_by_abort, DIRECT)
{
	delivered(BY_ABORT);
}

/* Read only after the sender has gone. */
CASE(delivered_late, DIRECT)
{
	struct pair p = pair_warm_open();
	int error;
	send_pattern(p.c, 0, 60000);
	close(p.c);
	wait_events(p.s, POLLRDHUP);
	say_poll(p.s);
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	say("error %d", error);
	close(p.s);
}

/* ---- readiness at the end ---- */

static void say_epoll(int ep)
{
	struct epoll_event ev[4];
	int n = epoll_wait(ep, ev, 4, 0);
	say("epoll: %d %s", n, n > 0 ? poll_names((int)ev[0].events) : "-");
}

static void epoll_states(uint32_t trigger)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | trigger};
	int ep = epoll_create1(0);
	char buf[64];
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say_epoll(ep);
	say_epoll(ep);
	send_all(p.c, "abc", 3);
	wait_inq(p.s, 3);
	say_epoll(ep);
	say_epoll(ep);
	say_result("recv", recv(p.s, buf, 1, 0));
	say_epoll(ep);
	say_result("recv", recv(p.s, buf, 64, 0));
	say_epoll(ep);
	send_all(p.c, "def", 3);
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLRDHUP);
	say_epoll(ep);
	say_epoll(ep);
	say_result("recv", recv(p.s, buf, 64, 0));
	say_epoll(ep);
	NEED(epoll_ctl(ep, EPOLL_CTL_MOD, p.s, &ev) == 0);
	say_epoll(ep);
	ev.events = EPOLLIN | trigger;
	NEED(epoll_ctl(ep, EPOLL_CTL_MOD, p.s, &ev) == 0);
	say_epoll(ep);
	ev.events = trigger;
	NEED(epoll_ctl(ep, EPOLL_CTL_MOD, p.s, &ev) == 0);
	say_epoll(ep);
	shutdown(p.s, SHUT_WR);
	wait_events(p.s, POLLHUP);
	say_epoll(ep);
	say_epoll(ep);
	NEED(epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL) == 0);
	say_epoll(ep);
	say_result("DEL again", epoll_ctl(ep, EPOLL_CTL_DEL, p.s, NULL));
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say_result("ADD again", epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev));
	pair_close(p);
	say_epoll(ep);
	close(ep);
}

CASE(epoll_states_level, DIRECT)
{
	epoll_states(0);
}

CASE(epoll_states_edge, DIRECT)
{
	epoll_states(EPOLLET);
}

CASE(epoll_states_oneshot, DIRECT)
{
	epoll_states(EPOLLONESHOT);
}

CASE(poll_states, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	say_poll(p.s);
	send_all(p.c, "abc", 3);
	wait_inq(p.s, 3);
	say_poll(p.s);
	say_result("recv", recv(p.s, buf, 64, 0));
	say_poll(p.s);
	send_all(p.c, "abc", 3);
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLRDHUP);
	say_poll(p.s);
	say_poll(p.c);
	say_result("recv", recv(p.s, buf, 64, 0));
	say_poll(p.s);
	shutdown(p.s, SHUT_WR);
	wait_events(p.c, POLLHUP);
	say_poll(p.s);
	say_poll(p.c);
	pair_close(p);
	say_poll(p.s);
}
