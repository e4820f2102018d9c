/* SPDX-License-Identifier: Apache-2.0 */
/* The LogP parameters of a connection: latency, overheads of both ends, gaps. */
#include <stdlib.h>
#include <string.h>

#include "measure/bench.h"
#include "tool/floor.h"

/*
 * After Culler and others, "LogP Performance Assessment of Fast Network Interfaces" (IEEE
 * Micro, February 1996), as VMMC-2 used it. The client tells the server each phase in a
 * header; the server knows nothing of time.
 *
 * RTT: ping-pong. o_s: how long a send takes whose predecessors have all been answered.
 * o_r: how long a receive takes of what has arrived: the client computes between sending
 * and receiving, longer than a round trip. L = RTT / 2 - o_s - o_r. g: time for each of
 * many messages one way. G: the same for a byte, with large messages.
 */
enum { ECHO = 1, SINK };
enum { LARGE_BYTES = 1 << 20, WARM_ROUNDS = 300, OVERHEADS_MAX = 20000 };

struct header {
	uint64_t kind, size, count;
};

struct logp {
	const struct bench_job *job;
	int fd;
	struct bench_result *res;
	uint8_t *buf; /* of LARGE_BYTES, or the size where that is larger */
	uint64_t number;
	/* By raw verbs: a queue pair for each of both sizes. Headers go over the connection. */
	struct raw *small, *large;
};

static struct raw *raw_of(const struct logp *l, size_t size)
{
	return size == l->job->size_bytes ? l->small : l->large;
}

static void stamp(struct logp *l, size_t size)
{
	l->number++;
	memcpy(l->buf, &l->number, size < sizeof(l->number) ? size : sizeof(l->number));
}

static void send_it(struct logp *l, size_t size, bool is_answered)
{
	struct raw *r = raw_of(l, size);

	if (r)
		bench_raw_send(r, l->number, is_answered, l->res);
	else
		bench_send_all(l->fd, l->buf, size, false);
}

/* The message with the number of now. */
static void receive(struct logp *l, size_t size)
{
	struct raw *r = raw_of(l, size);

	if (r) {
		bench_raw_receive(r, l->number, l->res);
		return;
	}
	if (!bench_recv_all(l->fd, l->buf, size, false))
		bench_role_fail("the other end went away");
	l->res->bad += memcmp(l->buf, &l->number,
			      size < sizeof(l->number) ? size : sizeof(l->number)) != 0;
}

static void server_phase(struct logp *l, const struct header *h)
{
	struct raw *r = raw_of(l, h->size);
	uint8_t ack = 1;

	if (r && h->kind == SINK) {
		bench_raw_sink(r, l->res);
		return;
	}
	for (uint64_t i = 0; i < h->count; i++) {
		l->number++;
		receive(l, h->size);
		if (h->kind == ECHO)
			send_it(l, h->size, true);
	}
	if (h->kind == SINK)
		bench_send_all(l->fd, &ack, 1, false);
}

static void server(struct logp *l)
{
	struct header h;
	while (bench_recv_all(l->fd, &h, sizeof(h), false)) {
		l->number = 0;
		server_phase(l, &h);
	}
}

static void begin(struct logp *l, uint64_t kind, size_t size, uint64_t count)
{
	struct header h = {kind, size, count};
	bench_send_all(l->fd, &h, sizeof(h), false);
	l->number = 0;
}

/* Nanoseconds of a round trip. */
static double echo(struct logp *l, size_t size, uint64_t count)
{
	uint64_t start;

	begin(l, ECHO, size, count);
	bench_cpu_start();
	start = floor_now_ns();
	for (uint64_t i = 0; i < count; i++) {
		stamp(l, size);
		send_it(l, size, true);
		receive(l, size);
	}
	l->res->ns = floor_now_ns() - start;
	l->res->ops = count;
	bench_cpu_stop(l->res);
	return (double)l->res->ns / (double)count;
}

/* Nanoseconds for a message, sent without waiting and all received. */
static double sink(struct logp *l, size_t size, uint64_t count)
{
	uint8_t ack;
	uint64_t start;

	begin(l, SINK, size, count);
	start = floor_now_ns();
	for (uint64_t i = 0; i < count; i++) {
		stamp(l, size);
		send_it(l, size, false);
	}
	if (raw_of(l, size))
		bench_raw_mark(raw_of(l, size));
	else if (!bench_recv_all(l->fd, &ack, 1, false))
		bench_role_fail("the other end went away");
	return (double)(floor_now_ns() - start) / (double)count;
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The median, less what looking at the clock takes. */
static double overhead(uint64_t *times, uint64_t n, uint64_t clock_ns)
{
	qsort(times, n, sizeof(times[0]), by_time);
	return times[n / 2] > clock_ns ? (double)(times[n / 2] - clock_ns) : 0;
}

static uint64_t clock_cost(uint64_t *times)
{
	enum { TIMES = 1001 };
	for (int i = 0; i < TIMES; i++) {
		uint64_t from = floor_now_ns();
		times[i] = floor_now_ns() - from;
	}
	qsort(times, TIMES, sizeof(times[0]), by_time);
	return times[TIMES / 2];
}

static void overheads(struct logp *l, size_t size, uint64_t count, double rtt_ns)
{
	uint64_t *sends = calloc(OVERHEADS_MAX, sizeof(*sends));
	uint64_t *recvs = calloc(OVERHEADS_MAX, sizeof(*recvs));
	uint64_t clock_ns, wait_ns = (uint64_t)(2 * rtt_ns) + 2000;

	if (!sends || !recvs)
		bench_role_fail("memory");
	clock_ns = clock_cost(sends);
	begin(l, ECHO, size, count);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t from, to;
		stamp(l, size);
		from = floor_now_ns();
		send_it(l, size, true);
		to = floor_now_ns();
		sends[i] = to - from;
		while ((from = floor_now_ns()) < to + wait_ns)
			;
		receive(l, size);
		recvs[i] = floor_now_ns() - from;
	}
	l->res->logp[BENCH_LOGP_SEND] = overhead(sends, count, clock_ns);
	l->res->logp[BENCH_LOGP_RECV] = overhead(recvs, count, clock_ns);
	free(sends);
	free(recvs);
}

/* How often something that takes so long fits into a quarter of the time. */
static uint64_t times_in(const struct logp *l, double each_ns, uint64_t min, uint64_t max)
{
	double n = (double)l->job->time_ns / 4 / (each_ns > 1 ? each_ns : 1);
	return n < (double)min ? min : n > (double)max ? max : (uint64_t)n;
}

static void client(struct logp *l)
{
	double *logp = l->res->logp, rtt, each;
	size_t size = l->job->size_bytes;

	rtt = echo(l, size, WARM_ROUNDS);
	overheads(l, size, times_in(l, 3 * rtt + 2000, 50, OVERHEADS_MAX), rtt);
	each = sink(l, size, WARM_ROUNDS);
	logp[BENCH_LOGP_GAP] = sink(l, size, times_in(l, each, 100, 10000000));
	each = sink(l, LARGE_BYTES, 4);
	logp[BENCH_LOGP_GAP_BYTE] =
		sink(l, LARGE_BYTES, times_in(l, each, 4, 100000)) / LARGE_BYTES;
	rtt = echo(l, size, times_in(l, rtt, 50, 10000000));
	logp[BENCH_LOGP_HALF_RTT] = rtt / 2;
	logp[BENCH_LOGP_LATENCY] =
		logp[BENCH_LOGP_HALF_RTT] - logp[BENCH_LOGP_SEND] - logp[BENCH_LOGP_RECV];
}

void bench_logp_run(const struct bench_job *job, int fd, struct bench_result *res)
{
	size_t room = job->size_bytes > LARGE_BYTES ? job->size_bytes : LARGE_BYTES;
	struct logp l = {.job = job, .fd = fd, .res = res, .buf = bench_buffer(room)};

	if (job->verbs) {
		l.small = bench_raw_open(job->size_bytes, fd);
		l.large = bench_raw_open(LARGE_BYTES, fd);
	}
	if (job->server)
		server(&l);
	else
		client(&l);
	free(l.buf);
}
