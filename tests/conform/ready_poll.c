/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of poll and select over sockets and other descriptors. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

/* For events that must come: long enough for any machine. */
#define SOON 20000

static int show(struct pollfd *p, nfds_t n, int timeout)
{
	int result = poll(p, n, timeout);

	say_result("poll", result);
	for (nfds_t i = 0; i < n && result >= 0; i++)
		if (p[i].revents)
			say("%d: %s", (int)i, poll_names((unsigned short)p[i].revents));
	return result;
}

static int show_one(int fd, int events, int timeout)
{
	struct pollfd p = {.fd = fd, .events = (short)events, .revents = -1};

	return show(&p, 1, timeout);
}

CASE(poll_basic, DIRECT)
{
	struct pair p = pair_warm_open();

	show_one(p.s, POLLIN, 0);
	show_one(p.s, POLLIN, 1);
	show_one(p.s, POLLIN | POLLOUT, SOON);
	show_one(p.s, 0, 0);
	send_pattern(p.c, 0, 100);
	show_one(p.s, POLLIN, SOON);
	show_one(p.s, POLLIN, 0);
	show_one(p.s, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, SOON);
	show_one(p.s, POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND, SOON);
	show_one(p.s, POLLPRI | POLLRDHUP, 0);
	recv_pattern(p.s, 0, 100);
	show_one(p.s, POLLIN, 0);
	pair_close(p);
}

CASE(poll_mixed, DIRECT)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	int bell = eventfd(0, 0), closed = dup(bell);
	struct pollfd f[] = {
		{.fd = p.s, .events = POLLIN},	  {.fd = -1, .events = POLLIN},
		{.fd = p.s, .events = POLLOUT},	  {.fd = bell, .events = POLLIN},
		{.fd = q.s, .events = POLLIN},	  {.fd = p.s, .events = POLLIN},
		{.fd = bell, .events = POLLOUT},  {.fd = -77, .events = POLLOUT},
		{.fd = closed, .events = POLLIN},
	};

	show(f, 8, SOON);
	f[2].events = f[6].events = POLLPRI;
	show(f, 8, 1);
	send_pattern(p.c, 0, 10);
	wait_inq(p.s, 10);
	show(f, 8, SOON);
	eventfd_write(bell, 1);
	show(f, 8, SOON);
	recv_pattern(p.s, 0, 10);
	show(f, 8, SOON);
	close(closed);
	show(f, 9, SOON);
	close(bell);
	show(f, 9, SOON);
	pair_close(p);
	show(f, 9, SOON);
	pair_close(q);
}

#define MANY 40

CASE(poll_many, DIRECT)
{
	struct pair p[MANY];
	struct pollfd f[2 * MANY];

	for (int i = 0; i < MANY; i++) {
		p[i] = pair_warm_open();
		f[2 * i] = (struct pollfd){.fd = p[i].s, .events = POLLIN};
		f[2 * i + 1] = (struct pollfd){.fd = p[i].c, .events = POLLIN};
	}
	show(f, 2 * MANY, 1);
	for (int i = 0; i < MANY; i += 7) {
		send_pattern(p[i].c, 0, 10);
		send_pattern(p[i].s, 0, 10);
		wait_inq(p[i].c, 10);
		wait_inq(p[i].s, 10);
		show(f, 2 * MANY, SOON);
		recv_pattern(p[i].c, 0, 10);
		show(f, 2 * MANY, SOON);
		recv_pattern(p[i].s, 0, 10);
	}
	show(f, 2 * MANY, 0);
	for (int i = 0; i < MANY; i++)
		pair_close(p[i]);
}

CASE(poll_half, DIRECT)
{
	const int all = POLLIN | POLLOUT | POLLRDHUP;
	struct pair p = pair_warm_open();
	char byte;

	send_pattern(p.c, 0, 100);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	wait_events(p.s, POLLRDHUP);
	show_one(p.s, all, SOON);
	show_one(p.c, all, 0);
	recv_pattern(p.s, 0, 100);
	show_one(p.s, all, SOON);
	show_one(p.s, POLLIN, SOON);
	say_result("end", recv(p.s, &byte, 1, 0));
	show_one(p.s, POLLPRI, 1);
	NEED(shutdown(p.s, SHUT_WR) == 0);
	wait_events(p.s, POLLHUP);
	wait_events(p.c, POLLHUP);
	show_one(p.s, all, SOON);
	show_one(p.s, 0, SOON);
	show_one(p.c, all, SOON);
	pair_close(p);
}

CASE(poll_reset, DIRECT)
{
	const int all = POLLIN | POLLOUT | POLLRDHUP;
	const struct linger now = {.l_onoff = 1};
	struct pair p = pair_warm_open();
	char byte;

	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
	close(p.c);
	wait_events(p.s, POLLERR);
	show_one(p.s, all, SOON);
	show_one(p.s, 0, SOON);
	say_result("recv", recv(p.s, &byte, 1, 0));
	show_one(p.s, all, SOON);
	say_result("recv", recv(p.s, &byte, 1, 0));
	close(p.s);
}

CASE(poll_full, DIRECT)
{
	static char buf[65536];
	struct pair p = pair_warm_open();
	uint64_t total = 0;
	ssize_t n;

	while ((n = send(p.s, buf, 1000, MSG_DONTWAIT)) > 0)
		total += (uint64_t)n;
	show_one(p.s, POLLOUT, 0);
	show_one(p.s, POLLOUT, 1);
	while (total) {
		n = recv(p.c, buf, total < sizeof(buf) ? total : sizeof(buf), 0);
		NEED(n > 0);
		total -= (uint64_t)n;
	}
	show_one(p.s, POLLOUT, SOON);
	show_one(p.c, POLLIN | POLLOUT, SOON);
	pair_close(p);
}

struct waiter {
	struct pollfd p[2];
	nfds_t n;
	int result, err;
	fd_set r;
};

static void poll_once(void *arg)
{
	struct waiter *w = arg;

	w->result = poll(w->p, w->n, -1);
	w->err = errno;
}

static void select_once(void *arg)
{
	struct waiter *w = arg;

	w->result = select(w->p[0].fd + 1, &w->r, NULL, NULL, NULL);
	w->err = errno;
}

/* A thread sleeps in poll from before the upgrade; what follows wakes it. */
CASE(poll_before, DIRECT)
{
	struct pair p = pair_open();
	struct waiter w = {.p = {{.fd = p.s, .events = POLLRDHUP}}, .n = 1};
	struct worker t;

	worker_start(&t, poll_once, &w);
	wait_asleep(getpid(), t.tid);
	pair_warm(p);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	worker_join(&t);
	say("%d: %s", w.result, poll_names(w.p[0].revents));
	pair_close(p);
}

CASE(poll_sleeps, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.p = {{.fd = p.s, .events = POLLIN}}};
	struct worker t;

	w.p[1] = (struct pollfd){.fd = eventfd(0, 0), .events = POLLIN};
	w.n = 2;
	for (int i = 0; i < 4; i++) {
		worker_start(&t, i % 2 ? select_once : poll_once, &w);
		FD_ZERO(&w.r);
		FD_SET(p.s, &w.r);
		wait_asleep(getpid(), t.tid);
		send_pattern(p.c, 10 * (uint64_t)i, 10);
		worker_join(&t);
		say("%d: %s", w.result, poll_names(w.p[0].revents));
		recv_pattern(p.s, 10 * (uint64_t)i, 10);
	}
	worker_start(&t, poll_once, &w);
	wait_asleep(getpid(), t.tid);
	eventfd_write(w.p[1].fd, 1);
	worker_join(&t);
	say("%d: %s", w.result, poll_names(w.p[1].revents));
	close(w.p[1].fd);
	pair_close(p);
}

/* Two threads sleep on one doorbell, for different things. */
CASE(poll_shared, DIRECT)
{
	static char buf[65536];
	struct pair p = pair_warm_open();
	struct waiter in = {.p = {{.fd = p.s, .events = POLLIN}}, .n = 1};
	struct waiter out = {.p = {{.fd = p.s, .events = POLLOUT}}, .n = 1};
	uint64_t total = 0;
	struct worker t, u;
	ssize_t n;

	while ((n = send(p.s, buf, 1000, MSG_DONTWAIT)) > 0)
		total += (uint64_t)n;
	worker_start(&t, poll_once, &in);
	worker_start(&u, poll_once, &out);
	wait_asleep(getpid(), t.tid);
	wait_asleep(getpid(), u.tid);
	send_pattern(p.c, 0, 10);
	worker_join(&t);
	say("in %d: %s", in.result, poll_names(in.p[0].revents));
	while (total) {
		n = recv(p.c, buf, total < sizeof(buf) ? total : sizeof(buf), 0);
		NEED(n > 0);
		total -= (uint64_t)n;
	}
	worker_join(&u);
	say("out %d: %s", out.result, poll_names(out.p[0].revents));
	recv_pattern(p.s, 0, 10);
	pair_close(p);
}

static void on_signal(int sig)
{
	(void)sig;
}

CASE(poll_signal, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.p = {{.fd = p.s, .events = POLLIN}}, .n = 1};
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const struct timespec zero = {0};
	struct worker t;
	sigset_t none, usr;

	sigaction(SIGUSR1, &act, NULL);
	worker_start(&t, poll_once, &w);
	wait_asleep(getpid(), t.tid);
	pthread_kill((pthread_t)t.thread, SIGUSR1);
	worker_join(&t);
	say("%d %s", w.result, errno_name(w.err));
	sigemptyset(&none);
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr, NULL);
	raise(SIGUSR1);
	show_one(p.s, POLLIN, 0);
	say_result("let in", ppoll(w.p, 1, NULL, &none));
	raise(SIGUSR1);
	say_result("let in, no wait", ppoll(w.p, 1, &zero, &none));
	raise(SIGUSR1);
	FD_ZERO(&w.r);
	FD_SET(p.s, &w.r);
	say_result("select", pselect(p.s + 1, &w.r, NULL, NULL, NULL, &none));
	send_pattern(p.c, 0, 10);
	say_result("data", ppoll(w.p, 1, NULL, &none));
	pair_close(p);
}

CASE(poll_errors, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	const struct timespec bad = {.tv_nsec = 1000000000};
	const struct timespec minus = {.tv_sec = -1};
	struct timeval tv = {.tv_sec = -1};
	int closed = dup(p.c);
	fd_set r;

	say_result("ppoll", ppoll(&f, 1, &bad, NULL));
	say_result("ppoll", ppoll(&f, 1, &minus, NULL));
	FD_ZERO(&r);
	FD_SET(p.s, &r);
	say_result("select", select(p.s + 1, &r, NULL, NULL, &tv));
	tv = (struct timeval){0};
	say_result("select", select(-1, &r, NULL, NULL, &tv));
	say_result("pselect", pselect(p.s + 1, &r, NULL, NULL, &bad, NULL));
	say("kept: %d", FD_ISSET(p.s, &r));
	FD_SET(closed, &r);
	close(closed);
	say_result("closed", select(closed + 1, &r, NULL, NULL, &tv));
	say("kept: %d %d", FD_ISSET(p.s, &r), FD_ISSET(closed, &r));
	pair_close(p);
}

static void show_sets(const char *what, struct pair p, int bell, int in, int out,
		      int timeout_ms)
{
	struct timeval tv = {.tv_sec = timeout_ms / 1000,
			     .tv_usec = timeout_ms % 1000 * 1000};
	int top = (p.s > bell ? p.s : bell) + 1, n;
	fd_set r, w, e;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&e);
	if (in) {
		FD_SET(p.s, &r);
		FD_SET(bell, &r);
	}
	if (out)
		FD_SET(p.s, &w);
	FD_SET(p.s, &e);
	n = select(top, &r, &w, &e, &tv);
	say("%s: %d, read %d %d, write %d, except %d", what, n, FD_ISSET(p.s, &r),
	    FD_ISSET(bell, &r), FD_ISSET(p.s, &w), FD_ISSET(p.s, &e));
}

CASE(select_basic, DIRECT)
{
	struct pair p = pair_warm_open();
	int bell = eventfd(0, 0);

	show_sets("idle", p, bell, 1, 0, 0);
	show_sets("idle, later", p, bell, 1, 0, 1);
	show_sets("writable", p, bell, 1, 1, SOON);
	send_pattern(p.c, 0, 100);
	show_sets("readable", p, bell, 1, 0, SOON);
	show_sets("both", p, bell, 1, 1, SOON);
	eventfd_write(bell, 1);
	show_sets("bell", p, bell, 1, 1, SOON);
	recv_pattern(p.s, 0, 100);
	show_sets("taken", p, bell, 1, 0, SOON);
	eventfd_read(bell, &(eventfd_t){0});
	NEED(shutdown(p.c, SHUT_WR) == 0);
	show_sets("end", p, bell, 1, 0, SOON);
	NEED(shutdown(p.s, SHUT_WR) == 0);
	wait_events(p.s, POLLHUP);
	show_sets("both ends", p, bell, 1, 1, SOON);
	show_sets("write only", p, bell, 0, 1, SOON);
	/* A hang-up is nothing to the set of exceptions: this lasts its time. */
	show_sets("except only", p, bell, 0, 0, 2);
	close(bell);
	pair_close(p);
}

static void show_shared(const char *name, struct pair p, bool r, bool w, bool e)
{
	struct timeval now = {0, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(p.c, &set);
	FD_SET(p.s, &set);
	say_result(name, select(FD_SETSIZE, r ? &set : NULL, w ? &set : NULL,
				e ? &set : NULL, &now));
	say("%d %d", FD_ISSET(p.c, &set), FD_ISSET(p.s, &set));
}

/* One set for several questions has the answer to the last of them. */
CASE(select_one_set, DIRECT)
{
	struct pair p = pair_warm_open();

	for (int ready = 0; ready < 2; ready++) {
		show_shared("in and out", p, true, true, false);
		show_shared("in and except", p, true, false, true);
		show_shared("out and except", p, false, true, true);
		show_shared("all", p, true, true, true);
		send_pattern(p.c, 0, 10);
		wait_inq(p.s, 10 + 10 * ready);
	}
	nonblock(p.s, true);
	while (send(p.s, bulk_room(), 65536, 0) > 0)
		;
	show_shared("in, and no room", p, true, true, false);
	pair_close(p);
}

/* ---- signals while something is ready ---- */

struct kicks {
	pthread_t thread;
	_Atomic int over;
};

static void kick(void *arg)
{
	struct kicks *k = arg;

	while (!atomic_load(&k->over))
		pthread_kill(k->thread, SIGUSR1);
}

static _Atomic int kicked;

static void count_kick(int sig)
{
	(void)sig;
	kicked++;
}

/* A signal that comes in the middle does not count where something is. */
CASE(poll_ready_under_signals, DIRECT)
{
	struct sigaction act = {.sa_handler = count_kick};
	struct kicks k = {.thread = pthread_self()};
	struct pair p = pair_warm_open();
	struct worker other;
	int fd[2], failed = 0;

	NEED(pipe(fd) == 0);
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	send_all(p.c, "x", 1);
	wait_events(p.s, POLLIN);
	worker_start(&other, kick, &k);
	for (int i = 0; i < 200000 && kicked < 3000; i++) {
		struct pollfd f[] = {{.fd = p.s, .events = POLLIN},
				     {.fd = fd[0], .events = POLLIN}};

		failed += poll(f, 2, i % 2 ? 0 : -1) != 1;
	}
	atomic_store(&k.over, 1);
	worker_join(&other);
	say("failed: %d", failed);
	pair_close(p);
}

static void nothing(int sig)
{
	(void)sig;
}

/* One that the call's mask lets in, with no time to wait. */
static void show_pending(const char *name, int fd, int events)
{
	struct timespec none = {0, 0};
	struct pollfd p = {.fd = fd, .events = (short)events};
	sigset_t usr, before, empty;

	sigemptyset(&empty);
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	NEED(signal(SIGUSR1, nothing) != SIG_ERR);
	NEED(sigprocmask(SIG_BLOCK, &usr, &before) == 0);
	NEED(raise(SIGUSR1) == 0);
	say("%s", name);
	say_result("ppoll", ppoll(&p, 1, &none, &empty));
	NEED(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

CASE(poll_pending, DIRECT)
{
	struct pair p = pair_warm_open();

	show_pending("idle", p.s, POLLIN);
	send_pattern(p.c, 0, 100);
	show_one(p.s, POLLIN, SOON);
	recv_pattern(p.s, 0, 100);
	show_pending("after bytes", p.s, POLLIN);
	NEED(shutdown(p.s, SHUT_WR) == 0);
	show_pending("after the own end", p.s, POLLIN);
	send_pattern(p.c, 100, 100);
	show_one(p.s, POLLIN, SOON);
	recv_pattern(p.s, 100, 100);
	show_pending("and bytes", p.s, POLLIN);
	send_pattern(p.c, 200, 100);
	show_one(p.s, POLLIN, SOON);
	show_pending("with bytes, for an end", p.s, POLLRDHUP);
	show_pending("for nothing", p.s, 0);
	show_pending("at the peer", p.c, POLLPRI);
	show_pending("for what is urgent", p.s, POLLPRI);
	recv_pattern(p.s, 200, 100);
	send_pattern(p.c, 300, 100);
	show_pending("not yet awaited", p.s, POLLRDHUP);
	recv_pattern(p.s, 300, 100);
	show_pending("any", p.s, POLLIN);
	pair_close(p);
}
