/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a new image gets a connection with bytes unread while another process has it, too, and reads nothing. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/read_end.h"

/* In the window of a fresh connection on 6.1. */
#define UNREAD 60000

/* Where the new image finds the connection, and what lets the holder go, and tells that it has gone. */
enum { CONN = 7, RELEASE, GONE };
/* Who else has it. KILLED: a child that this process has not waited for. */
enum how { ONE, BRIEFLY, CROWD, KILLED };
#define CROWD_MORE 8

/* How it has ended for the sender is the status. */
static void judging_peer(int fd, void *arg)
{
	uint8_t byte;

	send_pattern(fd, 0, UNREAD);
	shutdown(fd, SHUT_WR);
	signal_send(*(struct signal_pipe *)arg);
	_exit(read(fd, &byte, 1) == 0 ? ALL_CAME : IS_TOLD);
}

static void killed_holder(void)
{
	struct signal_pipe begun = signal_pipe();
	siginfo_t info;
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		signal_send(begun);
		pause();
		_exit(0);
	}
	signal_wait(begun);
	NEED(kill(pid, SIGKILL) == 0);
	NEED(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}

/* No child of this process, which does not wait for it. */
static void holder_start(int fd, enum how how, int release[2])
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		if (fork())
			_exit(0);
		close(release[1]);
		for (int i = 0; i < CROWD_MORE && how == CROWD && fork() > 0; i++)
			;
		if (how == BRIEFLY) {
			usleep(50000);
			close(fd);
		}
		(void)!read(release[0], &(char){0}, 1);
		_exit(0);
	}
	NEED(child_status(pid) == 0);
}

static void place(int from, int to)
{
	int high = fcntl(from, F_DUPFD, 20);

	NEED(high >= 0 && close(from) == 0 && dup2(high, to) == to && close(high) == 0);
}

static void leave(const char *name, enum how how)
{
	struct signal_pipe sent = signal_pipe();
	int release[2], gone[2];
	char text[16];
	pid_t peer;
	int fd = peer_start(judging_peer, &sent, &peer);

	signal_wait(sent);
	wait_events(fd, POLLRDHUP);
	NEED(pipe(release) == 0 && pipe(gone) == 0);
	if (how == KILLED)
		killed_holder();
	else
		holder_start(fd, how, release);
	close(release[0]);
	close(gone[1]);
	fd = fcntl(fd, F_DUPFD, 30);
	release[1] = fcntl(release[1], F_DUPFD, 30);
	gone[0] = fcntl(gone[0], F_DUPFD, 30);
	for (int i = 3; i < 30; i++)
		close(i);
	place(fd, CONN);
	place(release[1], RELEASE);
	place(gone[0], GONE);
	snprintf(text, sizeof(text), "%d", peer);
	NEED(setenv("HELD_PEER", text, 1) == 0);
	execl("/proc/self/exe", "cases", name, (char *)NULL);
	broken("exec");
}

static void held(const char *name, enum how how)
{
	const char *peer = getenv("HELD_PEER");

	if (!peer)
		leave(name, how);
	int reader = read_end(CONN, UNREAD);
	close(RELEASE);
	NEED(read(GONE, &(char){0}, 1) == 0);
	close(CONN);
	int sender = child_status(atoi(peer));
	bool good = reader == sender && (reader == ALL_CAME || reader == IS_TOLD);
	say("%s", good ? "all has come, or both are told" : "one of them is not told");
}

CASE(carry_held, DIRECT)
{
	held("carry_held", ONE);
}

CASE(carry_held_briefly, DIRECT)
{
	held("carry_held_briefly", BRIEFLY);
}

CASE(carry_held_by_a_crowd, DIRECT)
{
	held("carry_held_by_a_crowd", CROWD);
}

CASE(carry_held_by_the_dead, DIRECT)
{
	held("carry_held_by_the_dead", KILLED);
}
