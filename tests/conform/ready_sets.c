/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of poll and select with large sets, and with sets that change. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

#define CROWD  70 /* pairs; both ends are in the set */
#define ROUNDS 400

struct crowd {
	struct pair pair[CROWD];
	struct pollfd set[2 * CROWD + 8];
	nfds_t n;
	uint32_t chance;
};

static uint32_t draw(struct crowd *c, uint32_t below)
{
	c->chance = c->chance * 1664525u + 1013904223u;
	return (c->chance >> 8) % below;
}

static void crowd_set(struct crowd *c)
{
	c->n = 2 * CROWD;
	for (int i = 0; i < CROWD; i++) {
		c->set[2 * i] = (struct pollfd){.fd = c->pair[i].c, .events = POLLIN};
		c->set[2 * i + 1] = (struct pollfd){.fd = c->pair[i].s, .events = POLLIN};
	}
}

static void crowd_open(struct crowd *c)
{
	memset(c, 0, sizeof *c);
	c->chance = 7;
	for (int i = 0; i < CROWD; i++)
		c->pair[i] = pair_warm_open();
	crowd_set(c);
}

static void crowd_close(struct crowd *c)
{
	for (int i = 0; i < CROWD; i++)
		pair_close(c->pair[i]);
}

/* What all of them have, as one number. */
static void crowd_show(struct crowd *c, const char *what, int timeout)
{
	uint32_t sum = 0;
	int n = poll(c->set, c->n, timeout);

	for (nfds_t i = 0; i < c->n; i++)
		sum = sum * 31 + (uint16_t)c->set[i].revents;
	say("%s: %d %08x", what, n, sum);
}

static void empty(int fd)
{
	char buf[256];

	while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) > 0)
		;
}

static void pass(int from, int to, const char *bytes)
{
	int before;

	NEED(ioctl(to, FIONREAD, &before) == 0);
	send_all(from, bytes, strlen(bytes));
	wait_inq(to, before + (int)strlen(bytes));
}

static void change(struct crowd *c)
{
	struct pair *p = &c->pair[draw(c, CROWD)];
	struct pollfd *e = &c->set[draw(c, (uint32_t)c->n)];

	switch (draw(c, 8)) {
	case 0:
	case 1:
	case 2:
		pass(p->c, p->s, "abc");
		break;
	case 3:
		empty(p->s);
		break;
	case 4:
		pass(p->s, p->c, "d");
		break;
	case 5:
		e->events ^= POLLOUT;
		break;
	case 6:
		empty(p->c);
		break;
	case 7: /* the same numbers, mostly, and others in their places */
		empty(p->s);
		empty(p->c);
		pair_close(*p);
		*p = pair_warm_open();
		crowd_set(c);
		break;
	}
}

/* A set of which a little changes from call to call. */
CASE(sets_change, DIRECT)
{
	static struct crowd c;

	crowd_open(&c);
	for (int i = 0; i < ROUNDS; i++) {
		change(&c);
		crowd_show(&c, "round", 0);
	}
	crowd_close(&c);
}

/* The same descriptor twice, closed ones, negative ones, and some that are no sockets. */
CASE(sets_odd, DIRECT)
{
	static struct crowd c;
	struct signal_pipe pipe = signal_pipe();
	int closed, copy;

	crowd_open(&c);
	for (int i = 0; i < 40; i++)
		poll(c.set, c.n, 0);
	send_all(c.pair[3].c, "x", 1);
	wait_events(c.pair[3].s, POLLIN);
	crowd_show(&c, "one", -1);
	c.set[c.n++] = (struct pollfd){.fd = c.pair[3].s, .events = POLLOUT};
	crowd_show(&c, "twice", -1);
	c.set[c.n++] = (struct pollfd){.fd = -1, .events = POLLIN};
	crowd_show(&c, "negative", -1);
	c.set[c.n++] = (struct pollfd){.fd = pipe.fd[0], .events = POLLIN};
	crowd_show(&c, "pipe", -1);
	signal_send(pipe);
	crowd_show(&c, "pipe with a byte", -1);
	closed = c.pair[5].s;
	copy = dup(closed);
	close(closed);
	crowd_show(&c, "closed", -1);
	c.set[11].fd = copy;
	crowd_show(&c, "its duplicate", -1);
	c.pair[5].s = copy;
	NEED(shutdown(c.pair[7].c, SHUT_WR) == 0);
	wait_events(c.pair[7].s, POLLRDHUP);
	c.set[15].events = POLLRDHUP;
	crowd_show(&c, "half-closed", -1);
	c.n = 2;
	crowd_show(&c, "two", 0);
	c.n = 2 * CROWD;
	crowd_show(&c, "all", 0);
	crowd_close(&c);
}

struct sleeper {
	struct pollfd *set;
	nfds_t n;
	int result;
};

static void sleep_in_poll(void *arg)
{
	struct sleeper *s = arg;

	for (int i = 0; i < 40; i++)
		poll(s->set, s->n, 0);
	s->result = poll(s->set, s->n, -1);
}

#define FEW   6
#define DOZES 160 /* more than it takes until the set is kept */

/* A thread, and a small set in which there is a pipe, too. */
struct dozer {
	struct pair pair[FEW];
	struct pollfd set[FEW + 1];
	struct signal_pipe in_set, told, go;
};

static void dozer_show(struct dozer *d, int round)
{
	int n = poll(d->set, FEW + 1, -1);

	for (int i = 0; i <= FEW; i++)
		if (d->set[i].revents)
			say("%d: %d %d %s", round, n, i, poll_names(d->set[i].revents));
}

static void doze(struct dozer *d, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		dozer_show(d, round);
		for (int i = 0; i < FEW; i++)
			if (d->set[i].revents & POLLIN)
				empty(d->set[i].fd);
		if (d->set[FEW].revents)
			signal_wait(d->in_set);
		signal_send(d->told);
	}
}

static void doze_and_wake(void *arg)
{
	struct dozer *d = arg;

	doze(d, DOZES);
	signal_wait(d->go);
	/* What is there already, and stays. */
	for (int round = 0; round < DOZES; round++)
		dozer_show(d, round);
	empty(d->set[1].fd);
	doze(d, FEW + 2);
}

static void wake_dozer(struct dozer *d, pid_t tid, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		wait_asleep(getpid(), tid);
		if (round % 9 == 4)
			signal_send(d->in_set);
		else
			send_all(d->pair[round % 2 ? 3 : round % FEW].c, "x", 1);
		signal_wait(d->told);
	}
}

/* A small set on which a thread sleeps again and again, then for long does not, and then does. */
CASE(sets_small_asleep, DIRECT)
{
	static struct dozer d;
	struct worker t;

	d.in_set = signal_pipe();
	d.told = signal_pipe();
	d.go = signal_pipe();
	for (int i = 0; i < FEW; i++) {
		d.pair[i] = pair_warm_open();
		d.set[i] = (struct pollfd){.fd = d.pair[i].s, .events = POLLIN};
	}
	d.set[FEW] = (struct pollfd){.fd = d.in_set.fd[0], .events = POLLIN};
	worker_start(&t, doze_and_wake, &d);
	wake_dozer(&d, t.tid, DOZES);
	send_all(d.pair[1].c, "x", 1);
	wait_events(d.pair[1].s, POLLIN);
	signal_send(d.go);
	wake_dozer(&d, t.tid, FEW);
	wait_asleep(getpid(), t.tid);
	close(d.pair[2].s);
	send_all(d.pair[0].c, "x", 1);
	signal_wait(d.told);
	signal_wait(d.told);
	worker_join(&t);
	d.pair[2].s = dup(d.pair[2].c);
	for (int i = 0; i < FEW; i++)
		pair_close(d.pair[i]);
}

/* What is slept on stays open until the sleep is over, as the kernel has it. */
CASE(sets_closed_asleep, DIRECT)
{
	static struct crowd c;
	static struct pollfd set[CROWD];
	struct sleeper s = {set, CROWD, 0};
	struct pollfd end;
	struct worker t;

	crowd_open(&c);
	for (int i = 0; i < CROWD; i++)
		set[i] = c.set[2 * i + 1];
	worker_start(&t, sleep_in_poll, &s);
	wait_asleep(getpid(), t.tid);
	close(c.pair[4].s);
	end = (struct pollfd){.fd = c.pair[4].c, .events = POLLIN | POLLRDHUP};
	say("the other end: %d", poll(&end, 1, 50));
	send_all(c.pair[9].c, "x", 1);
	worker_join(&t);
	say("woken: %d %s", s.result, poll_names(set[9].revents));
	wait_events(c.pair[4].c, POLLRDHUP);
	say("the other end has it");
	c.pair[4].s = dup(c.pair[4].c);
	crowd_close(&c);
}

/* Threads that come and go with sets of their own, of the same sockets. */
CASE(sets_of_threads, DIRECT)
{
	static struct crowd c;
	static struct pollfd sets[8][2 * CROWD];
	struct sleeper s[8];
	struct worker t[8];

	crowd_open(&c);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 8; i++) {
			memcpy(sets[i], c.set, sizeof sets[i]);
			s[i] = (struct sleeper){sets[i], 2 * CROWD, 0};
			worker_start(&t[i], sleep_in_poll, &s[i]);
		}
		for (int i = 0; i < 8; i++)
			wait_asleep(getpid(), t[i].tid);
		send_all(c.pair[turn].c, "x", 1);
		for (int i = 0; i < 8; i++) {
			worker_join(&t[i]);
			say("%d %s", s[i].result,
			    poll_names(sets[i][2 * turn + 1].revents));
		}
		empty(c.pair[turn].s);
	}
	crowd_close(&c);
}

/* Parent and child poll the same sockets after a fork, both at once. */
CASE(sets_forked, DIRECT)
{
	static struct crowd c;
	char byte;
	pid_t pid;

	crowd_open(&c);
	for (int i = 0; i < 40; i++)
		poll(c.set, c.n, 0);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		crowd_show(&c, "woken", -1);
		recv_all(c.pair[6].s, &byte, 1);
		crowd_show(&c, "then", 0);
		send_all(c.pair[8].s, "y", 1);
		exit(0);
	}
	send_all(c.pair[6].c, "x", 1);
	c.set[13].events = 0; /* the child's */
	crowd_show(&c, "woken", -1);
	say("child: %d", child_status(pid));
	crowd_show(&c, "then", -1);
	recv_all(c.pair[8].c, &byte, 1);
	crowd_show(&c, "nothing", 0);
	crowd_close(&c);
}

CASE(sets_select, DIRECT)
{
	static struct crowd c;
	fd_set r, w;
	int n, top = 0;

	crowd_open(&c);
	for (int i = 0; i < CROWD; i++)
		top = c.pair[i].s > top ? c.pair[i].s : top;
	for (int turn = 0; turn < 100; turn++) {
		struct timeval zero = {0, 0};
		int at = turn % CROWD, others = 0;

		send_all(c.pair[at].c, "x", 1);
		wait_events(c.pair[at].s, POLLIN);
		FD_ZERO(&r);
		FD_ZERO(&w);
		for (int i = 0; i < CROWD; i++) {
			FD_SET(c.pair[i].s, &r);
			if (i % 7 == turn % 7)
				FD_SET(c.pair[i].s, &w);
		}
		n = select(top + 1, &r, &w, NULL, turn % 3 ? NULL : &zero);
		for (int i = 0; i < CROWD; i++)
			others += i != at && FD_ISSET(c.pair[i].s, &r);
		say("%d: %d %d %d", turn, n, FD_ISSET(c.pair[at].s, &r) != 0, others);
		empty(c.pair[at].s);
	}
	crowd_close(&c);
}
