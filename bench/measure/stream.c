/* SPDX-License-Identifier: Apache-2.0 */
/* One way, both ways, and connect-request-response-close. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/bench.h"
#include "tool/floor.h"

enum { READ_BYTES = 65536, WARM_BYTES = 2 << 20, WARM_MESSAGES = 4096 };

/* Where the receiver stands in the stream, for the check of what it gets there. */
struct stream_check {
	const uint8_t *pattern; /* a message as the sender has it, without its number */
	size_t size, offset;
	uint64_t message;
	uint64_t bad;
};

static uint8_t expected(const struct stream_check *c)
{
	uint64_t number = c->message;
	if (c->size >= sizeof(number) && c->offset < sizeof(number))
		return ((const uint8_t *)&number)[c->offset];
	return c->pattern[c->offset];
}

static void check_advance(struct stream_check *c, size_t n)
{
	c->offset += n;
	if (c->offset >= c->size) {
		c->message += c->offset / c->size;
		c->offset %= c->size;
	}
}

/*
 * The first and the last byte of what a read returned. To look at all of them would
 * measure the looking; the counts of bytes are compared at the end besides.
 */
static void check_read(struct stream_check *c, const uint8_t *buf, size_t n)
{
	c->bad += buf[0] != expected(c);
	check_advance(c, n - 1);
	c->bad += buf[n - 1] != expected(c);
	check_advance(c, 1);
}

static void stamp(uint8_t *buf, size_t size, uint64_t number)
{
	if (size >= sizeof(number))
		memcpy(buf, &number, sizeof(number));
}

/* Sent before the clock starts, so that windows have opened and paths have switched. */
static uint64_t warm_messages(size_t size)
{
	uint64_t n = WARM_BYTES / size;
	return n > WARM_MESSAGES ? WARM_MESSAGES : n ? n : 1;
}

static void wait_ack(int fd)
{
	uint8_t ack;
	if (!bench_recv_all(fd, &ack, 1, false))
		bench_role_fail("the server went away");
}

static void stream_client(const struct bench_job *job, int fd, struct bench_result *res)
{
	size_t size = job->size_bytes;
	uint8_t *buf = bench_buffer(size);
	uint64_t number = 0, warm = warm_messages(size);
	struct floor_pace pace;

	while (number < warm) {
		stamp(buf, size, number++);
		bench_send_all(fd, buf, size, false);
	}
	wait_ack(fd);
	bench_cpu_start();
	floor_pace_start(&pace, job->time_ns);
	do {
		stamp(buf, size, number++);
		bench_send_all(fd, buf, size, false);
	} while (floor_pace_more(&pace));
	if (shutdown(fd, SHUT_WR) < 0)
		bench_role_fail("shutdown");
	wait_ack(fd);
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	res->ops = number - warm;
	free(buf);
}

static void stream_server(const struct bench_job *job, int fd, struct bench_result *res)
{
	size_t size = job->size_bytes;
	size_t room = size > READ_BYTES ? size : READ_BYTES;
	uint8_t *buf = bench_buffer(room), *pattern = bench_buffer(size);
	struct stream_check check = {.pattern = pattern, .size = size};
	uint64_t warm_left = warm_messages(size) * size;
	uint8_t ack = 1;

	for (ssize_t n; (n = bench_recv(fd, buf, room)) != 0;) {
		if (n < 0)
			bench_role_fail("recv on a blocking socket");
		check_read(&check, buf, (size_t)n);
		if (warm_left && (warm_left -= (uint64_t)n) == 0)
			bench_send_all(fd, &ack, 1, false);
	}
	bench_send_all(fd, &ack, 1, false);
	res->bad += check.bad + (check.offset != 0);
	free(buf);
	free(pattern);
}

void bench_stream_run(const struct bench_job *job, int fd, struct bench_result *res)
{
	if (job->server)
		stream_server(job, fd, res);
	else
		stream_client(job, fd, res);
}

/* The sending half of one end of a conversation in both directions. */
struct talk {
	uint8_t *buf;
	size_t size, offset;
	uint64_t number;
	bool over; /* the message in work is the last one */
	bool done; /* and has been sent */
};

/* Returns true when it moved something. */
static bool talk_send(struct talk *t, int fd, struct floor_pace *pace)
{
	ssize_t n;
	if (t->done)
		return false;
	if (t->offset == 0)
		stamp(t->buf, t->size, t->number);
	n = bench_send(fd, t->buf + t->offset, t->size - t->offset);
	if (n < 0)
		return false;
	t->offset += (size_t)n;
	if (t->offset < t->size)
		return true;
	t->offset = 0;
	t->number++;
	if (pace && !floor_pace_more(pace))
		t->over = true;
	return true;
}

void bench_bidir_run(const struct bench_job *job, int fd, struct bench_result *res)
{
	size_t size = job->size_bytes;
	size_t room = size > READ_BYTES ? size : READ_BYTES;
	uint8_t *buf = bench_buffer(room), *pattern = bench_buffer(size);
	struct talk talk = {.buf = bench_buffer(size), .size = size};
	struct stream_check check = {.pattern = pattern, .size = size};
	struct floor_pace pace;
	bool ended = false;
	uint8_t go = 1;

	if (job->server && !bench_recv_all(fd, &go, 1, false))
		bench_role_fail("the client went away");
	bench_cpu_start();
	floor_pace_start(&pace, job->time_ns);
	if (!job->server)
		bench_send_all(fd, &go, 1, false);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		bench_role_fail("O_NONBLOCK");
	while (!ended || !talk.done) {
		bool moved = talk_send(&talk, fd, job->server ? NULL : &pace);
		ssize_t n = ended ? -EAGAIN : bench_recv(fd, buf, room);
		if (n > 0)
			check_read(&check, buf, (size_t)n);
		if (n == 0)
			ended = talk.over = true;
		if (talk.over && talk.offset == 0 && !talk.done) {
			talk.done = true;
			if (shutdown(fd, SHUT_WR) < 0)
				bench_role_fail("shutdown");
		}
		if (!moved && n < 0 && !(ended && talk.done)) {
			struct pollfd p = {.fd = fd, .events = 0};
			p.events =
				(short)((ended ? 0 : POLLIN) | (talk.done ? 0 : POLLOUT));
			if (poll(&p, 1, -1) < 0)
				bench_role_fail("poll");
		}
	}
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	res->ops = talk.number + check.message;
	res->bad += check.bad + (check.offset != 0);
	free(buf);
	free(pattern);
	free(talk.buf);
}

/* First byte of a request. */
enum { CRR_GO = 'g', CRR_QUIT = 'q' };

static void crr_once(const struct bench_job *job, uint8_t *buf, struct bench_result *res)
{
	uint8_t reply[BENCH_CRR_BYTES];
	int fd = bench_connect(job);
	for (unsigned i = 0; i < job->pattern->trips; i++) {
		buf[1] = (uint8_t)i;
		bench_send_all(fd, buf, BENCH_CRR_BYTES, false);
		if (!bench_recv_all(fd, reply, sizeof(reply), false))
			bench_role_fail("the server went away");
		res->bad += memcmp(reply, buf, sizeof(reply)) != 0;
	}
	close(fd);
}

void bench_crr_client(const struct bench_job *job, struct bench_result *res)
{
	uint8_t *buf = bench_buffer(BENCH_CRR_BYTES);
	/* Enough for both ends to learn the port; long connections take their time. */
	unsigned warm = job->pattern->trips > BENCH_SESSION_TRIPS ? 30 : 100;
	struct floor_pace pace;

	buf[0] = CRR_GO;
	for (unsigned i = 0; i < warm; i++)
		crr_once(job, buf, res);
	bench_cpu_start();
	floor_pace_start(&pace, job->time_ns);
	do {
		stamp(buf + 8, sizeof(res->ops), res->ops);
		crr_once(job, buf, res);
		res->ops++;
	} while (floor_pace_more(&pace));
	res->ns = floor_now_ns() - pace.start_ns;
	bench_cpu_stop(res);
	buf[0] = CRR_QUIT;
	crr_once(job, buf, res);
	free(buf);
}

void bench_crr_server(const struct bench_job *job, int listener)
{
	uint8_t buf[BENCH_CRR_BYTES], rest;
	bool more = true;
	while (more) {
		int fd = bench_accept(job, listener);
		for (unsigned i = 0; i < job->pattern->trips; i++) {
			if (!bench_recv_all(fd, buf, sizeof(buf), false))
				bench_role_fail("the client went away");
			bench_send_all(fd, buf, sizeof(buf), false);
		}
		more = buf[0] == CRR_GO;
		/* The client closes first, as clients do: the port waits on its side. */
		if (bench_recv(fd, &rest, 1) != 0)
			bench_role_fail("more requests than were to come");
		close(fd);
	}
}
