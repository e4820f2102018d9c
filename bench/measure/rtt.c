/* SPDX-License-Identifier: Apache-2.0 */
/* Ping-pong: one message forth and back, blocking, spinning, or by epoll or poll. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "measure/bench.h"
#include "measure/latency.h"
#include "tool/floor.h"

/* One connection. A message is either on its way in (got) or on its way out (left). */
struct lane {
	int fd;
	uint8_t *buf;
	size_t got, left;
	uint64_t number;  /* of the message, written into it */
	uint64_t from_ns; /* when its round trip began, or was to begin */
	bool wants_out;	  /* as the kernel was last told */
	bool ended;
};

/* Round trips that begin at a fixed rate, whether those before have ended or not. */
struct rhythm {
	uint64_t start_ns, end_ns;
	unsigned rate; /* a second; 0: no such rhythm */
	uint64_t begun;
};

struct echo {
	const struct bench_job *job;
	struct bench_result *res;
	struct floor_pace pace;
	struct lane *lanes;
	unsigned busy; /* lanes with something still to come */
	bool over;     /* client: the time is up, send no more */
	bool is_timed; /* client: the time of each round trip is taken */
	struct rhythm rhythm;
	struct lane **idle; /* client, at a fixed rate: those that may begin */
	unsigned idle_count;
	uint64_t ops;
	int epfd;
	struct pollfd *pfds;
};

/* Of the client's round trips, since the last warm-up. */
static struct latencies latencies;

static void take_latencies(struct bench_result *res)
{
	res->latency[BENCH_P50] = latencies_at(&latencies, 0.5);
	res->latency[BENCH_P99] = latencies_at(&latencies, 0.99);
	res->latency[BENCH_P999] = latencies_at(&latencies, 0.999);
}

/* The times were taken after what counts as the speed: only bytes and failures go on. */
static void keep_speed(struct bench_result *res, const struct bench_result *counted)
{
	res->ops = counted->ops;
	res->ns = counted->ns;
	res->cpu_ns = counted->cpu_ns;
	res->peer_cpu_ns = counted->peer_cpu_ns;
	res->phase = counted->phase;
}

static void rhythm_start(struct rhythm *r, unsigned rate, uint64_t time_ns)
{
	*r = (struct rhythm){.start_ns = floor_now_ns(), .rate = rate};
	r->end_ns = r->start_ns + time_ns;
}

/* When the next round trip is to begin. */
static uint64_t rhythm_due_ns(const struct rhythm *r)
{
	return r->start_ns + r->begun * 1000000000u / r->rate;
}

/* A sleep ends late by up to this: what is due sooner is waited for on the processor. */
enum { RHYTHM_LATE_NS = 100000 };

static void rhythm_wait(const struct rhythm *r)
{
	uint64_t due = rhythm_due_ns(r), until = due - RHYTHM_LATE_NS;
	struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	if (floor_now_ns() < until)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	while (floor_now_ns() < due)
		;
}

static void stamp(uint8_t *buf, size_t size, uint64_t number)
{
	memcpy(buf, &number, size < sizeof(number) ? size : sizeof(number));
}

/* The reply must be the message that was sent: its number and its last byte. */
static uint64_t count_bad(const uint8_t *buf, size_t size, uint64_t number, uint8_t last)
{
	return memcmp(buf, &number, size < sizeof(number) ? size : sizeof(number)) != 0 ||
	       (size > sizeof(number) && buf[size - 1] != last);
}

static uint64_t client_loop(const struct bench_job *job, int fd, uint8_t *buf,
			    uint64_t time_ns, struct bench_result *res)
{
	struct floor_pace pace;
	uint64_t ops = 0;
	bool spin = job->pattern->wait == BENCH_SPIN;
	uint8_t last = buf[job->size_bytes - 1];

	bench_cpu_start();
	floor_pace_start(&pace, time_ns);
	do {
		stamp(buf, job->size_bytes, ops);
		bench_send_all(fd, buf, job->size_bytes, spin);
		if (!bench_recv_all(fd, buf, job->size_bytes, spin))
			bench_role_fail("the server went away");
		res->bad += count_bad(buf, job->size_bytes, ops, last);
		ops++;
	} while (floor_pace_more(&pace));
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	return ops;
}

/*
 * As client_loop, with the time of each round trip, for which the clock is read each time. At
 * a fixed rate a time counts from when the round trip was to begin: those that wait for a slow
 * one are late as well.
 */
static uint64_t timed_loop(const struct bench_job *job, int fd, uint8_t *buf,
			   uint64_t time_ns, struct bench_result *res)
{
	bool spin = job->pattern->wait == BENCH_SPIN;
	uint8_t last = buf[job->size_bytes - 1];
	uint64_t from, now;
	struct rhythm r;

	bench_cpu_start();
	rhythm_start(&r, job->rate, time_ns);
	now = r.start_ns;
	do {
		from = now;
		if (r.rate) {
			from = rhythm_due_ns(&r);
			rhythm_wait(&r);
		}
		stamp(buf, job->size_bytes, r.begun);
		bench_send_all(fd, buf, job->size_bytes, spin);
		if (!bench_recv_all(fd, buf, job->size_bytes, spin))
			bench_role_fail("the server went away");
		res->bad += count_bad(buf, job->size_bytes, r.begun, last);
		now = floor_now_ns();
		latencies_add(&latencies, now - from);
		r.begun++;
	} while (now < r.end_ns && (!r.rate || rhythm_due_ns(&r) < r.end_ns));
	res->ns = now - r.start_ns;
	bench_cpu_stop(res);
	return r.begun;
}

static void think(const struct bench_job *job, uint64_t from_ns)
{
	uint64_t until = from_ns + job->think_us * 1000ull;
	struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	if (job->pattern->think == BENCH_THINK_SLEEP)
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) ==
		       EINTR)
			;
	while (floor_now_ns() < until)
		;
}

/* As client_loop, with time between reply and request. That time is not counted. */
static uint64_t think_loop(const struct bench_job *job, int fd, uint8_t *buf,
			   uint64_t time_ns, struct bench_result *res)
{
	uint64_t ops = 0, waited = 0, end = floor_now_ns() + time_ns, from, to;
	uint8_t last = buf[job->size_bytes - 1];

	bench_cpu_start();
	do {
		from = floor_now_ns();
		stamp(buf, job->size_bytes, ops);
		bench_send_all(fd, buf, job->size_bytes, false);
		if (!bench_recv_all(fd, buf, job->size_bytes, false))
			bench_role_fail("the server went away");
		to = floor_now_ns();
		waited += to - from;
		latencies_add(&latencies, to - from);
		res->bad += count_bad(buf, job->size_bytes, ops, last);
		ops++;
		think(job, to);
	} while (to < end);
	res->ns = waited;
	bench_cpu_stop(res);
	return ops;
}

static void server_loop(const struct bench_job *job, int fd, uint8_t *buf)
{
	bool spin = job->pattern->wait == BENCH_SPIN;
	while (bench_recv_all(fd, buf, job->size_bytes, spin))
		bench_send_all(fd, buf, job->size_bytes, spin);
}

/* Idle lanes have no buffer: with many of them that would be what is measured. */
static void lane_buffer(struct echo *e, struct lane *l)
{
	if (!l->buf)
		l->buf = bench_buffer(e->job->size_bytes);
}

/* Client: the next message of a lane. */
static void lane_begin(struct echo *e, struct lane *l)
{
	lane_buffer(e, l);
	stamp(l->buf, e->job->size_bytes, ++l->number);
	if (e->rhythm.rate)
		l->from_ns = rhythm_due_ns(&e->rhythm);
	else if (e->is_timed)
		l->from_ns = floor_now_ns();
	e->rhythm.begun++;
	l->left = e->job->size_bytes;
}

/* Client: of a lane whose round trip has ended, unless the time is up. */
static void lane_go_on(struct echo *e, struct lane *l)
{
	if (!e->over && !e->rhythm.rate) {
		lane_begin(e, l);
		return;
	}
	e->busy--;
	if (e->rhythm.rate)
		e->idle[e->idle_count++] = l;
}

static void lane_send(struct echo *e, struct lane *l)
{
	while (l->left) {
		ssize_t n =
			bench_send(l->fd, l->buf + e->job->size_bytes - l->left, l->left);
		if (n < 0)
			return;
		l->left -= (size_t)n;
	}
	l->got = 0;
}

static void lane_complete(struct echo *e, struct lane *l)
{
	if (e->job->server) {
		l->left = e->job->size_bytes;
		return;
	}
	e->ops++;
	e->res->bad += count_bad(l->buf, e->job->size_bytes, l->number,
				 l->buf[e->job->size_bytes - 1]);
	if (e->is_timed)
		latencies_add(&latencies, floor_now_ns() - l->from_ns);
	if (!e->over && !floor_pace_more(&e->pace))
		e->over = true;
	lane_go_on(e, l);
}

/* What a readiness event calls: reads what is there, answers a message that is complete.
 */
static void lane_step(struct echo *e, struct lane *l)
{
	lane_buffer(e, l);
	if (!l->left) {
		while (l->got < e->job->size_bytes) {
			ssize_t n = bench_recv(l->fd, l->buf + l->got,
					       e->job->size_bytes - l->got);
			if (n < 0)
				return;
			if (n == 0) {
				if (!e->job->server)
					bench_role_fail("the server went away");
				l->ended = true;
				e->busy--;
				return;
			}
			l->got += (size_t)n;
		}
		lane_complete(e, l);
	}
	lane_send(e, l);
}

static void lane_tell_epoll(struct echo *e, struct lane *l)
{
	struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = l}};
	if (l->ended) {
		if (epoll_ctl(e->epfd, EPOLL_CTL_DEL, l->fd, NULL) < 0)
			bench_role_fail("epoll_ctl");
		return;
	}
	if (l->wants_out == (l->left > 0))
		return;
	l->wants_out = l->left > 0;
	ev.events = l->wants_out ? EPOLLOUT : EPOLLIN;
	if (epoll_ctl(e->epfd, EPOLL_CTL_MOD, l->fd, &ev) < 0)
		bench_role_fail("epoll_ctl");
}

/* Client, at a fixed rate: begins what is due. */
static void begin_due(struct echo *e)
{
	uint64_t now = floor_now_ns();

	e->over = e->over || now >= e->rhythm.end_ns;
	while (!e->over && e->idle_count && rhythm_due_ns(&e->rhythm) <= now) {
		struct lane *l = e->idle[--e->idle_count];

		e->over = rhythm_due_ns(&e->rhythm) >= e->rhythm.end_ns;
		if (e->over)
			return;
		lane_begin(e, l);
		lane_send(e, l);
		if (e->epfd >= 0)
			lane_tell_epoll(e, l);
		e->busy++;
	}
}

/* For how long the client may sleep at most; NULL: until there is something to read. */
static const struct timespec *time_to_sleep(const struct echo *e, struct timespec *ts)
{
	uint64_t now, until;

	if (!e->rhythm.rate || e->over || !e->idle_count)
		return NULL;
	now = floor_now_ns();
	until = rhythm_due_ns(&e->rhythm) - RHYTHM_LATE_NS;
	*ts = (struct timespec){0};
	if (now < until)
		*ts = (struct timespec){(time_t)((until - now) / 1000000000),
					(long)((until - now) % 1000000000)};
	return ts;
}

static void wait_epoll(struct echo *e)
{
	enum { EVENTS = 64 };
	struct epoll_event evs[EVENTS];
	struct timespec ts;
	const struct timespec *limit = time_to_sleep(e, &ts);
	int n = limit ? epoll_pwait2(e->epfd, evs, EVENTS, limit, NULL)
		      : epoll_wait(e->epfd, evs, EVENTS, -1);

	if (n < 0)
		bench_role_fail("epoll_wait");
	for (int i = 0; i < n; i++) {
		lane_step(e, evs[i].data.ptr);
		lane_tell_epoll(e, evs[i].data.ptr);
	}
}

static void wait_poll(struct echo *e)
{
	unsigned conns = e->job->conns;
	struct timespec ts;

	for (unsigned i = 0; i < conns; i++) {
		e->pfds[i].fd = e->lanes[i].ended ? -1 : e->lanes[i].fd;
		e->pfds[i].events = e->lanes[i].left ? POLLOUT : POLLIN;
	}
	if (ppoll(e->pfds, conns, time_to_sleep(e, &ts), NULL) < 0)
		bench_role_fail("poll");
	for (unsigned i = 0; i < conns; i++)
		if (e->pfds[i].revents)
			lane_step(e, &e->lanes[i]);
}

static bool has_more(struct echo *e)
{
	if (e->rhythm.rate)
		begin_due(e);
	return e->busy || (e->rhythm.rate && !e->over);
}

/* The active ones lie evenly among the others. */
static struct lane *active_lane(struct echo *e, unsigned i)
{
	return &e->lanes[(uint64_t)i * e->job->conns / e->job->active];
}

static void begin_lanes(struct echo *e)
{
	for (unsigned i = 0; i < e->job->active; i++) {
		struct lane *l = active_lane(e, i);

		lane_begin(e, l);
		lane_send(e, l);
		if (e->epfd >= 0)
			lane_tell_epoll(e, l);
	}
	e->busy = e->job->active;
}

/* rate: 0, or of a fixed rhythm. */
static void echo_round(struct echo *e, uint64_t time_ns, unsigned rate)
{
	e->ops = 0;
	e->over = false;
	e->busy = e->job->server ? e->job->conns : 0;
	bench_cpu_start();
	floor_pace_start(&e->pace, time_ns);
	rhythm_start(&e->rhythm, rate, time_ns);
	e->idle_count = 0;
	if (rate)
		while (e->idle_count < e->job->active) {
			e->idle[e->idle_count] = active_lane(e, e->idle_count);
			e->idle_count++;
		}
	else if (!e->job->server)
		begin_lanes(e);
	while (has_more(e))
		(e->epfd >= 0 ? wait_epoll : wait_poll)(e);
	e->res->ops = e->ops;
	e->res->ns = floor_now_ns() - e->pace.start_ns;
	bench_cpu_stop(e->res);
}

/* Round trips of the client: to warm up, those that count, and those whose times are taken. */
static void echo_rounds(struct echo *e)
{
	const struct bench_job *job = e->job;
	struct bench_result counted;

	echo_round(e, job->time_ns / 8, 0); /* warms up */
	e->is_timed = job->rate;
	echo_round(e, job->time_ns, job->rate);
	if (!job->rate && job->wants_latencies) {
		counted = *e->res;
		e->is_timed = true;
		echo_round(e, job->time_ns / 4, 0);
		keep_speed(e->res, &counted);
	}
	take_latencies(e->res);
}

static void echo_run(const struct bench_job *job, const int *fds,
		     struct bench_result *res)
{
	struct echo e = {.job = job, .res = res, .epfd = -1};

	e.lanes = calloc(job->conns, sizeof(*e.lanes));
	e.pfds = calloc(job->conns, sizeof(*e.pfds));
	e.idle = calloc(job->conns, sizeof(*e.idle));
	if (!e.lanes || !e.pfds || !e.idle)
		bench_role_fail("memory");
	if (job->pattern->wait == BENCH_EPOLL && (e.epfd = epoll_create1(0)) < 0)
		bench_role_fail("epoll_create1");
	for (unsigned i = 0; i < job->conns; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = &e.lanes[i]}};
		e.lanes[i].fd = fds[i];
		if (e.epfd >= 0 && epoll_ctl(e.epfd, EPOLL_CTL_ADD, fds[i], &ev) < 0)
			bench_role_fail("epoll_ctl");
	}
	if (job->server)
		echo_round(&e, 0, 0);
	else
		echo_rounds(&e);
	for (unsigned i = 0; i < job->conns; i++)
		free(e.lanes[i].buf);
	if (e.epfd >= 0)
		close(e.epfd);
	free(e.lanes);
	free(e.pfds);
	free(e.idle);
}

static void client_rounds(const struct bench_job *job, int fd, uint8_t *buf,
			  struct bench_result *res)
{
	uint64_t (*loop)(const struct bench_job *, int, uint8_t *, uint64_t,
			 struct bench_result *) = job->rate		? timed_loop
						  : job->pattern->think ? think_loop
									: client_loop;
	struct bench_result counted;

	(job->rate ? client_loop : loop)(job, fd, buf, job->time_ns / 8,
					 res); /* warms up */
	latencies = (struct latencies){0};
	res->ops = loop(job, fd, buf, job->time_ns, res);
	if (loop == client_loop && job->wants_latencies) {
		counted = *res;
		timed_loop(job, fd, buf, job->time_ns / 4, res);
		keep_speed(res, &counted);
	}
	take_latencies(res);
}

void bench_rtt_run(const struct bench_job *job, const int *fds, struct bench_result *res)
{
	enum bench_wait wait = job->pattern->wait;
	uint8_t *buf;

	for (unsigned i = 0; wait != BENCH_BLOCK && i < job->conns; i++)
		if (fcntl(fds[i], F_SETFL, O_NONBLOCK) < 0)
			bench_role_fail("O_NONBLOCK");
	if (wait == BENCH_EPOLL || wait == BENCH_POLL) {
		echo_run(job, fds, res);
		return;
	}
	buf = bench_buffer(job->size_bytes);
	if (job->server)
		server_loop(job, fds[0], buf);
	else
		client_rounds(job, fds[0], buf, res);
	free(buf);
}
