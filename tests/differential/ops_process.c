/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that make processes: forked ones go on with operations, executed ones have an end. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

extern char **environ;

int wait_for(pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void op_fork(struct dice *d)
{
	unsigned count = 1 + dice(d, 6), first = (perform_number + 1) * 16;
	if (perform_depth >= 2 || !once_in(d, 2)) {
		tell("nothing");
		return;
	}
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		static const char *const names[] = {"", " f", " ff"};
		world_forked();
		tell_who(names[perform_depth + 1]);
		int depth = perform_depth + 1;
		for (unsigned i = 0; i < count; i++)
			perform(first + i, depth);
		world_leave();
		_exit(7);
	}
	tell("status %#x", (unsigned)wait_for(pid));
}

/* ---- executed: argv is --carried NUMBER FD RECEIVE ---- */

#define CARRIED_SEND 20

int carried_main(int argc, char **argv)
{
	if (argc < 5)
		return 126;
	int fd = atoi(argv[3]), queued = -1;
	size_t len = (size_t)atoi(argv[4]);
	char buf[64] = {0};
	tell_begin((unsigned)atoi(argv[2]), "carried");
	tell_who(" x");
	int r = ioctl(fd, FIONREAD, &queued);
	tell("FIONREAD(%d) = %s: %d", fd, result(r), queued);
	ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);
	tell("recv(%d, %zu) = %s: %08x", fd, len, result(n),
	     n > 0 ? checksum(buf, (size_t)n) : 0);
	memset(buf, 'c', sizeof buf);
	ssize_t m = send(fd, buf, CARRIED_SEND, MSG_DONTWAIT | MSG_NOSIGNAL);
	tell("send(%d) = %s", fd, result(m));
	return (n > 0 ? (int)n : 0) + (m > 0 ? 64 : 0);
}

static int run_it(unsigned way, char **argv)
{
	pid_t pid = -1;
	char line[512];
	switch (way) {
	case 0:
		pid = fork();
		break;
	case 1:
		pid = vfork();
		break;
	case 2:
		NEED(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) == 0);
		return wait_for(pid);
	default:
		snprintf(line, sizeof line, "exec '%s' %s %s %s %s", argv[0], argv[1],
			 argv[2], argv[3], argv[4]);
		if (way == 3)
			return system(line);
		FILE *f = popen(line, "we");
		NEED(f);
		return pclose(f);
	}
	NEED(pid >= 0);
	if (pid == 0) {
		execv(argv[0], argv);
		_exit(127);
	}
	return wait_for(pid);
}

void carry(struct dice *d, struct descriptor *s)
{
	static const char *const ways[] = {"fork", "vfork", "spawn", "system", "popen"};
	unsigned way = dice(d, 5), len = dice(d, 51);
	char number[16], fd[16], length[16], self[256];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	NEED(n > 0);
	self[n] = '\0';
	snprintf(number, sizeof number, "%u", perform_number);
	snprintf(fd, sizeof fd, "%d", s->fd);
	snprintf(length, sizeof length, "%u", len);
	char *argv[] = {self, (char *)"--carried", number, fd, length, NULL};
	NEED(fcntl(s->fd, F_SETFD, 0) == 0);
	int status = run_it(way, argv);
	NEED(fcntl(s->fd, F_SETFD, FD_CLOEXEC) == 0);
	tell("%s(%d) status %#x", ways[way], s->fd, (unsigned)status);
	if (WIFEXITED(status) && WEXITSTATUS(status) < 120) {
		was_received(s, WEXITSTATUS(status) & 63);
		was_sent(s, WEXITSTATUS(status) & 64 ? CARRIED_SEND : 0);
	}
}

static void op_exec(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s || !once_in(d, 4) || room_to_send(s, true) < 1000 ||
	    (unread(s) && (!pending() || !of_end(s->end ^ 1) || peer_of(s)->shut_write ||
			   peer_of(s)->closed))) {
		tell("nothing");
		return;
	}
	carry(d, s);
}

const struct op ops_process[] = {
	{"fork", op_fork, 10},
	{"exec", op_exec, 8},
	{NULL, NULL, 0},
};
