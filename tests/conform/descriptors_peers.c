/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the same as descriptors.c, with the other ends in another process. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/descriptors.h"

static int taken[2 * LIMIT];

/* Echoes on all until they are closed, from a poll that never ends by itself. */
static void echo_all(const int *fds, int count)
{
	struct pollfd set[LIMIT];
	char buf[4096];
	for (int i = 0; i < count; i++)
		set[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	for (int left = count; left > 0;) {
		NEED(poll(set, (nfds_t)count, -1) > 0);
		for (int i = 0; i < count; i++) {
			if (set[i].fd < 0 || !set[i].revents)
				continue;
			ssize_t n = recv(set[i].fd, buf, sizeof buf, 0);
			NEED(n >= 0);
			if (n > 0) {
				send_all(set[i].fd, buf, (size_t)n);
				continue;
			}
			NEED(close(set[i].fd) == 0);
			set[i].fd = -1;
			left--;
		}
	}
}

static pid_t echo_start(uint16_t port, int listener, int count, rlim_t limit)
{
	int fds[LIMIT];
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid > 0)
		return pid;
	say_as("peer");
	close(listener);
	set_limit(limit);
	for (int i = 0; i < count; i++)
		fds[i] = connect_to(AF_INET, port);
	echo_all(fds, count);
	say("done");
	exit(0);
}

static void echo_turns(const int *fds, int count, int times)
{
	for (int turn = 0; turn < times; turn++)
		for (int i = 0; i < count; i++) {
			send_pattern(fds[i], (uint64_t)turn, 64);
			recv_pattern(fds[i], (uint64_t)turn, 64);
		}
}

static void two_processes(int (*make)(int *fds), int unread)
{
	int fds[LIMIT], conns = 2 * PAIRS;
	uint16_t port;
	set_limit(LIMIT);
	int listener = listen_any(AF_INET, &port);
	pid_t pid = echo_start(port, listener, conns, LIMIT);
	for (int i = 0; i < conns; i++) {
		fds[i] = accept(listener, NULL, NULL);
		NEED(fds[i] >= 0);
	}
	echo_turns(fds, conns, 40);
	for (int i = 0; i < conns && unread; i++) {
		send_pattern(fds[i], 0, (size_t)unread);
		wait_inq(fds[i], unread);
	}
	int count = fill(make, taken);
	for (int i = 0; i < conns && unread; i++)
		recv_pattern(fds[i], 0, (size_t)unread);
	echo_turns(fds, conns, 3);
	empty(taken, count);
	echo_turns(fds, conns, 3);
	empty(fds, conns);
	say("status %d", child_status(pid));
}

CASE(descriptors_peers, DIRECT)
{
	two_processes(make_dup, 0);
}

CASE(descriptors_peers_pipe, DIRECT)
{
	two_processes(make_pipe, 0);
}

CASE(descriptors_peers_unread, DIRECT)
{
	two_processes(make_socket, UNREAD);
}

/* A server that accepts until it can no more; those beyond wait in the queue. */
CASE(descriptors_peers_accept, DIRECT)
{
	int fds[LIMIT], count = 0, before;
	uint16_t port;
	set_limit(LIMIT);
	int listener = listen_any(AF_INET, &port);
	NEED(listen(listener, LIMIT) == 0); /* all of them wait there */
	pid_t pid = echo_start(port, listener, LIMIT - 4, 1024);
	while ((fds[count] = accept(listener, NULL, NULL)) >= 0) {
		count++;
		echo_turns(fds + count - 1, 1, 40);
		if (count == LIMIT - 16)
			break;
	}
	echo_turns(fds, count, 2);
	before = count;
	while (count < LIMIT - 4 && (fds[count] = accept(listener, NULL, NULL)) >= 0)
		count++;
	say("%d accepted, then %s", count, count < LIMIT - 4 ? errno_name(errno) : "all");
	echo_turns(fds, count, 2);
	empty(fds, before);
	while (count < LIMIT - 4)
		NEED((fds[count++] = accept(listener, NULL, NULL)) >= 0);
	echo_turns(fds + before, count - before, 2);
	empty(fds + before, count - before);
	say("status %d", child_status(pid));
}

/* The clients leave each connection alone once it is warm: nobody there waits for anything. */
static void idle_clients(uint16_t port, int count)
{
	int fds[LIMIT];
	set_limit(1024);
	for (int i = 0; i < count; i++) {
		fds[i] = connect_to(AF_INET, port);
		warm_first(fds[i]);
	}
	for (int i = 0; i < count; i++)
		warm_first(fds[i]);
	empty(fds, count);
	exit(0);
}

CASE(descriptors_peers_idle, DIRECT)
{
	int fds[LIMIT], count = LIMIT - 8, error;
	uint16_t port;
	set_limit(LIMIT);
	int listener = listen_any(AF_INET, &port);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		idle_clients(port, count);
	for (int i = 0; i < count; i++) {
		fds[i] = accept(listener, NULL, NULL);
		say_result("accept", fds[i]);
		NEED(fds[i] >= 0);
		warm_second(fds[i]);
	}
	for (int i = 0; i < count; i++)
		warm_second(fds[i]);
	for (int i = 0; i < count; i++)
		NEED(recv_to_end(fds[i], &error) == 0 && error == 0);
	say("status %d", child_status(pid));
}

/* A process that began with so few has all of them, connections or not. */
CASE(few_from_the_beginning, ANYWAY)
{
	const struct rlimit few = {48, 48};
	int fd, count = 0, last = -1;
	if (!getenv("FEW")) {
		say_result("onto a number", dup2(0, 1000) == 1000 ? 0 : -1);
		say_result("close", close(1000));
		NEED(setenv("FEW", "1", 1) == 0 && setrlimit(RLIMIT_NOFILE, &few) == 0);
		for (fd = 3; fd < 48; fd++)
			close(fd);
		execl("/proc/self/exe", "cases", "few_from_the_beginning", (char *)NULL);
		broken("exec");
	}
	say_result("onto the last", dup2(0, 47) == 47 ? 0 : -1);
	say_result("close", close(47));
	while ((fd = open("/dev/null", O_RDONLY)) >= 0) {
		last = fd > last ? fd : last; /* their order may differ */
		count++;
	}
	say_result("open", fd);
	say("%d, the highest %d", count, last);
}
