/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection costs before its first round trip, and what each round trip costs then. */
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kernel.h"
#include "measure/bench.h"
#include "tool/floor.h"

/*
 * Short connections and long ones, by turns. What a long one takes longer is the price of the
 * round trips that it has more; what is left of a short one without its round trips is the
 * price of the connection, and under Viaduct of the upgrade: wherever in its life that is paid.
 */
enum { TURNS = 4, WARM_CONNS = 20, PROBES = 31, PROBE_TRIPS = 64 };

/* First byte of a message. */
enum { SETUP_GO = 'g', SETUP_QUIT = 'q' };

struct setup {
	const struct bench_job *job;
	struct bench_result *res;
	uint8_t *buf, *reply;
	bool spin;
	uint64_t number;
};

static int open_connection(const struct setup *s)
{
	int fd = bench_connect(s->job);
	if (s->spin && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		bench_role_fail("O_NONBLOCK");
	return fd;
}

static void round_trip(struct setup *s, int fd)
{
	size_t size = s->job->size_bytes;
	size_t room = size - 1 < sizeof(s->number) ? size - 1 : sizeof(s->number);

	s->number++;
	memcpy(s->buf + 1, &s->number, room);
	bench_send_all(fd, s->buf, size, s->spin);
	if (!bench_recv_all(fd, s->reply, size, s->spin))
		bench_role_fail("the server went away");
	s->res->bad += memcmp(s->buf, s->reply, 1 + room) != 0 ||
		       s->buf[size - 1] != s->reply[size - 1];
}

static void whole_connection(struct setup *s, unsigned trips)
{
	int fd = open_connection(s);
	for (unsigned i = 0; i < trips; i++)
		round_trip(s, fd);
	close(fd);
}

/* Connections of so many round trips, and what they took together. */
static void turn(struct setup *s, unsigned trips, struct bench_result *sum)
{
	struct bench_result now = {0};
	struct floor_pace pace;

	bench_cpu_start();
	floor_pace_start(&pace, s->job->time_ns / TURNS);
	do {
		whole_connection(s, trips);
		sum->ops++;
	} while (floor_pace_more(&pace));
	sum->ns += floor_now_ns() - pace.start_ns;
	bench_cpu_stop(&now);
	sum->cpu_ns += now.cpu_ns;
	sum->peer_cpu_ns += now.peer_cpu_ns;
}

/* From two sums, the price of a connection and of a round trip. */
static void divide(double brief, double lasting, double *connection, double *trip)
{
	*trip = (lasting - brief) / (BENCH_SETUP_LONG - BENCH_SETUP_SHORT);
	*connection = brief - *trip * BENCH_SETUP_SHORT;
}

static double cpu_of(const struct bench_result *sum)
{
	/* The server's may be unknown: then neither counts. */
	return sum->peer_cpu_ns
		       ? (double)(sum->cpu_ns + sum->peer_cpu_ns) / (double)sum->ops
		       : 0;
}

static double ns_of(const struct bench_result *sum)
{
	return (double)sum->ns / (double)sum->ops;
}

/* Bytes that the connection's kernel socket has carried, both ways. Past the C library's name:
 * under Viaduct that one adds what the rings have carried. */
static uint64_t kernel_bytes(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	if (kernel_call6(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, (long)&info,
			 (long)&len, 0) < 0)
		bench_role_fail("TCP_INFO");
	return info.tcpi_bytes_sent + info.tcpi_bytes_received;
}

/* How long until no round trip goes through the kernel any more, and how many did; 0: all. */
static unsigned probe(struct setup *s, double *ns)
{
	uint64_t start = floor_now_ns(), asking = 0, last = 0, at = 0;
	unsigned trips = 0;
	int fd = open_connection(s);

	for (unsigned i = 1; i <= PROBE_TRIPS; i++) {
		uint64_t from, bytes;
		round_trip(s, fd);
		from = floor_now_ns();
		bytes = kernel_bytes(fd);
		if (bytes != last) {
			trips = i;
			at = from - start - asking;
		}
		last = bytes;
		asking += floor_now_ns() - from;
	}
	close(fd);
	*ns = (double)at;
	return trips < PROBE_TRIPS ? trips : 0;
}

static void find_switch(struct setup *s)
{
	double ns[PROBES], trips[PROBES];
	unsigned n = 0;

	for (int i = 0; i < PROBES; i++) {
		trips[n] = probe(s, &ns[n]);
		n += trips[n] > 0;
	}
	s->res->setup[BENCH_SETUP_SWITCH] = bench_spread_of(ns, n).median;
	s->res->setup[BENCH_SETUP_SWITCH_TRIPS] = bench_spread_of(trips, n).median;
}

static void measure(struct setup *s)
{
	struct bench_result brief = {0}, lasting = {0};
	double *f = s->res->setup;

	for (int i = 0; i < WARM_CONNS; i++)
		whole_connection(s, BENCH_SETUP_SHORT);
	/* What drifts meanwhile meets both alike. */
	turn(s, BENCH_SETUP_SHORT, &brief);
	turn(s, BENCH_SETUP_LONG, &lasting);
	turn(s, BENCH_SETUP_LONG, &lasting);
	turn(s, BENCH_SETUP_SHORT, &brief);
	divide(ns_of(&brief), ns_of(&lasting), &f[BENCH_SETUP_CONNECTION],
	       &f[BENCH_SETUP_TRIP]);
	if (cpu_of(&brief) > 0 && cpu_of(&lasting) > 0)
		divide(cpu_of(&brief), cpu_of(&lasting), &f[BENCH_SETUP_CONNECTION_CPU],
		       &f[BENCH_SETUP_TRIP_CPU]);
	s->res->ops = brief.ops;
	s->res->ns = brief.ns;
	s->res->cpu_ns = brief.cpu_ns;
	s->res->peer_cpu_ns = brief.peer_cpu_ns;
}

static void start(struct setup *s, const struct bench_job *job, struct bench_result *res)
{
	*s = (struct setup){.job = job, .res = res};
	s->spin = job->pattern->wait == BENCH_SPIN;
	s->buf = bench_buffer(job->size_bytes);
	s->reply = bench_buffer(job->size_bytes);
}

static void finish(struct setup *s)
{
	free(s->buf);
	free(s->reply);
}

void bench_setup_client(const struct bench_job *job, struct bench_result *res)
{
	struct setup s;

	start(&s, job, res);
	s.buf[0] = SETUP_GO;
	measure(&s);
	find_switch(&s);
	s.buf[0] = SETUP_QUIT;
	whole_connection(&s, 1);
	finish(&s);
}

/* False when it was the last. */
static bool serve(struct setup *s, int listener)
{
	size_t size = s->job->size_bytes;
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int fd;

	while (s->spin && poll(&p, 1, 0) == 0)
		;
	fd = bench_accept(s->job, listener);
	if (s->spin && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		bench_role_fail("O_NONBLOCK");
	/* The client closes first, as clients do: the port waits on its side. */
	while (bench_recv_all(fd, s->reply, size, s->spin))
		bench_send_all(fd, s->reply, size, s->spin);
	close(fd);
	return s->reply[0] != SETUP_QUIT;
}

void bench_setup_server(const struct bench_job *job, int listener)
{
	struct bench_result unused;
	struct setup s;

	start(&s, job, &unused);
	while (serve(&s, listener))
		;
	finish(&s);
}
