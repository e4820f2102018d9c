/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: several processes and several descriptors for one connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- descriptors ---- */

CASE(dup_and_close, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8];
	int other = dup(p.c), high = fcntl(p.c, F_DUPFD_CLOEXEC, 300);
	NEED(other >= 0 && high >= 300);
	close(p.c);
	send_pattern(other, 0, 5000);
	recv_pattern(p.s, 0, 5000);
	send_pattern(p.s, 0, 5000);
	recv_pattern(high, 0, 5000);
	close(other);
	say_result("still open", recv(p.s, buf, 1, MSG_DONTWAIT));
	send_all(high, "x", 1);
	say_result("recv", recv(p.s, buf, 8, 0));
	close(high);
	say_result("end", recv(p.s, buf, 1, 0));
	close(p.s);
}

CASE(dup2_over, DIRECT)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	char buf[8];
	/* q.c closes by being replaced. */
	say_result("dup2", dup2(p.c, q.c) == q.c ? 0 : -1);
	say_result("end of the other", recv(q.s, buf, 1, 0));
	send_pattern(q.c, 0, 5000);
	recv_pattern(p.s, 0, 5000);
	say_result("onto itself", dup2(p.c, p.c) == p.c ? 0 : -1);
	say_result("dup3 onto itself", dup3(p.c, p.c, 0));
	int null = open("/dev/null", O_RDWR);
	say_result("replaced by a file", dup2(null, p.c) == p.c ? 0 : -1);
	say_result("write to it", write(p.c, "x", 1));
	say_result("read of it", read(p.c, buf, 1));
	say_result("not closed yet", recv(p.s, buf, 1, MSG_DONTWAIT));
	close(q.c);
	say_result("end", recv(p.s, buf, 1, 0));
	close(p.s);
	close(p.c);
}

CASE(number_used_again, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8];
	int pipes[2];
	close(p.c);
	NEED(pipe(pipes) == 0);
	say("same number: %d", pipes[1] == p.c);
	NEED(write(pipes[1], "abc", 3) == 3);
	say_result("read the pipe", read(pipes[0], buf, 8));
	say_result("recv of the pipe", recv(pipes[0], buf, 8, 0));
	say_result("send to the pipe", send(pipes[1], buf, 8, 0));
	say_result("write to the pipe", write(pipes[1], "abcd", 4));
	say_result("end", recv(p.s, buf, 8, 0));
	close(p.s);
}

CASE(close_range_closes, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8];
	int high = fcntl(p.s, F_DUPFD, 400);
	send_all(p.c, "x", 1);
	say_result("close_range", close_range(3, 399, 0));
	say_result("closed", recv(p.c, buf, 1, 0));
	say_result("recv", recv(high, buf, 8, 0));
	say_result("end", recv(high, buf, 8, 0));
	closefrom(3);
	say_result("closed too", recv(high, buf, 8, 0));
	/* What a program that closes everything does next. */
	p = pair_warm_open();
	say("lowest: %d", p.c < 8 && p.s < 8);
	pair_close(p);
}

CASE(lowest_numbers_are_free, DIRECT)
{
	struct pair p = pair_warm_open();
	int a = dup(0), b = dup(0);
	say("next: %d and %d", a, b);
	pair_close(p);
}

/* ---- fork ---- */

CASE(fork_both_use_it, DIRECT)
{
	struct pair p = pair_warm_open();
	struct signal_pipe child_done = signal_pipe(), go = signal_pipe();
	pid_t pid = fork();
	char buf[64];
	if (pid == 0) {
		say_as("child");
		signal_wait(go);
		send_all(p.c, "child", 5);
		recv_all(p.c, buf, 6);
		say("%.6s", buf);
		signal_send(child_done);
		signal_wait(go);
		_exit(0);
	}
	send_all(p.c, "mother", 6);
	recv_all(p.s, buf, 6);
	say("%.6s", buf);
	signal_send(go);
	recv_all(p.s, buf, 5);
	say("%.5s", buf);
	send_all(p.s, "answer", 6);
	signal_wait(child_done);
	for (int i = 0; i < 100; i++) {
		send_pattern(p.c, (uint64_t)i * 1000, 1000);
		recv_pattern(p.s, (uint64_t)i * 1000, 1000);
	}
	NEED(close(p.c) == 0);
	say_result("the child holds it", recv(p.s, buf, 1, MSG_DONTWAIT));
	signal_send(go);
	say("status %d", child_status(pid));
	say_result("end", recv(p.s, buf, 1, 0));
	close(p.s);
}

/* As servers do it: the child serves, the parent closes its copy at once. */
/* ---- fork while other threads work ---- */

static atomic_bool listeners_stop;

static void *listeners_come_and_go(void *unused)
{
	(void)unused;
	while (!atomic_load(&listeners_stop)) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		NEED(fd >= 0 && listen(fd, 1) == 0);
		close(fd);
	}
	return NULL;
}

static void *pairs_come_and_go(void *unused)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	(void)unused;
	/* Not for ever: each leaves a port behind for a minute. */
	for (int i = 0; i < 2000 && !atomic_load(&listeners_stop); i++) {
		struct pair p = {.c = connect_to(AF_INET, port)};
		p.s = accept(listener, NULL, NULL);
		NEED(p.s >= 0);
		pair_warm(p);
		pair_close(p);
	}
	close(listener);
	return NULL;
}

/* A child of whatever moment listens, connects and talks. */
CASE(fork_amid_listeners, DIRECT)
{
	pthread_t threads[2];
	int good = 0;
	NEED(pthread_create(&threads[0], NULL, listeners_come_and_go, NULL) == 0);
	NEED(pthread_create(&threads[1], NULL, pairs_come_and_go, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct pair p = pair_warm_open();
			send_pattern(p.c, 0, 1000);
			recv_pattern(p.s, 0, 1000);
			pair_close(p);
			_exit(0);
		}
		good += child_status(pid) == 0;
	}
	atomic_store(&listeners_stop, true);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	say("children that did well: %d", good);
}

CASE(fork_child_serves, ANYWAY)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), error;
	for (int i = 0; i < 3; i++) {
		int c = connect_to(AF_INET, port);
		int s = accept(listener, NULL, NULL);
		pid_t pid = fork();
		if (pid == 0) {
			close(c);
			close(listener);
			warm_second(s);
			send_pattern(s, 0, 200000);
			exit(0);
		}
		close(s);
		warm_first(c);
		say("got %lu", (unsigned long)recv_to_end(c, &error));
		say("status %d", child_status(pid));
		close(c);
	}
}

/* A child that only inherits, and goes: the connection must not notice. */
CASE(fork_child_exits, DIRECT)
{
	struct pair p = pair_warm_open();
	char c;
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (i % 3 == 0)
				close(p.c);
			if (i % 3 == 1)
				_exit(0);
			exit(0);
		}
		send_pattern(p.c, 0, 10000);
		recv_pattern(p.s, 0, 10000);
		NEED(child_status(pid) == 0);
		send_pattern(p.s, 0, 10000);
		recv_pattern(p.c, 0, 10000);
	}
	say_result("open", recv(p.s, &c, 1, MSG_DONTWAIT));
	pair_close(p);
	say("done");
}

CASE(vfork_and_exec, DIRECT)
{
	struct pair p = pair_warm_open();
	char *argv[] = {"true", NULL};
	for (int i = 0; i < 10; i++) {
		pid_t pid = vfork();
		if (pid == 0) {
			execv("/bin/true", argv);
			_exit(9);
		}
		NEED(child_status(pid) == 0);
		NEED(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
		NEED(child_status(pid) == 0);
		NEED(system("exit 0") == 0);
		send_pattern(p.c, 0, 10000);
		recv_pattern(p.s, 0, 10000);
	}
	say("done");
	pair_close(p);
}

static const size_t blocked_bytes = 30u << 20;

static void blocked_peer(int fd, void *arg)
{
	struct signal_pipe *start = arg;
	static uint8_t buf[65536];
	uint64_t from_child = 0, from_parent = 0;
	bool wrong = false;
	for (int i = 0; i < 200; i++) {
		send_all(fd, "parent", 6);
		/* The parent answers through the same socket on which the child blocks. */
		if (i == 100)
			signal_wait(*start);
	}
	for (;;) {
		ssize_t r = recv(fd, buf, sizeof buf, 0);
		if (r <= 0)
			break;
		for (ssize_t i = 0; i < r; i++) {
			if (buf[i] == 0)
				from_parent++;
			else
				wrong |= buf[i] != pattern(from_child++);
		}
	}
	say("child sent %lu, parent %lu, wrong %d", (unsigned long)from_child,
	    (unsigned long)from_parent, wrong);
}

/*
 * A forked child is inside one blocking send while the parent goes on: its bytes are a
 * stream without zeros, the parent's are zeros.
 */
static void blocked_send(bool warm)
{
	struct signal_pipe start = signal_pipe();
	pid_t peer, child;
	int fd = warm ? peer_start(blocked_peer, &start, &peer)
		      : peer_start_cold(blocked_peer, &start, &peer);
	char buf[8];
	child = fork();
	if (child == 0) {
		uint8_t *all = malloc(blocked_bytes);
		for (size_t i = 0; i < blocked_bytes; i++)
			all[i] = pattern(i);
		send_all(fd, all, blocked_bytes);
		_exit(0);
	}
	for (int i = 0; i < 100; i++)
		recv_all(fd, buf, 6);
	wait_asleep(child, child);
	signal_send(start);
	for (int i = 0; i < 100; i++) {
		recv_all(fd, buf, 6);
		if (i % 10 == 0)
			send_all(fd, "\0\0\0", 3);
	}
	say("status %d", child_status(child));
	send_all(fd, "\0\0\0", 3);
	shutdown(fd, SHUT_WR);
	say("status %d", child_status(peer));
	close(fd);
}

CASE(blocked_send_before, ANYWAY)
{
	blocked_send(false);
}

CASE(blocked_send_after, DIRECT)
{
	blocked_send(true);
}

/* ---- libc's own writers ---- */

static void read_lines(int fd, void *arg)
{
	char buf[256];
	ssize_t r;
	(void)arg;
	shutdown(fd, SHUT_WR);
	size_t len = 0;
	while ((r = recv(fd, buf + len, sizeof buf - 1 - len, 0)) > 0)
		len += (size_t)r;
	buf[len] = '\0';
	/* One line of result, whatever came. */
	for (char *p = buf; (p = strchr(p, '\n'));)
		*p = '|';
	say("%s", buf);
	say_result("end", r);
}

static void print_through(int fd, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_result("vdprintf", vdprintf(fd, fmt, ap));
	va_end(ap);
}

CASE(dprintf_on_it, DIRECT)
{
	pid_t peer;
	int fd = peer_start(read_lines, NULL, &peer);
	send_all(fd, "one ", 4);
	say_result("dprintf", dprintf(fd, "%s %d ", "two", 2));
	send_all(fd, "three ", 6);
	print_through(fd, "%s ", "four");
	send_all(fd, "five", 4);
	close(fd);
	say("status %d", child_status(peer));
}

CASE(fdopen_on_it, DIRECT)
{
	pid_t peer;
	int fd = peer_start(read_lines, NULL, &peer);
	send_all(fd, "one ", 4);
	FILE *f = fdopen(fd, "r+");
	NEED(f);
	say_result("fprintf", fprintf(f, "two %d ", 2));
	say_result("fflush", fflush(f));
	say_result("fputs", fputs("three ", f) < 0 ? -1 : 0);
	say_result("fclose", fclose(f));
	say("status %d", child_status(peer));
}

static void write_lines(int fd, void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000; i++) {
		char line[32];
		int n = sprintf(line, "line %d\n", i);
		send_all(fd, line, (size_t)n);
	}
}

CASE(fgets_on_it, DIRECT)
{
	pid_t peer;
	int fd = peer_start(write_lines, NULL, &peer), n = 0, wrong = 0;
	char line[64], want[64];
	recv_all(fd, line, 7);
	FILE *f = fdopen(fd, "r");
	for (n = 1; fgets(line, sizeof line, f); n++) {
		sprintf(want, "line %d\n", n);
		wrong += strcmp(line, want) != 0;
	}
	say("%d lines, %d wrong, error %d", n, wrong, ferror(f));
	say_result("fclose", fclose(f));
	say("status %d", child_status(peer));
}

CASE(fclose_closes_a_number, DIRECT)
{
	struct pair p = pair_warm_open();
	FILE *f = tmpfile();
	char buf[8];
	int number = fileno(f);
	fputs("x", f);
	fclose(f);
	/* The number is free: a connection takes it, and is used. */
	int again = dup(p.c);
	say("same number: %d", again == number);
	send_all(again, "abc", 3);
	say_result("recv", recv(p.s, buf, 8, 0));
	close(again);
	pair_close(p);
}

CASE(stdio_socket, ANYWAY)
{
	pid_t peer;
	int fd = peer_start(read_lines, NULL, &peer);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, 1);
		printf("hello ");
		fflush(stdout);
		puts("world");
		exit(0);
	}
	close(fd);
	say("status %d", child_status(pid));
	say("status %d", child_status(peer));
}

CASE(daemon_on_it, ANYWAY)
{
	pid_t peer;
	struct signal_pipe done = signal_pipe(), go = signal_pipe();
	int fd = peer_start(read_lines, NULL, &peer);
	pid_t pid = fork();
	if (pid == 0) {
		signal_wait(go);
		send_all(fd, "before ", 7);
		if (daemon(1, 1) != 0)
			_exit(9);
		send_all(fd, "after ", 6);
		close(fd);
		signal_send(done);
		_exit(0);
	}
	send_all(fd, "mother ", 7);
	signal_send(go);
	say("status %d", child_status(pid));
	signal_wait(done);
	close(fd);
	say("status %d", child_status(peer));
}

/* ---- an instance that a forked child has, too ---- */

static void show_events(int ep, const char *who)
{
	struct epoll_event ev[8];
	int n = epoll_wait(ep, ev, 8, 0);

	say_result(who, n);
	for (int i = 0; i < n; i++)
		say("data %llu: %s", (unsigned long long)ev[i].data.u64,
		    poll_names((int)ev[i].events));
}

/* A connection of the child's own, which stays until both have looked. */
static void child_registers(int ep, struct signal_pipe there, struct signal_pipe seen,
			    uint32_t events)
{
	struct pair p = pair_warm_open();
	struct epoll_event ev = {.events = events, .data.u64 = 77};

	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	signal_send(there);
	signal_wait(seen);
	say_as("child");
	show_events(ep, "wait");
	_exit(0);
}

CASE(instance_shared_with_a_child, DIRECT)
{
	const uint32_t events[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLONESHOT};

	for (int i = 0; i < 3; i++) {
		struct signal_pipe there = signal_pipe(), seen = signal_pipe();
		int ep = epoll_create1(0);
		pid_t pid = fork();

		NEED(ep >= 0 && pid >= 0);
		if (pid == 0)
			child_registers(ep, there, seen, events[i]);
		signal_wait(there);
		show_events(ep, "wait");
		signal_send(seen);
		say("status %d", child_status(pid));
		show_events(ep, "wait");
		close(ep);
	}
}

/* The child sees what its parent has registered since, too; or nothing, but nothing else. */
CASE(instance_shared_with_a_parent, DIRECT)
{
	struct signal_pipe there = signal_pipe(), seen = signal_pipe();
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 78};
	int ep = epoll_create1(0);
	pid_t pid = fork();

	NEED(ep >= 0 && pid >= 0);
	if (pid == 0) {
		struct epoll_event got = {0};

		signal_wait(there);
		say_as("child");
		say("ours alone: %d",
		    epoll_wait(ep, &got, 1, 0) <= 0 || got.data.u64 == 78);
		signal_send(seen);
		_exit(0);
	}
	struct pair p = pair_warm_open();

	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	signal_send(there);
	signal_wait(seen);
	say("status %d", child_status(pid));
	pair_close(p);
	close(ep);
}
