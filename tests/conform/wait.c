/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: threads that wait, and what wakes them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- a thread that waits since before the upgrade ---- */

struct waiter {
	int fd;
	ssize_t result;
	int error;
	char buf[64];
	short revents;
};

static void wait_recv(void *arg)
{
	struct waiter *w = arg;
	w->result = recv(w->fd, w->buf, sizeof w->buf, 0);
	w->error = errno;
}

static void wait_poll(void *arg)
{
	struct waiter *w = arg;
	struct pollfd p = {w->fd, POLLIN, 0};
	w->result = poll(&p, 1, -1);
	w->error = errno;
	w->revents = p.revents;
}

static void wait_select(void *arg)
{
	struct waiter *w = arg;
	fd_set set;
	FD_ZERO(&set);
	FD_SET(w->fd, &set);
	w->result = select(w->fd + 1, &set, NULL, NULL, NULL);
	w->error = errno;
	w->revents = FD_ISSET(w->fd, &set);
}

static void wait_epoll(void *arg)
{
	struct waiter *w = arg;
	struct epoll_event ev;
	w->result = epoll_wait(w->fd, &ev, 1, -1);
	w->error = errno;
	w->revents = w->result == 1 ? (short)ev.events : 0;
}

static void one_way(struct pair p, int turns)
{
	char buf[8];
	for (int i = 0; i < turns; i++) {
		send_all(p.s, "one way", 7);
		recv_all(p.c, buf, 7);
	}
}

static void wait_since_before(void (*wait)(void *), bool takes)
{
	struct pair p = pair_open();
	struct waiter w = {.fd = p.s};
	struct worker t;
	char buf[8];
	worker_start(&t, wait, &w);
	wait_asleep(getpid(), t.tid);
	one_way(p, 100);
	send_all(p.c, "hello", 5);
	worker_join(&t);
	say("result %zd, events %#x", w.result, w.revents);
	say("%.5s", w.buf);
	if (!takes)
		recv_all(p.s, buf, 5);
	pair_warm(p);
	/* And once more, now that it has moved. */
	w = (struct waiter){.fd = p.s};
	worker_start(&t, wait, &w);
	wait_asleep(getpid(), t.tid);
	one_way(p, 100);
	send_all(p.c, "again", 5);
	worker_join(&t);
	say("result %zd, events %#x", w.result, w.revents);
	say("%.5s", w.buf);
	pair_close(p);
}

CASE(recv_since_before, DIRECT)
{
	wait_since_before(wait_recv, true);
}

CASE(poll_since_before, DIRECT)
{
	wait_since_before(wait_poll, false);
}

CASE(select_since_before, DIRECT)
{
	wait_since_before(wait_select, false);
}

static void epoll_since_before(uint32_t trigger)
{
	struct pair p = pair_open();
	struct waiter w = {.fd = epoll_create1(0)};
	struct epoll_event ev = {.events = EPOLLIN | trigger};
	struct worker t;
	char buf[8];
	NEED(epoll_ctl(w.fd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	for (int turn = 0; turn < 5; turn++) {
		worker_start(&t, wait_epoll, &w);
		wait_asleep(getpid(), t.tid);
		one_way(p, 50);
		send_all(p.c, "hello", 5);
		worker_join(&t);
		say("result %zd, events %#x", w.result, w.revents);
		recv_all(p.s, buf, 5);
		pair_warm(p);
		/* Edges that the warming made. */
		epoll_wait(w.fd, &ev, 1, 0);
		ev.events = EPOLLIN | trigger;
		NEED(epoll_ctl(w.fd, EPOLL_CTL_MOD, p.s, &ev) == 0);
	}
	close(w.fd);
	pair_close(p);
}

CASE(epoll_since_before, DIRECT)
{
	epoll_since_before(0);
}

CASE(epoll_edge_since_before, DIRECT)
{
	epoll_since_before(EPOLLET);
}

CASE(epoll_oneshot_since_before, DIRECT)
{
	epoll_since_before(EPOLLONESHOT);
}

/* Registered while another thread waits on the instance. */
CASE(epoll_added_while_waiting, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.fd = epoll_create1(0)};
	struct epoll_event ev = {.events = EPOLLIN};
	struct worker t;
	worker_start(&t, wait_epoll, &w);
	wait_asleep(getpid(), t.tid);
	NEED(epoll_ctl(w.fd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	wait_asleep(getpid(), t.tid);
	send_all(p.c, "x", 1);
	worker_join(&t);
	say("result %zd, events %#x", w.result, w.revents);
	pair_close(p);
}

CASE(epoll_with_other_descriptors, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = epoll_create1(0), event = eventfd(0, 0), pipes[2];
	struct epoll_event ev[8], add = {.events = EPOLLIN};
	NEED(pipe(pipes) == 0);
	add.data.u64 = 1;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &add) == 0);
	add.data.u64 = 2;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, event, &add) == 0);
	add.data.u64 = 3;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &add) == 0);
	for (int round = 0; round < 8; round++) {
		unsigned seen = 0, want = 0;
		char c;
		want |= round & 1 ? 4 : 0;
		want |= round & 2 ? 8 : 0;
		want |= round & 4 ? 2 : 0;
		if (round & 1)
			NEED(write(event, &(uint64_t){1}, 8) == 8);
		if (round & 2)
			NEED(write(pipes[1], "x", 1) == 1);
		if (round & 4)
			send_all(p.c, "x", 1);
		while (seen != want)
			if (epoll_wait(ep, ev, 1, -1) == 1)
				seen |= 1u << ev[0].data.u64;
		say("round %d: %#x", round, seen);
		if (round & 1)
			NEED(read(event, ev, 8) == 8);
		if (round & 2)
			NEED(read(pipes[0], &c, 1) == 1);
		if (round & 4)
			recv_all(p.s, &c, 1);
		say("left %d", epoll_wait(ep, ev, 8, 0));
	}
	pair_close(p);
}

/* ---- signals ---- */

static _Atomic int signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void catch (int flags)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};
	signals = 0;
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
}

struct interrupted {
	struct waiter w;
	void (*wait)(void *);
	_Atomic bool back;
};

static void interrupted_main(void *arg)
{
	struct interrupted *in = arg;
	in->wait(&in->w);
	in->back = true;
}

/* Sends signals until the call came back, or until enough were taken. */
static void interrupt(int fd, void (*wait)(void *), int flags, int enough, int feeder)
{
	struct interrupted in = {.w = {.fd = fd}, .wait = wait};
	struct worker t;
	catch (flags);
	worker_start(&t, interrupted_main, &in);
	while (!in.back && signals < enough) {
		wait_asleep(getpid(), t.tid);
		int before = signals;
		pthread_kill(t.thread, SIGUSR1);
		while (signals == before && !in.back)
			usleep(100);
		if (signals == 1 && enough == 1000)
			for (int i = 0; i < 20 && !in.back; i++)
				usleep(1000);
	}
	bool early = in.back;
	if (!early)
		send_all(feeder, "x", 1);
	worker_join(&t);
	errno = in.w.error;
	say("came back by the signal: %d", early);
	say_result("result", in.w.result);
}

CASE(eintr_recv, DIRECT)
{
	struct pair p = pair_warm_open();
	interrupt(p.s, wait_recv, 0, 1000, p.c);
	interrupt(p.s, wait_recv, SA_RESTART, 5, p.c);
	struct timeval tv = {30, 0};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
	interrupt(p.s, wait_recv, SA_RESTART, 1000, p.c);
	pair_close(p);
}

CASE(eintr_poll, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	interrupt(p.s, wait_poll, SA_RESTART, 1000, p.c);
	interrupt(p.s, wait_select, SA_RESTART, 1000, p.c);
	interrupt(ep, wait_epoll, SA_RESTART, 1000, p.c);
	pair_close(p);
}

static uint8_t big[8 << 20];

static void wait_send(void *arg)
{
	struct waiter *w = arg;
	w->result = send(w->fd, big, sizeof big, 0);
	w->error = errno;
}

static uint64_t late; /* what room that comes late has taken */

static void wait_full_send(void *arg)
{
	struct waiter *w = arg;
	for (late = 0; (w->result = send(w->fd, big, 1000, 0)) > 0;)
		late += (uint64_t)w->result;
	w->error = errno;
}

CASE(eintr_send, DIRECT)
{
	struct pair p = pair_warm_open();
	struct interrupted in = {.w = {.fd = p.c}, .wait = wait_send};
	struct worker t;
	catch (0);
	worker_start(&t, interrupted_main, &in);
	wait_asleep(getpid(), t.tid);
	while (!in.back) {
		pthread_kill(t.thread, SIGUSR1);
		usleep(1000);
	}
	worker_join(&t);
	say("a part was sent: %d", in.w.result > 0 && in.w.result < (ssize_t)sizeof big);
	uint64_t sent = (uint64_t)in.w.result, got = 0;
	for (ssize_t r; (r = send(p.c, big, 1000, MSG_DONTWAIT)) > 0;)
		sent += (uint64_t)r;
	interrupt(p.c, wait_full_send, 0, 1000, -1);
	sent += late;
	while (got < sent) {
		ssize_t r = recv(p.s, big, sizeof big, 0);
		NEED(r > 0);
		got += (uint64_t)r;
	}
	say("all arrived: %d", got == sent);
	pair_close(p);
}

CASE(ppoll_mask, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd pf = {p.s, POLLIN, 0};
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	sigset_t blocked, none;
	fd_set set;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	catch (0);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	raise(SIGUSR1);
	say("signals %d", signals);
	say_result("ppoll", ppoll(&pf, 1, NULL, &none));
	say("signals %d", signals);
	raise(SIGUSR1);
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	say_result("pselect", pselect(p.s + 1, &set, NULL, NULL, NULL, &none));
	say("signals %d", signals);
	raise(SIGUSR1);
	say_result("epoll_pwait", epoll_pwait(ep, &ev, 1, -1, &none));
	say("signals %d", signals);
	/* Ready and pending: readiness wins. */
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	raise(SIGUSR1);
	say_result("ppoll", ppoll(&pf, 1, NULL, &none));
	pair_close(p);
}

CASE(poll_timeouts, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd pf[3] = {{p.s, POLLIN, 0}, {-1, POLLIN, 7}, {999, POLLIN, 0}};
	struct timeval tv = {0, 20000};
	struct timespec ts = {0, 20000000};
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	fd_set set;
	int closed = dup(p.s);
	NEED(closed >= 0 && close(closed) == 0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say_result("poll", poll(pf, 1, 20));
	say_result("ppoll", ppoll(pf, 1, &ts, NULL));
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	say_result("select", select(p.s + 1, &set, NULL, NULL, &tv));
	say("set %d, rest %ld", FD_ISSET(p.s, &set), (long)tv.tv_usec);
	say_result("epoll_wait", epoll_wait(ep, &ev, 1, 20));
	say_result("poll of three", poll(pf, 3, -1));
	say("%#x %#x %#x", pf[0].revents, pf[1].revents, pf[2].revents);
	say_result("epoll_wait of none", epoll_wait(ep, &ev, 0, 0));
	say_result("epoll_wait bad address", epoll_wait(p.s, &ev, 1, 0));
	FD_SET(p.s, &set);
	FD_SET(closed, &set);
	say_result("select of a closed one", select(closed + 1, &set, NULL, NULL, &tv));
	pair_close(p);
}

/* ---- the peer dies: with all read, as it tells, since it sleeps before that, too ---- */

static void hang(int fd, void *arg)
{
	(void)fd;
	if (arg)
		signal_send(*(struct signal_pipe *)arg);
	for (;;)
		pause();
}

static void killed_while(void (*wait)(void *), bool by_epoll)
{
	pid_t pid;
	struct signal_pipe read = signal_pipe();
	int fd = peer_start(hang, &read, &pid), ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP};
	struct waiter w = {.fd = by_epoll ? ep : fd};
	struct worker t;
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	signal(SIGPIPE, SIG_IGN);
	worker_start(&t, wait, &w);
	wait_asleep(getpid(), t.tid);
	signal_wait(read);
	kill(pid, SIGKILL);
	worker_join(&t);
	say("status %d", child_status(pid));
	if (wait == wait_send) {
		say("a part was sent: %d", w.result > 0);
		wait_events(fd, POLLERR | POLLHUP);
		say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
		say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	} else {
		say("result %zd, events %#x", w.result, w.revents);
	}
	say_result("recv", recv(fd, w.buf, 1, 0));
	say_result("recv", recv(fd, w.buf, 1, 0));
	close(fd);
}

CASE(killed_while_receiving, DIRECT)
{
	killed_while(wait_recv, false);
}

CASE(killed_while_sending, DIRECT)
{
	killed_while(wait_send, false);
}

CASE(killed_while_polling, DIRECT)
{
	killed_while(wait_poll, false);
}

CASE(killed_while_selecting, DIRECT)
{
	killed_while(wait_select, false);
}

CASE(killed_while_epolling, DIRECT)
{
	killed_while(wait_epoll, true);
}

CASE(stopped_and_continued, DIRECT)
{
	pid_t pid;
	struct signal_pipe read = signal_pipe();
	struct waiter w = {.fd = peer_start(hang, &read, &pid)};
	struct worker t;
	signal_wait(read);
	kill(pid, SIGSTOP);
	worker_start(&t, wait_recv, &w);
	wait_asleep(getpid(), t.tid);
	kill(pid, SIGCONT);
	wait_asleep(getpid(), t.tid);
	kill(pid, SIGKILL);
	worker_join(&t);
	say("result %zd", w.result);
}

/* ---- another thread ---- */

CASE(closed_while_receiving, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.fd = p.s};
	struct worker t;
	char c;
	worker_start(&t, wait_recv, &w);
	wait_asleep(getpid(), t.tid);
	say_result("close", close(p.s));
	/* The call that waits still has the socket. */
	wait_asleep(getpid(), t.tid);
	send_all(p.c, "x", 1);
	worker_join(&t);
	say("result %zd", w.result);
	say_result("the other end", recv(p.c, &c, 1, 0));
	close(p.c);
}

CASE(shut_while_receiving, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.fd = p.s};
	struct worker t;
	worker_start(&t, wait_recv, &w);
	wait_asleep(getpid(), t.tid);
	say_result("shutdown", shutdown(p.s, SHUT_RD));
	worker_join(&t);
	say("result %zd", w.result);
	pair_close(p);
}

CASE(shut_while_sending, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.fd = p.c};
	struct worker t;
	signal(SIGPIPE, SIG_IGN);
	worker_start(&t, wait_send, &w);
	wait_asleep(getpid(), t.tid);
	say_result("shutdown", shutdown(p.c, SHUT_WR));
	worker_join(&t);
	say("a part was sent: %d", w.result > 0 && w.result < (ssize_t)sizeof big);
	uint64_t got = 0;
	for (ssize_t r; (r = recv(p.s, big, sizeof big, 0)) > 0;)
		got += (uint64_t)r;
	say("and arrived: %d", got == (uint64_t)w.result);
	pair_close(p);
}

/* Two threads wait for one byte each. */
CASE(two_receivers, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w[2] = {{.fd = p.s}, {.fd = p.s}};
	struct worker t[2];
	for (int i = 0; i < 2; i++)
		worker_start(&t[i], wait_recv, &w[i]);
	for (int i = 0; i < 2; i++)
		wait_asleep(getpid(), t[i].tid);
	send_all(p.c, "x", 1);
	while (w[0].result + w[1].result == 0)
		usleep(100);
	send_all(p.c, "y", 1);
	for (int i = 0; i < 2; i++)
		worker_join(&t[i]);
	say("results %zd and %zd", w[0].result, w[1].result);
	say("both letters: %d", w[0].buf[0] + w[1].buf[0] == 'x' + 'y');
	pair_close(p);
}

CASE(receiver_and_poller, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter r = {.fd = p.s}, q = {.fd = p.s};
	struct worker tr, tq;
	worker_start(&tr, wait_recv, &r);
	worker_start(&tq, wait_poll, &q);
	wait_asleep(getpid(), tr.tid);
	wait_asleep(getpid(), tq.tid);
	send_all(p.c, "x", 1);
	worker_join(&tr);
	say("recv %zd", r.result);
	/* The poll may or may not have seen the byte before it was taken. */
	send_all(p.c, "y", 1);
	worker_join(&tq);
	say("poll %zd", q.result);
	pair_close(p);
}

/* A thread that writes without end must not hold up one that closes down. */
static void write_until_error(void *arg)
{
	struct waiter *w = arg;
	while (send(w->fd, big, 100, MSG_NOSIGNAL) > 0)
		;
	w->error = errno;
}

CASE(shut_while_writing, DIRECT)
{
	struct pair p = pair_warm_open();
	struct waiter w = {.fd = p.c};
	struct worker t;
	worker_start(&t, write_until_error, &w);
	for (int i = 0; i < 200; i++)
		NEED(recv(p.s, big + 4096, 4096, 0) > 0);
	say_result("shutdown", shutdown(p.c, SHUT_WR));
	while (recv(p.s, big + 4096, 65536, 0) > 0)
		;
	worker_join(&t);
	say("writer: %s", errno_name(w.error));
	pair_close(p);
}
