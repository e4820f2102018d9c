/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: waits where RLIMIT_NOFILE allows few descriptors, or none any more. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/libc_names.h"

/* The names that a program without large files calls. */
int short_setrlimit(int resource, const struct rlimit *limit) __asm__("setrlimit");
int short_prlimit(pid_t pid, int resource, const struct rlimit *limit,
		  struct rlimit *old) __asm__("prlimit");

#define SOON	   20000
#define LONG_ARRAY 1024

/* Unseen, as by prlimit(1). */
static void lower_from_outside(rlim_t soft)
{
	struct rlimit limit = {soft, LONG_ARRAY};
	register struct rlimit *old __asm__("r10") = NULL;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_prlimit64), "D"(0), "S"(RLIMIT_NOFILE), "d"(&limit),
			   "r"(old)
			 : "rcx", "r11", "memory");
	NEED(result == 0);
}

static void show(const char *name, int result, const struct pollfd *p, nfds_t n)
{
	say_result(name, result);
	for (nfds_t i = 0; i < n && result >= 0; i++)
		if (p[i].revents)
			say("%d: %s", (int)i, poll_names((unsigned short)p[i].revents));
}

static void ignore(struct pollfd *p, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = -1};
}

/* ---- a peer that answers once this end sleeps ---- */

struct late {
	pid_t sleeper;
	struct signal_pipe go;
};

/* One byte for each, and the end. */
static void answer_late(int fd, void *arg)
{
	struct late *late = arg;
	char byte;

	for (int i = 0;; i++) {
		signal_wait(late->go);
		if (read(late->go.fd[0], &byte, 1) != 1 || byte == 'q')
			break;
		wait_asleep(late->sleeper, late->sleeper);
		if (byte == 'e')
			break;
		send_pattern(fd, (uint64_t)i, 1);
	}
}

static int late_open(struct late *late, pid_t *pid)
{
	late->sleeper = getpid();
	late->go = signal_pipe();
	return peer_start(answer_late, late, pid);
}

static void ask_late(struct late *late, char what)
{
	signal_send(late->go);
	NEED(write(late->go.fd[1], &what, 1) == 1);
}

/* ---- long arrays ---- */

CASE(few_long_array, DIRECT)
{
	static struct pollfd p[LONG_ARRAY];
	struct timespec soon = {SOON / 1000, 0};
	struct late late;
	pid_t pid;
	int fd = late_open(&late, &pid);

	set_limit(LONG_ARRAY);
	ignore(p, LONG_ARRAY);
	p[7] = (struct pollfd){.fd = fd, .events = POLLIN};
	for (int i = 0; i < 3; i++) {
		int n;

		ask_late(&late, 'b');
		if (i == 0)
			n = poll(p, (nfds_t)getdtablesize(), SOON);
		else if (i == 1)
			n = ppoll(p, LONG_ARRAY, &soon, NULL);
		else
			n = __poll_chk(p, LONG_ARRAY, SOON, sizeof(p));
		show("poll", n, p, LONG_ARRAY);
		show("at once", poll(p, LONG_ARRAY, 0), p, LONG_ARRAY);
		recv_pattern(fd, (uint64_t)i, 1);
		show("nothing", poll(p, LONG_ARRAY, 0), p, LONG_ARRAY);
		show("for a while", poll(p, LONG_ARRAY, 3), p, LONG_ARRAY);
	}
	ask_late(&late, 'e');
	show("the end", poll(p, LONG_ARRAY, SOON), p, LONG_ARRAY);
	say("status %d", child_status(pid));
}

CASE(few_duplicates, DIRECT)
{
	enum { MANY = 128 };
	static struct pollfd p[MANY];
	struct late late;
	pid_t pid;
	int fd = late_open(&late, &pid);

	set_limit(MANY);
	for (int i = 0; i < MANY; i++)
		p[i] = (struct pollfd){.fd = fd, .events = i % 2 ? POLLIN : POLLRDHUP};
	ask_late(&late, 'b');
	show("poll", poll(p, MANY, SOON), p, 8);
	recv_pattern(fd, 0, 1);
	show("nothing", poll(p, MANY, 1), p, 8);
	ask_late(&late, 'e');
	show("the end", poll(p, MANY, SOON), p, 4);
	say("status %d", child_status(pid));
}

/* All places are taken by others. */
CASE(few_others, DIRECT)
{
	enum { MANY = 128 };
	static struct pollfd p[MANY];
	struct late late;
	pid_t pid;
	int fd = late_open(&late, &pid), other = eventfd(0, 0);
	const uint64_t one = 1;

	for (int limit = MANY; limit >= MANY - 1; limit--) {
		nfds_t n = (nfds_t)limit;

		set_limit(n);
		for (nfds_t i = 0; i < n; i++)
			p[i] = (struct pollfd){.fd = other, .events = POLLIN};
		p[n - 1].fd = fd;
		ask_late(&late, 'b');
		show("poll", poll(p, n, SOON), p, n);
		p[n - 1].events = 0;
		show("unasked", poll(p, n, 30), p, n);
		p[n - 1].events = POLLOUT;
		show("room", poll(p, n, SOON), p, n);
		p[n - 1].events = POLLIN;
		recv_pattern(fd, (uint64_t)(MANY - limit), 1);
		show("nothing", poll(p, n, 30), p, n);
	}
	NEED(write(other, &one, sizeof(one)) == sizeof(one));
	show("the others", poll(p, 10, SOON), p, 10);
	ask_late(&late, 'e');
	say("status %d", child_status(pid));
}

CASE(few_too_many, DIRECT)
{
	struct pollfd *p = calloc(LONG_ARRAY + 1, sizeof(*p));
	struct timespec zero = {0, 0}, wrong = {0, -1};
	struct pair q = pair_warm_open();

	NEED(p);

	for (int limit = LONG_ARRAY; limit >= 1; limit /= 32) {
		nfds_t n = (nfds_t)limit + 1;

		set_limit((rlim_t)limit);
		ignore(p, n);
		p[0] = (struct pollfd){.fd = q.s, .events = POLLOUT};
		show("within", poll(p, n - 1, 0), p, 1);
		show("at once", poll(p, n, 0), p, 1);
		show("poll", poll(p, n, SOON), p, 1);
		show("for ever", poll(p, n, -1), p, 1);
		show("ppoll", ppoll(p, n, &zero, NULL), p, 1);
		show("wrong time", ppoll(p, n - 1, &wrong, NULL), p, 1);
		show("__poll_chk", __poll_chk(p, n, 0, (LONG_ARRAY + 1) * sizeof(*p)), p,
		     1);
		show("__ppoll_chk",
		     __ppoll_chk(p, n, &zero, NULL, (LONG_ARRAY + 1) * sizeof(*p)), p, 1);
		show("syscall", (int)syscall(SYS_poll, p, n, 0), p, 1);
		show("no array", (int)syscall(SYS_poll, 8l, n, 0), p, 0);
	}
	set_limit(LONG_ARRAY);
	pair_close(q);
}

/* The program's own calls that change it, by each name. */
CASE(few_by_each_name, DIRECT)
{
	static struct pollfd p[70];
	struct pair q = pair_warm_open();
	struct rlimit limit;
	struct rlimit64 limit64;

	ignore(p, 70);
	p[0] = (struct pollfd){.fd = q.s, .events = POLLOUT};
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 69;
	say_result("setrlimit", short_setrlimit(RLIMIT_NOFILE, &limit));
	show("poll", poll(p, 70, 0), p, 1);
	limit.rlim_cur = 70;
	say_result("prlimit", short_prlimit(0, RLIMIT_NOFILE, &limit, NULL));
	show("poll", poll(p, 70, 0), p, 1);
	limit64 = (struct rlimit64){68, limit.rlim_max};
	say_result("setrlimit64", setrlimit64(RLIMIT_NOFILE, &limit64));
	show("poll", poll(p, 69, 0), p, 1);
	limit64.rlim_cur = 70;
	say_result("prlimit64", prlimit64(getpid(), RLIMIT_NOFILE, &limit64, NULL));
	show("poll", poll(p, 69, 0), p, 1);
	limit.rlim_cur = 67;
	say_result("syscall", syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit));
	show("poll", poll(p, 68, 0), p, 1);
	limit.rlim_cur = 70;
	say_result("syscall", syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL));
	show("poll", poll(p, 68, 0), p, 1);
	say_result("no limit", syscall(SYS_setrlimit, RLIMIT_NOFILE, 0l));
	say_result("bad limit", syscall(SYS_setrlimit, RLIMIT_NOFILE, 8l));
	pair_close(q);
}

/* ---- a limit that falls ---- */

static void set_of(fd_set *set, int fd)
{
	FD_ZERO(set);
	FD_SET(fd, set);
}

static void select_one(const char *name, int fd, bool out)
{
	struct timeval soon = {SOON / 1000, 0};
	fd_set in, room;

	set_of(&in, fd);
	set_of(&room, fd);
	say_result(name, select(fd + 1, &in, out ? &room : NULL, NULL, &soon));
	say("%d %d", FD_ISSET(fd, &in) != 0, out && FD_ISSET(fd, &room));
}

static void wait_each_way(struct late *late, int fd, nfds_t most)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
	struct timespec a_while = {0, 3000000};
	fd_set in;
	char byte;

	ask_late(late, 'b');
	say_result("read", read(fd, &byte, 1));
	say("%d", (uint8_t)byte == pattern(0));
	ask_late(late, 'b');
	select_one("select", fd, false);
	recv_pattern(fd, 1, 1);
	set_of(&in, fd);
	say_result("pselect", pselect(fd + 1, &in, NULL, NULL, &a_while, NULL));
	ask_late(late, 'b');
	show("poll", poll(&p, 1, most ? SOON : 0), &p, most ? 1 : 0);
	recv_pattern(fd, 2, 1);
	show("nothing", poll(&p, 1, 3), &p, 1);
	say_result("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	say_result("write", write(fd, "x", 1));
	ask_late(late, 'e');
	say_result("the end", read(fd, &byte, 1));
	select_one("select", fd, true);
	show("poll", poll(&p, 1, 0), &p, 1);
}

static void fall_to(rlim_t most, void (*fall)(rlim_t soft))
{
	struct late late;
	pid_t pid;
	int fd = late_open(&late, &pid);

	fall(most);
	wait_each_way(&late, fd, most);
	say("status %d", child_status(pid));
	close(fd);
}

CASE(few_falls_to_none, DIRECT)
{
	fall_to(0, set_limit);
}

CASE(few_falls_to_one, STAYS)
{
	fall_to(1, set_limit);
}

CASE(few_falls_to_two, STAYS)
{
	fall_to(2, set_limit);
}

CASE(few_falls_from_outside, DIRECT)
{
	fall_to(1, lower_from_outside);
}

/* What the library has stands beyond the limit then, and is not closed with the program's. */
CASE(few_closes_beyond, DIRECT)
{
	struct late late;
	pid_t pid;
	int fd = late_open(&late, &pid), own = open("/dev/null", O_RDONLY);

	NEED(own >= 0 && own < 60 && fd < 60 && dup2(own, 70) == 70);
	lower_from_outside(60);
	say_result("close_range", close_range(61, ~0U, 0));
	closefrom(61);
	say_result("gone", fcntl(70, F_GETFD));
	for (int i = 0; i < 3; i++) {
		ask_late(&late, 'b');
		recv_pattern(fd, (uint64_t)i, 1);
	}
	ask_late(&late, 'e');
	say_result("the end", recv(fd, &own, sizeof(own), 0));
	say("status %d", child_status(pid));
}

CASE(few_falls_from_outside_to_none, DIRECT)
{
	fall_to(0, lower_from_outside);
}

/* A large write sleeps, too, and what was unread before comes first. */
static void read_slowly(int fd, void *arg)
{
	pid_t sleeper = *(pid_t *)arg;

	send_pattern(fd, 0, 1000);
	wait_asleep(sleeper, sleeper);
	recv_pattern(fd, 0, 20 << 20);
	send_pattern(fd, 1000, 5000);
}

static void write_much(rlim_t most)
{
	pid_t pid, self = getpid();
	int fd = peer_start(read_slowly, &self, &pid), error;

	wait_inq(fd, 1000);
	set_limit(most);
	send_pattern(fd, 0, 20 << 20);
	recv_pattern(fd, 0, 6000);
	say("%d more", (int)recv_to_end(fd, &error));
	say("error %d, status %d", error, child_status(pid));
}

CASE(few_write_much_with_none, DIRECT)
{
	write_much(0);
}

CASE(few_write_much_with_one, STAYS)
{
	write_much(1);
}

static void reset_late(int fd, void *arg)
{
	pid_t sleeper = *(pid_t *)arg;
	struct linger at_once = {1, 0};

	wait_asleep(sleeper, sleeper);
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
	close(fd);
}

static void see_reset(rlim_t most, void (*fall)(rlim_t soft))
{
	pid_t pid, self = getpid();
	int fd = peer_start(reset_late, &self, &pid);
	char byte;

	fall(most);
	say_result("read", read(fd, &byte, 1));
	say_result("read", read(fd, &byte, 1));
	say("status %d", child_status(pid));
}

CASE(few_reset_with_none, DIRECT)
{
	see_reset(0, set_limit);
}

CASE(few_reset_with_one, DIRECT)
{
	see_reset(1, set_limit);
}

CASE(few_reset_from_outside, DIRECT)
{
	see_reset(0, lower_from_outside);
}

static void epoll_at(rlim_t most)
{
	struct late late;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP};
	pid_t pid;
	int fd = late_open(&late, &pid), ep = epoll_create1(0);

	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	set_limit(most);
	for (int i = 0; i < 2; i++) {
		ask_late(&late, 'b');
		say_result("epoll_wait", epoll_wait(ep, &ev, 1, SOON));
		say("%s", poll_names((int)ev.events));
		recv_pattern(fd, (uint64_t)i, 1);
		say_result("nothing", epoll_wait(ep, &ev, 1, 0));
	}
	ask_late(&late, 'e');
	say_result("the end", epoll_wait(ep, &ev, 1, SOON));
	say("%s", poll_names((int)ev.events));
	say("status %d", child_status(pid));
}

CASE(few_epoll_with_none, DIRECT)
{
	epoll_at(0);
}

CASE(few_epoll_with_one, DIRECT)
{
	epoll_at(1);
}

/* Both ends here, and bytes unread at both when none is allowed any more. */
CASE(few_unread_with_none, DIRECT)
{
	struct pair p = pair_warm_open();
	char byte;

	send_pattern(p.c, 0, 5000);
	send_pattern(p.s, 0, 3000);
	set_limit(0);
	recv_pattern(p.s, 0, 5000);
	recv_pattern(p.c, 0, 3000);
	send_pattern(p.c, 5000, 100);
	recv_pattern(p.s, 5000, 100);
	say_result("nothing", recv(p.s, &byte, 1, MSG_DONTWAIT));
	pair_close(p);
	say("closed");
	set_limit(LONG_ARRAY);
}

/* A number from before the limit fell: the kernel refuses to put another there, and leaves it. */
CASE(few_number_beyond, STAYS)
{
	struct pair p = pair_warm_open();
	int high = fcntl(p.c, F_DUPFD, 300);
	char buf[8] = "";

	NEED(high >= 300 && close(p.c) == 0);
	set_limit(200);
	say_result("dup2", dup2(p.s, high));
	say_result("dup3", dup3(p.s, high, O_CLOEXEC));
	say_result("by number", syscall(SYS_dup2, STDOUT_FILENO, high));
	say_result("dup2 of a pipe", dup2(signal_pipe().fd[0], high));
	send_all(high, "still", 5);
	recv_all(p.s, buf, 5);
	say("%s", buf);
	send_all(p.s, "there", 5);
	recv_all(high, buf, 5);
	say("%s", buf);
	say_result("close", close(high));
	say_result("end", recv(p.s, buf, 8, 0));
	close(p.s);
}
