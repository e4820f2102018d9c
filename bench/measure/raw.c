/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns by raw verbs between two hosts: sends and receives on a reliable queue pair, and nothing around them. */
#include <stdlib.h>
#include <string.h>

#include "measure/bench.h"
#include "measure/latency.h"
#include "measure/raw.h"
#include "tool/floor.h"

enum { WARM_BYTES = 2 << 20, WARM_MESSAGES = 4096 };

static uint8_t *arrived(const struct raw *r, unsigned place)
{
	return r->places + (r->depth + place) * r->size;
}

static void stamp(uint8_t *buf, size_t size, uint64_t number)
{
	memcpy(buf, &number, size < sizeof(number) ? size : sizeof(number));
}

/* The number, and the last byte behind it, which is as bench_buffer made it. */
static bool is_wrong(const struct raw *r, uint64_t number)
{
	const uint8_t *buf = arrived(r, r->place);
	size_t n = r->size < sizeof(number) ? r->size : sizeof(number);

	return memcmp(buf, &number, n) != 0 ||
	       (r->size > sizeof(number) && buf[r->size - 1] != r->last);
}

/* Of a message that was taken. */
static void check(struct raw *r, uint64_t number, struct bench_result *res)
{
	res->bad += is_wrong(r, number);
	res->rx_bytes += r->size;
	raw_post_receive(r, r->place);
}

/* ---- there and back ---- */

static uint64_t turns(struct raw *r, uint64_t time_ns, struct latencies *times,
		      struct bench_result *res)
{
	struct floor_pace pace;
	uint64_t ops = 0, from = 0, now;

	bench_cpu_start();
	floor_pace_start(&pace, time_ns);
	from = pace.start_ns;
	do {
		stamp(r->places, r->size, ops);
		raw_post_send(r, r->places, 0);
		while (raw_take(r) != RAW_DATA)
			;
		check(r, ops++, res);
		if (times) {
			now = floor_now_ns();
			latencies_add(times, now - from);
			from = now;
		}
	} while (floor_pace_more(&pace));
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	res->tx_bytes += ops * r->size;
	return ops;
}

static void rtt_client(struct raw *r, const struct bench_job *job,
		       struct bench_result *res)
{
	static struct latencies times;
	struct bench_result after;

	turns(r, job->time_ns / 8, NULL, res); /* warms up */
	res->ops = turns(r, job->time_ns, NULL, res);
	if (job->wants_latencies) {
		after = *res;
		turns(r, job->time_ns / 4, &times, &after);
		res->tx_bytes = after.tx_bytes;
		res->rx_bytes = after.rx_bytes;
		res->bad = after.bad;
		res->latency[BENCH_P50] = latencies_at(&times, 0.5);
		res->latency[BENCH_P99] = latencies_at(&times, 0.99);
		res->latency[BENCH_P999] = latencies_at(&times, 0.999);
	}
	raw_post_send(r, NULL, RAW_MARK);
}

/* Sends from where it has received: the client's next message says that this one has arrived. */
static void rtt_server(struct raw *r, struct bench_result *res)
{
	enum raw_taken what;
	int before = -1;

	while ((what = raw_take(r)) != RAW_MARKED) {
		if (what != RAW_DATA)
			continue;
		if (before >= 0)
			raw_post_receive(r, (unsigned)before);
		before = (int)r->place;
		raw_post_send(r, arrived(r, r->place), 0);
		res->tx_bytes += r->size;
		res->rx_bytes += r->size;
	}
}

/* ---- one way, and both ways at once ---- */

static bool has_room(const struct raw *r)
{
	return r->posted - r->completed < r->depth;
}

static void take_for_room(struct raw *r)
{
	while (!has_room(r) || !r->credits)
		raw_take(r);
	r->credits--;
}

static void send_next(struct raw *r, uint64_t number, struct bench_result *res)
{
	uint8_t *from = r->places + r->posted % r->depth * r->size;

	stamp(from, r->size, number);
	raw_post_send(r, from, 0);
	res->tx_bytes += r->size;
}

static void send_one(struct raw *r, uint64_t number, struct bench_result *res)
{
	take_for_room(r);
	send_next(r, number, res);
}

/* Until the peer has taken all that was sent. */
static void mark(struct raw *r)
{
	take_for_room(r);
	raw_post_send(r, NULL, RAW_MARK);
	while (raw_take(r) != RAW_MARKED)
		;
}

/* The peer may send one more: it is told of many at once. */
static void owe(struct raw *r)
{
	if (++r->owed < r->depth / 2)
		return;
	raw_post_send(r, NULL, RAW_CREDIT);
	r->owed = 0;
}

static void stream_client(struct raw *r, const struct bench_job *job,
			  struct bench_result *res)
{
	uint64_t number = 0, warm = WARM_BYTES / r->size;
	struct floor_pace pace;

	warm = warm > WARM_MESSAGES ? WARM_MESSAGES : warm ? warm : 1;
	while (number < warm)
		send_one(r, number++, res);
	mark(r);
	bench_cpu_start();
	floor_pace_start(&pace, job->time_ns);
	do
		send_one(r, number++, res);
	while (floor_pace_more(&pace));
	mark(r);
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	res->ops = number - warm;
}

/* What is sent one way, up to a RAW_MARK, which is answered. Returns the number of the next message. */
static uint64_t sink(struct raw *r, uint64_t number, struct bench_result *res)
{
	enum raw_taken what;

	do {
		what = raw_take(r);
		if (what == RAW_DATA)
			check(r, number++, res);
		if (what == RAW_DATA || what == RAW_MARKED)
			owe(r);
	} while (what != RAW_MARKED);
	raw_post_send(r, NULL, RAW_MARK);
	return number;
}

static void stream_server(struct raw *r, struct bench_result *res)
{
	sink(r, sink(r, 0, res), res);
}

/* Until both have sent their last, and taken the other's. The server's is its answer to the client's. */
static void both_ways(struct raw *r, const struct bench_job *job,
		      struct bench_result *res)
{
	uint64_t sent = 0, got = 0;
	bool is_over = false, is_done = false, has_ended = false;
	struct floor_pace pace;

	bench_cpu_start();
	floor_pace_start(&pace, job->time_ns);
	while (!is_done || !has_ended) {
		bool may_send = !is_done && has_room(r) && r->credits > 0;
		enum raw_taken what;

		if (may_send && is_over) {
			raw_post_send(r, NULL, RAW_MARK);
			is_done = true;
		} else if (may_send) {
			r->credits--;
			send_next(r, sent++, res);
			is_over = is_over || (!job->server && !floor_pace_more(&pace));
		}
		what = may_send ? raw_look(r) : raw_take(r);
		if (what == RAW_DATA) {
			check(r, got++, res);
			owe(r);
		} else if (what == RAW_MARKED) {
			has_ended = is_over = true;
		}
	}
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	res->ops = sent + got;
}

/* ---- messages one by one ---- */

void bench_raw_send(struct raw *r, uint64_t number, bool is_answered,
		    struct bench_result *res)
{
	if (!is_answered) {
		send_one(r, number, res);
		return;
	}
	while (!has_room(r))
		raw_take(r);
	send_next(r, number, res);
}

void bench_raw_receive(struct raw *r, uint64_t number, struct bench_result *res)
{
	while (raw_take(r) != RAW_DATA)
		;
	check(r, number, res);
}

void bench_raw_mark(struct raw *r)
{
	mark(r);
}

void bench_raw_sink(struct raw *r, struct bench_result *res)
{
	sink(r, 1, res);
}

struct raw *bench_raw_open(size_t size, int fd)
{
	struct raw *r = malloc(sizeof(*r));

	if (!r)
		bench_role_fail("memory");
	raw_start(r, false, size, fd);
	return r;
}

void bench_raw_run(const struct bench_job *job, int fd, struct bench_result *res)
{
	enum bench_shape shape = job->pattern->shape;
	struct raw r;

	raw_start(&r, job->pattern->wait == BENCH_SPIN, job->size_bytes, fd);
	if (shape == BENCH_BIDIR)
		both_ways(&r, job, res);
	else if (shape == BENCH_STREAM)
		job->server ? stream_server(&r, res) : stream_client(&r, job, res);
	else
		job->server ? rtt_server(&r, res) : rtt_client(&r, job, res);
	raw_end(&r, fd);
}
