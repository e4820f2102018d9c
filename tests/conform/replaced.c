/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a thread uses a number while another puts a file over it, or closes it, and the connection stays open. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

enum { MESSAGES = 150000, ROUNDS = 2000 };

struct message {
	uint64_t number, check;
};

static struct message message(uint64_t number)
{
	return (struct message){number, ~number};
}

/* Of each: how often it has come, on whichever connection. */
static _Atomic uint8_t came[MESSAGES];

struct reader {
	int fd;
	unsigned torn, behind, times;
	int error;
	struct worker worker;
};

static void note(struct reader *r, const struct message *m, uint64_t *next)
{
	if (m->check != ~m->number || m->number >= MESSAGES) {
		r->torn++;
		return;
	}
	r->behind += m->number < *next;
	*next = m->number + 1;
	r->times++;
	came[m->number]++;
}

/* To the end, each message whole. */
static void read_messages(void *arg)
{
	struct reader *r = arg;
	static _Thread_local char room[65536];
	size_t have = 0, at;
	uint64_t next = 0;
	ssize_t n;

	while ((n = read(r->fd, room + have, sizeof(room) - have)) > 0) {
		have += (size_t)n;
		for (at = 0; have - at >= sizeof(struct message);
		     at += sizeof(struct message))
			note(r, (struct message *)(room + at), &next);
		__builtin_memmove(room, room + at, have - at);
		have -= at;
	}
	r->error = n < 0 ? errno : 0;
	r->torn += have != 0;
}

static void reader_start(struct reader *r, int fd)
{
	*r = (struct reader){.fd = fd};
	worker_start(&r->worker, read_messages, r);
}

struct writer {
	int fd;
	unsigned begin, count, failed;
	atomic_bool ended;
	struct worker worker;
};

static void write_messages(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; i < w->count; i++) {
		struct message m = message(w->begin + i);
		w->failed += write(w->fd, &m, sizeof(m)) != (ssize_t)sizeof(m);
	}
	w->ended = true;
}

static void writer_start(struct writer *w, int fd)
{
	*w = (struct writer){.fd = fd, .count = MESSAGES};
	worker_start(&w->worker, write_messages, w);
}

static void say_came(const struct writer *w, struct reader *r, unsigned readers)
{
	unsigned missing = 0, twice = 0;

	for (unsigned i = 0; i < MESSAGES; i++) {
		missing += !came[i];
		twice += came[i] > 1;
	}
	say("failed %u, missing %u, twice %u", w->failed, missing, twice);
	for (unsigned i = 0; i < readers; i++)
		say("torn %u, behind %u, end %s", r[i].torn, r[i].behind,
		    r[i].error ? errno_name(r[i].error) : "clean");
}

static void by_dup2(int fd)
{
	int d = dup(fd);
	NEED(dup2(d, fd) == fd);
	close(d);
}

static void by_dup3(int fd)
{
	int d = dup(fd);
	NEED(dup3(d, fd, O_CLOEXEC) == fd);
	close(d);
}

/* The number gets the file that it has. */
static void same(void (*again)(int fd), bool of_reader)
{
	struct pair p = pair_warm_open();
	struct reader r;
	struct writer w;

	reader_start(&r, p.s);
	writer_start(&w, p.c);
	while (!w.ended)
		again(of_reader ? p.s : p.c);
	worker_join(&w.worker);
	shutdown(p.c, SHUT_WR);
	worker_join(&r.worker);
	say_came(&w, &r, 1);
	pair_close(p);
}

CASE(replaced_same_dup2, STAYS)
{
	same(by_dup2, false);
}

CASE(replaced_same_dup3, STAYS)
{
	same(by_dup3, false);
}

CASE(replaced_same_reader, STAYS)
{
	same(by_dup2, true);
}

/* Each message is on one of the two. */
CASE(replaced_two, DIRECT)
{
	struct pair p[2] = {pair_warm_open(), pair_warm_open()};
	struct reader r[2];
	struct writer w;
	int number = dup(p[0].c);

	for (int i = 0; i < 2; i++)
		reader_start(&r[i], p[i].s);
	writer_start(&w, number);
	for (unsigned i = 0; !w.ended; i++)
		NEED(dup2(p[i & 1].c, number) == number);
	worker_join(&w.worker);
	close(number);
	for (int i = 0; i < 2; i++)
		shutdown(p[i].c, SHUT_WR);
	for (int i = 0; i < 2; i++)
		worker_join(&r[i].worker);
	say_came(&w, r, 2);
	for (int i = 0; i < 2; i++)
		pair_close(p[i]);
}

/* Round after round: writes until the number is closed, or the round is over. */
struct rounds {
	int fd;
	unsigned sent;
	atomic_bool runs, ended;
	atomic_uint times; /* writes of this round */
	struct signal_pipe begins, rests;
	struct worker worker;
};

static void write_rounds(void *arg)
{
	struct rounds *w = arg;
	struct message m = message(0);

	for (signal_wait(w->begins); !w->ended; signal_wait(w->begins)) {
		while (w->runs && write(w->fd, &m, sizeof(m)) == (ssize_t)sizeof(m)) {
			w->sent++;
			w->times++;
		}
		signal_send(w->rests);
	}
}

/* A second number of the connection goes, while a thread writes by it. */
static unsigned second_goes(void (*go)(int number), struct reader *r)
{
	struct pair p = pair_warm_open();
	struct rounds w = {.begins = signal_pipe(), .rests = signal_pipe()};

	reader_start(r, p.s);
	worker_start(&w.worker, write_rounds, &w);
	for (unsigned i = 0; i < ROUNDS; i++) {
		w.fd = dup(p.c);
		w.times = 0;
		w.runs = true;
		signal_send(w.begins);
		while (w.times < i % 8)
			;
		go(w.fd);
		w.runs = false;
		signal_wait(w.rests);
		close(w.fd);
	}
	w.ended = true;
	signal_send(w.begins);
	worker_join(&w.worker);
	shutdown(p.c, SHUT_WR);
	worker_join(&r->worker);
	pair_close(p);
	return w.sent;
}

static void by_close(int number)
{
	close(number);
}

static void by_close_range(int number)
{
	close_range((unsigned)number, (unsigned)number, 0);
}

static int nothing = -1;

static void by_file(int number)
{
	NEED(dup2(nothing, number) == number);
}

static void closed(void (*go)(int number))
{
	struct reader r;
	unsigned sent = second_goes(go, &r);

	say("missing %u, torn %u, end %s", sent - r.times, r.torn,
	    r.error ? errno_name(r.error) : "clean");
}

CASE(replaced_closed, STAYS)
{
	closed(by_close);
}

CASE(replaced_closed_range, STAYS)
{
	closed(by_close_range);
}

/* The file has what comes later. */
CASE(replaced_by_file, STAYS)
{
	struct reader r;

	nothing = open("/dev/null", O_WRONLY);
	second_goes(by_file, &r);
	say("torn %u, end %s", r.torn, r.error ? errno_name(r.error) : "clean");
}
