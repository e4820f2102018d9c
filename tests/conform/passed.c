/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a passed connection: what another holder sets holds here, and a thread that reads goes on. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

#define SHORT_US 50000

static void set_blocking(int fd, bool blocking)
{
	NEED(fcntl(fd, F_SETFL, blocking ? 0 : O_NONBLOCK) == 0);
}

static void set_timeout(int fd, int us)
{
	const struct timeval tv = {0, us};

	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
}

/* Makes no call on the connection before it is told to. */
static void still(int fd, void *arg)
{
	int error;

	signal_wait(*(struct signal_pipe *)arg);
	send_all(fd, "x", 1);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
}

/* Three steps, each when it is told, and then says so. */
static void holder(int channel, struct signal_pipe step, struct signal_pipe done)
{
	int fd = receive_fd(channel);

	say_as("child");
	signal_wait(step);
	set_blocking(fd, false);
	signal_send(done);
	signal_wait(step);
	set_timeout(fd, SHORT_US);
	signal_send(done);
	signal_wait(step);
	set_blocking(fd, true);
	set_timeout(fd, 0);
	signal_send(done);
	_exit(0);
}

CASE(passed_settings, DIRECT)
{
	struct signal_pipe go = signal_pipe(), step = signal_pipe(), done = signal_pipe();
	pid_t child, peer, later;
	int channel[2], fd;
	char byte = 0;

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		holder(channel[1], step, done);
	fd = peer_start(still, &go, &peer);
	send_fd(channel[0], fd);
	signal_send(step);
	signal_wait(done);
	say_result("not blocking", recv(fd, &byte, 1, MSG_PEEK));
	set_blocking(fd, true);
	signal_send(step);
	signal_wait(done);
	say_result("for a short time", recv(fd, &byte, 1, 0));
	set_blocking(fd, false);
	signal_send(step);
	signal_wait(done);
	later = fork();
	NEED(later >= 0);
	if (later == 0) {
		usleep(2 * SHORT_US);
		signal_send(go);
		_exit(0);
	}
	say_result("blocking", recv(fd, &byte, 1, 0));
	say("%c", byte);
	close(fd);
	say("status %d", child_status(child));
	say("status %d", child_status(later));
	say("status %d", child_status(peer));
}

/* In pieces, with time for others in between. A program is started within half a second, read or not: so few pieces then. */
enum { TRAFFIC = 400000, FEW = 40000, PIECE = 2000, PIECE_US = 100 };

struct traffic {
	int fd;
	struct signal_pipe begun;
	int error;
};

static void send_traffic(void *arg)
{
	struct traffic *t = arg;

	for (size_t at = 0; at < TRAFFIC; at += PIECE)
		send_pattern(t->fd, at, PIECE);
	NEED(shutdown(t->fd, SHUT_WR) == 0);
}

static void recv_traffic(void *arg)
{
	struct traffic *t = arg;
	char buf[PIECE];
	size_t at = 0, wrong = 0;
	ssize_t n;

	while ((n = recv(t->fd, buf, sizeof(buf), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			wrong += (uint8_t)buf[i] != pattern(at + (size_t)i);
		if (at == 0)
			signal_send(t->begun);
		at += (size_t)n;
		NEED(usleep(PIECE_US) == 0);
	}
	t->error = n < 0 ? errno : 0;
	say("%zu, wrong %zu, end %s", at, wrong, errno_name(t->error));
}

static void pass_once(int fd)
{
	int channel[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	send_fd(channel[0], fd);
	close(receive_fd(channel[1]));
	close(channel[0]);
	close(channel[1]);
}

/* A program that is started with it has it. */
static void start_once(int fd)
{
	char command[64], *args[] = {"sh", "-c", command, NULL};
	pid_t child;

	snprintf(command, sizeof(command), "test -S /proc/self/fd/%d", fd);
	NEED(posix_spawn(&child, "/bin/sh", NULL, NULL, args, environ) == 0);
	say("status %d", child_status(child));
}

/* A thread reads what lies unread, which the peer will not send once more. */
static void while_it_is_read(void (*pass)(int fd))
{
	struct pair p = pair_warm_open();
	struct traffic in = {.fd = p.s, .begun = signal_pipe()};
	struct worker reader;
	int on = 1;

	send_pattern(p.c, 0, FEW);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0);
	send_pattern(p.c, FEW, PIECE);
	worker_start(&reader, recv_traffic, &in);
	signal_wait(in.begun);
	pass(p.s);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	worker_join(&reader);
	pair_close(p);
}

CASE(passed_while_it_is_read, DIRECT)
{
	while_it_is_read(pass_once);
}

CASE(passed_to_a_program_while_it_is_read, DIRECT)
{
	while_it_is_read(start_once);
}

/* One end sends, the other one receives, and both are passed meanwhile. */
CASE(passed_amid_traffic, DIRECT)
{
	for (int round = 0; round < 20; round++) {
		struct pair p = pair_warm_open();
		struct traffic in = {.fd = p.s, .begun = signal_pipe()},
			       out = {.fd = p.c};
		struct worker reader, writer;

		worker_start(&reader, recv_traffic, &in);
		worker_start(&writer, send_traffic, &out);
		signal_wait(in.begun);
		pass_once(p.s);
		pass_once(p.c);
		pass_once(p.s);
		worker_join(&writer);
		worker_join(&reader);
		pair_close(p);
	}
}

enum { UNREAD = 20, PROGRAMS = 5, SLEEPS_MOST = 200 };

static void start_true(void)
{
	char *args[] = {"true", NULL};
	struct rusage before, now;
	pid_t child;

	NEED(getrusage(RUSAGE_THREAD, &before) == 0);
	NEED(posix_spawn(&child, "/bin/true", NULL, NULL, args, environ) == 0);
	NEED(getrusage(RUSAGE_THREAD, &now) == 0);
	say("status %d, slept often: %d", child_status(child),
	    now.ru_nvcsw - before.ru_nvcsw > SLEEPS_MOST);
}

static void wait_for_end(void *arg)
{
	signal_wait(*(struct signal_pipe *)arg);
}

/* Nobody reads: what starts programs does not wait for each of them, and each time. */
CASE(passed_to_programs_with_unread, DIRECT)
{
	struct signal_pipe end = signal_pipe();
	struct pair pairs[UNREAD];
	struct worker other;

	worker_start(&other, wait_for_end, &end);
	for (int i = 0; i < UNREAD; i++) {
		pairs[i] = pair_warm_open();
		send_pattern(pairs[i].c, 0, PIECE);
		NEED(fcntl(pairs[i].c, F_SETFD, FD_CLOEXEC) == 0);
		NEED(shutdown(pairs[i].c, SHUT_WR) == 0);
	}
	for (int i = 0; i < PROGRAMS; i++)
		start_true();
	for (int i = 0; i < UNREAD; i++) {
		char buf[PIECE];

		say_result("recv", recv(pairs[i].s, buf, sizeof(buf), MSG_WAITALL));
		say_result("end", recv(pairs[i].s, buf, sizeof(buf), 0));
		pair_close(pairs[i]);
	}
	signal_send(end);
	worker_join(&other);
}
