/* SPDX-License-Identifier: Apache-2.0 */
/* More cases that random operations have found: the end of a connection, in odd calls. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

/* Without a look at its readiness, by which the end could become known. */
static void wait_state(int fd, int state)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	do
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	while (info.tcpi_state != state);
}

static void idle(int fd, void *arg)
{
	(void)fd;
	signal_send(*(struct signal_pipe *)arg);
	for (;;)
		pause();
}

static void linger(int fd, void *arg)
{
	struct linger none = {1, 0};
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
	idle(fd, arg);
}

/* A connection that the kernel ends for a peer that was killed, and could leave no word. */
static int ended_one(void (*peer)(int fd, void *arg), int state)
{
	struct signal_pipe ready = signal_pipe();
	pid_t pid;
	int fd = peer_start(peer, &ready, &pid);
	signal_wait(ready);
	NEED(kill(pid, SIGKILL) == 0);
	say("peer: %d", child_status(pid));
	wait_state(fd, state);
	NEED(close(ready.fd[0]) == 0 && close(ready.fd[1]) == 0);
	return fd;
}

/* ---- each entry of a connection tells its end, whichever of them learns of it ---- */

static void poll_masks(int fd, const short *masks, nfds_t n, int timeout)
{
	struct pollfd p[8];
	for (nfds_t i = 0; i < n; i++)
		p[i] = (struct pollfd){fd, masks[i], 0};
	say_result("polled", poll(p, n, timeout));
	for (nfds_t i = 0; i < n; i++)
		say("  %s", poll_names(p[i].revents));
}

#define POLL_KILLED(timeout, ...)                                                        \
	do {                                                                             \
		static const short masks[] = {__VA_ARGS__};                              \
		int fd = ended_one(linger, TCP_CLOSE);                                   \
		poll_masks(fd, masks, sizeof masks / sizeof *masks, timeout);            \
		NEED(close(fd) == 0);                                                    \
	} while (0)

CASE(found_end_first_entry, DIRECT)
{
	POLL_KILLED(0, POLLERR | POLLHUP, POLLPRI);
	POLL_KILLED(0, 0, POLLPRI, POLLHUP);
	POLL_KILLED(0, POLLRDHUP, POLLPRI, POLLRDHUP);
	POLL_KILLED(0, POLLHUP, POLLOUT, POLLPRI, POLLIN, 0, POLLRDHUP);
}

CASE(found_end_first_entry_waits, DIRECT)
{
	POLL_KILLED(-1, POLLERR | POLLHUP, POLLPRI);
	POLL_KILLED(1000, 0, POLLRDHUP | POLLPRI, POLLHUP);
	POLL_KILLED(-1, POLLRDHUP, POLLPRI, POLLRDHUP);
	POLL_KILLED(-1, POLLHUP, POLLOUT, POLLPRI, POLLIN, 0, POLLRDHUP);
}

/* Bytes came by TCP alone, so the peer has not left a word of its close in memory. */
static struct pair closed_without_a_word(void)
{
	struct pair p = pair_open();
	char byte;
	(void)!recv(p.s, &byte, 1, MSG_DONTWAIT);
	send_pattern(p.c, 0, 4511);
	send_pattern(p.s, 0, 293);
	wait_inq(p.c, 293);
	NEED(close(p.c) == 0);
	wait_state(p.s, TCP_CLOSE);
	return p;
}

CASE(found_end_cold, ANYWAY)
{
	static const short masks[][3] = {{POLLERR | POLLHUP, POLLIN, 0},
					 {0, POLLOUT, POLLIN},
					 {POLLRDHUP, POLLIN, POLLPRI},
					 {0, 0, 0}};
	for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
		struct pair p = closed_without_a_word();
		poll_masks(p.s, masks[i], 3, 0);
		NEED(close(p.s) == 0);
	}
}

/* ---- a receive of nothing is told of the end that a peer left no word of ---- */

static ssize_t receive_vector(int fd, int flags)
{
	struct iovec none[2] = {{NULL, 0}, {NULL, 0}};
	struct msghdr m = {.msg_iov = none, .msg_iovlen = 2};
	return recvmsg(fd, &m, flags);
}

static void receive_nothing(void (*peer)(int fd, void *arg), int state)
{
	static const int flags[] = {MSG_DONTWAIT, 0, MSG_PEEK | MSG_WAITALL, MSG_TRUNC};
	char byte;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		int fd = ended_one(peer, state);
		say_result("recv", recv(fd, &byte, 0, flags[i]));
		say_result("again", recv(fd, &byte, 0, flags[i]));
		say_result("one", recv(fd, &byte, 1, flags[i]));
		NEED(close(fd) == 0);
		fd = ended_one(peer, state);
		say_result("recvmsg", receive_vector(fd, flags[i]));
		say("poll: %s", poll_names(wait_events(fd, POLLIN)));
		NEED(close(fd) == 0);
	}
}

CASE(found_nothing_of_reset, DIRECT)
{
	receive_nothing(linger, TCP_CLOSE);
}

/* What the program sees of a connection of which one number of two is closed amid a call. */
enum { BULK_SENT = 16 << 20 };

static void receives(void *arg)
{
	char buf[8];
	int fd = *(int *)arg;
	ssize_t n = recv(fd, buf, sizeof buf, 0);
	say_result("recv", n);
}

static void sends(void *arg)
{
	int fd = *(int *)arg;
	ssize_t n = send(fd, bulk_room(), BULK_SENT, 0);
	say_result("send", n);
}

static void selects(void *arg)
{
	int fd = *(int *)arg;
	fd_set r, e;
	FD_ZERO(&r);
	FD_ZERO(&e);
	FD_SET(fd, &r);
	FD_SET(fd, &e);
	say_result("select", select(fd + 1, &r, NULL, &e, NULL));
	say("%d %d", !!FD_ISSET(fd, &r), !!FD_ISSET(fd, &e));
}

static void close_amid(void (*call)(void *fd), bool twice)
{
	struct pair p = pair_warm_open();
	int fd = p.s, other = twice ? dup(p.s) : -1;
	struct worker t;
	worker_start(&t, call, &fd);
	wait_asleep(getpid(), t.tid);
	NEED(close(p.s) == 0);
	if (call == sends)
		recv_all(p.c, bulk_room() + BULK_SENT, BULK_SENT);
	else
		send_all(p.c, "some", 4);
	worker_join(&t);
	if (twice) {
		send_all(other, "on", 2);
		say_result("on", recv(p.c, bulk_room(), 8, 0));
		close(other);
	}
	close(p.c);
}

CASE(found_number_closed_recv, DIRECT)
{
	close_amid(receives, true);
}

CASE(found_number_closed_send, DIRECT)
{
	close_amid(sends, true);
}

CASE(found_number_closed_select, DIRECT)
{
	close_amid(selects, true);
	close_amid(selects, false);
}

CASE(found_nothing_of_end, DIRECT)
{
	receive_nothing(idle, TCP_CLOSE_WAIT);
}

CASE(found_nothing_of_closed, DIRECT)
{
	struct pair p = pair_warm_open();
	char byte;
	say_result("open", recv(p.s, &byte, 0, MSG_DONTWAIT));
	send_pattern(p.s, 0, 275);
	wait_inq(p.c, 275);
	NEED(close(p.c) == 0);
	wait_state(p.s, TCP_CLOSE);
	say_result("reset", recv(p.s, &byte, 0, MSG_DONTWAIT));
	say_result("again", recv(p.s, &byte, 0, 0));
	NEED(close(p.s) == 0);
}

static void ends_unread(int fd, void *kill)
{
	wait_inq(fd, 10);
	if (kill)
		raise(SIGKILL);
}

/* Without a look at its readiness, until it is no longer open. */
static void wait_not_open(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	do
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	while (info.tcpi_state == TCP_ESTABLISHED);
}

/* The peer ends with bytes unread: shut down before that is told, or after. */
static void shut_after_end(bool by_kill, bool told, int how)
{
	static char any;
	pid_t pid;
	char byte;
	int fd = peer_start(ends_unread, by_kill ? &any : NULL, &pid);
	send_all(fd, "0123456789", 10);
	say("%s: %d", by_kill ? "killed" : "ended", child_status(pid));
	wait_not_open(fd);
	if (told)
		say_result("told", recv(fd, &byte, 1, 0));
	say_result("shutdown", shutdown(fd, how));
	say_result("recv", recv(fd, &byte, 1, 0));
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	say_result("shutdown", shutdown(fd, SHUT_RDWR));
	struct pollfd f = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
	NEED(poll(&f, 1, 0) == 1);
	say("%s", poll_names(f.revents));
	NEED(close(fd) == 0);
}

CASE(found_shut_after_end, DIRECT)
{
	for (int how = SHUT_RD; how <= SHUT_RDWR; how++)
		for (int i = 0; i < 4; i++)
			shut_after_end(i & 1, i & 2, how);
}

/* ---- a peer that is killed, found by who only asks ---- */

static void answer_and_hang(int fd, void *arg)
{
	char c;

	if (arg) {
		NEED(recv(fd, &c, 1, 0) == 1);
		for (int i = 0; i < 64; i++)
			NEED(send(fd, "x", 1, 0) == 1);
		signal_send(*(struct signal_pipe *)arg);
	}
	for (;;)
		pause();
}

static void kill_peer(pid_t pid)
{
	kill(pid, SIGKILL);
	child_status(pid);
}

/* What a peer has sent tells that it was there: for a moment, and not for longer. */
CASE(killed_while_asking, DIRECT)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	struct signal_pipe sent = signal_pipe();
	pid_t pid, other_pid;
	int fd = peer_start(answer_and_hang, &sent, &pid);
	int other = peer_start(answer_and_hang, NULL, &other_pid);
	int ep = epoll_create1(0);
	char c;

	/* Two in one instance: so each peer says when it has sent. */
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, other, &ev) == 0);
	NEED(send(fd, "x", 1, 0) == 1);
	signal_wait(sent);
	for (int i = 0; i < 64; i++)
		NEED(recv(fd, &c, 1, 0) == 1);
	say_result("recv", recv(fd, &c, 1, MSG_DONTWAIT));
	kill_peer(pid);
	usleep(2000);
	say_result("recv", recv(fd, &c, 1, MSG_DONTWAIT));
	kill_peer(other_pid);
}

/* ---- the peer's end behind own shutdowns is one edge ---- */

static void exit_at_go(int fd, void *arg)
{
	(void)fd;
	signal_wait(*(struct signal_pipe *)arg);
	exit(0);
}

CASE(found_end_past_shut_both, DIRECT)
{
	struct signal_pipe go = signal_pipe();
	pid_t pid;
	int status, fd = peer_start(exit_at_go, &go, &pid), ep = epoll_create1(0);
	NEED(shutdown(fd, SHUT_RD) == 0);
	ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1 | MAY_REPEAT);
	ep_show(ep, 0);
	signal_send(go);
	NEED(waitpid(pid, &status, 0) == pid);
	wait_state(fd, TCP_CLOSE_WAIT);
	NEED(shutdown(fd, SHUT_WR) == 0);
	for (int i = 0; i < 3; i++)
		ep_show(ep, 0);
	close(ep);
	close(fd);
}

/* ---- an exec with bytes unread, where the program has set SO_LINGER ---- */

static void set_linger(int fd, struct linger first, struct linger then)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &first, sizeof first) == 0);
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &then, sizeof then) == 0);
}

static const struct linger lingers[][2] = {
	{{0, 0}, {0, 0}}, {{1, 5}, {1, 5}}, {{1, 5}, {0, 0}}, {{1, 0}, {1, 0}}};

struct image {
	unsigned linger;
	bool shuts;
};

static void executes_unread(int fd, void *arg)
{
	const struct image *i = arg;
	set_linger(fd, lingers[i->linger][0], lingers[i->linger][1]);
	if (i->shuts)
		NEED(shutdown(fd, SHUT_WR) == 0);
	wait_inq(fd, 101);
	NEED(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
	execl("/bin/true", "true", (char *)NULL);
	_exit(127);
}

CASE(found_executes_lingering, DIRECT)
{
	for (unsigned n = 0; n < 8; n++) {
		struct image i = {n / 2, n % 2};
		pid_t pid;
		char byte;
		int status, fd = peer_start(executes_unread, &i, &pid);
		send_pattern(fd, 0, 101);
		NEED(waitpid(pid, &status, 0) == pid);
		say("linger %u, shuts %d: %#x", i.linger, i.shuts, (unsigned)status);
		say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
		say_result("receive", recv(fd, &byte, 1, MSG_DONTWAIT));
		close(fd);
	}
}

CASE(found_lingers_as_before, DIRECT)
{
	for (unsigned n = 0; n < 4; n++) {
		struct pair p = pair_warm_open();
		struct linger now;
		socklen_t len = sizeof now;
		NEED(fcntl(p.s, F_SETFD, FD_CLOEXEC) == 0);
		NEED(fcntl(p.c, F_SETFD, FD_CLOEXEC) == 0);
		set_linger(p.s, lingers[n][0], lingers[n][1]);
		send_pattern(p.c, 0, 10);
		wait_inq(p.s, 10);
		say_result("exec", execl("/nowhere", "no", (char *)NULL));
		NEED(getsockopt(p.s, SOL_SOCKET, SO_LINGER, &now, &len) == 0);
		say("on %d, seconds %d", now.l_onoff, now.l_linger);
		pair_close(p);
	}
}

static _Atomic bool is_over;

static void *executes_nothing(void *unused)
{
	(void)unused;
	while (!is_over)
		execl("/nowhere", "no", (char *)NULL);
	return NULL;
}

/* All has been read when it is closed, whatever another thread tries meanwhile. */
CASE(found_closes_amid_execs, DIRECT)
{
	pthread_t thread;
	unsigned ends = 0;
	char byte;
	for (unsigned n = 0; n < 60; n++) {
		/* Before the execs, which would have it stay on TCP. */
		struct pair p = pair_warm_open();
		is_over = false;
		NEED(pthread_create(&thread, NULL, executes_nothing, NULL) == 0);
		NEED(fcntl(p.s, F_SETFD, FD_CLOEXEC) == 0);
		NEED(fcntl(p.c, F_SETFD, FD_CLOEXEC) == 0);
		send_pattern(p.c, 0, 50);
		usleep(200);
		recv_pattern(p.s, 0, 50);
		NEED(close(p.s) == 0);
		ends += recv(p.c, &byte, 1, 0) == 0;
		NEED(close(p.c) == 0);
		is_over = true;
		NEED(pthread_join(thread, NULL) == 0);
	}
	say("ends: %u", ends);
}
