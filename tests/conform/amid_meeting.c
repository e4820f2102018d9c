/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a child executes a program while the ends of a connection look for each other; no descriptor is left. */
#include <dirent.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* More than the library keeps for later connections. */
enum { ROUNDS = 40, KEPT = ROUNDS / 2 };

static int open_count(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	NEED(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static char *const program[] = {"true", NULL};

static void execute(void)
{
	execv("/bin/true", program);
	_exit(9);
}

static void by_fork(void)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0)
		execute();
	NEED(child_status(pid) == 0);
}

static void by_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		execute();
	NEED(child_status(pid) == 0);
}

struct peers {
	int listener;
	uint16_t port;
	struct signal_pipe go;
};

static void connect_and_rest(struct peers *p)
{
	char byte;

	for (int i = 0; i < ROUNDS; i++) {
		int fd = connect_to(AF_INET, p->port);

		send_all(fd, "abc", 3);
		signal_wait(p->go);
		shutdown(fd, SHUT_WR);
		NEED(read(fd, &byte, 1) == 0);
		close(fd);
	}
}

static void accept_and_rest(struct peers *p)
{
	char bytes[3];

	for (int i = 0; i < ROUNDS; i++) {
		int fd = accept(p->listener, NULL, NULL);

		signal_wait(p->go);
		recv_all(fd, bytes, sizeof(bytes));
		close(fd);
	}
}

static pid_t start(void (*peer)(struct peers *p), struct peers *p)
{
	pid_t pid;

	*p = (struct peers){.go = signal_pipe()};
	p->listener = listen_any(AF_INET, &p->port);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		peer(p);
		_exit(0);
	}
	return pid;
}

static void say_left(int before, pid_t peer)
{
	int left = open_count() - before;

	say("peer ended with %d", child_status(peer));
	say("%s", left < KEPT ? "none is left" : "some are left");
}

/* This end has published a name. */
static void connecting(void (*child)(void))
{
	struct peers p;
	pid_t peer = start(accept_and_rest, &p);
	int before = open_count();
	char byte;

	for (int i = 0; i < ROUNDS; i++) {
		int fd = connect_to(AF_INET, p.port);

		for (int j = 0; j < 3; j++)
			send_all(fd, "x", 1);
		child();
		signal_send(p.go);
		NEED(read(fd, &byte, 1) == 0);
		close(fd);
	}
	say_left(before, peer);
}

/* This end has offered a segment. */
static void accepting(void (*child)(void))
{
	struct peers p;
	pid_t peer = start(connect_and_rest, &p);
	int before = open_count();
	char byte;

	for (int i = 0; i < ROUNDS; i++) {
		int fd = accept(p.listener, NULL, NULL);

		for (int j = 0; j < 3; j++)
			recv_all(fd, &byte, 1);
		child();
		signal_send(p.go);
		NEED(read(fd, &byte, 1) == 0);
		close(fd);
	}
	say_left(before, peer);
}

CASE(amid_meeting_connecting_fork, ANYWAY)
{
	connecting(by_fork);
}

CASE(amid_meeting_connecting_vfork, ANYWAY)
{
	connecting(by_vfork);
}

CASE(amid_meeting_accepting_fork, ANYWAY)
{
	accepting(by_fork);
}

CASE(amid_meeting_accepting_vfork, ANYWAY)
{
	accepting(by_vfork);
}

/* The listener is closed: its hint stays as long as the connection may be looked for. */
CASE(amid_meeting_listener_vfork, ANYWAY)
{
	int before = open_count();

	for (int i = 0; i < ROUNDS; i++) {
		uint16_t port;
		int listener = listen_any(AF_INET, &port);
		struct pair p = {.c = connect_to(AF_INET, port)};

		p.s = accept(listener, NULL, NULL);
		NEED(p.s >= 0 && close(listener) == 0);
		by_vfork();
		pair_close(p);
	}
	say("%s", open_count() - before < KEPT ? "none is left" : "some are left");
}
