/* SPDX-License-Identifier: Apache-2.0 */
/* Medians, spreads and ratios, as a table for people and as JSON for programs. */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

struct spread {
	double median, min, max;
	unsigned n;
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Of the values above 0; others are measurements that failed. */
static struct spread spread_of(const double *values, unsigned n)
{
	double v[BENCH_PAIRS_MAX];
	struct spread s = {0};
	for (unsigned i = 0; i < n && i < BENCH_PAIRS_MAX; i++)
		if (values[i] > 0)
			v[s.n++] = values[i];
	if (!s.n)
		return s;
	qsort(v, s.n, sizeof(v[0]), by_value);
	s.min = v[0];
	s.max = v[s.n - 1];
	s.median = s.n % 2 ? v[s.n / 2] : (v[s.n / 2 - 1] + v[s.n / 2]) / 2;
	return s;
}

double bench_median(const double *values, unsigned n)
{
	return spread_of(values, n).median;
}

static struct spread rate_of(const struct bench_row *row, unsigned who)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < row->pairs; i++)
		v[i] = row->samples[who][i].rate;
	return spread_of(v, row->pairs);
}

/* Of the ratios of each pair, not the ratio of the medians: a pair shares its weather. */
static struct spread ratio_of(const struct bench_row *row, unsigned who, unsigned base)
{
	double v[BENCH_PAIRS_MAX];
	for (unsigned i = 0; i < row->pairs; i++) {
		double rate = row->samples[base][i].rate;
		v[i] = rate > 0 ? row->samples[who][i].rate / rate : 0;
	}
	return spread_of(v, row->pairs);
}

const char *bench_format_size(char buf[16], size_t bytes)
{
	if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
		snprintf(buf, 16, "%u MiB", (unsigned)(bytes >> 20));
	else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
		snprintf(buf, 16, "%u KiB", (unsigned)(bytes >> 10));
	else
		snprintf(buf, 16, "%u B", (unsigned)bytes);
	return buf;
}

static const char *format_per_second(char buf[24], double rate)
{
	if (rate >= 1e6)
		snprintf(buf, 24, "%.2f M/s", rate / 1e6);
	else if (rate >= 1e4)
		snprintf(buf, 24, "%.1f k/s", rate / 1e3);
	else
		snprintf(buf, 24, "%.0f /s", rate);
	return buf;
}

const char *bench_format_rate(char buf[24], const struct bench_row *row, double rate)
{
	double us = rate > 0 ? 1e6 / rate : 0;
	if (rate <= 0)
		snprintf(buf, 24, "-");
	else if (row->pattern->shape == BENCH_CRR || row->conns > 1)
		return format_per_second(buf, rate);
	else if (row->pattern->shape == BENCH_RTT)
		snprintf(buf, 24, us < 10 ? "%.3f us" : "%.1f us", us);
	else if (row->size_bytes < 1024)
		return format_per_second(buf, rate);
	else
		snprintf(buf, 24, "%.2f GB/s", rate * (double)row->size_bytes / 1e9);
	return buf;
}

void bench_table_head(FILE *out)
{
	fprintf(out, "%-14s %7s  %-10s %11s %11s %11s  %-22s %8s %8s %5s\n", "pattern",
		"size", "over", "median", "worst", "best", "times the first", "of floor",
		"direct", "line");
}

static int find_floor(const struct bench_row *row)
{
	for (unsigned w = 0; w < row->contenders; w++)
		if (row->who[w]->floor)
			return (int)w;
	return -1;
}

/* How many times longer than the floor it takes. */
static const char *format_floor(char buf[16], const struct bench_row *row, unsigned who)
{
	int floor = find_floor(row);
	struct spread q;
	if (floor < 0 || floor == (int)who)
		return "";
	q = ratio_of(row, (unsigned)floor, who);
	if (!q.n)
		return "";
	snprintf(buf, 16, "%.1f x", q.median);
	return buf;
}

/* With a plain peer, or for one request, the direct path is not to be expected. */
static bool may_stay_on_tcp(const struct bench_row *row)
{
	return row->pattern->plain || row->pattern->shape == BENCH_CRR;
}

/* The share of the program's bytes that went direct, over all pairs. */
static const char *format_direct(char buf[48], const struct bench_row *row, unsigned who)
{
	uint64_t direct = 0, tcp = 0;
	bool reported = false;
	if (!row->who[who]->via_server && !row->who[who]->via_client)
		return "";
	for (unsigned i = 0; i < row->pairs; i++) {
		direct += row->samples[who][i].direct_bytes;
		tcp += row->samples[who][i].tcp_bytes;
		reported = reported || row->samples[who][i].reported;
	}
	if (!reported)
		return "unknown";
	if (!direct)
		return may_stay_on_tcp(row) ? "none" : "NONE";
	snprintf(buf, 48, "%.1f %%", 100.0 * (double)direct / (double)(direct + tcp));
	return buf;
}

static void print_notes(FILE *out, const struct bench_row *row, unsigned who)
{
	const struct bench_sample *last = NULL;
	for (unsigned i = 0; i < row->pairs; i++) {
		const struct bench_sample *s = &row->samples[who][i];
		if (s->error[0])
			fprintf(out, "  ! %s, pair %u: %s\n", row->who[who]->name, i + 1,
				s->error);
		if (s->reported)
			last = s;
	}
	if (last && !last->direct_bytes && !may_stay_on_tcp(row))
		fprintf(out, "  ! %s: nothing went direct; reasons %s\n",
			row->who[who]->name, last->reasons[0] ? last->reasons : "{}");
}

void bench_table_row(FILE *out, const struct bench_row *row)
{
	char size[16], name[32], text[3][24], ratio[64], floor[16], direct[48], line[16];

	snprintf(name, sizeof(name), row->conns > 1 ? "%s x%u" : "%s", row->pattern->name,
		 row->conns);
	snprintf(line, sizeof(line), "%.0f", bench_median(row->line_ns, row->pairs));
	for (unsigned w = 0; w < row->contenders; w++) {
		struct spread r = rate_of(row, w), q = ratio_of(row, w, 0);
		ratio[0] = 0;
		if (w && q.n)
			snprintf(ratio, sizeof(ratio), "%6.2f (%.2f..%.2f)", q.median,
				 q.min, q.max);
		fprintf(out, "%-14s %7s  %-10s %11s %11s %11s  %-22s %8s %8s %5s\n", name,
			bench_format_size(size, row->size_bytes), row->who[w]->name,
			bench_format_rate(text[0], row, r.median),
			bench_format_rate(text[1], row, r.min),
			bench_format_rate(text[2], row, r.max), ratio,
			format_floor(floor, row, w), format_direct(direct, row, w),
			w ? "" : line);
		print_notes(out, row, w);
	}
}

void bench_json_string(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

static void json_spread(FILE *out, const char *name, struct spread s)
{
	fprintf(out, ",\"%s\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g}", name,
		s.median, s.min, s.max);
}

static void json_contender(FILE *out, const struct bench_row *row, unsigned w)
{
	uint64_t direct = 0, tcp = 0;
	double cpu[BENCH_PAIRS_MAX];

	fprintf(out, "{\"over\":");
	bench_json_string(out, row->who[w]->name);
	json_spread(out, "ops_per_s", rate_of(row, w));
	if (w)
		json_spread(out, "ratio", ratio_of(row, w, 0));
	fprintf(out, ",\"samples\":[");
	for (unsigned i = 0; i < row->pairs; i++) {
		const struct bench_sample *s = &row->samples[w][i];
		fprintf(out, "%s%.6g", i ? "," : "", s->rate);
		direct += s->direct_bytes;
		tcp += s->tcp_bytes;
		cpu[i] = s->cpu_ns_per_op;
	}
	fprintf(out, "],\"cpu_ns_per_op\":%.6g", bench_median(cpu, row->pairs));
	if (row->who[w]->via_server || row->who[w]->via_client)
		fprintf(out, ",\"direct_bytes\":%ju,\"tcp_bytes\":%ju,\"reasons\":%s",
			(uintmax_t)direct, (uintmax_t)tcp,
			row->samples[w][0].reasons[0] ? row->samples[w][0].reasons
						      : "{}");
	fprintf(out, ",\"errors\":[");
	for (unsigned i = 0, n = 0; i < row->pairs; i++) {
		if (!row->samples[w][i].error[0])
			continue;
		fprintf(out, n++ ? "," : "");
		bench_json_string(out, row->samples[w][i].error);
	}
	fprintf(out, "]}");
}

void bench_json_row(FILE *out, const struct bench_row *row)
{
	fprintf(out,
		"{\"pattern\":\"%s\",\"size_bytes\":%zu,\"conns\":%u,\"line_ns\":%.1f",
		row->pattern->name, row->size_bytes, row->conns,
		bench_median(row->line_ns, row->pairs));
	fprintf(out, ",\"results\":[");
	for (unsigned w = 0; w < row->contenders; w++) {
		fprintf(out, w ? ",\n  " : "\n  ");
		json_contender(out, row, w);
	}
	fprintf(out, "]}");
}
