/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a connection that goes on in another image or another process. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- exec ---- */

static void echo_peer(int fd, void *arg)
{
	char ready[6];
	int error;
	(void)arg;
	/* Ring bytes that are unread at an exec cannot follow: see README, what is not done. */
	recv_all(fd, ready, 6);
	send_pattern(fd, 0, 100000);
	shutdown(fd, SHUT_WR);
	say("echoed %lu", (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
}

CASE(exec_keeps_it, ANYWAY)
{
	pid_t peer;
	int fd = peer_start(echo_peer, NULL, &peer);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		closefrom(3);
		execl("/bin/sh", "sh", "-c", "echo ready; exec cat", (char *)NULL);
		_exit(9);
	}
	close(fd);
	say("status %d", child_status(pid));
	say("status %d", child_status(peer));
}

CASE(exec_itself, ANYWAY)
{
	pid_t peer;
	int fd = peer_start(echo_peer, NULL, &peer);
	pid_t pid = fork();
	if (pid == 0) {
		char text[100];
		snprintf(text, sizeof text, "(echo ready; exec cat) <&%d >&%d", fd, fd);
		execl("/bin/sh", "sh", "-c", text, (char *)NULL);
		_exit(9);
	}
	close(fd);
	say("status %d", child_status(pid));
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

/* ---- passed to another process ---- */

static void send_fd(int channel, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	NEED(sendmsg(channel, &msg, 0) == 1);
}

static int receive_fd(int channel)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	int fd;
	NEED(recvmsg(channel, &msg, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
	return fd;
}

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
