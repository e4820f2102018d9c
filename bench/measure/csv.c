/* SPDX-License-Identifier: Apache-2.0 */
/* Each sample as a line of CSV (RFC 4180); viaduct-bench(1) documents the columns. */
#include <math.h>

#include "measure/bench.h"

void bench_csv_head(FILE *out)
{
	fprintf(out,
		"pattern,unit,size_bytes,bytes_per_op,conns,active,load,busy,think_us,"
		"over,"
		"pair,line_ns,ops_per_s,ratio,client_cpu_ns_per_op,server_cpu_ns_per_op,"
		"direct_bytes,tcp_bytes");
	for (unsigned i = 0; i < BENCH_LOGP_COUNT; i++)
		fprintf(out, ",%s", bench_logp_names[i]);
	for (unsigned i = 0; i < BENCH_SETUP_COUNT; i++)
		fprintf(out, ",%s", bench_setup_names[i]);
	fprintf(out, ",error,placement,spin,rate_per_s");
	for (unsigned i = 0; i < BENCH_LATENCY_COUNT; i++)
		fprintf(out, ",%s", bench_latency_names[i]);
	fputc('\n', out);
}

static void csv_figure(FILE *out, const struct bench_row *row, unsigned who,
		       unsigned pair, enum bench_figure figure)
{
	double v = bench_figure(row, who, pair, figure);
	if (isnan(v))
		fputc(',', out);
	else
		fprintf(out, ",%.6g", v);
}

static void csv_text(FILE *out, const char *s)
{
	fputc(',', out);
	if (!*s)
		return;
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void csv_sample(FILE *out, const struct bench_row *row, unsigned who,
		       unsigned pair)
{
	const struct bench_contender *c = row->who[who];
	const struct bench_sample *s = &row->samples[who][pair];

	fprintf(out, "%s,%s,%zu,%zu,%u,%u,%s,%u,%u,%s,%u,%.1f", row->pattern->name,
		bench_unit(row), row->size_bytes, bench_bytes_per_op(row), row->conns,
		row->active, row->load, row->busy, row->think_us, c->name, pair + 1,
		row->line_ns[pair]);
	csv_figure(out, row, who, pair, BENCH_RATE);
	if (who)
		csv_figure(out, row, who, pair, BENCH_RATIO);
	else
		fputc(',', out);
	csv_figure(out, row, who, pair, BENCH_CLIENT_CPU);
	csv_figure(out, row, who, pair, BENCH_SERVER_CPU);
	if (c->via_server || c->via_client)
		fprintf(out, ",%ju,%ju", (uintmax_t)s->direct_bytes,
			(uintmax_t)s->tcp_bytes);
	else
		fprintf(out, ",,");
	for (unsigned i = 0; i < BENCH_LOGP_COUNT; i++)
		csv_figure(out, row, who, pair, BENCH_LOGP_FIGURES + i);
	for (unsigned i = 0; i < BENCH_SETUP_COUNT; i++)
		csv_figure(out, row, who, pair, BENCH_SETUP_FIGURES + i);
	csv_text(out, s->error);
	fprintf(out, ",%s,%s,%u", row->placement, bench_spin_name(c), row->rate);
	for (unsigned i = 0; i < BENCH_LATENCY_COUNT; i++)
		csv_figure(out, row, who, pair, BENCH_LATENCY_FIGURES + i);
	fputc('\n', out);
}

void bench_csv_row(FILE *out, const struct bench_row *row)
{
	for (unsigned w = 0; w < row->contenders; w++)
		for (unsigned pair = 0; pair < row->pairs; pair++)
			if (row->samples[w][pair].rate > 0 ||
			    row->samples[w][pair].error[0])
				csv_sample(out, row, w, pair);
}
