/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a child gets a connection whose unread bytes only its parent can reach, or all of it.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

#define UNREAD 100000
#define NUMBER 9 /* of the connection in the child; a shell knows no higher ones */

extern char **environ;

/* A child whose standard output is a pipe, and what it writes there. */
struct reader {
	int fd, out;
	bool inherited; /* under its own number, else under NUMBER */
	const char *command;
};

static char *const *arguments(const struct reader *r)
{
	static char *argv[] = {"sh", "-c", NULL, NULL};
	static char text[100];
	snprintf(text, sizeof(text), "exec 2>/dev/null; %s <&%d >&%d", r->command,
		 r->inherited ? r->fd : NUMBER, r->out);
	argv[2] = text;
	return argv;
}

static int by_vfork(const struct reader *r)
{
	char *const *argv = arguments(r);
	pid_t pid = vfork();
	if (pid == 0) {
		if (!r->inherited)
			dup2(r->fd, NUMBER);
		execv("/bin/sh", argv);
		_exit(99);
	}
	return child_status(pid);
}

static int by_spawn(const struct reader *r)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	posix_spawn_file_actions_init(&actions);
	if (!r->inherited)
		posix_spawn_file_actions_adddup2(&actions, r->fd, NUMBER);
	NEED(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments(r), environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	return child_status(pid);
}

static int by_system(const struct reader *r)
{
	return system(arguments(r)[2]);
}

static int by_popen(const struct reader *r)
{
	FILE *f = popen(arguments(r)[2], "r");
	NEED(f);
	return pclose(f);
}

/* Both ways first, so that the connection is upgraded; then what nobody reads here. */
static void send_and_end(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	recv_pattern(fd, 0, 1000);
	send_pattern(fd, 0, 1000);
	send_pattern(fd, 0, UNREAD);
	shutdown(fd, SHUT_WR);
	signal_send(*sent);
	wait_events(fd, POLLHUP | POLLERR | POLLRDHUP);
}

/* A part of the stream must never look like all of it; and the parent has it as before. */
static void reads_what_ended(int (*start)(const struct reader *r), bool inherited)
{
	struct signal_pipe sent = signal_pipe();
	uint64_t got = 0, rest = 0;
	char buf[4096];
	pid_t peer;
	int fd = peer_start(send_and_end, &sent, &peer), status;
	send_pattern(fd, 0, 1000);
	recv_pattern(fd, 0, 1000);
	signal_wait(sent);
	fcntl(fd, F_SETFD, inherited ? 0 : FD_CLOEXEC);
	struct signal_pipe out = signal_pipe();
	/* The pipe has room for no more. */
	status = start(&(struct reader){.fd = fd,
					.out = out.fd[1],
					.inherited = inherited,
					.command = "head -c 60000"});
	close(out.fd[1]);
	for (ssize_t r; (r = read(out.fd[0], buf, sizeof buf)) > 0;)
		got += (uint64_t)r;
	say("in silence: %d", status == 0 && got != 60000);
	say("flags %d", fcntl(fd, F_GETFD));
	for (ssize_t r; (r = recv(fd, buf, sizeof buf, 0)) > 0;)
		rest += (uint64_t)r;
	/* The child's shell reads ahead in one piece or in many. */
	say("of all: %d", got ? rest <= UNREAD - got : rest == UNREAD);
	close(fd);
	child_status(peer);
}

CASE(stranded_vfork, DIRECT)
{
	reads_what_ended(by_vfork, false);
}

CASE(stranded_vfork_inherited, DIRECT)
{
	reads_what_ended(by_vfork, true);
}

CASE(stranded_spawn, DIRECT)
{
	reads_what_ended(by_spawn, false);
}

CASE(stranded_spawn_inherited, DIRECT)
{
	reads_what_ended(by_spawn, true);
}

CASE(stranded_system, DIRECT)
{
	reads_what_ended(by_system, true);
}

CASE(stranded_popen, DIRECT)
{
	reads_what_ended(by_popen, true);
}

/* What a child of this process finds at that number, if anything. */
static void say_found(const char *who, int fd, pid_t (*start)(char *const argv[]))
{
	char text[64];
	char *argv[] = {"sh", "-c", text, NULL};
	snprintf(text, sizeof text, "test -e /proc/self/fd/%d", fd);
	say("%s: %d", who, child_status(start(argv)));
}

static pid_t start_by_fork(char *const argv[])
{
	pid_t pid = fork();
	if (pid == 0) {
		execv("/bin/sh", argv);
		_exit(99);
	}
	return pid;
}

static pid_t start_by_vfork(char *const argv[])
{
	pid_t pid = vfork();
	if (pid == 0) {
		execv("/bin/sh", argv);
		_exit(99);
	}
	return pid;
}

static pid_t start_by_spawn(char *const argv[])
{
	pid_t pid;
	NEED(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
	return pid;
}

struct command {
	struct signal_pipe runs, may_end;
};

static void *run_command(void *arg)
{
	const struct command *c = arg;
	char text[64];
	snprintf(text, sizeof text, "echo >&%d; read x <&%d", c->runs.fd[1],
		 c->may_end.fd[0]);
	/* A shell knows no higher numbers. */
	NEED(c->runs.fd[1] <= 9 && c->may_end.fd[0] <= 9);
	NEED(system(text) == 0);
	return NULL;
}

/* What is kept from one thread's child is none that others' children are to miss. */
CASE(stranded_from_one_child, DIRECT)
{
	struct command c = {signal_pipe(), signal_pipe()};
	struct signal_pipe sent = signal_pipe();
	pthread_t thread;
	pid_t peer;
	int fd = peer_start(send_and_end, &sent, &peer);
	send_pattern(fd, 0, 1000);
	recv_pattern(fd, 0, 1000);
	signal_wait(sent);
	fcntl(fd, F_SETFD, 0);
	NEED(pthread_create(&thread, NULL, run_command, &c) == 0);
	signal_wait(c.runs);
	say_found("fork", fd, start_by_fork);
	say_found("vfork", fd, start_by_vfork);
	recv_pattern(fd, 0, UNREAD);
	say_found("spawn", fd, start_by_spawn);
	NEED(write(c.may_end.fd[1], "\n", 1) == 1);
	pthread_join(thread, NULL);
	say("flags %d", fcntl(fd, F_GETFD));
	/* The program's own wish, which comes later. */
	NEED(ioctl(fd, FIOCLEX) == 0);
	say_found("fork", fd, start_by_fork);
	say_found("vfork", fd, start_by_vfork);
	say_found("spawn", fd, start_by_spawn);
	say("flags %d", fcntl(fd, F_GETFD));
	close(fd);
	child_status(peer);
}

/* Nothing is unread when the child starts. */
static void send_when_asked(int fd, void *arg)
{
	char buf[1];
	(void)arg;
	recv_pattern(fd, 0, 1000);
	send_pattern(fd, 0, 1000);
	recv_all(fd, buf, 1);
	send_pattern(fd, 0, UNREAD);
	shutdown(fd, SHUT_WR);
	say("then %llu", (unsigned long long)recv_to_end(fd, &(int){0}));
}

/* The number in the child is none that the parent has. */
CASE(vfork_to_another_number, DIRECT)
{
	pid_t peer, pid;
	int fd = peer_start(send_when_asked, NULL, &peer);
	send_pattern(fd, 0, 1000);
	recv_pattern(fd, 0, 1000);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	pid = vfork();
	if (pid == 0) {
		dup2(fd, NUMBER);
		execl("/bin/sh", "sh", "-c", "echo >&9; test `wc -c <&9` = 100000",
		      (char *)NULL);
		_exit(99);
	}
	say("status %d", child_status(pid));
	close(fd);
	say("status %d", child_status(peer));
}

/* A thread whose connection gets the number that another one has in a child that executes. */
struct renewal {
	struct pair old;
	struct signal_pipe go;
	_Atomic int step;
};

static void until(struct renewal *r, int step)
{
	while (atomic_load(&r->step) < step)
		usleep(1000);
}

/* The second half when the child has executed: it answers no request before. */
static void send_halves(int fd, void *arg)
{
	struct renewal *r = arg;
	send_pattern(fd, 0, 100);
	signal_wait(r->go);
	send_pattern(fd, 100, 100);
	recv_pattern(fd, 0, 100);
	say_result("shutdown", shutdown(fd, SHUT_WR));
}

static void end_both_ways(struct pair p)
{
	char c;
	shutdown(p.c, SHUT_WR);
	shutdown(p.s, SHUT_WR);
	NEED(recv(p.s, &c, 1, 0) == 0 && recv(p.c, &c, 1, 0) == 0);
	close(p.c);
	close(p.s);
}

static void *renew(void *arg)
{
	struct renewal *r = arg;
	int number = r->old.s, fd;
	char buf[200];
	pid_t peer;
	until(r, 1);
	end_both_ways(r->old);
	fd = peer_start(send_halves, r, &peer);
	NEED(fd == number);
	recv_pattern(fd, 0, 50);
	atomic_store(&r->step, 2);
	say_result("all of the rest", recv(fd, buf, 150, MSG_WAITALL));
	send_pattern(fd, 0, 100);
	say_result("end", recv(fd, buf, 1, 0));
	close(fd);
	say("status %d", child_status(peer));
	return NULL;
}

/* What the child has under its number has come to its end, and is not what memory knows. */
CASE(vfork_amid_renewal, DIRECT)
{
	struct renewal r = {.old = pair_warm_open(), .go = signal_pipe()};
	char *const argv[] = {"true", NULL};
	pthread_t thread;
	pid_t pid;
	NEED(pthread_create(&thread, NULL, renew, &r) == 0);
	pid = vfork();
	if (pid == 0) {
		atomic_store(&r.step, 1);
		until(&r, 2);
		execve("/bin/true", argv, environ);
		_exit(99);
	}
	say("status %d", child_status(pid));
	signal_send(r.go);
	pthread_join(thread, NULL);
}

static void send_and_sleep(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	send_pattern(fd, 0, 5000);
	signal_send(go[0]);
	signal_wait(go[1]);
}

/* A stream reads no more ahead where the peer has not left the ring. */
CASE(stranded_stream, DIRECT)
{
	struct signal_pipe go[2] = {signal_pipe(), signal_pipe()};
	pid_t pid;
	int fd = peer_start(send_and_sleep, go, &pid);
	uint8_t left[5000] = {0};
	FILE *f;
	signal_wait(go[0]);
	wait_inq(fd, 5000);
	set_limit(0);
	set_limit(100);
	f = fdopen(dup(fd), "r");
	NEED(f);
	say("getc: %d", getc(f) == pattern(0));
	say_result("left", recv(fd, left, sizeof(left), MSG_DONTWAIT));
	say("right: %d", left[0] == pattern(4096));
	signal_send(go[1]);
	say_result("fclose", fclose(f));
	say("status %d", child_status(pid));
	close(fd);
}
