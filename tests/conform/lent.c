/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: connections that programs have for a while which this one starts. Where a case ends direct again, nearly all of
 * its bytes come behind that. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

extern char **environ;

#define BLOCK 512
#define MANY  4000
#define FEW   20

/* Says back what comes, in blocks; and how much that was. */
static void echo(int fd, void *arg)
{
	char buf[BLOCK];
	unsigned long all = 0;
	(void)arg;
	for (ssize_t n; (n = recv(fd, buf, sizeof buf, 0)) > 0; all += (unsigned long)n)
		send_all(fd, buf, (size_t)n);
	say("peer echoed %lu", all);
}

static void rounds(int fd, int count)
{
	static uint64_t at;
	for (int i = 0; i < count; i++, at += BLOCK) {
		send_pattern(fd, at, BLOCK);
		recv_pattern(fd, at, BLOCK);
	}
}

/* A line of the shell, with the connection in the place of %d. */
static const char *line_of(const char *fmt, int fd)
{
	static char text[512];
	snprintf(text, sizeof text, fmt, fd, fd, fd);
	return text;
}

static pid_t spawn(const char *fmt, int fd)
{
	const char *argv[] = {"sh", "-c", line_of(fmt, fd), NULL};
	pid_t pid;
	NEED(posix_spawn(&pid, "/bin/sh", NULL, NULL, (char **)argv, environ) == 0);
	return pid;
}

/* Returns when the image is there: what is unread as it is lent would make that TCP's for good. */
static pid_t fork_and_exec(const char *fmt, int fd)
{
	int until[2];
	NEED(pipe2(until, O_CLOEXEC) == 0);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", line_of(fmt, fd), (char *)NULL);
		_exit(9);
	}
	close(until[1]);
	NEED(read(until[0], &(char){0}, 1) == 0);
	close(until[0]);
	return pid;
}

static pid_t vfork_and_exec(const char *fmt, int fd)
{
	const char *line = line_of(fmt, fd);
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(9);
	}
	NEED(pid > 0);
	return pid;
}

static void finish(int fd, pid_t peer)
{
	shutdown(fd, SHUT_WR);
	say("rest %lu", (unsigned long)recv_to_end(fd, &(int){0}));
	close(fd);
	say("status %d", child_status(peer));
}

CASE(lent_system, BACK)
{
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	for (int i = 0; i < 3; i++) {
		rounds(fd, FEW);
		say("system: %d", system("true"));
	}
	rounds(fd, MANY);
	finish(fd, peer);
}

CASE(lent_popen, BACK)
{
	pid_t peer;
	char line[8] = "";
	int fd = peer_start(echo, NULL, &peer);
	FILE *f = popen("echo hello", "r");
	NEED(f);
	rounds(fd, FEW);
	say("read %d %s", fgets(line, sizeof line, f) != NULL, line);
	say("pclose %d", pclose(f));
	rounds(fd, MANY);
	finish(fd, peer);
}

static void ends(pid_t (*start)(const char *fmt, int fd))
{
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	pid_t child = start("true", fd);
	rounds(fd, FEW);
	say("child %d", child_status(child));
	rounds(fd, MANY);
	finish(fd, peer);
}

CASE(lent_spawn, BACK)
{
	ends(spawn);
}

CASE(lent_fork_exec, BACK)
{
	ends(fork_and_exec);
}

CASE(lent_vfork_exec, BACK)
{
	ends(vfork_and_exec);
}

/* It lives on, and has closed it. */
static void closes(pid_t (*start)(const char *fmt, int fd))
{
	struct signal_pipe done = signal_pipe(), closed = signal_pipe();
	char line[128];
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	snprintf(line, sizeof line, "exec %%d>&-; echo >&%d; head -c 1 <&%d >/dev/null",
		 closed.fd[1], done.fd[0]);
	pid_t child = start(line, fd);
	signal_wait(closed);
	rounds(fd, MANY);
	signal_send(done);
	say("child %d", child_status(child));
	finish(fd, peer);
}

CASE(lent_closed_spawned, BACK)
{
	closes(spawn);
}

CASE(lent_closed_forked, BACK)
{
	closes(fork_and_exec);
}

/* It writes and reads late, when much has gone by, in turn with its parent. */
CASE(lent_used_late, DIRECT)
{
	struct signal_pipe now = signal_pipe(), done = signal_pipe();
	char line[200], got[16] = "";
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	snprintf(line, sizeof line,
		 "head -c 1 <&%d >/dev/null; printf hello- >&%%d; test \"$(head -c 6 "
		 "<&%%d)\" = hello- || exit 3;"
		 "printf rest >&%%d; echo >&%d",
		 now.fd[0], done.fd[1]);
	pid_t child = spawn(line, fd);
	rounds(fd, 200);
	signal_send(now);
	signal_wait(done);
	recv_all(fd, got, 4);
	say("%s", got);
	say("child %d", child_status(child));
	rounds(fd, 200);
	finish(fd, peer);
}

/* What is unread at the time is the child's to read. */
CASE(lent_unread, DIRECT)
{
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	send_all(fd, "one-two-", 8);
	wait_inq(fd, 8);
	say("system %d", system(line_of("test \"$(head -c 4 <&%d)\" = one-", fd)));
	char got[8] = "";
	recv_all(fd, got, 4);
	say("%s", got);
	rounds(fd, MANY);
	finish(fd, peer);
}

__attribute__((weak)) int
posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);

/* A child that closes from a number on, or one of the tokens' numbers, has nothing that tells; from then on what is
 * started is not known. */
static void loses_token(bool all)
{
	if (all && !posix_spawn_file_actions_addclosefrom_np)
		skip("this C library has no addclosefrom_np");
	posix_spawn_file_actions_t actions;
	const char *argv[] = {"true", NULL};
	pid_t peer, child;
	int fd = peer_start(echo, NULL, &peer);
	NEED(posix_spawn_file_actions_init(&actions) == 0);
	if (all)
		NEED(posix_spawn_file_actions_addclosefrom_np(&actions, fd + 1) == 0);
	else
		NEED(posix_spawn_file_actions_addclose(&actions, 760) == 0);
	NEED(posix_spawnp(&child, "true", &actions, NULL, (char **)argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	rounds(fd, FEW);
	say("child %d", child_status(child));
	finish(fd, peer);
}

CASE(lent_closefrom, DIRECT)
{
	loses_token(true);
}

CASE(lent_addclose, DIRECT)
{
	loses_token(false);
}

/* The same by a file in the token's place; and the child writes once all else has gone on for long. */
CASE(lent_addopen, DIRECT)
{
	struct signal_pipe done = signal_pipe();
	posix_spawn_file_actions_t actions;
	char line[128], got[BLOCK];
	const char *argv[] = {"sh", "-c", line, NULL};
	pid_t peer, child;
	int fd = peer_start(echo, NULL, &peer);
	snprintf(line, sizeof line,
		 "head -c 1 <&%d >/dev/null; head -c %d /dev/zero >&%d", done.fd[0],
		 BLOCK, fd);
	NEED(posix_spawn_file_actions_init(&actions) == 0);
	NEED(posix_spawn_file_actions_addopen(&actions, 760, "/dev/null", O_RDONLY, 0) ==
	     0);
	NEED(posix_spawn(&child, "/bin/sh", &actions, NULL, (char **)argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	rounds(fd, MANY);
	signal_send(done);
	say("child %d", child_status(child));
	recv_all(fd, got, BLOCK);
	say("%d %d", got[0], got[BLOCK - 1]);
	rounds(fd, FEW);
	finish(fd, peer);
}

/* What a program sets before the connection has met its other end. */
CASE(lent_early, ANYWAY)
{
	struct pair p = pair_open();
	char c;
	say("set %d", system(line_of("perl -MFcntl -e 'open(my $f, \"+<&=\", %d); "
				     "fcntl($f, F_SETFL, O_NONBLOCK)'",
				     p.s)));
	for (int i = 0; i < FEW; i++) {
		send_all(p.c, "a", 1);
		wait_events(p.s, POLLIN);
		NEED(recv(p.s, &c, 1, 0) == 1);
		send_all(p.s, "b", 1);
		recv_all(p.c, &c, 1);
	}
	say_result("recv", recv(p.s, &c, 1, 0));
	pair_close(p);
}

CASE(lent_killed, BACK)
{
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	pid_t child = fork_and_exec("exec sleep 1000", fd);
	rounds(fd, FEW);
	kill(child, SIGKILL);
	say("child %d", child_status(child));
	rounds(fd, MANY);
	finish(fd, peer);
}

CASE(lent_two, BACK)
{
	struct signal_pipe done = signal_pipe();
	char line[64];
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	snprintf(line, sizeof line, "head -c 1 <&%d >/dev/null", done.fd[0]);
	pid_t one = spawn(line, fd), two = fork_and_exec("true", fd);
	say("child %d", child_status(two));
	rounds(fd, FEW);
	signal_send(done);
	say("child %d", child_status(one));
	rounds(fd, MANY);
	finish(fd, peer);
}

/* Its child has it for longer than the child that was started, and writes. */
static void outlives(const char *fmt, int status)
{
	struct signal_pipe now = signal_pipe();
	char line[256], got[8] = "";
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	snprintf(line, sizeof line, fmt, now.fd[0]);
	say("child %d", child_status(spawn(line, fd)) == status);
	rounds(fd, 200);
	signal_send(now);
	recv_all(fd, got, 5);
	say("%s", got);
	rounds(fd, 200);
	finish(fd, peer);
}

CASE(lent_daemon, DIRECT)
{
	outlives("{ head -c 1 >/dev/null; printf later >&%%d; } <&%d &", 0);
}

/* Images that are not under Viaduct: by its name taken out, and without any variable. */
CASE(lent_unknown, DIRECT)
{
	outlives("env -u LD_PRELOAD sh -c 'head -c 1 >/dev/null; printf later >&%%d' "
		 "<&%d &",
		 0);
}

CASE(lent_cleared, DIRECT)
{
	outlives("env -i sh -c 'head -c 1 >/dev/null; printf later >&%%d' <&%d &", 0);
}

/* It is lent to one, and goes to another one that is not known: the end of the first says nothing. */
CASE(lent_again_unknown, DIRECT)
{
	struct signal_pipe now = signal_pipe();
	char line[128], got[8] = "";
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	rounds(fd, FEW);
	pid_t known = spawn("exec sleep 1000", fd);
	rounds(fd, FEW);
	unsetenv("LD_PRELOAD");
	snprintf(line, sizeof line, "head -c 1 <&%d >/dev/null; printf later >&%%d",
		 now.fd[0]);
	pid_t unknown = spawn(line, fd);
	kill(known, SIGKILL);
	say("child %d", child_status(known));
	rounds(fd, 200);
	signal_send(now);
	recv_all(fd, got, 5);
	say("%s", got);
	say("child %d", child_status(unknown));
	finish(fd, peer);
}

/* The end of the child is no end of the connection, nor is its own the end of the child's. */
CASE(lent_parent_closes, ANYWAY)
{
	struct signal_pipe now = signal_pipe();
	char line[128];
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	rounds(fd, FEW);
	snprintf(line, sizeof line,
		 "head -c 1 <&%d >/dev/null; printf hello- >&%%d; test \"$(head -c 6 "
		 "<&%%d)\" = hello-",
		 now.fd[0]);
	pid_t child = spawn(line, fd);
	close(fd);
	signal_send(now);
	say("child %d", child_status(child));
	say("status %d", child_status(peer));
}

/* It has ended the sending: also its parent's. */
CASE(lent_shut, ANYWAY)
{
	pid_t peer;
	int fd = peer_start(echo, NULL, &peer);
	const char *text = line_of("exec 9<&%d; exec \"$0\" lent_shuts_nine", fd);
	char self[512] = "";
	NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	const char *argv[] = {"sh", "-c", text, self, NULL};
	pid_t child;
	signal(SIGPIPE, SIG_IGN);
	NEED(posix_spawn(&child, "/bin/sh", NULL, NULL, (char **)argv, environ) == 0);
	say("child %d", child_status(child));
	say("status %d", child_status(peer));
	int sent = 0, error = 0;
	for (int i = 0; i < 40 && !error; i++)
		error = send(fd, "x", 1, 0) < 0 ? errno : (sent++, 0);
	say("sent %d, %s", sent, errno_name(error));
	close(fd);
}

/* Executed by the case above. */
CASE(lent_shuts_nine, ANYWAY)
{
	if (fcntl(9, F_GETFD) >= 0)
		shutdown(9, SHUT_WR);
}

/* It goes to a process that nobody has started, and is used there. */
CASE(lent_passed, ANYWAY)
{
	int channel[2];
	char got[8] = "", self[512] = "";
	pid_t peer, child;
	int fd = peer_start(echo, NULL, &peer);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	char text[200];
	snprintf(text, sizeof text, "exec 9<&%d 8<&%d; exec \"$0\" lent_passes_nine", fd,
		 channel[1]);
	const char *argv[] = {"sh", "-c", text, self, NULL};
	NEED(posix_spawn(&child, "/bin/sh", NULL, NULL, (char **)argv, environ) == 0);
	say("child %d", child_status(child));
	rounds(fd, 200);
	int other = receive_fd(channel[0]);
	send_all(other, "again", 5);
	recv_all(fd, got, 5);
	say("%s", got);
	close(other);
	rounds(fd, 200);
	finish(fd, peer);
}

CASE(lent_passes_nine, ANYWAY)
{
	if (fcntl(9, F_GETFD) >= 0 && fcntl(8, F_GETFD) >= 0)
		send_fd(8, 9);
}
