/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: threads with descriptors of their own, and processes that share them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

enum { STACK = 1 << 17 };

static void talk_quietly(struct pair p)
{
	char buf[8];
	for (int i = 0; i < 20; i++) {
		send_all(p.c, "there", 5);
		recv_all(p.s, buf, 5);
		send_all(p.s, "back", 4);
		recv_all(p.c, buf, 4);
	}
}

static void talk(struct pair p)
{
	talk_quietly(p);
	say("talked");
}

/* ---- threads ---- */

struct apart {
	struct pair p;
	int how;
	struct signal_pipe parted, go;
};

static int part(int how)
{
	switch (how) {
	case 0:
		return unshare(CLONE_FILES);
	case 1:
		return (int)syscall(SYS_unshare, CLONE_FILES | CLONE_FS);
	case 2:
		return close_range(900, 901, CLOSE_RANGE_UNSHARE);
	default:
		return (int)syscall(SYS_close_range, 900, 901,
				    CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC);
	}
}
#define WAYS 4

static void part_and_close(void *arg)
{
	struct apart *a = arg;
	say("part: %d", part(a->how));
	close(a->p.c);
	close(a->p.s);
	say_result("closed here", fcntl(a->p.c, F_GETFD));
}

/* What a thread closes in its own table stays open in the others'. */
CASE(parted_thread_closes, DIRECT)
{
	for (int how = 0; how < WAYS; how++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct apart a = {.p = pair_warm_open(), .how = how};
			struct worker w = {0};
			alarm(30);
			say_as("child");
			send_all(a.p.c, "un", 2);
			worker_start(&w, part_and_close, &a);
			worker_join(&w);
			char buf[8] = "";
			recv_all(a.p.s, buf, 2);
			say("unread: %s", buf);
			talk(a.p);
			close(a.p.c);
			say_result("end", recv(a.p.s, buf, 8, 0));
			_exit(0);
		}
		say("status %d", child_status(pid));
	}
}

/* The other way round: the thread has the connection when the rest has closed it. */
static void part_and_use(void *arg)
{
	struct apart *a = arg;
	char buf[8] = "";
	say("part: %d", part(0));
	signal_send(a->parted);
	signal_wait(a->go);
	talk(a->p);
	close(a->p.c);
	say_result("end", recv(a->p.s, buf, 8, 0));
}

CASE(parted_thread_keeps, DIRECT)
{
	struct apart a = {
		.p = pair_warm_open(), .parted = signal_pipe(), .go = signal_pipe()};
	struct worker w = {0};
	worker_start(&w, part_and_use, &a);
	signal_wait(a.parted);
	close(a.p.c);
	close(a.p.s);
	/* The numbers are other connections here. */
	struct pair q = pair_warm_open();
	signal_send(a.go);
	talk_quietly(q);
	worker_join(&w);
	talk(q);
	pair_close(q);
}

/* The thread has a connection of its own under a number that the others have, too. */
static void part_and_open(void *arg)
{
	struct apart *a = arg;
	say("part: %d", part(0));
	close(a->p.s);
	close(a->p.c);
	struct pair q = pair_warm_open();
	signal_send(a->parted);
	signal_wait(a->go);
	talk(q);
	pair_close(q);
}

static void echoes(int fd, void *arg)
{
	char buf[8];
	(void)arg;
	for (int i = 0; i < 20; i++) {
		recv_all(fd, buf, 5);
		send_all(fd, buf, 5);
	}
	say_result("end", recv(fd, buf, 8, 0));
}

CASE(parted_thread_opens, DIRECT)
{
	pid_t peer;
	struct apart a = {.p = {.c = -1, .s = peer_start(echoes, NULL, &peer)},
			  .parted = signal_pipe(),
			  .go = signal_pipe()};
	struct worker w = {0};
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = a.p.s};
	int epfd = epoll_create1(0);
	char buf[8];
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, a.p.s, &ev) == 0);
	worker_start(&w, part_and_open, &a);
	signal_wait(a.parted);
	for (int i = 0; i < 20; i++) {
		send_all(a.p.s, "hello", 5);
		NEED(epoll_wait(epfd, &ev, 1, -1) == 1 && ev.data.fd == a.p.s);
		recv_all(a.p.s, buf, 5);
	}
	signal_send(a.go);
	worker_join(&w);
	close(a.p.s);
	say("status %d", child_status(peer));
}

/* Nobody else has the table: nothing is parted. */
CASE(parted_alone, STAYS)
{
	struct pair p = pair_warm_open();
	for (int how = 0; how < WAYS; how++)
		say("part: %d", part(how));
	talk(p);
	say("close: %d", close_range((unsigned)p.c, (unsigned)p.c, CLOSE_RANGE_UNSHARE));
	char buf[8];
	say_result("end", recv(p.s, buf, 8, 0));
	close(p.s);
}

/* Later connections of such a process, and a listener. */
static void part_only(void *arg)
{
	say("part: %d", part(*(int *)arg));
}

CASE(parted_then_new, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker w = {0};
	int how = 0;
	worker_start(&w, part_only, &how);
	worker_join(&w);
	talk(p);
	for (int i = 0; i < 3; i++) {
		struct pair q = pair_warm_open();
		talk(q);
		pair_close(q);
	}
	pair_close(p);
}

/* Another thread waits for bytes when it happens. */
static void waits(void *arg)
{
	char buf[8] = "";
	recv_all(*(int *)arg, buf, 5);
	say("woken: %s", buf);
}

CASE(parted_while_received, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker w = {0}, v = {0};
	int how = 0;
	worker_start(&w, waits, &p.s);
	wait_asleep(getpid(), w.tid);
	worker_start(&v, part_only, &how);
	worker_join(&v);
	send_all(p.c, "hello", 5);
	worker_join(&w);
	pair_close(p);
}

/* ---- processes ---- */

static int closes_both(void *arg)
{
	const struct pair *p = arg;
	close(p->c);
	close(p->s);
	_exit(fcntl(p->c, F_GETFD) < 0 && errno == EBADF ? 4 : 5);
}

/* Our memory, and a copy of our descriptors. */
CASE(parted_clone_memory, DIRECT)
{
	struct pair p = pair_warm_open();
	char *stack = malloc(STACK);
	pid_t pid = clone(closes_both, stack + STACK, CLONE_VM | SIGCHLD, &p);
	say("status %d", child_status(pid));
	talk(p);
	pair_close(p);
}

static int sends_more(void *arg)
{
	const struct pair *p = arg;
	char buf[8];
	recv_all(p->s, buf, 4);
	send_all(p->s, "from below", 10);
	_exit(6);
}

CASE(parted_clone_uses_it, DIRECT)
{
	struct pair p = pair_warm_open();
	char *stack = malloc(STACK), buf[16] = "";
	send_all(p.c, "read", 4);
	pid_t pid = clone(sends_more, stack + STACK, CLONE_VM | CLONE_FS | SIGCHLD, &p);
	recv_all(p.c, buf, 10);
	say("%s, status %d", buf, child_status(pid));
	talk(p);
	pair_close(p);
}

/* The same with a peer elsewhere, with bytes that nobody has read yet. */
CASE(parted_clone_memory_peer, DIRECT)
{
	pid_t peer;
	struct pair p = {.c = peer_start(echoes, NULL, &peer)};
	char *stack = malloc(STACK), buf[8];
	p.s = dup(p.c);
	send_all(p.c, "hello", 5);
	wait_events(p.c, POLLIN);
	pid_t pid = clone(closes_both, stack + STACK, CLONE_VM | SIGCHLD, &p);
	say("status %d", child_status(pid));
	for (int i = 0; i < 20; i++) {
		recv_all(p.s, buf, 5);
		if (i < 19)
			send_all(p.c, "hello", 5);
	}
	close(p.c);
	close(p.s);
	say("status %d", child_status(peer));
}

static int sends_and_closes(void *arg)
{
	const struct pair *p = arg;
	if (send(p->s, "below", 5, 0) != 5)
		return 5;
	return close(p->s) == 0 ? 4 : 6;
}

/* Our memory and our descriptors, lent as by vfork: what it closes is closed for us. */
CASE(parted_clone_lent, DIRECT)
{
	struct pair p = pair_warm_open();
	char *stack = malloc(STACK), buf[8];
	pid_t pid = clone(sends_and_closes, stack + STACK,
			  CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &p);
	say("status %d", child_status(pid));
	say_result("send", send(p.s, "more", 4, MSG_NOSIGNAL));
	say_result("recv", recv(p.s, buf, 8, MSG_DONTWAIT));
	say_result("from below", recv(p.c, buf, 8, 0));
	say_result("end", recv(p.c, buf, 8, 0));
	say_result("close", close(p.s));
	close(p.c);
}

/* Our descriptors, and a copy of our memory. */
CASE(parted_clone_files, DIRECT)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	char *stack = malloc(STACK);
	pid_t pid = clone(closes_both, stack + STACK, CLONE_FILES | SIGCHLD, &p);
	say("status %d", child_status(pid));
	say_result("send", send(p.c, "x", 1, MSG_NOSIGNAL));
	say_result("recv", recv(p.s, &(char){0}, 1, MSG_DONTWAIT));
	say_result("close", close(p.s));
	talk(q);
	pair_close(q);
}

static long clone_files(int how)
{
	struct clone_args args = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};
	if (how == 0)
		return syscall(SYS_clone, (long)(CLONE_FILES | SIGCHLD), 0L, 0L, 0L, 0L);
	return syscall(SYS_clone3, &args, sizeof args);
}

/* A descriptor that the child makes is ours as well. */
CASE(parted_child_makes_one, DIRECT)
{
	for (int how = 0; how < 2; how++) {
		struct pair p = pair_warm_open();
		struct signal_pipe made = signal_pipe(), done = signal_pipe();
		uint16_t port;
		int listener = listen_any(AF_INET, &port);
		long pid = clone_files(how);
		if (pid < 0 && errno == ENOSYS)
			skip("no clone3 here");
		NEED(pid >= 0);
		if (pid == 0) {
			int fd = connect_to(AF_INET, port);
			dup2(fd, 100);
			close(fd);
			signal_send(made);
			signal_wait(done);
			close(p.c);
			_exit(4);
		}
		struct pair q = {.c = 100, .s = accept(listener, NULL, NULL)};
		signal_wait(made);
		talk(q);
		talk(p);
		signal_send(done);
		say("status %d", child_status((pid_t)pid));
		say_result("closed there", fcntl(p.c, F_GETFD));
		say_result("end", recv(p.s, &(char){0}, 1, 0));
		pair_close(q);
		close(p.s);
		close(listener);
	}
}

/* A child of vfork by clone: it waits for nothing, and what is ours stays direct. */
CASE(parted_not_by_vfork, STAYS)
{
	struct pair p = pair_warm_open();
	char *stack = malloc(STACK);
	pid_t pid =
		clone(closes_both, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &p);
	say("status %d", child_status(pid));
	talk(p);
	pair_close(p);
}

CASE(parted_refused_calls, STAYS)
{
	struct pair p = pair_warm_open();
	say_result("clone3", syscall(SYS_clone3, NULL, 0L));
	say_result("range", close_range(5, 4, CLOSE_RANGE_UNSHARE));
	say_result("range", close_range(5, 6, 1 << 20 | CLOSE_RANGE_UNSHARE));
	talk(p);
	pair_close(p);
}
