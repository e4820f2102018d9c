/* SPDX-License-Identifier: Apache-2.0 */
/* Ping-pong: one message forth and back, blocking, spinning, or by epoll or poll. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tool/bench/bench.h"

/* One connection. A message is either on its way in (got) or on its way out (left). */
struct lane {
	int fd;
	uint8_t *buf;
	size_t got, left;
	uint64_t number; /* of the message, written into it */
	bool wants_out;	 /* as the kernel was last told */
	bool ended;
};

struct echo {
	const struct bench_job *job;
	struct bench_result *res;
	struct bench_pace pace;
	struct lane *lanes;
	unsigned busy; /* lanes with something still to come */
	bool over;     /* client: the time is up, send no more */
	uint64_t ops;
	int epfd;
	struct pollfd *pfds;
};

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
	struct bench_pace pace;
	uint64_t ops = 0;
	bool spin = job->pattern->wait == BENCH_SPIN;
	uint8_t last = buf[job->size_bytes - 1];

	bench_cpu_start();
	bench_pace_start(&pace, time_ns);
	do {
		stamp(buf, job->size_bytes, ops);
		bench_send_all(fd, buf, job->size_bytes, spin);
		if (!bench_recv_all(fd, buf, job->size_bytes, spin))
			bench_role_fail("the server went away");
		res->bad += count_bad(buf, job->size_bytes, ops, last);
		ops++;
	} while (bench_pace_more(&pace));
	res->ns = bench_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	return ops;
}

static void think(const struct bench_job *job, uint64_t from_ns)
{
	uint64_t until = from_ns + job->think_us * 1000ull;
	struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	if (job->pattern->think == BENCH_THINK_SLEEP)
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) ==
		       EINTR)
			;
	while (bench_now_ns() < until)
		;
}

/* As client_loop, with time between reply and request. That time is not counted. */
static uint64_t think_loop(const struct bench_job *job, int fd, uint8_t *buf,
			   uint64_t time_ns, struct bench_result *res)
{
	uint64_t ops = 0, waited = 0, end = bench_now_ns() + time_ns, from, to;
	uint8_t last = buf[job->size_bytes - 1];

	bench_cpu_start();
	do {
		from = bench_now_ns();
		stamp(buf, job->size_bytes, ops);
		bench_send_all(fd, buf, job->size_bytes, false);
		if (!bench_recv_all(fd, buf, job->size_bytes, false))
			bench_role_fail("the server went away");
		to = bench_now_ns();
		waited += to - from;
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

/* Client: the next message of a lane, unless the time is up. */
static void lane_begin(struct echo *e, struct lane *l)
{
	if (e->over) {
		e->busy--;
		return;
	}
	lane_buffer(e, l);
	stamp(l->buf, e->job->size_bytes, ++l->number);
	l->left = e->job->size_bytes;
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
	if (!e->over && !bench_pace_more(&e->pace))
		e->over = true;
	lane_begin(e, l);
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

static void echo_epoll(struct echo *e)
{
	enum { EVENTS = 64 };
	struct epoll_event evs[EVENTS];
	while (e->busy) {
		int n = epoll_wait(e->epfd, evs, EVENTS, -1);
		if (n < 0)
			bench_role_fail("epoll_wait");
		for (int i = 0; i < n; i++) {
			lane_step(e, evs[i].data.ptr);
			lane_tell_epoll(e, evs[i].data.ptr);
		}
	}
}

static void echo_poll(struct echo *e)
{
	unsigned conns = e->job->conns;
	while (e->busy) {
		for (unsigned i = 0; i < conns; i++) {
			e->pfds[i].fd = e->lanes[i].ended ? -1 : e->lanes[i].fd;
			e->pfds[i].events = e->lanes[i].left ? POLLOUT : POLLIN;
		}
		if (poll(e->pfds, conns, -1) < 0)
			bench_role_fail("poll");
		for (unsigned i = 0; i < conns; i++)
			if (e->pfds[i].revents)
				lane_step(e, &e->lanes[i]);
	}
}

static void echo_round(struct echo *e, uint64_t time_ns)
{
	unsigned conns = e->job->conns, active = e->job->active;

	e->busy = e->job->server ? conns : active;
	e->ops = 0;
	e->over = false;
	bench_cpu_start();
	bench_pace_start(&e->pace, time_ns);
	for (unsigned i = 0; !e->job->server && i < active; i++) {
		/* The active ones lie evenly among the others. */
		struct lane *l = &e->lanes[(uint64_t)i * conns / active];
		lane_begin(e, l);
		lane_send(e, l);
		if (e->epfd >= 0)
			lane_tell_epoll(e, l);
	}
	if (e->epfd >= 0)
		echo_epoll(e);
	else
		echo_poll(e);
	e->res->ops = e->ops;
	e->res->ns = bench_now_ns() - e->pace.start_ns;
	bench_cpu_stop(e->res);
}

static void echo_run(const struct bench_job *job, const int *fds,
		     struct bench_result *res)
{
	struct echo e = {.job = job, .res = res, .epfd = -1};

	e.lanes = calloc(job->conns, sizeof(*e.lanes));
	e.pfds = calloc(job->conns, sizeof(*e.pfds));
	if (!e.lanes || !e.pfds)
		bench_role_fail("memory");
	if (job->pattern->wait == BENCH_EPOLL && (e.epfd = epoll_create1(0)) < 0)
		bench_role_fail("epoll_create1");
	for (unsigned i = 0; i < job->conns; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = &e.lanes[i]}};
		e.lanes[i].fd = fds[i];
		if (e.epfd >= 0 && epoll_ctl(e.epfd, EPOLL_CTL_ADD, fds[i], &ev) < 0)
			bench_role_fail("epoll_ctl");
	}
	if (!job->server)
		echo_round(&e, job->time_ns / 8); /* warms up; not counted */
	echo_round(&e, job->time_ns);
	for (unsigned i = 0; i < job->conns; i++)
		free(e.lanes[i].buf);
	if (e.epfd >= 0)
		close(e.epfd);
	free(e.lanes);
	free(e.pfds);
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
	if (job->server) {
		server_loop(job, fds[0], buf);
	} else {
		uint64_t (*loop)(const struct bench_job *, int, uint8_t *, uint64_t,
				 struct bench_result *) =
			job->pattern->think ? think_loop : client_loop;
		loop(job, fds[0], buf, job->time_ns / 8, res); /* warms up */
		res->ops = loop(job, fds[0], buf, job->time_ns, res);
	}
	free(buf);
}
