/* SPDX-License-Identifier: Apache-2.0 */
/* Children of every kind, and descriptors that reach other programs. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"

extern char **environ;

static void echo_some(struct pair p)
{
	char buf[8];

	for (int i = 0; i < 50; i++) {
		send_all(p.c, "abcd", 4);
		recv_all(p.s, buf, 4);
		send_all(p.s, "efgh", 4);
		recv_all(p.c, buf, 4);
	}
}

/* The child runs in our memory: what it does to its descriptors is not done to ours. */
CASE(hooks_vfork, DIRECT)
{
	struct pair p = pair_warm_open();
	pid_t pid = vfork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, p.c);
		close(p.s);
		dup(null);
		dup2(null, 70);
		syscall(SYS_close, p.c);
		close_range(3, ~0U, 0);
		_exit(7);
	}
	say("child: %d", child_status(pid));
	say_result("not ours", fcntl(70, F_GETFD));
	echo_some(p);
	pid = vfork();
	if (pid == 0) {
		dup2(p.c, p.s);
		execl("/bin/true", "true", (char *)NULL);
		_exit(8);
	}
	say("exec: %d", child_status(pid));
	echo_some(p);
	pid = vfork();
	if (pid == 0) {
		execl("/no/such/program", "none", (char *)NULL);
		_exit(errno == ENOENT ? 9 : 10);
	}
	say("failed exec: %d", child_status(pid));
	echo_some(p);
	pair_close(p);
}

static int clone_child(void *arg)
{
	struct pair *p = arg;

	close(p->s);
	send_all(p->c, "child", 5);
	_exit(5);
}

/* Forks that libc's handlers do not see: the child is a second holder, not the first. */
CASE(hooks_raw_forks, ANYWAY)
{
	static char stack[65536] __attribute__((aligned(16)));
	struct pair p = pair_warm_open();
	char buf[8];
	pid_t pid = _Fork();

	if (pid == 0)
		clone_child(&p);
	recv_all(p.s, buf, 5);
	say("_Fork: %d %.5s", child_status(pid), buf);
	pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	if (pid == 0)
		clone_child(&p);
	recv_all(p.s, buf, 5);
	say("SYS_clone: %d %.5s", child_status(pid), buf);
	pid = clone(clone_child, stack + sizeof stack, SIGCHLD, &p);
	recv_all(p.s, buf, 5);
	say("clone: %d %.5s", child_status(pid), buf);
	pid = (pid_t)syscall(SYS_fork);
	if (pid == 0)
		clone_child(&p);
	recv_all(p.s, buf, 5);
	say("SYS_fork: %d %.5s", child_status(pid), buf);
	say_result("clone3", syscall(SYS_clone3, NULL, 0L));
	echo_some(p);
	pair_close(p);
}

/* Each way to name a program, its arguments and its environment. */
static void exec_one(int way)
{
	char *const argv[] = {"sh", "-c", "exit ${1:-$STATUS}", "sh", "21", NULL};
	char *const envp[] = {"STATUS=22", "PATH=/bin:/usr/bin", NULL};
	const char *script = "exit ${1:-$STATUS}";

	if (way == 0)
		execl("/bin/sh", "sh", "-c", script, "sh", "20", (char *)NULL);
	if (way == 1)
		execlp("sh", "sh", "-c", script, "sh", "23", (char *)NULL);
	if (way == 2)
		execle("/bin/sh", "sh", "-c", script, (char *)NULL, envp);
	if (way == 3)
		execv("/bin/sh", argv);
	if (way == 4)
		execvp("sh", argv);
	if (way == 5)
		execvpe("sh", argv, envp);
	if (way == 6)
		execve("/bin/sh", argv, envp);
	if (way == 7)
		fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), argv, envp);
	if (way == 8)
		syscall(SYS_execve, "/bin/sh", argv, envp);
	if (way == 9)
		execl("/bin/sh", "sh", (char *)NULL);
	_exit(99);
}

CASE(hooks_exec_names, ANYWAY)
{
	struct pair p = pair_open();

	pair_warm(p);
	for (int way = 0; way < 10; way++) {
		pid_t pid = fork();

		NEED(pid >= 0);
		if (pid == 0) {
			NEED(dup2(open("/dev/null", O_RDONLY), 0) == 0);
			exec_one(way);
		}
		say("way %d: %d", way, child_status(pid));
	}
	pair_close(p);
}

static void far_peer(int fd, void *arg)
{
	char buf[16];

	(void)arg;
	/* Bytes that wait in a ring do not reach another program: a known limit. */
	recv_all(fd, buf, 6);
	send_all(fd, "go on\n", 6);
	recv_all(fd, buf, 6);
	say_as("peer");
	say("%.5s", buf);
	say_result("end", recv(fd, buf, 1, 0));
}

/* The connection as the new program's input and output, as inetd gives it. */
CASE(hooks_exec_stdio, ANYWAY)
{
	pid_t peer, pid;
	int fd = peer_start(far_peer, NULL, &peer);

	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		close(fd);
		execl("/bin/sh", "sh", "-c", "echo hello; read word; echo \"$word\"",
		      (char *)NULL);
		_exit(99);
	}
	close(fd);
	say("child: %d", child_status(pid));
	say("peer: %d", child_status(peer));
}

CASE(hooks_spawn_stdio, ANYWAY)
{
	pid_t peer, pid;
	int fd = peer_start(far_peer, NULL, &peer);
	char *const argv[] = {"sh", "-c", "echo hello; read word; echo \"$word\"", NULL};
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	say_result("adddup2", posix_spawn_file_actions_adddup2(&actions, fd, 0));
	say_result("adddup2", posix_spawn_file_actions_adddup2(&actions, fd, 1));
	say_result("spawn", posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(fd);
	say("child: %d", child_status(pid));
	say("peer: %d", child_status(peer));
}

CASE(hooks_passed, ANYWAY)
{
	pid_t peer, pid;
	int fd, sv[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		char word[8];

		close(sv[0]);
		fd = receive_fd(sv[1]);
		send_all(fd, "hello\n", 6);
		recv_all(fd, word, 6);
		send_all(fd, word, 6);
		close(fd);
		_exit(memcmp(word, "go on\n", 6) ? 1 : 0);
	}
	close(sv[1]);
	fd = peer_start(far_peer, NULL, &peer);
	send_fd(sv[0], fd);
	close(fd);
	say("child: %d", child_status(pid));
	say("peer: %d", child_status(peer));
	close(sv[0]);
}

static volatile sig_atomic_t handled;

static void count_signal(int sig)
{
	(void)sig;
	handled++;
}

/* Children that are killed at any instruction of their calls: their parent's signals are not held up by that. */
CASE(hooks_vfork_killed, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	struct pair p = pair_warm_open();
	char b[8] = "";
	int lost = 0;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	for (volatile int i = 0; i < 60; i++) {
		const struct itimerval soon = {{0, 0}, {0, 50 + 7 * i}};
		int before = handled;
		pid_t pid = vfork();

		if (pid == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			for (;;)
				if (write(p.c, b, 8) != 8 || read(p.s, b, 8) != 8)
					_exit(1);
		}
		raise(SIGUSR1);
		lost += handled == before;
		NEED(child_status(pid) == 128 + SIGALRM);
		while (recv(p.s, b, sizeof(b), MSG_DONTWAIT) > 0)
			;
	}
	say("lost: %d", lost);
	echo_some(p);
	pair_close(p);
}

static struct pair killed_pair;
static _Atomic pid_t to_kill;
static struct signal_pipe used_behind;

static void kill_and_use(void *arg)
{
	struct pair p = killed_pair;
	char b[8];

	(void)arg;
	for (int i = 0; i < 100; i++) {
		struct timespec a_while = {.tv_nsec = 50000 + 1700 * i};
		pid_t pid;

		while ((pid = to_kill) <= 0)
			sched_yield();
		to_kill = 0;
		nanosleep(&a_while, NULL);
		NEED(kill(pid, SIGKILL) == 0);
		while (recv(p.s, b, sizeof(b), MSG_DONTWAIT) > 0)
			;
		echo_some(p);
		signal_send(used_behind);
	}
}

/* Another thread goes on with what a killed child has used, before its parent's does. */
CASE(hooks_vfork_killed_threads, DIRECT)
{
	struct pair p = pair_warm_open();
	char b[8] = "";
	struct worker w;

	killed_pair = p;
	used_behind = signal_pipe();
	worker_start(&w, kill_and_use, NULL);
	for (volatile int i = 0; i < 100; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			to_kill = getpid();
			for (;;)
				if (write(p.c, b, 8) != 8 || read(p.s, b, 8) != 8)
					_exit(1);
		}
		signal_wait(used_behind);
		NEED(child_status(pid) == 128 + SIGKILL);
	}
	worker_join(&w);
	echo_some(p);
	pair_close(p);
}

/* Children that close a connection of their parent's, while signals come: how often its bytes did not come. */
static void close_in_children(void (*handler)(int sig), int every_us)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
	const struct itimerval often = {{0, every_us}, {0, every_us}},
			       never = {{0, 0}, {0, 0}};
	struct pair p = pair_warm_open();
	char b[4] = "";
	int wrong = 0;

	NEED(sigaction(SIGALRM, &act, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (volatile int i = 0; i < 3000; i++) {
		send_all(p.c, "abc", 3);
		pid_t pid = vfork();

		if (pid == 0) {
			close(p.s);
			close(p.c);
			_exit(0);
		}
		while (waitpid(pid, NULL, 0) < 0)
			NEED(errno == EINTR);
		ssize_t n = -1;
		for (int tries = 0; n < 0 && tries < 100000; tries++) {
			n = recv(p.s, b, 3, MSG_DONTWAIT);
			sched_yield();
		}
		wrong += n != 3;
	}
	NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
	say("wrong: %d", wrong);
	echo_some(p);
	pair_close(p);
}

/* A signal may come when the call has begun, and there is no child yet. */
CASE(hooks_vfork_amid_signals, DIRECT)
{
	close_in_children(count_signal, 20);
}

static void vfork_here(int sig)
{
	int saved = errno;
	pid_t pid = vfork();

	(void)sig;
	if (pid == 0)
		_exit(0);
	NEED(waitpid(pid, NULL, 0) == pid);
	errno = saved;
}

/* And its handler may make such a child itself. */
CASE(hooks_vfork_amid_vfork, DIRECT)
{
	close_in_children(vfork_here, 150);
}

static void raise_here(void)
{
	handled = 0;
	NEED(raise(SIGUSR1) == 0);
}

/* A child of vfork forks. */
CASE(hooks_vfork_forks, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	struct pair p = pair_warm_open();
	static volatile pid_t grandchild;
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	pid = vfork();
	if (pid == 0) {
		grandchild = fork();
		if (grandchild == 0) {
			raise_here();
			_exit(handled);
		}
		_exit(grandchild < 0 ? 9 : child_status(grandchild));
	}
	say("child: %d", child_status(pid));
	raise_here();
	say("parent: %d", (int)handled);
	echo_some(p);
	pair_close(p);
}

/* A copy of the process is none that has its memory, though the parent waits for it. */
CASE(hooks_clone_waits, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
	const struct itimerval soon = {{0, 0}, {0, 100}};
	static char b[4096];
	struct pair p = pair_warm_open();
	bool lost = false;

	NEED(sigaction(SIGPROF, &act, NULL) == 0);
	for (int i = 0; i < 200 && !lost; i++) {
		long pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0);

		if (pid == 0)
			_exit(0);
		NEED(pid > 0 && child_status((pid_t)pid) == 0);
		handled = 0;
		NEED(setitimer(ITIMER_PROF, &soon, NULL) == 0);
		while (handled == 0) {
			send_all(p.c, b, sizeof(b));
			recv_all(p.s, b, sizeof(b));
		}
		/* That one may have come amid a call, and those after it come all the same. */
		NEED(raise(SIGPROF) == 0);
		lost = handled != 2;
	}
	say("lost: %d", lost);
	pair_close(p);
}

static bool vforks_at_fork;

static void vfork_at_fork(void)
{
	pid_t pid;

	if (!vforks_at_fork)
		return;
	vforks_at_fork = false;
	pid = vfork();
	if (pid == 0)
		_exit(0);
	NEED(waitpid(pid, NULL, 0) == pid);
}

CASE(hooks_vfork_at_fork, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	struct pair p = pair_warm_open();
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	NEED(pthread_atfork(NULL, vfork_at_fork, NULL) == 0);
	vforks_at_fork = true;
	pid = fork();
	if (pid == 0) {
		raise_here();
		_exit(handled);
	}
	say("child: %d", child_status(pid));
	raise_here();
	say("parent: %d", (int)handled);
	echo_some(p);
	pair_close(p);
}
