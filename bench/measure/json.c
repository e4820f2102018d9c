/* SPDX-License-Identifier: Apache-2.0 */
/* The figures as JSON for programs; docs/bench-json.md describes it. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "measure/bench.h"
#include "tool/json.h"

void bench_json_head(FILE *out, const char *kind)
{
	char started[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(out,
		"{\"format\":1,\"schema\":1,\"kind\":\"%s\",\"viaduct\":\"%s\","
		"\"started\":\"%s\",\n\"machine\":",
		kind, VD_VERSION, started);
	bench_machine_json(out);
}

void bench_json_spread(FILE *out, const char *name, struct bench_spread s)
{
	fprintf(out, ",\"%s\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g}", name,
		s.median, s.min, s.max);
}

static void json_samples(FILE *out, const char *name, const struct bench_row *row,
			 unsigned w, enum bench_figure figure)
{
	fprintf(out, ",\"%s\":[", name);
	for (unsigned i = 0; i < row->pairs; i++) {
		double v = bench_figure(row, w, i, figure);
		fprintf(out, "%s%.6g", i ? "," : "", isnan(v) ? 0 : v);
	}
	fputc(']', out);
}

static void json_cpu(FILE *out, const struct bench_row *row, unsigned w)
{
	static const struct {
		const char *name;
		enum bench_figure figure;
	} spreads[] = {
		{"client_cpu_ns_per_op", BENCH_CLIENT_CPU},
		{"server_cpu_ns_per_op", BENCH_SERVER_CPU},
		{"client_cpu_ns_per_byte", BENCH_CLIENT_CPU_BYTE},
		{"server_cpu_ns_per_byte", BENCH_SERVER_CPU_BYTE},
		{"ops_per_cpu_s", BENCH_OPS_PER_CPU},
		{"bytes_per_cpu_s", BENCH_BYTES_PER_CPU},
	};

	fprintf(out, ",\"cpu_ns_per_op\":%.6g", bench_spread(row, w, BENCH_CPU).median);
	for (size_t i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++)
		bench_json_spread(out, spreads[i].name,
				  bench_spread(row, w, spreads[i].figure));
	json_samples(out, "client_cpu_samples", row, w, BENCH_CLIENT_CPU);
	json_samples(out, "server_cpu_samples", row, w, BENCH_SERVER_CPU);
}

static void json_direct(FILE *out, const struct bench_row *row, unsigned w)
{
	uint64_t direct = 0, tcp = 0;

	if (!row->who[w]->via_server && !row->who[w]->via_client)
		return;
	for (unsigned i = 0; i < row->pairs; i++) {
		direct += row->samples[w][i].direct_bytes;
		tcp += row->samples[w][i].tcp_bytes;
	}
	fprintf(out, ",\"direct_bytes\":%ju,\"tcp_bytes\":%ju,\"reasons\":%s",
		(uintmax_t)direct, (uintmax_t)tcp,
		row->samples[w][0].reasons[0] ? row->samples[w][0].reasons : "{}");
}

static void json_logp(FILE *out, const struct bench_row *row, unsigned w)
{
	if (row->pattern->shape != BENCH_LOGP)
		return;
	fprintf(out, ",\"logp\":{\"size_bytes\":%zu", row->size_bytes);
	for (unsigned i = 0; i < BENCH_LOGP_COUNT; i++)
		bench_json_spread(out, bench_logp_names[i],
				  bench_spread(row, w, BENCH_LOGP_FIGURES + i));
	fputc('}', out);
}

static void json_setup(FILE *out, const struct bench_row *row, unsigned w)
{
	if (row->pattern->shape != BENCH_SETUP)
		return;
	fprintf(out, ",\"setup\":{\"size_bytes\":%zu,\"round_trips\":%u", row->size_bytes,
		BENCH_SETUP_SHORT);
	for (unsigned i = 0; i < BENCH_SETUP_COUNT; i++)
		bench_json_spread(out, bench_setup_names[i],
				  bench_spread(row, w, BENCH_SETUP_FIGURES + i));
	fputc('}', out);
}

static void json_latency(FILE *out, const struct bench_row *row, unsigned w)
{
	for (unsigned i = 0; i < BENCH_LATENCY_COUNT && row->pattern->shape == BENCH_RTT;
	     i++)
		bench_json_spread(out, bench_latency_names[i],
				  bench_spread(row, w, BENCH_LATENCY_FIGURES + i));
}

static void json_contender(FILE *out, const struct bench_row *row, unsigned w)
{
	fprintf(out, "{\"over\":");
	write_json_string(out, row->who[w]->name);
	if (row->matrix && w)
		fprintf(out, ",\"spin\":\"%s\"", bench_spin_name(row->who[w]));
	bench_json_spread(out, "ops_per_s", bench_spread(row, w, BENCH_RATE));
	if (w) {
		bench_json_spread(out, "ratio", bench_spread(row, w, BENCH_RATIO));
		json_samples(out, "ratio_samples", row, w, BENCH_RATIO);
	}
	json_samples(out, "samples", row, w, BENCH_RATE);
	bench_json_spread(out, "bytes_per_s", bench_spread(row, w, BENCH_BYTES));
	json_latency(out, row, w);
	json_cpu(out, row, w);
	json_direct(out, row, w);
	json_logp(out, row, w);
	json_setup(out, row, w);
	fprintf(out, ",\"errors\":[");
	for (unsigned i = 0, n = 0; i < row->pairs; i++) {
		if (!row->samples[w][i].error[0])
			continue;
		fprintf(out, n++ ? "," : "");
		write_json_string(out, row->samples[w][i].error);
	}
	fprintf(out, "]}");
}

void bench_json_row(FILE *out, const struct bench_row *row)
{
	fprintf(out,
		"{\"pattern\":\"%s\",\"unit\":\"%s\",\"size_bytes\":%zu,"
		"\"bytes_per_op\":%zu,\"conns\":%u,\"active\":%u",
		row->pattern->name, bench_unit(row), row->size_bytes,
		bench_bytes_per_op(row), row->conns, row->active);
	fprintf(out, ",\"placement\":\"%s\"", row->placement);
	fprintf(out, ",\"load\":\"%s\",\"busy\":%u,\"line_ns\":%.1f", row->load,
		row->busy, bench_spread_line(row).median);
	fprintf(out, ",\"think_us\":%u,\"rate_per_s\":%u", row->think_us, row->rate);
	fprintf(out, ",\"line_ns_samples\":[");
	for (unsigned i = 0; i < row->pairs; i++)
		fprintf(out, "%s%.1f", i ? "," : "", row->line_ns[i]);
	fprintf(out, "],\"results\":[");
	for (unsigned w = 0; w < row->contenders; w++) {
		fprintf(out, w ? ",\n  " : "\n  ");
		json_contender(out, row, w);
	}
	fprintf(out, "]}");
}
