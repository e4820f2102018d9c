/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: children that the C library starts by itself, and that have a connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>
#include <wordexp.h>

#include "conform/cases.h"

extern char **environ;
FILE *_IO_popen(const char *command, const char *mode);

/* As they stand in a text of the shell's. */
static const char *with_fd(const char *fmt, int fd)
{
	static char text[128];
	sprintf(text, fmt, fd);
	return text;
}

/* The peer sends what the child is to read, and then says back what it has got. */
static void question_first(int fd, void *arg)
{
	char buf[64] = "";
	send_all(fd, arg, strlen(arg));
	recv_all(fd, buf, 6);
	say("%s", buf);
	send_all(fd, "thanks", 6);
	recv_all(fd, buf, 4);
	say("%.4s", buf);
	uint64_t n = recv_to_end(fd, &(int){0});
	say("then: %llu", (unsigned long long)n);
}

static void finish(int fd, pid_t peer)
{
	char buf[8] = "";
	recv_all(fd, buf, 6);
	say("%s", buf);
	send_all(fd, "done", 4);
	shutdown(fd, SHUT_WR);
	say("status %d", child_status(peer));
	close(fd);
}

static void by_system(int fd)
{
	say("system: %d", system(with_fd("head -c 4 <&%d >/dev/null", fd)));
	say("system: %d", system(with_fd("printf hello- >&%d", fd)));
}

CASE(command_system, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer);
	wait_events(fd, POLLIN);
	by_system(fd);
	finish(fd, peer);
}

/* The shell is there; nothing else is asked. */
CASE(command_system_null, STAYS)
{
	struct pair p = pair_warm_open();
	say("shell: %d", system(NULL) != 0);
	send_all(p.c, "still", 5);
	recv_pattern(p.s, 0, 0);
	char buf[8] = "";
	recv_all(p.s, buf, 5);
	say("%s", buf);
	pair_close(p);
}

static void read_child(FILE *f)
{
	char line[64] = "";
	NEED(f);
	size_t n = fread(line, 1, sizeof line - 1, f);
	say("popen: %zu %s", n, line);
	say("pclose: %d", pclose(f));
}

CASE(command_popen, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer);
	wait_events(fd, POLLIN);
	read_child(popen(with_fd("head -c 4 <&%d", fd), "r"));
	FILE *f = popen(with_fd("cat >&%d", fd), "we");
	NEED(f);
	fputs("hello-", f);
	say("pclose: %d", pclose(f));
	finish(fd, peer);
}

/* Two at a time, by the older name, and one whose child outlives the answer. */
CASE(command_popen_two, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "rea", &peer);
	wait_events(fd, POLLIN);
	FILE *a = _IO_popen(with_fd("head -c 3 <&%d", fd), "r");
	read_child(a);
	FILE *b = popen(with_fd("cat >&%d; echo x", fd), "w");
	FILE *c = popen("echo other", "r");
	read_child(c);
	fputs("hello-", b);
	say("pclose: %d", pclose(b));
	finish(fd, peer);
	errno = 0;
	say("bad mode: %d %s", popen("true", "q") != NULL, errno_name(errno));
}

CASE(command_wordexp, DIRECT)
{
	pid_t peer;
	wordexp_t w;
	int fd = peer_start(question_first, "read", &peer);
	wait_events(fd, POLLIN);
	say("wordexp: %d", wordexp(with_fd("a$(head -c 4 <&%d)b", fd), &w, 0));
	for (size_t i = 0; i < w.we_wordc; i++)
		say("%s", w.we_wordv[i]);
	wordfree(&w);
	say("wordexp: %d", wordexp(with_fd("`printf hello- >&%d`", fd), &w, 0));
	wordfree(&w);
	finish(fd, peer);
}

CASE(command_wordexp_plain, STAYS)
{
	struct pair p = pair_warm_open();
	wordexp_t w;
	say("wordexp: %d", wordexp("$HOME/x ~ a*b", &w, WRDE_NOCMD));
	wordfree(&w);
	say("wordexp: %d", wordexp("$(true)", &w, WRDE_NOCMD) == WRDE_CMDSUB);
	send_pattern(p.c, 0, 1000);
	recv_pattern(p.s, 0, 1000);
	pair_close(p);
}

/* A thread waits in a receive while another one starts the child. */
static void receives(void *arg)
{
	char buf[8] = "";
	recv_all(*(int *)arg, buf, 6);
	say_as("child");
	say("%s", buf);
	say_as("");
}

static void answers_late(int fd, void *arg)
{
	char buf[8] = "";
	(void)arg;
	recv_all(fd, buf, 6);
	say("%s", buf);
	send_all(fd, "answer", 6);
	say("then: %llu", (unsigned long long)recv_to_end(fd, &(int){0}));
}

CASE(command_system_while_received, DIRECT)
{
	pid_t peer;
	int fd = peer_start(answers_late, NULL, &peer);
	struct worker w = {0};
	worker_start(&w, receives, &fd);
	wait_asleep(getpid(), w.tid);
	int status = system(with_fd("printf hello- >&%d", fd));
	worker_join(&w); /* first: what it says is said by its name */
	say("system: %d", status);
	close(fd);
	say("status %d", child_status(peer));
}

/* One that the child does not get stays where it is. */
CASE(command_not_inherited, STAYS)
{
	struct pair p = pair_warm_open();
	char buf[8];
	fcntl(p.c, F_SETFD, FD_CLOEXEC);
	fcntl(p.s, F_SETFD, FD_CLOEXEC);
	say("system: %d", system("exit 3"));
	read_child(popen("echo x", "r"));
	send_all(p.c, "still", 5);
	recv_all(p.s, buf, 5);
	pair_close(p);
}

/* ---- newer names; what libc lacks is the same everywhere ---- */

__attribute__((weak)) int pidfd_spawn(int *pidfd, const char *path,
				      const posix_spawn_file_actions_t *actions,
				      const posix_spawnattr_t *attr, char *const argv[],
				      char *const envp[]);
__attribute__((weak)) int pidfd_spawnp(int *pidfd, const char *path,
				       const posix_spawn_file_actions_t *actions,
				       const posix_spawnattr_t *attr, char *const argv[],
				       char *const envp[]);

CASE(command_pidfd_spawn, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer);
	wait_events(fd, POLLIN);
	char *const reads[] = {"sh", "-c",
			       strdup(with_fd("head -c 4 <&%d >/dev/null", fd)), NULL};
	char *const writes[] = {"sh", "-c", strdup(with_fd("printf hello- >&%d", fd)),
				NULL};
	int pidfd = -1;
	int r = pidfd_spawn ? pidfd_spawn(&pidfd, "/bin/sh", NULL, NULL, reads, environ)
			    : ENOSYS;
	if (r == 0)
		waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){0}, WEXITED);
	say("pidfd_spawn: %s", r ? errno_name(r) : "0");
	r = pidfd_spawnp ? pidfd_spawnp(&pidfd, "sh", NULL, NULL, writes, environ)
			 : ENOSYS;
	if (r == 0)
		waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){0}, WEXITED);
	else
		by_system(fd);
	finish(fd, peer);
}

/* ---- the terminal's ---- */

CASE(command_forkpty, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer), leader;
	char buf[8] = "";
	wait_events(fd, POLLIN);
	pid_t pid = forkpty(&leader, NULL, NULL, NULL);
	if (pid < 0)
		skip("no terminals here");
	if (pid == 0) {
		recv_all(fd, buf, 4);
		send_all(fd, "hello-", 6);
		_exit(isatty(0) ? 5 : 6);
	}
	say("status %d", child_status(pid));
	finish(fd, peer);
}

/* A connection was number 0: the terminal takes its place. */
CASE(command_login_tty, ANYWAY)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer), leader, follower;
	char buf[8] = "";
	if (openpty(&leader, &follower, NULL, NULL, NULL) != 0)
		skip("no terminals here");
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, 0);
		int out = dup(1);
		NEED(login_tty(follower) == 0);
		recv_all(fd, buf, 4);
		send_all(fd, "hello-", 6);
		struct pollfd p = {.fd = 0, .events = POLLIN};
		int polled = poll(&p, 1, 0), flags = fcntl(0, F_GETFL);
		dup2(out, 1);
		say_as("child");
		say("terminal: %d, polled: %d, flags: %d", isatty(0), polled, flags >= 0);
		_exit(5);
	}
	say("status %d", child_status(pid));
	finish(fd, peer);
}

/* ---- clone, by its other name ---- */

int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);

static int cloned(void *arg)
{
	char buf[8] = "";
	recv_all(*(int *)arg, buf, 4);
	send_all(*(int *)arg, "hello-", 6);
	_exit(4);
}

CASE(command_clone, DIRECT)
{
	pid_t peer;
	int fd = peer_start(question_first, "read", &peer);
	char *stack = malloc(1 << 16);
	wait_events(fd, POLLIN);
	say("status %d", child_status(__clone(cloned, stack + (1 << 16), SIGCHLD, &fd)));
	finish(fd, peer);
}

/* Both ends are ours, and nobody else can answer while the child is started. */
CASE(command_both_ends, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	send_all(p.c, "read", 4);
	say("system: %d", system(with_fd("head -c 4 <&%d >/dev/null", p.s)));
	say("system: %d", system(with_fd("printf hello- >&%d", p.s)));
	recv_all(p.c, buf, 6);
	say("%s", buf);
	send_all(p.c, "more", 4);
	read_child(popen(with_fd("head -c 4 <&%d", p.s), "r"));
	pair_close(p);
}
