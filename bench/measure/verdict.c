/* SPDX-License-Identifier: Apache-2.0 */
/* What the runs of a user's pair of programs say: figures, reasons, and a verdict. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "measure/pair.h"
#include "tool/json.h"

/* Below it a gain is not worth another program in the path. */
static const double worth_while = 1.03;

/* Both ends tell of the same connections, and a server that a signal ends tells nothing. */
void pair_report_add(struct reported *sum, const char *client, const char *server)
{
	uint64_t before = sum->connections;

	reported_add(sum, client);
	if (sum->connections == before)
		reported_add(sum, server);
}

static struct bench_spread ratio_of(const struct pair *p)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < p->done; i++)
		v[i] = p->elapsed_s[PAIR_PLAIN][i] / p->elapsed_s[PAIR_VIADUCT][i];
	return bench_spread_of(v, p->done);
}

static struct bench_spread cpu_ratio_of(const struct pair *p)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < p->done; i++) {
		double cpu[PAIR_WAYS];
		for (int w = 0; w < PAIR_WAYS; w++)
			cpu[w] = p->client_cpu_s[w][i] + p->server_cpu_s[w][i];
		v[i] = cpu[PAIR_PLAIN] /
		       (cpu[PAIR_VIADUCT] > 0 ? cpu[PAIR_VIADUCT] : 1e-6);
	}
	return bench_spread_of(v, p->done);
}

static const char *verdict_of(struct bench_spread ratio)
{
	if (ratio.median < worth_while)
		return "not worth it";
	return ratio.min > 1 ? "worth it" : "open";
}

static void add(char *buf, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char *buf, size_t size, const char *fmt, ...)
{
	size_t at = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + at, size - at, fmt, ap);
	va_end(ap);
}

/* As iperf3 does, whatever it moves in that time. */
static bool runs_for_a_time(const struct pair *p, struct bench_spread ratio)
{
	struct bench_spread t = bench_spread_of(p->elapsed_s[PAIR_PLAIN], p->done);
	return reported_direct(&p->report) > 50 && t.min > 0.5 && ratio.min > 0.98 &&
	       ratio.max < 1.02;
}

/* An acknowledgement is late by so much at least. */
static const double late_s = 0.04;

/*
 * With TCP the programs were idle while one end held the last part of a message back until the other's
 * kernel acknowledged the first: a fifth of the time or more, and under Viaduct they did not.
 */
static bool waits_for_acks(const struct pair *p, double *count)
{
	double elapsed = bench_spread_of(p->elapsed_s[PAIR_PLAIN], p->done).median;
	double cpu = bench_spread_of(p->client_cpu_s[PAIR_PLAIN], p->done).median +
		     bench_spread_of(p->server_cpu_s[PAIR_PLAIN], p->done).median;

	*count = bench_spread_of(p->late_acks[PAIR_PLAIN], p->done).median;
	return reported_direct(&p->report) > 50 && cpu < elapsed / 2 &&
	       *count * late_s > elapsed / 5 &&
	       bench_spread_of(p->late_acks[PAIR_VIADUCT], p->done).median < *count / 2;
}

/* Of the ratios of the pairs, as far as more than one tells it; in buf. */
static const char *format_deviation(char buf[32], const struct pair *p)
{
	double sum = 0, squares = 0, n = p->done;

	for (unsigned i = 0; i < p->done; i++) {
		double v = p->elapsed_s[PAIR_PLAIN][i] / p->elapsed_s[PAIR_VIADUCT][i];

		sum += v;
		squares += v * v;
	}
	buf[0] = 0;
	if (p->done > 1)
		snprintf(buf, 32, " +- %.2f",
			 sqrt(fmax(0, (squares - sum * sum / n) / (n - 1))));
	return buf;
}

static const char *sentence(char *buf, size_t size, const struct pair *p)
{
	struct bench_spread q = ratio_of(p), cpu = cpu_ratio_of(p);
	const char *verdict = verdict_of(q);
	char deviation[32];
	double acks;

	buf[0] = 0;
	add(buf, size, "%s: %.2f%s times TCP, for %.2f times the processor time", verdict,
	    q.median, format_deviation(deviation, p),
	    cpu.median > 0 ? 1 / cpu.median : 0);
	if (!strcmp(verdict, "open"))
		add(buf, size,
		    "; the spread, %.2f to %.2f, holds 1: more --pairs, or a longer run, "
		    "may "
		    "tell",
		    q.min, q.max);
	reported_paths(&p->report, "; ", buf, size);
	if (runs_for_a_time(p, q))
		add(buf, size,
		    "; a client that runs for a fixed time always takes that time: give "
		    "it a "
		    "fixed amount of work");
	if (waits_for_acks(p, &acks))
		add(buf, size,
		    "; with TCP %.0f acknowledgements came 40 ms late: a message is "
		    "written in parts, and Nagle's algorithm holds the last back; "
		    "TCP_NODELAY helps without Viaduct, too",
		    acks);
	return buf;
}

static struct bench_spread spread(const double *values, const struct pair *p)
{
	return bench_spread_of(values, p->done);
}

static void print_way(FILE *out, const struct pair *p, enum pair_way way,
		      const char *name)
{
	struct bench_spread t = spread(p->elapsed_s[way], p);
	char range[48];

	snprintf(range, sizeof(range), "(%.3f..%.3f)", t.min, t.max);
	fprintf(out, "%-8s %9.3f s %-20s %9.3f s %9.3f s\n", name, t.median, range,
		spread(p->client_cpu_s[way], p).median,
		spread(p->server_cpu_s[way], p).median);
}

void pair_print(FILE *out, const struct pair *p)
{
	char buf[1024];

	fprintf(out, "\n%-8s %11s %-20s %11s %11s\n", "median", "elapsed", "",
		"client cpu", "server cpu");
	print_way(out, p, PAIR_PLAIN, "plain");
	print_way(out, p, PAIR_VIADUCT, "viaduct");
	reported_reasons(out, &p->report);
	fprintf(out, "\n%s.\n", sentence(buf, sizeof(buf), p));
}

static void json_words(FILE *out, const char *name, char *const *words)
{
	fprintf(out, ",\n\"%s\":[", name);
	for (int i = 0; words[i]; i++) {
		fprintf(out, i ? "," : "");
		write_json_string(out, words[i]);
	}
	fputc(']', out);
}

static void json_values(FILE *out, const char *name, const double *values, unsigned n)
{
	fprintf(out, ",\"%s_samples\":[", name);
	for (unsigned i = 0; i < n; i++)
		fprintf(out, "%s%.6g", i ? "," : "", values[i]);
	fputc(']', out);
}

static void json_way(FILE *out, const char *name, const struct pair *p, enum pair_way way)
{
	const struct {
		const char *name;
		const double *values;
	} figures[] = {
		{"elapsed_s", p->elapsed_s[way]},
		{"client_cpu_s", p->client_cpu_s[way]},
		{"server_cpu_s", p->server_cpu_s[way]},
	};

	fprintf(out, ",\n\"%s\":{\"runs\":%u", name, p->done);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		bench_json_spread(out, figures[i].name, spread(figures[i].values, p));
		json_values(out, figures[i].name, figures[i].values, p->done);
	}
	fputc('}', out);
}

static void json_report(FILE *out, const struct reported *r)
{
	const char *comma = "";

	fprintf(out,
		",\n\"connections\":%ju,\"upgraded\":%ju,\"direct_bytes\":%ju,"
		"\"tcp_bytes\":%ju,\"reasons\":{",
		(uintmax_t)r->connections, (uintmax_t)r->upgraded,
		(uintmax_t)r->direct_bytes, (uintmax_t)r->tcp_bytes);
	for (uint32_t i = 1; i < VD_REASON_COUNT; i++) {
		if (!r->reasons[i])
			continue;
		fprintf(out, "%s\"%s\":%ju", comma, reason_name(i),
			(uintmax_t)r->reasons[i]);
		comma = ",";
	}
	fputc('}', out);
}

void pair_json(FILE *out, const struct pair *p)
{
	double ratios[BENCH_PAIRS_MAX];
	char buf[1024];

	for (unsigned i = 0; i < p->done; i++)
		ratios[i] = p->elapsed_s[PAIR_PLAIN][i] / p->elapsed_s[PAIR_VIADUCT][i];
	bench_json_head(out, "programs");
	json_words(out, "server", p->server);
	json_words(out, "client", p->client);
	fprintf(out, ",\n\"pairs\":%u", p->done);
	json_way(out, "plain", p, PAIR_PLAIN);
	json_way(out, "under_viaduct", p, PAIR_VIADUCT);
	bench_json_spread(out, "ratio", ratio_of(p));
	json_values(out, "ratio", ratios, p->done);
	bench_json_spread(out, "cpu_ratio", cpu_ratio_of(p));
	json_report(out, &p->report);
	fprintf(out, ",\n\"verdict\":");
	write_json_string(out, verdict_of(ratio_of(p)));
	fprintf(out, ",\"sentence\":");
	write_json_string(out, sentence(buf, sizeof(buf), p));
	fprintf(out, "}\n");
}
