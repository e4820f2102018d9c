/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the samples of a row: figures, medians, spreads and ratios. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/bench.h"

const char *const bench_logp_names[BENCH_LOGP_COUNT] = {
	"half_rtt_ns", "latency_ns", "send_ns", "recv_ns", "gap_ns", "gap_ns_per_byte",
};

const char *const bench_setup_names[BENCH_SETUP_COUNT] = {
	"connection_ns",     "round_trip_ns", "connection_cpu_ns",
	"round_trip_cpu_ns", "switch_ns",     "switch_round_trips",
};

const char *const bench_latency_names[BENCH_LATENCY_COUNT] = {"p50_ns", "p99_ns",
							      "p999_ns"};

size_t bench_bytes_per_op(const struct bench_row *row)
{
	bool both = row->pattern->shape == BENCH_RTT || row->pattern->shape == BENCH_LOGP;
	if (row->pattern->shape == BENCH_CRR)
		return 2 * row->pattern->trips * row->size_bytes;
	if (row->pattern->shape == BENCH_SETUP)
		return 2 * BENCH_SETUP_SHORT * row->size_bytes;
	return both ? 2 * row->size_bytes : row->size_bytes;
}

const char *bench_unit(const struct bench_row *row)
{
	switch (row->pattern->shape) {
	case BENCH_CRR:
	case BENCH_SETUP:
		return "connection";
	case BENCH_STREAM:
	case BENCH_BIDIR:
	case BENCH_COPY:
	case BENCH_COPY_COLD:
		return "message";
	default:
		return "round trip";
	}
}

/* Of processor time, which the floor, say, does not have. */
static double known(double v)
{
	return v > 0 ? v : NAN;
}

static double speed(const struct bench_row *row, const struct bench_sample *s)
{
	return row->rate ? 1e9 / known(s->latency[BENCH_P50]) : known(s->rate);
}

/* Of a pattern; NAN in the rows of others. */
static double pattern_figure(const struct bench_row *row, const struct bench_sample *s,
			     enum bench_figure figure)
{
	if (figure >= BENCH_LATENCY_FIGURES)
		return known(s->latency[figure - BENCH_LATENCY_FIGURES]);
	if (figure >= BENCH_SETUP_FIGURES)
		return row->pattern->shape == BENCH_SETUP
			       ? s->setup[figure - BENCH_SETUP_FIGURES]
			       : NAN;
	return row->pattern->shape == BENCH_LOGP ? s->logp[figure - BENCH_LOGP_FIGURES]
						 : NAN;
}

double bench_figure(const struct bench_row *row, unsigned who, unsigned pair,
		    enum bench_figure figure)
{
	const struct bench_sample *s = &row->samples[who][pair];
	double bytes = (double)bench_bytes_per_op(row);
	double both = known(s->client_cpu_ns) + known(s->server_cpu_ns);

	if (!(s->rate > 0))
		return NAN;
	switch (figure) {
	case BENCH_RATE:
		return s->rate;
	case BENCH_SPEED:
		return speed(row, s);
	case BENCH_RATIO:
		return speed(row, s) / speed(row, &row->samples[0][pair]);
	case BENCH_BYTES:
		return s->rate * bytes;
	case BENCH_CPU:
		return both;
	case BENCH_CLIENT_CPU:
		return known(s->client_cpu_ns);
	case BENCH_SERVER_CPU:
		return known(s->server_cpu_ns);
	case BENCH_CLIENT_CPU_BYTE:
		return known(s->client_cpu_ns) / bytes;
	case BENCH_SERVER_CPU_BYTE:
		return known(s->server_cpu_ns) / bytes;
	case BENCH_OPS_PER_CPU:
		return 1e9 / both;
	case BENCH_BYTES_PER_CPU:
		return bytes * 1e9 / both;
	default:
		return pattern_figure(row, s, figure);
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(const double *values, unsigned n)
{
	double v[BENCH_PAIRS_MAX];
	struct bench_spread s = {0};
	for (unsigned i = 0; i < n && i < BENCH_PAIRS_MAX; i++)
		if (!isnan(values[i]))
			v[s.n++] = values[i];
	if (!s.n)
		return s;
	qsort(v, s.n, sizeof(v[0]), by_value);
	s.min = v[0];
	s.max = v[s.n - 1];
	s.median = s.n % 2 ? v[s.n / 2] : (v[s.n / 2 - 1] + v[s.n / 2]) / 2;
	return s;
}

/* A ratio is that of each pair, not that of the medians: a pair shares its weather. */
struct bench_spread bench_spread(const struct bench_row *row, unsigned who,
				 enum bench_figure figure)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < row->pairs; i++)
		v[i] = bench_figure(row, who, i, figure);
	return bench_spread_of(v, row->pairs);
}

struct bench_spread bench_spread_line(const struct bench_row *row)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < row->pairs; i++)
		v[i] = known(row->line_ns[i]);
	return bench_spread_of(v, row->pairs);
}

const char *bench_spin_name(const struct bench_contender *who)
{
	if (!who->viaduct_spin)
		return "";
	return strcmp(who->viaduct_spin, "0") ? "on" : "off";
}
