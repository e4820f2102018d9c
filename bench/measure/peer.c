/* SPDX-License-Identifier: Apache-2.0 */
/* Other systems' own benchmarks over shared memory, where they are installed. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/program.h"
#include "measure/pair.h"
#include "tool/floor.h"

enum {
	WORD_BYTES = 32,
	WORDS_MAX = 20,
	LISTEN_S = 60, /* a server that ends is known at once */
	LIMIT_S = 60,
	LOOK_MS = 5,
	END_MS = 2000
};

static const struct bench_peer peers[] = {
	{"ucx", "ucx_perftest", "ucx-utils", true},
	{"fi", "fi_pingpong", "libfabric-bin", false},
};

const struct bench_peer *bench_peer_at(size_t i)
{
	return i < sizeof(peers) / sizeof(peers[0]) ? &peers[i] : NULL;
}

bool bench_peer_found(const struct bench_peer *peer)
{
	char path[PATH_MAX];
	return program_find(peer->program, path, sizeof(path)) == 0;
}

struct command {
	char text[WORDS_MAX][WORD_BYTES];
	char *words[WORDS_MAX + 1];
	unsigned n;
};

static void add(struct command *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add(struct command *c, const char *fmt, ...)
{
	va_list ap;
	if (c->n == WORDS_MAX)
		abort(); /* all command lines are ours */
	va_start(ap, fmt);
	vsnprintf(c->text[c->n], WORD_BYTES, fmt, ap);
	va_end(ap);
	c->words[c->n] = c->text[c->n];
	c->words[++c->n] = NULL;
}

/* A guess at how many fit into the time; these programs count, and have no clock. */
static unsigned long rounds(const struct bench_setting *set, size_t size, double base_ns)
{
	double n = (double)set->time_ns / (base_ns + (double)size / 4);
	return n < 20 ? 20 : n > 1e6 ? 1000000 : (unsigned long)n;
}

static void ucx(const struct bench_setting *set, const struct bench_row *row,
		unsigned port, struct command *server, struct command *client)
{
	unsigned long n = rounds(set, row->size_bytes, 500);
	bool rtt = row->pattern->shape == BENCH_RTT;

	/* Shared memory, unless the user has chosen. */
	setenv("UCX_TLS", "shm,self", 0);
	add(server, "ucx_perftest");
	add(server, "-p");
	add(server, "%u", port);
	add(client, "ucx_perftest");
	add(client, "127.0.0.1");
	add(client, "-p");
	add(client, "%u", port);
	add(client, "-t");
	add(client, rtt ? "tag_lat" : "tag_bw");
	add(client, "-s");
	add(client, "%zu", row->size_bytes);
	add(client, "-n");
	add(client, "%lu", n);
	add(client, "-w");
	add(client, "%lu", n / 10);
	add(client, "-f");
}

static void fi(const struct bench_setting *set, const struct bench_row *row,
	       unsigned port, struct command *server, struct command *client)
{
	for (int end = 0; end < 2; end++) {
		struct command *c = end ? client : server;
		add(c, "fi_pingpong");
		add(c, "-p");
		add(c, "shm");
		add(c, "-e");
		add(c, "rdm");
		add(c, "-S");
		add(c, "%zu", row->size_bytes);
		add(c, "-I");
		add(c, "%lu", rounds(set, row->size_bytes, 5000));
		add(c, end ? "-P" : "-B");
		add(c, "%u", port);
	}
	add(client, "127.0.0.1");
}

/* The numbers of the last line that has some; a word before them is left out. */
static unsigned last_numbers(char *text, double *values, unsigned max)
{
	unsigned found = 0;
	char *save, *word;

	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		unsigned n = 0;
		for (word = line; *word && n < max;) {
			size_t len = strcspn(word, " \t");
			char *end;
			double v = strtod(word, &end);
			if (len && end > word)
				values[n++] = v;
			word += len + strspn(word + len, " \t");
		}
		if (n >= 4)
			found = n;
	}
	return found;
}

/*
 * ucx: count; microseconds one way, median, average and overall; twice MB/s, and twice
 * messages a second. fi: bytes, sent, acknowledged (`=20k`, no number), total, time, MB/s,
 * microseconds one way, millions a second.
 */
static double parse_rate(const struct bench_peer *peer, bool rtt, char *text)
{
	double v[16];
	unsigned n = last_numbers(text, v, 16);
	double one_way_us;

	if (n < 7)
		return 0;
	if (peer->streams && !rtt)
		return v[n - 1];
	one_way_us = peer->streams ? v[3] : v[n - 2];
	return one_way_us > 0 ? 1e6 / (2 * one_way_us) : 0;
}

static int run_both(const struct bench_setting *set, unsigned port,
		    const struct command *sc, const struct command *cc,
		    struct child *server, struct child *client)
{
	uint64_t until = floor_now_ns() + LISTEN_S * 1000000000ull;
	int err = child_start(server, sc->words, set->cpus[0]);

	if (err < 0)
		return err;
	while (!listen_on_port(port))
		if (!child_wait(server, LOOK_MS) || floor_now_ns() > until)
			return -ECONNREFUSED;
	err = child_start(client, cc->words, set->cpus[1]);
	if (err < 0)
		return err;
	return child_wait(client, (int)(set->time_ns / 100000) + LIMIT_S * 1000);
}

void bench_peer_measure(const struct bench_setting *set, const struct bench_row *row,
			const struct bench_peer *peer, struct bench_sample *s)
{
	struct command sc = {.n = 0}, cc = {.n = 0};
	struct child server = {.pid = -1, .pidfd = -1, .output = -1};
	struct child client = server;
	unsigned port = listen_free_port();
	char text[4096] = "";
	int err;

	if (peer->streams)
		ucx(set, row, port, &sc, &cc);
	else
		fi(set, row, port, &sc, &cc);
	err = run_both(set, port, &sc, &cc, &server, &client);
	child_kill(&client);
	if (!err && !client.status)
		child_wait(&server, END_MS); /* it cleans up after itself */
	child_kill(&server);
	if (client.output >= 0)
		child_read_output(&client, text, sizeof(text));
	if (err)
		snprintf(s->error, sizeof(s->error), "%s: %s", peer->program,
			 strerror(-err));
	else if (client.status)
		snprintf(s->error, sizeof(s->error), "%s: %.100s", peer->program, text);
	else
		s->rate = parse_rate(peer, row->pattern->shape == BENCH_RTT, text);
	if (!s->error[0] && s->rate <= 0)
		snprintf(s->error, sizeof(s->error), "%s: no figure in what it wrote",
			 peer->program);
	s->error[strcspn(s->error, "\n")] = 0;
	child_finish(&client);
	child_finish(&server);
}
