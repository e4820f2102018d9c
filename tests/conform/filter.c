/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: filters of system calls, and their like, that the program puts on itself. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"

#define SOON 20000
#define MOST 32

/* ---- filters ---- */

static void add(struct sock_fprog *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
	NEED(p->len < MOST);
	p->filter[p->len++] = (struct sock_filter){code, yes, no, k};
}

/* Allows these numbers, up to -1; all others end the process, or have an error. */
static struct sock_fprog allow(struct sock_filter *code, uint32_t others,
			       const int *numbers)
{
	struct sock_fprog p = {.filter = code};

	add(&p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	for (; *numbers >= 0; numbers++) {
		add(&p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)*numbers, 0, 1);
		add(&p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	}
	add(&p, BPF_RET | BPF_K, others, 0, 0);
	return p;
}

static void by_prctl(uint32_t others, const int *numbers)
{
	struct sock_filter code[MOST];
	struct sock_fprog p = allow(code, others, numbers);

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
}

static void by_seccomp(uint32_t others, const int *numbers, unsigned flags)
{
	struct sock_filter code[MOST];
	struct sock_fprog p = allow(code, others, numbers);

	NEED(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p) == 0);
}

static void strict(void)
{
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
}

#define OTHERS_ERROR (SECCOMP_RET_ERRNO | EPERM)
#define OTHERS_KILL  SECCOMP_RET_KILL_PROCESS

static const int few_calls[] = {SYS_read, SYS_write,	  SYS_poll,
				SYS_exit, SYS_exit_group, -1};
static const int select_calls[] = {
	SYS_read,	SYS_write, SYS_select,	   SYS_pselect6,
	SYS_epoll_wait, SYS_exit,  SYS_exit_group, -1};

/* ---- who is filtered: a child, so that the case lives on ---- */

struct filtered {
	int fd;
	void (*put_on)(void);
};

/* Only read, write and the bare exit. */
_Noreturn static void leave(void)
{
	syscall(SYS_exit, 0);
	abort();
}

static void echo_some(const struct filtered *f)
{
	char buf[8];

	for (;;) {
		ssize_t n = read(f->fd, buf, sizeof(buf));

		if (n <= 0) {
			say_result("read", n);
			break;
		}
		if (write(f->fd, buf, (size_t)n) != n)
			break;
	}
}

/* The other end: bytes that come, one at a time, after it has slept. */
static void ask(int fd, void *arg)
{
	char c = 0;

	(void)arg;
	for (char i = 'a'; i < 'k'; i++) {
		send_all(fd, &i, 1);
		recv_all(fd, &c, 1);
		NEED(c == i);
		usleep(1000); /* it goes to sleep for the next */
	}
}

static void run_filtered(struct filtered *f, void (*run)(const struct filtered *f))
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		f->put_on();
		run(f);
		leave();
	}
	close(f->fd);
	say("child %d", child_status(pid));
}

static void echo_behind(void (*put_on)(void))
{
	struct filtered f = {.put_on = put_on};
	pid_t peer;

	f.fd = peer_start(ask, NULL, &peer);
	run_filtered(&f, echo_some);
	say("peer %d", child_status(peer));
}

CASE(filter_strict, DIRECT)
{
	echo_behind(strict);
}

static void few_by_prctl(void)
{
	by_prctl(OTHERS_KILL, few_calls);
}

CASE(filter_few_calls, DIRECT)
{
	echo_behind(few_by_prctl);
}

/* Not system calls, but the processors' clock. */
static void no_clock(void)
{
	NEED(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0);
}

CASE(filter_clock, DIRECT)
{
	echo_behind(no_clock);
}

static void no_clock_by_syscall(void)
{
	NEED(syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0);
}

CASE(filter_clock_by_syscall, DIRECT)
{
	echo_behind(no_clock_by_syscall);
}

static void few_by_seccomp(void)
{
	by_seccomp(OTHERS_ERROR, few_calls, SECCOMP_FILTER_FLAG_TSYNC);
}

CASE(filter_by_seccomp, DIRECT)
{
	echo_behind(few_by_seccomp);
}

static void strict_by_seccomp(void)
{
	NEED(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
}

CASE(filter_strict_by_seccomp, DIRECT)
{
	echo_behind(strict_by_seccomp);
}

static void few_by_syscall(void)
{
	struct sock_filter code[MOST];
	struct sock_fprog p = allow(code, OTHERS_ERROR, few_calls);

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p, 0, 0) == 0);
}

CASE(filter_by_syscall, DIRECT)
{
	echo_behind(few_by_syscall);
}

/* Whose end a signal is, and children of it. */
static void wait_for_end(const struct filtered *f)
{
	static const char byte = 'r';

	NEED(write(f->fd, &byte, 1) == 1);
	echo_some(f);
}

static void end_it(int fd, void *arg)
{
	char c;

	(void)arg;
	recv_all(fd, &c, 1);
	recv_all(fd, &c, 1);
}

CASE(filter_ended_by_signal, DIRECT)
{
	struct filtered f = {.put_on = strict};
	pid_t peer, pid;

	f.fd = peer_start(end_it, NULL, &peer);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		strict();
		wait_for_end(&f);
		leave();
	}
	wait_asleep(pid, pid);
	kill(pid, SIGTERM);
	say("child %d", child_status(pid));
	NEED(write(f.fd, "x", 1) == 1);
	say("peer %d", child_status(peer));
}

/* ---- waits ---- */

static void echo_polling(const struct filtered *f)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};
	char c;

	for (int i = 0; poll(&p, 1, SOON) == 1 && read(f->fd, &c, 1) == 1; i++) {
		if (i < 2)
			say("%s", poll_names(p.revents));
		NEED(write(f->fd, &c, 1) == 1);
	}
	say("%s", poll_names(p.revents));
}

static void waits_behind(void (*put_on)(void), void (*run)(const struct filtered *f))
{
	struct filtered f = {.put_on = put_on};
	pid_t peer;

	f.fd = peer_start(ask, NULL, &peer);
	run_filtered(&f, run);
	say("peer %d", child_status(peer));
}

CASE(filter_poll, DIRECT)
{
	waits_behind(few_by_prctl, echo_polling);
}

static void select_by_prctl(void)
{
	by_prctl(OTHERS_KILL, select_calls);
}

static void echo_selecting(const struct filtered *f)
{
	struct timeval soon = {SOON / 1000, 0};
	fd_set set;
	char c;

	FD_ZERO(&set);
	FD_SET(f->fd, &set);
	while (select(f->fd + 1, &set, NULL, NULL, &soon) == 1 &&
	       read(f->fd, &c, 1) == 1) {
		NEED(write(f->fd, &c, 1) == 1);
		soon = (struct timeval){SOON / 1000, 0};
	}
	say("%d", FD_ISSET(f->fd, &set));
}

CASE(filter_select, DIRECT)
{
	waits_behind(select_by_prctl, echo_selecting);
}

static int epoll_of(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = 77};
	int ep = epoll_create1(0);

	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	return ep;
}

/* One C library's epoll_wait is allowed behind the filter, and the other's is not. Whether a byte of ours was unread
 * when that killed the other end, by which the connection ends in another way, is chance. */
static void ask_while_it_lives(int fd, void *arg)
{
	char c = 0;

	(void)arg;
	for (char i = 'a'; i < 'k'; i++) {
		if (send(fd, &i, 1, MSG_NOSIGNAL) != 1 || recv(fd, &c, 1, 0) != 1)
			return;
		NEED(c == i);
		usleep(1000);
	}
}

/* The instance is there before the filter, and its sockets were upgraded. */
static void epoll_filtered(uint32_t events)
{
	struct filtered f = {.put_on = select_by_prctl};
	struct epoll_event ev;
	pid_t peer, pid;
	char c;

	f.fd = peer_start(ask_while_it_lives, NULL, &peer);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		int ep = epoll_of(f.fd, events);

		say_as("child");
		NEED(epoll_wait(ep, &ev, 1, SOON) == 1);
		f.put_on();
		while (read(f.fd, &c, 1) == 1 && write(f.fd, &c, 1) == 1 &&
		       epoll_wait(ep, &ev, 1, SOON) == 1)
			;
		say("%s %llu", poll_names((int)ev.events),
		    (unsigned long long)ev.data.u64);
		leave();
	}
	close(f.fd);
	say("child %d", child_status(pid));
	say("peer %d", child_status(peer));
}

CASE(filter_epoll, DIRECT)
{
	epoll_filtered(EPOLLIN);
}

CASE(filter_epoll_edge, DIRECT)
{
	epoll_filtered(EPOLLIN | EPOLLET | EPOLLRDHUP);
}

/* ---- what is unread ---- */

struct sends {
	struct signal_pipe sent, go;
	bool closes;
};

static void send_and_be_silent(int fd, void *arg)
{
	struct sends *s = arg;

	send_pattern(fd, 0, 100000);
	if (s->closes)
		shutdown(fd, SHUT_WR);
	signal_send(s->sent);
	signal_wait(s->go); /* no call of ours */
	if (!s->closes)
		send_pattern(fd, 100000, 1000);
}

static void read_behind(void (*put_on)(void), bool closes, bool first)
{
	static char buf[200000];
	struct sends s = {signal_pipe(), signal_pipe(), closes};
	size_t got = 0, bad = 0;
	pid_t peer, pid;
	int fd = peer_start(send_and_be_silent, &s, &peer);

	signal_wait(s.sent);
	if (first)
		recv_pattern(fd, 0, 1000);
	/* In this process, which has the socket alone. */
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		/* Not a holder, but who lets the peer go on. */
		close(fd);
		if (!closes)
			wait_asleep(getppid(), getppid());
		signal_send(s.go);
		_exit(0);
	}
	close(s.go.fd[0]);
	put_on();
	got = first ? 1000 : 0;
	for (;;) {
		ssize_t n = read(fd, buf, sizeof(buf));

		if (n <= 0) {
			say_result("read", n);
			break;
		}
		for (ssize_t i = 0; i < n; i++)
			bad += (uint8_t)buf[i] != pattern(got + (size_t)i);
		got += (size_t)n;
	}
	say("%zu bytes, %zu wrong", got, bad);
	say("end");
	leave();
}

CASE(filter_unread, DIRECT)
{
	read_behind(strict, false, false);
}

CASE(filter_unread_rest, DIRECT)
{
	read_behind(strict, false, true);
}

CASE(filter_unread_at_end, DIRECT)
{
	read_behind(strict, true, true);
}

CASE(filter_unread_few_calls, DIRECT)
{
	read_behind(few_by_prctl, false, true);
}

/* What is unread is waited for like all that comes. */
static void wait_behind(void (*put_on)(void), int (*wait)(int fd, int ep))
{
	struct sends s = {signal_pipe(), signal_pipe(), false};
	pid_t peer;
	char buf[4096];
	int fd = peer_start(send_and_be_silent, &s, &peer), n;
	int ep = epoll_of(fd, EPOLLIN);
	size_t got = 0;

	signal_wait(s.sent);
	recv_pattern(fd, 0, 1000);
	put_on();
	for (got = 1000; got < 100000; got += (size_t)n) {
		NEED(wait(fd, ep) == 1);
		n = (int)read(fd, buf, sizeof(buf));
		NEED(n > 0);
	}
	say("%zu", got);
	signal_send(s.go);
	while (wait(fd, ep) == 1 && (n = (int)read(fd, buf, sizeof(buf))) > 0)
		got += (size_t)n;
	say("%zu", got);
	say("end");
	leave();
}

static int wait_poll(int fd, int ep)
{
	struct pollfd p[2] = {{.fd = -1, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	(void)ep;
	return poll(p, 2, SOON);
}

static int wait_select(int fd, int ep)
{
	struct timeval soon = {SOON / 1000, 0};
	fd_set set = {{1l << fd}};

	(void)ep;
	return select(fd + 1, &set, NULL, NULL, &soon);
}

static int wait_epoll(int fd, int ep)
{
	struct epoll_event ev;

	(void)fd;
	return epoll_wait(ep, &ev, 1, SOON) == 1 && ev.data.u64 == 77;
}

static int wait_poll_by_number(int fd, int ep)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)ep;
	return (int)syscall(SYS_poll, &p, 1, SOON);
}

static int wait_select_by_number(int fd, int ep)
{
	struct timespec soon = {SOON / 1000, 0};
	unsigned long set = 1ul << fd;

	(void)ep;
	return (int)syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, &soon, NULL);
}

CASE(filter_unread_poll, DIRECT)
{
	wait_behind(few_by_prctl, wait_poll);
}

CASE(filter_unread_by_number, DIRECT)
{
	wait_behind(few_by_prctl, wait_poll_by_number);
}

CASE(filter_unread_select_by_number, DIRECT)
{
	wait_behind(select_by_prctl, wait_select_by_number);
}

CASE(filter_unread_select, DIRECT)
{
	wait_behind(select_by_prctl, wait_select);
}

CASE(filter_unread_epoll, DIRECT)
{
	wait_behind(select_by_prctl, wait_epoll);
}

static void nothing_by_prctl(void)
{
	by_prctl(SECCOMP_RET_ALLOW, few_calls);
}

CASE(filter_unread_splice, DIRECT)
{
	struct sends s = {signal_pipe(), signal_pipe(), false};
	static char buf[100000];
	size_t got = 1000, bad = 0;
	pid_t peer;
	int fd = peer_start(send_and_be_silent, &s, &peer), way[2];

	signal_wait(s.sent);
	recv_pattern(fd, 0, 1000);
	NEED(pipe(way) == 0);
	nothing_by_prctl();
	while (got < 100000) {
		ssize_t n = splice(fd, NULL, way[1], NULL, 100000 - got, 0);

		NEED(n > 0 && read(way[0], buf, sizeof(buf)) == n);
		for (ssize_t i = 0; i < n; i++)
			bad += (uint8_t)buf[i] != pattern(got + (size_t)i);
		got += (size_t)n;
	}
	say("%zu bytes, %zu wrong", got, bad);
	signal_send(s.go);
	say("end");
	leave();
}

/* ---- and what is none ---- */

CASE(filter_not_put_on, STAYS)
{
	struct pair p = pair_warm_open();
	struct sock_filter code[MOST];
	struct sock_fprog none = {.filter = code};

	say_result("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
	say_result("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				      SECCOMP_FILTER_FLAG_TSYNC, NULL));
	say_result("empty", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none));
	say_result("mode", prctl(PR_SET_SECCOMP, 3, 0));
	say_result("get", prctl(PR_GET_SECCOMP));
	say_result("unknown", prctl(-1, 1, 2, 3, 4));
	send_pattern(p.c, 0, 1000);
	recv_pattern(p.s, 0, 1000);
	pair_close(p);
}
