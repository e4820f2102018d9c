/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a connection that goes on in another image or another process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- exec ---- */

/* In the window of a fresh connection on Linux 6.1. */
#define UNREAD 60000

/* Its bytes lie unread at the other end when that is handed over; it waits in a receive. */
static void echo_peer(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	int error;
	send_pattern(fd, 0, UNREAD);
	signal_send(*sent);
	recv_pattern(fd, 0, UNREAD);
	shutdown(fd, SHUT_WR);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
}

/* Runs a line of the shell in a child: fd is its 7, and out its 6. Returns the child. */
static pid_t shell_start(int fd, int out, const char *line)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		int high = fcntl(fd, F_DUPFD, 20);
		NEED(high >= 0 && dup2(out, 6) == 6 && dup2(high, 7) == 7);
		close(high);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(9);
	}
	return pid;
}

static void exec_with_peer(void (*peer)(int fd, void *arg), const char *line)
{
	struct signal_pipe sent = signal_pipe();
	pid_t pid;
	int fd = peer_start(peer, &sent, &pid);
	signal_wait(sent);
	wait_inq(fd, UNREAD);
	pid_t child = shell_start(fd, 2, line);
	close(fd);
	say("status %d", child_status(child));
	say("status %d", child_status(pid));
}

CASE(exec_itself, DIRECT)
{
	exec_with_peer(echo_peer, "exec cat <&7 >&7");
}

CASE(exec_keeps_it, DIRECT)
{
	struct signal_pipe sent = signal_pipe();
	pid_t peer;
	int fd = peer_start(echo_peer, &sent, &peer);
	signal_wait(sent);
	wait_inq(fd, UNREAD);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		closefrom(3);
		execl("/bin/cat", "cat", (char *)NULL);
		_exit(9);
	}
	close(fd);
	say("status %d", child_status(pid));
	say("status %d", child_status(peer));
}

/* The same from a loop that is called for each event, and never blocks in a receive. */
static void echo_loop(int fd, int (*next)(int fd, int epfd), int epfd)
{
	static uint8_t buf[4096];
	uint64_t off = 0;
	ssize_t r;
	for (;;) {
		NEED(next(fd, epfd) & POLLIN);
		while ((r = recv(fd, buf, sizeof buf, 0)) > 0)
			for (ssize_t i = 0; i < r; i++)
				NEED(buf[i] == pattern(off++));
		if (r == 0)
			break;
		NEED(errno == EAGAIN);
		if (off == UNREAD)
			shutdown(fd, SHUT_WR);
	}
	say("got %lu", (unsigned long)off);
}

static int next_of_poll(int fd, int epfd)
{
	(void)epfd;
	return wait_events(fd, POLLIN);
}

static int next_of_epoll(int fd, int epfd)
{
	struct epoll_event ev;
	(void)fd;
	NEED(epoll_wait(epfd, &ev, 1, -1) == 1);
	return (int)ev.events;
}

static void poll_peer(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	send_pattern(fd, 0, UNREAD);
	nonblock(fd, true);
	signal_send(*sent);
	echo_loop(fd, next_of_poll, -1);
}

static void epoll_peer(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int epfd = epoll_create1(0);
	NEED(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
	send_pattern(fd, 0, UNREAD);
	nonblock(fd, true);
	signal_send(*sent);
	echo_loop(fd, next_of_epoll, epfd);
}

CASE(exec_peer_polls, DIRECT)
{
	exec_with_peer(poll_peer, "exec cat <&7 >&7");
}

CASE(exec_peer_epolls, DIRECT)
{
	exec_with_peer(epoll_peer, "exec cat <&7 >&7");
}

static void closing_peer(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	char byte;
	send_pattern(fd, 0, UNREAD);
	signal_send(*sent);
	recv_all(fd, &byte, 1);
	say("answered %c", byte);
}

/* The new image answers first, and only then reads; its peer has closed by then. */
CASE(exec_peer_closes, DIRECT)
{
	exec_with_peer(closing_peer, "printf x >&7; test $(cat <&7 | wc -c) = 60000");
}

/* Two readers: the child takes what it wants, and its parent reads on. */
CASE(exec_shared, DIRECT)
{
	struct signal_pipe sent = signal_pipe();
	pid_t peer;
	int fd = peer_start(echo_peer, &sent, &peer);
	signal_wait(sent);
	wait_inq(fd, UNREAD);
	pid_t child = shell_start(
		fd, 2, "exec dd bs=1000 count=40 iflag=fullblock status=none <&7 >&7");
	say("status %d", child_status(child));
	recv_pattern(fd, 40000, UNREAD - 40000);
	send_pattern(fd, 40000, UNREAD - 40000);
	close(fd);
	say("status %d", child_status(peer));
}

#define FULL (8u << 20)

static void full_peer(int fd, void *arg)
{
	(void)arg;
	send_pattern(fd, 0, FULL);
	shutdown(fd, SHUT_WR);
	wait_events(fd, POLLHUP | POLLERR | POLLRDHUP);
}

/* Bytes that the new image read, with what must be its end when there are less. */
static uint64_t read_by_child(int fd, pid_t peer)
{
	struct signal_pipe out = signal_pipe();
	static uint8_t buf[65536];
	uint64_t got = 0;
	wait_asleep(peer, peer);
	pid_t child = shell_start(fd, out.fd[1], "exec cat <&7 >&6 2>/dev/null");
	close(fd);
	close(out.fd[1]);
	for (ssize_t r; (r = read(out.fd[0], buf, sizeof buf)) > 0;)
		for (ssize_t i = 0; i < r; i++)
			NEED(buf[i] == pattern(got++));
	int status = child_status(child);
	say("lost in silence: %d", status == 0 && got != FULL);
	return got;
}

/* The sender sleeps in the middle of a blocking send; its ring is full. */
CASE(exec_peer_full, DIRECT)
{
	pid_t peer;
	if (!getenv("VIADUCT_RING_MAX")) {
		/* A full ring of the largest size is more than a socket's buffer takes. */
		setenv("VIADUCT_RING_MAX", "256K", 1);
		execl("/proc/self/exe", "cases", "exec_peer_full", (char *)NULL);
		broken("exec");
	}
	int fd = peer_start(full_peer, NULL, &peer);
	say("got %lu", (unsigned long)read_by_child(fd, peer));
	say("status %d", child_status(peer));
}

/* Its sender may be told of the error. */
static void too_full_peer(int fd, void *arg)
{
	static uint8_t buf[65536];
	uint64_t sent = 0;
	ssize_t n = 0;
	(void)arg;
	for (; sent < FULL && n >= 0; sent += n > 0 ? (uint64_t)n : 0) {
		for (size_t i = 0; i < sizeof buf; i++)
			buf[i] = pattern(sent + i);
		n = send(fd, buf, FULL - sent < sizeof buf ? FULL - sent : sizeof buf,
			 MSG_NOSIGNAL);
	}
	shutdown(fd, SHUT_WR);
	wait_events(fd, POLLHUP | POLLERR | POLLRDHUP);
}

/* More than TCP takes at once is not sent again: then it is an error. */
CASE(exec_peer_too_full, DIRECT)
{
	pid_t peer;
	int fd = peer_start(too_full_peer, NULL, &peer);
	read_by_child(fd, peer);
	child_status(peer);
}

static void waiting_peer(int fd, void *arg)
{
	struct signal_pipe *pipes = arg;
	send_pattern(fd, 0, UNREAD);
	signal_send(pipes[0]);
	signal_wait(pipes[1]);
	recv_pattern(fd, 0, 1000);
	send_pattern(fd, 0, 1000);
}

/* The image that a child of vfork becomes leaves it alone: the parent has it as before. */
CASE(exec_after_vfork, DIRECT)
{
	struct signal_pipe pipes[] = {signal_pipe(), signal_pipe()};
	pid_t peer;
	int fd = peer_start(waiting_peer, pipes, &peer);
	signal_wait(pipes[0]);
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(9);
	}
	say("status %d", child_status(pid));
	recv_pattern(fd, 0, UNREAD);
	signal_send(pipes[1]);
	send_pattern(fd, 0, 1000);
	recv_pattern(fd, 0, 1000);
	say("status %d", child_status(peer));
}

static void send_and_end(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	send_pattern(fd, 0, 100000);
	shutdown(fd, SHUT_WR);
	signal_send(*sent);
	wait_events(fd, POLLHUP | POLLERR | POLLRDHUP);
}

/*
 * What lies unread where the new image cannot reach it may end the connection with an
 * error, but a part of the stream must never look like all of it.
 */
CASE(exec_with_unread, ANYWAY)
{
	struct signal_pipe sent = signal_pipe();
	uint64_t got = 0;
	char buf[4096];
	pid_t peer;
	int fd = peer_start(send_and_end, &sent, &peer);
	struct signal_pipe out = signal_pipe();
	signal_wait(sent);
	pid_t pid = fork();
	if (pid == 0) {
		char text[100];
		snprintf(text, sizeof text, "cat <&%d >&%d 2>/dev/null", fd, out.fd[1]);
		close(out.fd[0]);
		execl("/bin/sh", "sh", "-c", text, (char *)NULL);
		_exit(9);
	}
	close(out.fd[1]);
	for (ssize_t r; (r = read(out.fd[0], buf, sizeof buf)) > 0;)
		got += (uint64_t)r;
	int status = child_status(pid);
	say("lost in silence: %d", status == 0 && got != 100000);
	close(fd);
	child_status(peer);
}

static void stopped_peer(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	size_t before = sent ? UNREAD : 0;
	uint8_t buf[1000];
	send_pattern(fd, 0, before);
	if (sent)
		signal_send(*sent);
	raise(SIGSTOP);
	for (size_t off = before; off < before + UNREAD; off += sizeof buf) {
		for (size_t i = 0; i < sizeof buf; i++)
			buf[i] = pattern(off + i);
		if (send(fd, buf, sizeof buf, MSG_NOSIGNAL) != sizeof buf)
			exit(0); /* as it may be: the connection was given up */
	}
	shutdown(fd, SHUT_WR);
	wait_events(fd, POLLHUP | POLLERR | POLLRDHUP);
}

/* A peer that does nothing while the connection is handed over, and goes on after it. */
static void exec_with_stopped(struct signal_pipe *sent, size_t before, bool exact)
{
	uint64_t got = 0;
	uint8_t buf[4096];
	pid_t peer;
	int fd = peer_start(stopped_peer, sent, &peer), status;
	struct signal_pipe out = signal_pipe(), done = signal_pipe();
	if (sent)
		signal_wait(*sent);
	NEED(waitpid(peer, &status, WUNTRACED) == peer && WIFSTOPPED(status));
	wait_inq(fd, (int)before);
	/* Out of the way of the numbers that the shell is given. */
	int until_exec = fcntl(done.fd[1], F_DUPFD_CLOEXEC, 30);
	NEED(until_exec >= 0);
	close(done.fd[1]);
	pid_t child = shell_start(fd, out.fd[1], "exec cat <&7 >&6 2>/dev/null");
	close(out.fd[1]);
	close(until_exec);
	close(fd);
	NEED(read(done.fd[0], buf, 1) == 0); /* it is another image now */
	kill(peer, SIGCONT);
	for (ssize_t r; (r = read(out.fd[0], buf, sizeof buf)) > 0;)
		for (ssize_t i = 0; i < r; i++)
			NEED(buf[i] == pattern(got++));
	status = child_status(child);
	say("lost in silence: %d", status == 0 && got != before + UNREAD);
	if (exact)
		say("got %lu", (unsigned long)got);
	child_status(peer);
}

CASE(exec_peer_stopped, DIRECT)
{
	struct signal_pipe sent = signal_pipe();
	exec_with_stopped(&sent, UNREAD, false);
}

CASE(exec_peer_stopped_idle, DIRECT)
{
	exec_with_stopped(NULL, 0, true);
}

static int failed_exec(struct pair p)
{
	pid_t pid = fork();
	if (pid == 0) {
		char *argv[] = {"none", NULL};
		execv("/nonexistent/none", argv);
		send_all(p.c, "failed", 6);
		_exit(3);
	}
	return child_status(pid);
}

CASE(exec_fails, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = "", *argv[] = {"none", NULL};
	say("status %d", failed_exec(p));
	recv_all(p.s, buf, 6);
	say("%s", buf);
	say_result("execv", execv("/nonexistent/none", argv));
	pair_warm(p);
	pair_close(p);
}

static void echo_then_reset(int fd, void *arg)
{
	char buf[8];
	(void)arg;
	warm_second(fd);
	send_all(fd, "abc", 3);
	say_result("recv", recv(fd, buf, 8, 0));
}

/* A child that runs another program, and the socket closed on the way, is no holder of it. */
CASE(child_of_another_program, DIRECT)
{
	pid_t child, peer;
	struct signal_pipe in = signal_pipe(), out = signal_pipe();
	char buf[8];
	int fd = peer_start_cold(echo_then_reset, NULL, &peer);
	NEED(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
	child = fork();
	if (child == 0) {
		dup2(in.fd[0], 0);
		dup2(out.fd[1], 1);
		close(in.fd[1]);
		execl("/bin/cat", "cat", (char *)NULL);
		_exit(9);
	}
	NEED(write(in.fd[1], "x", 1) == 1 && read(out.fd[0], buf, 1) == 1);
	warm_first(fd);
	wait_inq(fd, 3);
	close(fd); /* with bytes unread: a reset, while the child lives */
	say("status %d", child_status(peer));
	close(in.fd[1]);
	say("status %d", child_status(child));
}

/* ---- passed to another process ---- */

static void passed(bool warm)
{
	int channel[2], error;
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		close(channel[0]);
		int fd = receive_fd(channel[1]);
		char buf[8];
		recv_all(fd, buf, 5);
		say("%.5s", buf);
		send_pattern(fd, 0, 50000);
		say("got %lu", (unsigned long)recv_to_end(fd, &error));
		_exit(0);
	}
	struct pair p = warm ? pair_warm_open() : pair_open();
	send_fd(channel[0], p.s);
	close(p.s);
	send_all(p.c, "first", 5);
	send_pattern(p.c, 0, 50000);
	shutdown(p.c, SHUT_WR);
	say("got %lu", (unsigned long)recv_to_end(p.c, &error));
	say("status %d", child_status(pid));
	close(p.c);
}

CASE(passed_cold, ANYWAY)
{
	passed(false);
}

CASE(passed_warm, ANYWAY)
{
	passed(true);
}

CASE(passed_with_unread, ANYWAY)
{
	int channel[2], error;
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		uint64_t got = 0;
		char buf[4096];
		ssize_t r;
		say_as("child");
		close(channel[0]);
		int fd = receive_fd(channel[1]);
		while ((r = recv(fd, buf, sizeof buf, 0)) > 0)
			got += (uint64_t)r;
		say("lost in silence: %d", r == 0 && got != 50000);
		_exit(0);
	}
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 50000);
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLRDHUP);
	send_fd(channel[0], p.s);
	close(p.s);
	recv_to_end(p.c, &error);
	say("status %d", child_status(pid));
	close(p.c);
}

static void receive_and_echo(int channel)
{
	int fd = receive_fd(channel), error;
	say_as("child");
	recv_pattern(fd, 0, UNREAD);
	send_pattern(fd, 0, UNREAD);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
	_exit(0);
}

CASE(passed_unread, DIRECT)
{
	struct signal_pipe sent = signal_pipe();
	int channel[2];
	pid_t peer;
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t child = fork();
	if (child == 0)
		receive_and_echo(channel[1]);
	int fd = peer_start(echo_peer, &sent, &peer);
	signal_wait(sent);
	wait_inq(fd, UNREAD);
	send_fd(channel[0], fd);
	close(fd);
	say("status %d", child_status(child));
	say("status %d", child_status(peer));
}

static void answers(int fd, void *arg)
{
	char byte;
	(void)arg;
	while (recv(fd, &byte, 1, 0) == 1)
		send_all(fd, &byte, 1);
}

/* The instance, and not the socket in it: its receiver gets the program's data. */
CASE(pass_an_epoll_instance, DIRECT)
{
	int channel[2];
	struct signal_pipe told = signal_pipe();
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		struct epoll_event got = {0};
		say_as("child");
		int ep = receive_fd(channel[1]);
		say_result("wait", epoll_wait(ep, &got, 1, -1));
		say("%s, data %lu", poll_names((int)got.events),
		    (unsigned long)got.data.u64);
		signal_send(told);
		exit(0);
	}
	pid_t peer;
	int fd = peer_start(answers, NULL, &peer);
	struct epoll_event want = {.events = EPOLLIN, .data.u64 = 42}, got = {0};
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &want) == 0);
	send_all(fd, "a", 1);
	recv_all(fd, &got, 1);
	say_result("nothing yet", epoll_wait(ep, &got, 1, 0));
	send_fd(channel[0], ep);
	send_all(fd, "b", 1);
	signal_wait(told);
	say_result("here too", epoll_wait(ep, &got, 1, -1));
	say("%s, data %lu", poll_names((int)got.events), (unsigned long)got.data.u64);
	say("status %d", child_status(child));
	recv_all(fd, &got, 1);
	close(ep);
	close(fd);
	say("status %d", child_status(peer));
}
