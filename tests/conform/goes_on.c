/* SPDX-License-Identifier: Apache-2.0 */
/* A process that says its last words, and goes on: what it then reads, and closes, is no reset. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

struct way {
	bool shuts, peer_shuts, asks, closes_on_exec, reads;
	void (*last_words)(void);
	struct signal_pipe ended;
};

static void fails_to_execute(void)
{
	say_result("exec", execl("/nonexistent/program", "program", (char *)NULL));
}

static void executes(void)
{
	execl("/bin/true", "true", (char *)NULL);
	_exit(127);
}

static void says_nothing(void)
{
}

static void becomes_a_daemon(void)
{
	NEED(daemon(1, 1) == 0);
}

static void go_on(int fd, void *arg)
{
	const struct way *w = arg;
	char buf[200];
	struct linger l;
	socklen_t len = sizeof l;
	if (w->shuts)
		NEED(shutdown(fd, SHUT_WR) == 0);
	wait_inq(fd, 101);
	if (w->peer_shuts)
		NEED(wait_events(fd, POLLRDHUP) & POLLRDHUP);
	NEED(fcntl(fd, F_SETFD, w->closes_on_exec ? FD_CLOEXEC : 0) == 0);
	if (w->asks) {
		struct rlimit was, few;
		NEED(getrlimit(RLIMIT_NOFILE, &was) == 0);
		few = (struct rlimit){0, was.rlim_max};
		NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
		NEED(setrlimit(RLIMIT_NOFILE, &was) == 0);
	}
	w->last_words();
	say_as("peer");
	NEED(getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0);
	say("lingers: %d", l.l_onoff);
	if (w->reads)
		say_result("read", recv(fd, buf, sizeof buf, 0));
	if (!w->shuts)
		say_result("send", send(fd, "goodbye", 7, MSG_NOSIGNAL));
	_exit(0);
}

static void goes_on(struct way w)
{
	pid_t pid;
	char buf[200];
	w.ended = signal_pipe();
	int fd = peer_start(go_on, &w, &pid);
	say("shuts %d, peer shuts %d, asks %d, closes on exec %d, reads %d", w.shuts,
	    w.peer_shuts, w.asks, w.closes_on_exec, w.reads);
	send_pattern(fd, 0, 101);
	if (w.peer_shuts)
		NEED(shutdown(fd, SHUT_WR) == 0);
	child_status(pid);
	/* The daemon has it, too. */
	close(w.ended.fd[1]);
	NEED(read(w.ended.fd[0], buf, 1) == 0);
	close(w.ended.fd[0]);
	usleep(20000);
	struct pollfd pfd = {.fd = fd, .events = POLLIN | POLLRDHUP | POLLOUT};
	poll(&pfd, 1, 0);
	say("events: %s", poll_names(pfd.revents));
	say_result("receive", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	say_result("and again", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	close(fd);
}

static void all_ways(void (*last_words)(void))
{
	for (unsigned i = 0; i < 32; i++) {
		/* What the exec has asked for is not known to be nobody else's. */
		if (last_words == fails_to_execute && i < 8)
			continue;
		goes_on((struct way){
			i & 1, i & 2, i & 4, i & 8, i & 16, last_words, {{0}}});
	}
}

CASE(goes_on_in_vain, DIRECT)
{
	all_ways(fails_to_execute);
}

CASE(goes_on_no_more, DIRECT)
{
	for (unsigned i = 0; i < 8; i++)
		goes_on((struct way){i & 1, i & 2, i & 4, true, false, executes, {{0}}});
}

CASE(goes_on_as_a_daemon, DIRECT)
{
	all_ways(becomes_a_daemon);
}

CASE(goes_on_at_once, DIRECT)
{
	all_ways(says_nothing);
}
