/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of the peer's close: told at once, by what is ready and what is not. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

/* Until the kernel has the FIN or the reset, without a look at what is ready. */
static void wait_end(int fd)
{
	struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
	socklen_t len = sizeof(info);

	while (info.tcpi_state == TCP_ESTABLISHED)
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
}

/* With `bytes` there is something to read besides. */
static struct pair closing_pair(void (*before)(int fd), int bytes)
{
	struct pair p = pair_warm_open();

	if (before)
		before(p.s);
	if (bytes)
		send_pattern(p.c, 0, (size_t)bytes);
	NEED(close(p.c) == 0);
	wait_end(p.s);
	return p;
}

CASE(close_seen_by_poll, DIRECT)
{
	for (int bytes = 0; bytes < 2; bytes++) {
		struct pair p = closing_pair(NULL, bytes);

		for (int i = 0; i < 2; i++) {
			struct pollfd f = {.fd = p.s, .events = POLLIN | POLLOUT};

			say_result("poll", poll(&f, 1, 0));
			say("%s", poll_names(f.revents));
		}
		close(p.s);
	}
}

CASE(close_seen_by_select, DIRECT)
{
	for (int bytes = 0; bytes < 2; bytes++) {
		struct pair p = closing_pair(NULL, bytes);
		struct timeval tv = {0};
		fd_set r, w;

		FD_ZERO(&r);
		FD_SET(p.s, &r);
		w = r;
		say_result("select", select(p.s + 1, &r, &w, NULL, &tv));
		say("read %d, write %d", FD_ISSET(p.s, &r), FD_ISSET(p.s, &w));
		close(p.s);
	}
}

static int ep;
static uint32_t ep_events;

static void registered(int fd)
{
	ep = ep_open();
	ep_add(ep, fd, ep_events, 1);
	ep_show(ep, 0);
}

static void seen_by_epoll(uint32_t events, bool mod)
{
	for (int bytes = 0; bytes < 2; bytes++) {
		ep_events = events;
		struct pair p = closing_pair(registered, bytes);

		if (mod)
			ep_mod(ep, p.s, ep_events, 2);
		for (int i = 0; i < 3; i++)
			ep_show(ep, 0);
		close(ep);
		close(p.s);
	}
}

CASE(close_seen_by_epoll, DIRECT)
{
	seen_by_epoll(EPOLLIN | EPOLLOUT, false);
	seen_by_epoll(EPOLLIN | EPOLLOUT | EPOLLRDHUP, false);
	seen_by_epoll(EPOLLIN | EPOLLRDHUP, false);
	seen_by_epoll(EPOLLOUT | EPOLLRDHUP, true);
}

/* One edge, however much has come: also where MOD has made one of it already. */
CASE(close_seen_by_epoll_edge, DIRECT)
{
	seen_by_epoll(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, false);
	seen_by_epoll(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, true);
	seen_by_epoll(EPOLLOUT | EPOLLET, true);
	seen_by_epoll(EPOLLOUT | EPOLLRDHUP | EPOLLET, true);
}

static void end_at_once(int fd, void *arg)
{
	(void)fd;
	(void)arg;
}

/* A process that ends in order leaves no less behind than a close. */
CASE(close_by_exit_seen_by_epoll, DIRECT)
{
	pid_t pid;
	int fd;

	ep = ep_open();
	fd = peer_start(end_at_once, NULL, &pid);
	ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
	say("status %d", child_status(pid));
	wait_end(fd);
	ep_show(ep, 0);
	close(ep);
	close(fd);
}

/* Who has asked in vain before, so that not each look is one at the kernel. */
static void ask_in_vain(int fd)
{
	char byte;

	for (int i = 0; i < 3; i++)
		NEED(recv(fd, &byte, 1, MSG_DONTWAIT) == -1);
}

/* As pools do before they use a connection again. */
static void say_whether_good(int fd, int flags)
{
	char byte;

	for (int i = 0; i < 2; i++)
		say_result("recv", recv(fd, &byte, 1, flags | MSG_DONTWAIT));
}

CASE(close_seen_by_dontwait, DIRECT)
{
	for (int i = 0; i < 4; i++) {
		struct pair p = pair_warm_open();

		ask_in_vain(p.s);
		if (i & 1) {
			send_pattern(p.s, 0, 10);
			wait_inq(p.c, 10);
		}
		NEED(close(p.c) == 0);
		wait_end(p.s);
		say_whether_good(p.s, i & 2 ? MSG_PEEK : 0);
		close(p.s);
	}
}

static void stay(int fd, void *arg)
{
	(void)arg;
	send_pattern(fd, 0, 1);
	for (;;)
		pause();
}

CASE(kill_seen_by_dontwait, DIRECT)
{
	pid_t pid;
	int fd = peer_start(stay, NULL, &pid);

	recv_pattern(fd, 0, 1);
	ask_in_vain(fd);
	NEED(kill(pid, SIGKILL) == 0);
	say("status %d", child_status(pid));
	wait_end(fd);
	/* Where nobody has said a word, one who asks again at once may be told the same. */
	usleep(10000);
	say_whether_good(fd, MSG_PEEK);
	say_whether_good(fd, 0);
	close(fd);
}

/* Each is asked once, right after the other. */
CASE(kill_seen_by_each_poll, DIRECT)
{
	enum { POOL = 8 };
	struct pollfd f[POOL];
	pid_t pid[POOL];

	for (int i = 0; i < POOL; i++) {
		f[i] = (struct pollfd){.fd = peer_start(stay, NULL, &pid[i]),
				       .events = POLLIN};
		recv_pattern(f[i].fd, 0, 1);
		for (int j = 0; j < 3; j++)
			NEED(poll(&f[i], 1, 0) == 0);
	}
	for (int i = 0; i < POOL; i++) {
		NEED(kill(pid[i], SIGKILL) == 0);
		say("status %d", child_status(pid[i]));
		wait_end(f[i].fd);
	}
	usleep(10000);
	for (int i = 0; i < POOL; i++) {
		say_result("poll", poll(&f[i], 1, 0));
		say("%s", poll_names(f[i].revents));
		close(f[i].fd);
	}
}

/* The same in an instance of its own. */
CASE(kill_seen_by_epoll_at_once, DIRECT)
{
	pid_t pid;
	int fd = peer_start(stay, NULL, &pid);

	recv_pattern(fd, 0, 1);
	ep = ep_open();
	ep_add(ep, fd, EPOLLIN | EPOLLRDHUP, 1);
	for (int i = 0; i < 3; i++)
		ep_show(ep, 0);
	NEED(kill(pid, SIGKILL) == 0);
	say("status %d", child_status(pid));
	wait_end(fd);
	usleep(10000);
	ep_show(ep, 0);
	close(ep);
	close(fd);
}

/* A registration lives as long as anybody has the connection, be it on its way to another process. */
CASE(closed_but_passed, DIRECT)
{
	const uint32_t events[] = {EPOLLIN, EPOLLIN | EPOLLOUT | EPOLLET, 0};
	enum { MANY = sizeof(events) / sizeof(events[0]) };
	struct pair p = pair_warm_open();
	int set[MANY], key = dup(p.s), channel[2];

	NEED(key >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, channel) == 0);
	for (int i = 0; i < MANY; i++) {
		set[i] = ep_open();
		ep_add(set[i], key, events[i], 7);
		ep_drain(set[i]);
	}
	send_fd(channel[0], p.s);
	close(key);
	for (int i = 0; i < MANY; i++)
		ep_drain(set[i]);
	close(p.s);
	send_all(p.c, "x", 1);
	for (int i = 0; i < MANY; i++)
		ep_show(set[i], events[i] ? SOON : 0);
	close(p.c);
	for (int i = 0; i < MANY; i++) {
		ep_show(set[i], events[i] ? SOON : 0);
		close(set[i]);
	}
	close(channel[0]);
	close(channel[1]);
}

/* A dead connection is TCP's from then on: what another process does with it is an edge here. */
static void shut_elsewhere(bool both_ended)
{
	struct linger now = {1, 0};
	struct signal_pipe go = signal_pipe(), done = signal_pipe();
	int channel[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		int fd = receive_fd(channel[1]);
		signal_wait(go);
		say_result("shutdown", shutdown(fd, SHUT_WR));
		signal_send(done);
		_exit(0);
	}
	struct pair p = pair_warm_open();
	int epfd = ep_open();
	if (both_ended)
		NEED(shutdown(p.s, SHUT_WR) == 0 && shutdown(p.c, SHUT_WR) == 0);
	else
		NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	close(p.c);
	wait_events(p.s, POLLHUP);
	ep_add(epfd, p.s, EPOLLIN | EPOLLET, 1);
	ep_show(epfd, 0);
	send_fd(channel[0], p.s);
	ep_drain(epfd);
	signal_send(go);
	signal_wait(done);
	ep_show(epfd, 0);
	ep_show(epfd, 0);
	say("status %d", child_status(pid));
	close(p.s);
	close(epfd);
}

CASE(dead_and_passed, DIRECT)
{
	shut_elsewhere(false);
	shut_elsewhere(true);
}

/* Until the kernel has the reset, which is asked past every library: that learns nothing by it. It
 * may have none, where the write did not go over TCP. */
static void wait_reset(int fd)
{
	struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
	socklen_t len = sizeof(info);

	for (int i = 0; i < 200 && info.tcpi_state != TCP_CLOSE; i++)
		NEED(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) ==
		     0);
}

/* What a write draws from a peer that has closed is told beside bytes that came before, however
 * soon, and whatever was asked for just before. With `both`, two processes close at one time. */
static void reset_beside_bytes(bool both)
{
	struct pair other = pair_warm_open();
	struct pollfd busy = {.fd = other.s, .events = POLLIN};
	_Atomic int *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int told = 0;

	NEED(at != MAP_FAILED);
	send_all(other.c, "x", 1);
	NEED(poll(&busy, 1, -1) == 1);
	for (int i = 0; i < 40; i++) {
		struct pair p = pair_open();
		struct pollfd f = {.fd = p.s, .events = POLLIN};
		char byte;

		/* One way: what the other end receives has never been asked for. */
		for (int k = 0; k < 10; k++) {
			send_all(p.c, "x", 1);
			NEED(recv(p.s, &byte, 1, MSG_WAITALL) == 1);
		}
		atomic_store(at, 0);
		pid_t pid = both ? fork() : -1;

		if (pid == 0) {
			NEED(close(p.s) == 0);
			atomic_store(at, 1);
			while (atomic_load(at) != 2)
				;
			NEED(close(p.c) == 0);
			_exit(0);
		}
		send_pattern(p.c, 0, 100);
		while (both && atomic_load(at) != 1)
			;
		atomic_store(at, 2);
		NEED(close(p.c) == 0);
		if (both)
			child_status(pid);
		send_all(p.s, "y", 1);
		wait_reset(p.s);
		for (int k = 0; k < 3; k++)
			NEED(poll(&busy, 1, 0) == 1);
		NEED(poll(&f, 1, 0) == 1);
		told += (f.revents & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP);
		close(p.s);
	}
	say("told %d times", told);
	munmap((void *)at, sizeof *at);
	pair_close(other);
}

CASE(reset_told_beside_bytes, DIRECT)
{
	reset_beside_bytes(false);
	reset_beside_bytes(true);
}
