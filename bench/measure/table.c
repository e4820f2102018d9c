/* SPDX-License-Identifier: Apache-2.0 */
/* Medians, spreads and ratios as a table for people. */
#include <string.h>

#include "measure/bench.h"
#include "tool/terminal.h"

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

static const char *format_count(char buf[24], double n, const char *unit)
{
	if (n >= 1e6)
		snprintf(buf, 24, "%.2f M%s", n / 1e6, unit);
	else if (n >= 1e4)
		snprintf(buf, 24, "%.1f k%s", n / 1e3, unit);
	else
		snprintf(buf, 24, *unit ? "%.0f %s" : "%.0f%s", n, unit);
	return buf;
}

/* "0.2+1.3 us": client and server, for an operation. */
static const char *format_cpu(char buf[32], const struct bench_row *row, unsigned who)
{
	struct bench_spread c = bench_spread(row, who, BENCH_CLIENT_CPU);
	struct bench_spread s = bench_spread(row, who, BENCH_SERVER_CPU);
	double us = (c.median + s.median) / 1e3;
	if (!c.n && !s.n)
		return "";
	snprintf(buf, 32, us < 10 ? "%.2f+%.2f us" : "%.0f+%.0f us", c.median / 1e3,
		 s.median / 1e3);
	return buf;
}

/* Operations, or payload where messages are large, for a second of processor time. */
static const char *format_per_cpu(char buf[24], const struct bench_row *row, unsigned who)
{
	struct bench_spread s = bench_spread(row, who, BENCH_OPS_PER_CPU);
	if (!s.n)
		return "";
	if (row->size_bytes < 1024)
		return format_count(buf, s.median, "");
	s = bench_spread(row, who, BENCH_BYTES_PER_CPU);
	snprintf(buf, 24, "%.2f GB", s.median / 1e9);
	return buf;
}

const char *bench_format_rate(char buf[24], const struct bench_row *row, double rate)
{
	double us = rate > 0 ? 1e6 / rate : 0;
	if (rate <= 0)
		snprintf(buf, 24, "-");
	else if (row->rate)
		snprintf(buf, 24, us < 10 ? "%.3f us" : "%.1f us", us);
	else if (row->pattern->shape == BENCH_CRR || row->pattern->shape == BENCH_SETUP ||
		 row->conns > 1)
		return format_count(buf, rate, "/s");
	else if (row->pattern->shape == BENCH_RTT || row->pattern->shape == BENCH_LOGP)
		snprintf(buf, 24, us < 10 ? "%.3f us" : "%.1f us", us);
	else if (row->size_bytes < 1024)
		return format_count(buf, rate, "/s");
	else
		snprintf(buf, 24, "%.2f GB/s", rate * (double)row->size_bytes / 1e9);
	return buf;
}

/* Four digits say enough of a ratio, and more would not fit the column. */
static const char *format_times(char buf[16], double times)
{
	snprintf(buf, 16, "%.*f", times < 99.995 ? 2 : 0, times);
	return buf;
}

const char *bench_format_ratio(char buf[64], struct bench_spread ratio)
{
	char median[16], least[16], most[16];

	snprintf(buf, 64, "%6s (%s..%s)", format_times(median, ratio.median),
		 format_times(least, ratio.min), format_times(most, ratio.max));
	return buf;
}

enum column {
	COLUMN_NAME,
	COLUMN_SIZE,
	COLUMN_OVER,
	COLUMN_MEDIAN,
	COLUMN_WORST,
	COLUMN_BEST,
	COLUMN_RATIO,
	COLUMN_FLOOR,
	COLUMN_TAIL,
	COLUMN_CPU,
	COLUMN_PER_CPU,
	COLUMN_DIRECT,
	COLUMN_LINE,
	COLUMNS
};

/* leaves: which goes first where not all fit; 0: never. */
static struct {
	const char *head;
	int width;
	bool is_left;
	int leaves;
	bool is_left_out;
} columns[COLUMNS] = {
	[COLUMN_NAME] = {"pattern", 14, true, 0, false},
	[COLUMN_SIZE] = {"size", 7, false, 0, false},
	[COLUMN_OVER] = {"over", 14, true, 0, false},
	[COLUMN_MEDIAN] = {"median", 11, false, 9, false},
	[COLUMN_WORST] = {"worst", 11, false, 4, false},
	[COLUMN_BEST] = {"best", 11, false, 3, false},
	[COLUMN_RATIO] = {"times the first", 22, true, 0, false},
	[COLUMN_FLOOR] = {"of floor", 8, false, 7, false},
	[COLUMN_TAIL] = {"p50/p99/p99.9 us", 17, false, 5, false},
	[COLUMN_CPU] = {"cpu of both", 13, true, 6, false},
	[COLUMN_PER_CPU] = {"per cpu s", 9, false, 2, false},
	[COLUMN_DIRECT] = {"direct", 8, false, 8, false},
	[COLUMN_LINE] = {"line", 5, false, 1, false},
};

static void print_line(FILE *out, const char *const cells[COLUMNS])
{
	const char *gap = "";

	for (int i = 0; i < COLUMNS; i++) {
		if (columns[i].is_left_out)
			continue;
		fprintf(out, columns[i].is_left ? "%s%-*s" : "%s%*s", gap,
			columns[i].width, cells[i]);
		gap = i == COLUMN_SIZE || i == COLUMN_BEST || i == COLUMN_FLOOR ? "  "
										: " ";
	}
	fputc('\n', out);
}

static int total_width(void)
{
	int sum = -1;

	for (int i = 0; i < COLUMNS; i++)
		if (!columns[i].is_left_out)
			sum += columns[i].width + 1;
	return sum + 3; /* the wide gaps */
}

void bench_table_head(FILE *out, unsigned name_width, unsigned over_width)
{
	const char *heads[COLUMNS];
	int room = terminal_room(out);

	columns[COLUMN_NAME].width = (int)name_width;
	columns[COLUMN_OVER].width = (int)over_width;
	for (int leaves = 1; room > 0 && leaves < COLUMNS && total_width() > room;
	     leaves++)
		for (int i = 0; i < COLUMNS; i++)
			if (columns[i].leaves == leaves)
				columns[i].is_left_out = true;
	for (int i = 0; i < COLUMNS; i++)
		heads[i] = columns[i].head;
	print_line(out, heads);
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
	double v[BENCH_PAIRS_MAX];
	struct bench_spread q;
	if (floor < 0 || floor == (int)who)
		return "";
	for (unsigned i = 0; i < row->pairs; i++)
		v[i] = bench_figure(row, (unsigned)floor, i, BENCH_RATE) /
		       bench_figure(row, who, i, BENCH_RATE);
	q = bench_spread_of(v, row->pairs);
	if (!q.n)
		return "";
	/* Nothing that uses a ring is so much quicker than one: the ring had no processor. */
	if (q.median < 1 / BENCH_FLOOR_BELIEVED)
		return "busy";
	snprintf(buf, 16, "%.1f x", q.median);
	return buf;
}

/* In at most five letters. */
static const char *format_us(char buf[16], double ns)
{
	if (ns < 99999500)
		snprintf(buf, 16, "%.*f", ns < 9995 ? 2 : ns < 99950 ? 1 : 0, ns / 1e3);
	else
		snprintf(buf, 16, "%.*fs", ns < 9.95e9 ? 1 : 0, ns / 1e9);
	return buf;
}

/* Microseconds that half of the round trips, 99 and 99.9 % did not exceed. */
static const char *format_tail(char buf[64], const struct bench_row *row, unsigned who)
{
	char text[BENCH_LATENCY_COUNT][16];

	if (!bench_spread(row, who, BENCH_LATENCY_FIGURES).n)
		return "";
	for (unsigned i = 0; i < BENCH_LATENCY_COUNT; i++)
		format_us(text[i],
			  bench_spread(row, who, BENCH_LATENCY_FIGURES + i).median);
	snprintf(buf, 64, "%s/%s/%s", text[BENCH_P50], text[BENCH_P99], text[BENCH_P999]);
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

/* Less than this share of a fixed rate was not kept. */
#define RATE_KEPT 0.98

static void print_notes(FILE *out, const struct bench_row *row, unsigned who)
{
	const struct bench_sample *last = NULL;
	char floor[16];
	for (unsigned i = 0; i < row->pairs; i++) {
		const struct bench_sample *s = &row->samples[who][i];
		if (s->error[0])
			fprintf(out, "  ! %s, pair %u: %s\n", row->who[who]->name, i + 1,
				s->error);
		if (s->reported)
			last = s;
	}
	if (!strcmp(format_floor(floor, row, who), "busy"))
		fprintf(out,
			"  ! %s: the raw ring was slower: the machine was too busy for a "
			"figure of it\n",
			row->who[who]->name);
	if (row->rate &&
	    bench_spread(row, who, BENCH_RATE).median < RATE_KEPT * row->rate)
		fprintf(out, "  ! %s: began only %.0f of %u round trips a second\n",
			row->who[who]->name, bench_spread(row, who, BENCH_RATE).median,
			row->rate);
	if (last && !last->direct_bytes && !may_stay_on_tcp(row))
		fprintf(out, "  ! %s: nothing went direct; reasons %s\n",
			row->who[who]->name, last->reasons[0] ? last->reasons : "{}");
}

static void print_logp(FILE *out, const struct bench_row *row, unsigned who)
{
	double v[BENCH_LOGP_COUNT];
	if (row->pattern->shape != BENCH_LOGP || !bench_spread(row, who, BENCH_RATE).n)
		return;
	for (unsigned i = 0; i < BENCH_LOGP_COUNT; i++)
		v[i] = bench_spread(row, who, BENCH_LOGP_FIGURES + i).median;
	fprintf(out,
		"  %-10s half a round trip %.3f us: L %.3f, o_s %.3f, o_r %.3f us; "
		"g %.3f us; G %.3f ns a byte\n",
		row->who[who]->name, v[BENCH_LOGP_HALF_RTT] / 1e3,
		v[BENCH_LOGP_LATENCY] / 1e3, v[BENCH_LOGP_SEND] / 1e3,
		v[BENCH_LOGP_RECV] / 1e3, v[BENCH_LOGP_GAP] / 1e3,
		v[BENCH_LOGP_GAP_BYTE]);
}

static void print_setup(FILE *out, const struct bench_row *row, unsigned who)
{
	double v[BENCH_SETUP_COUNT];
	if (row->pattern->shape != BENCH_SETUP || !bench_spread(row, who, BENCH_RATE).n)
		return;
	for (unsigned i = 0; i < BENCH_SETUP_COUNT; i++)
		v[i] = bench_spread(row, who, BENCH_SETUP_FIGURES + i).median / 1e3;
	fprintf(out,
		"  %-10s a connection %.1f us, of processor time %.1f us; a round trip "
		"%.2f us, of processor time %.2f us",
		row->who[who]->name, v[BENCH_SETUP_CONNECTION],
		v[BENCH_SETUP_CONNECTION_CPU], v[BENCH_SETUP_TRIP],
		v[BENCH_SETUP_TRIP_CPU]);
	if (v[BENCH_SETUP_SWITCH] > 0)
		fprintf(out,
			"; off TCP %.1f us after connect, with %.0f round trips on it",
			v[BENCH_SETUP_SWITCH], v[BENCH_SETUP_SWITCH_TRIPS] * 1e3);
	fputc('\n', out);
}

const char *bench_format_name(char buf[48], const struct bench_row *row)
{
	int n = snprintf(buf, 48, "%s", row->pattern->name);
	if (row->conns > 1)
		n += snprintf(buf + n, 48 - (size_t)n, " x%u", row->conns);
	if (row->active < row->conns)
		n += snprintf(buf + n, 48 - (size_t)n, "/%u", row->active);
	if (row->matrix && strcmp(row->placement, "two") != 0)
		n += snprintf(buf + n, 48 - (size_t)n, " %s", row->placement);
	if (row->busy)
		snprintf(buf + n, 48 - (size_t)n, " %s", row->load);
	return buf;
}

void bench_table_row(FILE *out, const struct bench_row *row)
{
	char size[16], name[48], text[4][24], ratio[64], cpu[32], floor[16], direct[48],
		tail[64], line[16];

	bench_format_name(name, row);
	snprintf(line, sizeof(line), "%.0f", bench_spread_line(row).median);
	for (unsigned w = 0; w < row->contenders; w++) {
		struct bench_spread r = bench_spread(row, w, BENCH_SPEED);
		struct bench_spread q = bench_spread(row, w, BENCH_RATIO);
		ratio[0] = 0;
		if (w && q.n)
			bench_format_ratio(ratio, q);
		print_line(
			out,
			(const char *const[COLUMNS]){
				[COLUMN_NAME] = name,
				[COLUMN_SIZE] = bench_format_size(size, row->size_bytes),
				[COLUMN_OVER] = row->who[w]->name,
				[COLUMN_MEDIAN] =
					bench_format_rate(text[0], row, r.median),
				[COLUMN_WORST] = bench_format_rate(text[1], row, r.min),
				[COLUMN_BEST] = bench_format_rate(text[2], row, r.max),
				[COLUMN_RATIO] = ratio,
				[COLUMN_FLOOR] = format_floor(floor, row, w),
				[COLUMN_TAIL] = format_tail(tail, row, w),
				[COLUMN_CPU] = format_cpu(cpu, row, w),
				[COLUMN_PER_CPU] = format_per_cpu(text[3], row, w),
				[COLUMN_DIRECT] = format_direct(direct, row, w),
				[COLUMN_LINE] = w ? "" : line,
			});
		print_logp(out, row, w);
		print_setup(out, row, w);
		print_notes(out, row, w);
	}
}
