/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what lies unread reaches the next image though the peer does nothing for it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* Where each image finds the connection, another number of it, and the peer's starting shot. */
#define CONN  7
#define AGAIN 8
#define GO    9
#define MORE  1000
/* More than the ring's smallest area, and in the window of a fresh connection on 6.1. */
#define UNREAD 60000

/* ---- from image to image: each runs the case again ---- */

static unsigned long env_number(const char *name)
{
	const char *text = getenv(name);
	return text ? strtoul(text, NULL, 10) : 0;
}

static void env_set(const char *name, unsigned long value)
{
	char text[32];
	snprintf(text, sizeof text, "%lu", value);
	NEED(setenv(name, text, 1) == 0);
}

/* 0 in the image that has the ring. */
static unsigned long step(void)
{
	return env_number("CARRY_STEP");
}

static pid_t peer_pid(void)
{
	return (pid_t)env_number("CARRY_PEER");
}

static size_t bytes(void)
{
	return env_number("CARRY_BYTES");
}

static void exec_next(const char *name)
{
	env_set("CARRY_STEP", step() + 1);
	execl("/proc/self/exe", "cases", name, (char *)NULL);
	broken("exec");
}

/* ---- the peers ---- */

struct plan {
	size_t bytes;
	bool fill; /* as many as fit, but not more than that */
	struct signal_pipe sent, go;
	int count[2]; /* a pipe: the number of bytes sent */
};

static size_t send_what_fits(int fd, size_t most)
{
	uint8_t *buf = malloc(most);
	size_t done = 0;
	ssize_t n;
	NEED(buf);
	for (size_t i = 0; i < most; i++)
		buf[i] = pattern(i);
	while (done < most && (n = send(fd, buf + done, most - done, MSG_DONTWAIT)) > 0)
		done += (size_t)n;
	free(buf);
	return done;
}

static void send_first(int fd, struct plan *p)
{
	size_t n = p->bytes;
	close(p->go.fd[1]);
	if (p->fill)
		n = p->bytes = send_what_fits(fd, n);
	else
		send_pattern(fd, 0, n);
	NEED(write(p->count[1], &n, sizeof n) == sizeof n);
}

/* Does nothing that Viaduct could see, until the new image lets it; then goes on. */
static void idle_peer(int fd, void *arg)
{
	struct plan *p = arg;
	char byte;
	int error;
	send_first(fd, p);
	signal_wait(p->go);
	send_pattern(fd, p->bytes, MORE);
	recv_all(fd, &byte, 1);
	shutdown(fd, SHUT_WR);
	say("answered %c, then %lu", byte, (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
}

static void closing_peer(int fd, void *arg)
{
	send_first(fd, arg);
	NEED(close(fd) == 0);
}

static void half_closing_peer(int fd, void *arg)
{
	int error;
	send_first(fd, arg);
	shutdown(fd, SHUT_WR);
	say("then %lu", (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
}

static void killed_peer(int fd, void *arg)
{
	send_first(fd, arg);
	raise(SIGKILL);
}

/* ---- the image that leaves ---- */

static void place(int from, int to)
{
	NEED(dup2(from, to) == to);
	NEED(close(from) == 0);
}

/* The connection has so many bytes unread, and is where the next image looks for it. */
static void set_up(struct plan *p, void (*peer)(int fd, void *arg))
{
	pid_t pid;
	size_t n;
	p->go = signal_pipe();
	NEED(pipe(p->count) == 0);
	int fd = peer_start(peer, p, &pid);
	NEED(read(p->count[0], &n, sizeof n) == sizeof n);
	env_set("CARRY_PEER", (unsigned long)pid);
	env_set("CARRY_BYTES", n);
	fd = fcntl(fd, F_DUPFD, 20);
	int go = fcntl(p->go.fd[1], F_DUPFD, 20);
	closefrom(100);
	for (int i = 3; i < 20; i++)
		close(i);
	place(fd, CONN);
	place(go, GO);
}

static void leave(const char *name, struct plan p, void (*peer)(int fd, void *arg))
{
	set_up(&p, peer);
	exec_next(name);
}

/* ---- the image that comes ---- */

static void start_peer(void)
{
	NEED(write(GO, "!", 1) == 1);
}

static void recv_rest(uint64_t off)
{
	uint8_t buf[4096];
	ssize_t n;
	while ((n = recv(CONN, buf, sizeof buf, 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			NEED(buf[i] == pattern(off++));
	say_result("end", n);
	say("all %d", off == bytes());
}

/* What the idle peer still has to send and to receive. */
static void finish(void)
{
	start_peer();
	send_all(CONN, "x", 1);
	recv_pattern(CONN, bytes(), MORE);
	send_pattern(CONN, 0, 30000);
	shutdown(CONN, SHUT_WR);
	say("status %d", child_status(peer_pid()));
}

static void drain(void)
{
	recv_pattern(CONN, 0, bytes());
	finish();
}

static void idle(const char *name, struct plan p)
{
	if (step())
		drain();
	else
		leave(name, p, idle_peer);
}

CASE(carry_some, DIRECT)
{
	idle("carry_some", (struct plan){.bytes = 100});
}

CASE(carry_much, DIRECT)
{
	idle("carry_much", (struct plan){.bytes = 1000000, .fill = true});
}

/* More than a socket's send buffer would take, in all areas of the ring. */
CASE(carry_most, DIRECT)
{
	idle("carry_most", (struct plan){.bytes = 4400000, .fill = true});
}

static void ended(const char *name, void (*peer)(int fd, void *arg), int events)
{
	if (!step()) {
		struct plan p = {.bytes = UNREAD};
		set_up(&p, peer);
		wait_events(CONN, events);
		exec_next(name);
	}
	recv_rest(0);
	send_pattern(CONN, 0, 10);
	shutdown(CONN, SHUT_WR);
	say("status %d", child_status(peer_pid()));
}

CASE(carry_peer_closed, DIRECT)
{
	ended("carry_peer_closed", closing_peer, POLLRDHUP);
}

CASE(carry_peer_half_closed, DIRECT)
{
	ended("carry_peer_half_closed", half_closing_peer, POLLRDHUP);
}

CASE(carry_peer_killed, DIRECT)
{
	ended("carry_peer_killed", killed_peer, POLLRDHUP);
}

/* ---- on the way ---- */

CASE(carry_through_shell, DIRECT)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	struct plan p = {.bytes = 50000};
	NEED(n > 0);
	self[n] = '\0';
	if (step()) {
		drain();
		return;
	}
	set_up(&p, idle_peer);
	env_set("CARRY_STEP", 1);
	execlp("sh", "sh", "-c", "test -n \"$1\" && exec \"$0\" \"$1\"", self,
	       "carry_through_shell", (char *)NULL);
	broken("exec");
}

CASE(carry_twice, DIRECT)
{
	if (step() == 0)
		leave("carry_twice", (struct plan){.bytes = 300000, .fill = true},
		      idle_peer);
	if (step() == 1) {
		recv_pattern(CONN, 0, 10001);
		exec_next("carry_twice");
	}
	recv_pattern(CONN, 10001, bytes() - 10001);
	finish();
}

static void write_script(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	NEED(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* Two files that lead on: with a shell's line, and with none, which is the shell's as well. */
static void scripts_open(const char *self, char *dir)
{
	char text[5000], path[64];
	NEED(mkdtemp(dir));
	snprintf(text, sizeof text, "#!/bin/sh\nexec \"%s\" carry_by_any_call\n", self);
	snprintf(path, sizeof path, "%s/script", dir);
	write_script(path, text);
	snprintf(path, sizeof path, "%s/text", dir);
	write_script(path, text + strlen("#!/bin/sh\n"));
	NEED(setenv("CARRY_DIR", dir, 1) == 0 && setenv("PATH", dir, 1) == 0);
}

static void scripts_close(void)
{
	char path[4200];
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", getenv("CARRY_DIR"),
			 i ? "text" : "script");
		NEED(unlink(path) == 0);
	}
	NEED(rmdir(getenv("CARRY_DIR")) == 0);
}

#define CALLS 12

static void exec_by(unsigned long call, const char *self)
{
	char *argv[] = {"cases", "carry_by_any_call", NULL};
	int fd = open(self, O_RDONLY | O_CLOEXEC);
	char path[4200];
	snprintf(path, sizeof path, "%s/script", getenv("CARRY_DIR"));
	NEED(fd >= 0);
	switch (call) {
	case 0:
		execve(self, argv, environ);
		break;
	case 1:
		execv(self, argv);
		break;
	case 2:
		execvp(self, argv);
		break;
	case 3:
		execvpe("script", argv, environ);
		break;
	case 4:
		execl(self, "cases", "carry_by_any_call", (char *)NULL);
		break;
	case 5:
		execle(self, "cases", "carry_by_any_call", (char *)NULL, environ);
		break;
	case 6:
		execlp("text", "text", (char *)NULL);
		break;
	case 7:
		fexecve(fd, argv, environ);
		break;
	case 8:
		execveat(fd, "", argv, environ, AT_EMPTY_PATH);
		break;
	case 9:
		syscall(SYS_execve, self, argv, environ);
		break;
	case 10:
		syscall(SYS_execveat, AT_FDCWD, self, argv, environ, 0);
		break;
	case 11:
		execv(path, argv);
		break;
	}
	broken("exec");
}

/* From image to image, each by another call, and a part is read in each. */
CASE(carry_by_any_call, DIRECT)
{
	char self[4096], dir[] = "/tmp/carry.XXXXXX";
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	unsigned long call = step();
	struct plan p = {.bytes = CALLS * 1000 + 500};
	NEED(n > 0);
	self[n] = '\0';
	if (call == 0) {
		scripts_open(self, dir);
		set_up(&p, idle_peer);
	} else {
		recv_pattern(CONN, (call - 1) * 1000, 1000);
	}
	if (call < CALLS) {
		env_set("CARRY_STEP", call + 1);
		exec_by(call, self);
	}
	scripts_close();
	recv_pattern(CONN, CALLS * 1000, 500);
	finish();
}

static void fail_to_exec(void)
{
	char *argv[] = {"none", NULL};
	say_result("execv", execv("/nonexistent/none", argv));
	/* This one can be preloaded, but not be executed. */
	say_result("execv", execv("/etc/passwd", argv));
}

CASE(carry_exec_fails, DIRECT)
{
	struct plan p = {.bytes = 100000};
	if (step() == 0) {
		set_up(&p, idle_peer);
		fail_to_exec();
		recv_pattern(CONN, 0, 1000);
		fail_to_exec();
		exec_next("carry_exec_fails");
	}
	recv_pattern(CONN, 1000, bytes() - 1000);
	fail_to_exec();
	finish();
}

CASE(carry_exec_fails_for_good, DIRECT)
{
	struct plan p = {.bytes = 100000};
	set_up(&p, idle_peer);
	fail_to_exec();
	drain();
}

/* ---- what the new image does ---- */

CASE(carry_then_poll, DIRECT)
{
	uint8_t byte;
	if (step() == 0)
		leave("carry_then_poll", (struct plan){.bytes = 20000}, idle_peer);
	wait_inq(CONN, (int)bytes());
	say("%s", poll_names(wait_events(CONN, POLLIN | POLLOUT | POLLRDHUP)));
	NEED(recv(CONN, &byte, 1, MSG_PEEK) == 1 && byte == pattern(0));
	recv_pattern(CONN, 0, bytes());
	struct pollfd pfd = {CONN, POLLIN, 0};
	say_result("poll", poll(&pfd, 1, 0));
	say_result("recv", recv(CONN, &byte, 1, MSG_DONTWAIT));
	finish();
}

/* Level-triggered, until nothing is left; over the end of what came along. */
CASE(carry_then_epoll, DIRECT)
{
	struct epoll_event ev = {.events = EPOLLIN};
	uint64_t off = 0;
	uint8_t buf[700];
	if (step() == 0)
		leave("carry_then_epoll", (struct plan){.bytes = 20000}, idle_peer);
	int epfd = epoll_create1(0);
	NEED(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, CONN, &ev) == 0);
	start_peer();
	while (off < bytes() + MORE) {
		NEED(epoll_wait(epfd, &ev, 1, -1) == 1 && (ev.events & EPOLLIN));
		ssize_t n = recv(CONN, buf, sizeof buf, MSG_DONTWAIT);
		NEED(n > 0);
		for (ssize_t i = 0; i < n; i++)
			NEED(buf[i] == pattern(off++));
	}
	say_result("epoll", epoll_wait(epfd, &ev, 1, 0));
	send_all(CONN, "x", 1);
	shutdown(CONN, SHUT_WR);
	say("status %d", child_status(peer_pid()));
}

/* One receive goes over the end of what came along. */
CASE(carry_then_waitall, DIRECT)
{
	uint8_t *buf;
	if (step() == 0)
		leave("carry_then_waitall", (struct plan){.bytes = 20000}, idle_peer);
	buf = malloc(bytes() + MORE);
	start_peer();
	say_result("recv", recv(CONN, buf, bytes() + MORE, MSG_WAITALL));
	for (size_t i = 0; i < bytes() + MORE; i++)
		NEED(buf[i] == pattern(i));
	send_all(CONN, "x", 1);
	close(CONN);
	say("status %d", child_status(peer_pid()));
}

CASE(carry_then_fork, DIRECT)
{
	if (step() == 0)
		leave("carry_then_fork", (struct plan){.bytes = 200000, .fill = true},
		      idle_peer);
	pid_t pid = fork();
	if (pid == 0) {
		recv_pattern(CONN, 0, 12000);
		exit(0);
	}
	say("child %d", child_status(pid));
	recv_pattern(CONN, 12000, bytes() - 12000);
	finish();
}

CASE(carry_two_numbers, DIRECT)
{
	struct plan p = {.bytes = 40000};
	if (step() == 0) {
		set_up(&p, idle_peer);
		NEED(dup2(CONN, AGAIN) == AGAIN);
		exec_next("carry_two_numbers");
	}
	recv_pattern(AGAIN, 0, 15000);
	recv_pattern(CONN, 15000, 15000);
	NEED(close(AGAIN) == 0);
	recv_pattern(CONN, 30000, 10000);
	finish();
}

/* Nothing of it is left for the program to see. */
CASE(carry_leaves_nothing, DIRECT)
{
	if (step() == 0)
		leave("carry_leaves_nothing", (struct plan){.bytes = 4000}, idle_peer);
	say("variable %d", getenv("VIADUCT_CARRY") != NULL);
	say("next %d", dup(CONN));
	drain();
}

/* ---- a peer that is in the middle of it ---- */

#define STREAM 3000000

static void streaming_peer(int fd, void *arg)
{
	struct plan *p = arg;
	size_t none = 0;
	NEED(write(p->count[1], &none, sizeof none) == sizeof none);
	for (size_t off = 0; off < STREAM; off += 1000)
		send_pattern(fd, off, 1000);
	shutdown(fd, SHUT_WR);
	wait_events(fd, POLLHUP | POLLERR);
}

CASE(carry_peer_stopped, DIRECT)
{
	struct plan p = {.bytes = 0};
	int status, have = 0;
	if (step() == 0) {
		set_up(&p, streaming_peer);
		do
			NEED(ioctl(CONN, FIONREAD, &have) == 0);
		while (have < UNREAD);
		kill(peer_pid(), SIGSTOP);
		NEED(waitpid(peer_pid(), &status, WUNTRACED) == peer_pid());
		env_set("CARRY_BYTES", STREAM);
		exec_next("carry_peer_stopped");
	}
	recv_pattern(CONN, 0, UNREAD);
	kill(peer_pid(), SIGCONT);
	recv_rest(UNREAD);
	close(CONN);
	say("status %d", child_status(peer_pid()));
}

/* ---- an image that is to stay on TCP, but not by VIADUCT=off: it takes it up ---- */

CASE(carry_to_one_off_by_profile, DIRECT)
{
	if (step() == 0)
		NEED(setenv("VIADUCT_PROFILE", "off", 1) == 0);
	idle("carry_to_one_off_by_profile", (struct plan){.bytes = 100000});
}

/* ---- an image that cannot take it up ---- */

/* An error, or all of it: never a part that looks like all. */
static void to_a_plain_image(const char *name)
{
	struct plan p = {.bytes = UNREAD};
	char buf[4096];
	size_t got = 0;
	ssize_t n;
	if (step() == 0) {
		set_up(&p, closing_peer);
		wait_events(CONN, POLLRDHUP);
		if (strstr(name, "off"))
			setenv("VIADUCT", "off", 1);
		else
			unsetenv("LD_PRELOAD");
		exec_next(name);
	}
	while ((n = recv(CONN, buf, sizeof buf, 0)) > 0)
		got += (size_t)n;
	say("lost in silence: %d", n == 0 && got != bytes());
	child_status(peer_pid());
}

CASE(carry_to_a_plain_image, DIRECT)
{
	to_a_plain_image("carry_to_a_plain_image");
}

CASE(carry_to_one_that_is_off, DIRECT)
{
	to_a_plain_image("carry_to_one_that_is_off");
}
