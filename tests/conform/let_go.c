/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: several let go of a connection at once, with bytes unread, after the
 * sender has shut down. Whoever is the last has to say so. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/reg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/read_end.h"

/* In the window of a fresh connection on 6.1. */
#define UNREAD 30000
/* Where the new image finds the connection. */
#define CONN 7

extern char **environ;

static void shutting_peer(int fd, void *arg)
{
	char byte;

	send_pattern(fd, 0, UNREAD);
	NEED(shutdown(fd, SHUT_WR) == 0);
	signal_send(*(struct signal_pipe *)arg);
	_exit(read(fd, &byte, 1) == 0 ? ALL_CAME : IS_TOLD);
}

static int open_unread(pid_t *peer)
{
	struct signal_pipe sent = signal_pipe();
	int fd = peer_start(shutting_peer, &sent, peer);

	signal_wait(sent);
	wait_events(fd, POLLRDHUP);
	return fd;
}

/* ---- a new image gives it up while another holder ends ---- */

static pid_t holder_start(int release)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		(void)!read(release, &(char){0}, 1);
		_exit(0);
	}
	return pid;
}

/* It is stopped at each call: before its exec gives the number another file, and at the
 * latest behind it. */
static void run_until_given_up(pid_t heir)
{
	int status;

	NEED(waitpid(heir, &status, 0) == heir && WIFSTOPPED(status));
	NEED(ptrace(PTRACE_SETOPTIONS, heir, NULL,
		    (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC)) == 0);
	for (;;) {
		NEED(ptrace(PTRACE_SYSCALL, heir, NULL, NULL) == 0);
		NEED(waitpid(heir, &status, 0) == heir && WIFSTOPPED(status));
		long call = ptrace(PTRACE_PEEKUSER, heir, ORIG_RAX * sizeof(long), NULL);
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8) ||
		    (WSTOPSIG(status) == (SIGTRAP | 0x80) &&
		     (call == SYS_dup2 || call == SYS_dup3)))
			return;
	}
}

static pid_t heir_start(int fd, int release)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid != 0)
		return pid;
	NEED(close(release) == 0);
	NEED(dup2(fd, CONN) == CONN && (fd == CONN || close(fd) == 0));
	NEED(setenv("LET_GO", "1", 1) == 0);
	NEED(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	execl("/proc/self/exe", "cases", "let_go_at_exec", (char *)NULL);
	broken("exec");
}

CASE(let_go_at_exec, DIRECT)
{
	int release[2], fd, reader, sender;
	pid_t peer, holder, heir;

	if (getenv("LET_GO"))
		_exit(read_end(CONN, UNREAD));
	fd = open_unread(&peer);
	NEED(pipe2(release, O_CLOEXEC) == 0);
	holder = holder_start(release[0]);
	heir = heir_start(fd, release[1]);
	NEED(close(fd) == 0);
	run_until_given_up(heir);
	/* The holder has its end of the pipe, too: a byte. */
	NEED(write(release[1], "x", 1) == 1);
	NEED(child_status(holder) == 0);
	NEED(ptrace(PTRACE_DETACH, heir, NULL, NULL) == 0);
	reader = child_status(heir);
	sender = child_status(peer);
	say("%s", reader == sender && (reader == ALL_CAME || reader == IS_TOLD)
			  ? "all has come, or both are told"
			  : "one of them is not told");
}

/* ---- one thread closes it while another starts a program with it ---- */

static void *spawn_true(void *arg)
{
	char *args[] = {"true", NULL};
	pid_t pid;

	*(_Atomic bool *)arg = true;
	NEED(posix_spawnp(&pid, "true", NULL, NULL, args, environ) == 0);
	NEED(child_status(pid) == 0);
	return NULL;
}

CASE(let_go_amid_a_start, DIRECT)
{
	_Atomic bool begun = false;
	pid_t peers[2];
	int fds[2];
	pthread_t t;

	for (int i = 0; i < 2; i++) {
		fds[i] = open_unread(&peers[i]);
		wait_asleep(peers[i], peers[i]);
		NEED(kill(peers[i], SIGSTOP) == 0);
		wait_in_state(peers[i], peers[i], "T");
	}
	NEED(pthread_create(&t, NULL, spawn_true, (void *)&begun) == 0);
	while (!begun)
		usleep(100);
	usleep(100000); /* for the start to be amid its wait, where it has one */
	NEED(close(fds[1]) == 0);
	NEED(pthread_join(t, NULL) == 0);
	NEED(close(fds[0]) == 0);
	/* The second one has the first connection, too, by its fork. */
	for (int i = 1; i >= 0; i--) {
		NEED(kill(peers[i], SIGCONT) == 0);
		say("%s", child_status(peers[i]) == IS_TOLD ? "told" : "not told");
	}
}
