/* SPDX-License-Identifier: Apache-2.0 */
/* What the experiments of `viaduct bench` say about this machine, in a sentence each. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "settings/value.h"
#include "measure/finding.h"
#include "tool/json.h"

/* Below it a gain is not worth another path. */
static const double worth_while = 1.03;

/* A sentence that grows; what does not fit is cut. */
struct sentence {
	char text[2048];
	size_t len;
};

static void add(struct sentence *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add(struct sentence *s, const char *fmt, ...)
{
	size_t room = sizeof(s->text) - s->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(s->text + s->len, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		s->len += (size_t)n < room ? (size_t)n : room - 1;
}

static void note_copies(struct findings *f, const struct bench_row *row)
{
	for (unsigned w = 1; w < row->contenders; w++) {
		struct finding_copy c = {row->pattern, row->who[w], row->size_bytes,
					 row->busy, bench_spread(row, w, BENCH_RATIO)};
		if (row->who[0]->copy == BENCH_COPY_RING && c.ratio.n &&
		    f->copies < FINDING_COPIES_MAX)
			f->copy[f->copies++] = c;
	}
}

static int find(const struct bench_row *row, const char *name)
{
	for (unsigned w = 0; w < row->contenders; w++)
		if (!strcmp(row->who[w]->name, name))
			return (int)w;
	return -1;
}

/* Of one pair: what the connection costs more, and what a round trip costs less. */
static void weigh(const struct bench_row *row, const int who[2], unsigned pair,
		  enum bench_setup fixed, enum bench_setup trip, double v[3])
{
	const double *tcp = row->samples[who[0]][pair].setup;
	const double *viaduct = row->samples[who[1]][pair].setup;
	bool known = tcp[trip] > 0 && viaduct[trip] > 0;

	v[0] = known ? viaduct[fixed] - tcp[fixed] : NAN;
	v[1] = known ? tcp[trip] - viaduct[trip] : NAN;
	/* A round trip is two operations of each end, a send and a receive. */
	v[2] = known && v[1] > 0 ? fmax(0, 2 * v[0] / v[1]) : NAN;
}

static void weigh_all(const struct bench_row *row, const int who[2],
		      enum bench_setup fixed, enum bench_setup trip,
		      struct bench_spread *to[3])
{
	double values[3][BENCH_PAIRS_MAX];

	for (unsigned i = 0; i < row->pairs; i++) {
		double v[3];
		weigh(row, who, i, fixed, trip, v);
		for (int k = 0; k < 3; k++)
			values[k][i] = v[k];
	}
	for (int k = 0; k < 3; k++)
		*to[k] = bench_spread_of(values[k], row->pairs);
}

static void note_setup(struct findings *f, const struct bench_row *row)
{
	struct finding_setup *s = &f->setup[f->setups];
	int who[2] = {find(row, "tcp"), find(row, "viaduct")};

	if (who[0] < 0 || who[1] < 0 || f->setups == FINDING_SETUPS_MAX)
		return;
	*s = (struct finding_setup){.pattern = row->pattern,
				    .size_bytes = row->size_bytes,
				    .busy = row->busy};
	for (unsigned i = 0; i < row->pairs; i++)
		s->upgraded = s->upgraded || row->samples[who[1]][i].direct_bytes;
	weigh_all(row, who, BENCH_SETUP_CONNECTION, BENCH_SETUP_TRIP,
		  (struct bench_spread *[]){&s->cost, &s->gain, &s->paid});
	weigh_all(row, who, BENCH_SETUP_CONNECTION_CPU, BENCH_SETUP_TRIP_CPU,
		  (struct bench_spread *[]){&s->cost_cpu, &s->gain_cpu, &s->paid_cpu});
	f->setups++;
}

void findings_note(struct findings *f, const struct bench_row *row)
{
	if (bench_is_copy(row->pattern))
		note_copies(f, row);
	else if (row->pattern->shape == BENCH_SETUP)
		note_setup(f, row);
}

static bool is_win(const struct finding_copy *c)
{
	return c->ratio.median >= worth_while && c->ratio.min > 1;
}

static bool is_open(const struct finding_copy *c)
{
	return c->ratio.median >= worth_while && c->ratio.min <= 1;
}

static const char *call_of(enum bench_copy way)
{
	return way == BENCH_COPY_WRITE ? "process_vm_writev" : "process_vm_readv";
}

static const char *warmth(const struct bench_pattern *p)
{
	return p->shape == BENCH_COPY_COLD ? "cold" : "hot";
}

/* "64 KiB hot (process_vm_writev, 1.20 times as fast as the ring), ..." */
static unsigned add_cells(struct sentence *s, const struct findings *f,
			  bool (*wanted)(const struct finding_copy *))
{
	unsigned n = 0;
	char size[16];

	for (unsigned i = 0; i < f->copies; i++) {
		const struct finding_copy *c = &f->copy[i];
		if (!wanted(c))
			continue;
		add(s, "%s%s %s%s (%s, %.2f times as fast as the ring, %.2f to %.2f)",
		    n++ ? ", " : "", bench_format_size(size, c->size_bytes),
		    warmth(c->pattern), c->busy ? " busy" : "", call_of(c->who->copy),
		    c->ratio.median, c->ratio.min, c->ratio.max);
	}
	return n;
}

/* How many times as fast the ring is. */
static unsigned add_range(struct sentence *s, const struct findings *f,
			  enum bench_copy way, const char *before)
{
	double low = INFINITY, high = 0;

	for (unsigned i = 0; i < f->copies; i++) {
		const struct finding_copy *c = &f->copy[i];
		if (c->who->copy != way || !(c->ratio.median > 0))
			continue;
		low = fmin(low, 1 / c->ratio.median);
		high = fmax(high, 1 / c->ratio.median);
	}
	if (high > 0)
		add(s, "%s%.2g to %.2g times as fast as %s", before, low, high,
		    call_of(way));
	return high > 0;
}

static void add_limits(struct sentence *s, const struct findings *f)
{
	for (enum bench_copy way = BENCH_COPY_WRITE; way < BENCH_COPY_WAYS; way++)
		if (bench_copy_forbidden(way))
			add(s, "; not permitted here: %s", bench_copy_forbidden(way));
	if (f->copies && bench_copy_scope() > 0)
		add(s,
		    "; measured between parent and child: between others "
		    "kernel.yama.ptrace_scope, %d, allows it only to those with "
		    "CAP_SYS_PTRACE, or with the other's consent (PR_SET_PTRACER)",
		    bench_copy_scope());
}

static void say_copy(struct sentence *s, const struct findings *f)
{
	struct sentence cells = {.len = 0};
	unsigned n;

	add(s, "copy: ");
	if (!f->copies)
		add(s, "a single copy was not compared with the ring");
	else if (add_cells(&cells, f, is_win))
		add(s, "a single copy wins on this machine at %s", cells.text);
	else
		add(s, "a single copy wins at no size measured on this machine");
	cells = (struct sentence){.len = 0};
	if (add_cells(&cells, f, is_open))
		add(s, "; open, since the pairs disagree, at %s", cells.text);
	n = add_range(s, f, BENCH_COPY_WRITE, "; two copies through a ring are ");
	add_range(s, f, BENCH_COPY_READ,
		  n ? ", and " : "; two copies through a ring are ");
	add_limits(s, f);
	add(s, ".");
}

static double us(struct bench_spread s)
{
	return s.median / 1e3;
}

static unsigned default_ops(void)
{
	struct config config = {0};
	value_defaults(&config);
	return config.upgrade_after;
}

static void add_paid(struct sentence *s, struct bench_spread gain,
		     struct bench_spread paid, const char *in)
{
	if (gain.median > 0 && paid.n)
		add(s, "after %.0f operations in %s", ceil(paid.median), in);
	else
		add(s, "never in %s", in);
}

static void say_setup(struct sentence *s, const struct finding_setup *f)
{
	char size[16];

	add(s, "%s, %s%s: ", f->pattern->name, bench_format_size(size, f->size_bytes),
	    f->busy ? ", busy" : "");
	if (!f->upgraded || !f->cost.n) {
		add(s, "%s, so nothing can be said.",
		    f->upgraded ? "the longer connections took no longer than the short"
				: "nothing was upgraded");
		return;
	}
	add(s, "an upgrade costs %.0f us (%.0f to %.0f)", us(f->cost), f->cost.min / 1e3,
	    f->cost.max / 1e3);
	if (f->cost_cpu.n)
		add(s, ", and %.0f us of both ends' processor time", us(f->cost_cpu));
	add(s, "; each round trip over the ring saves %.2f us", us(f->gain));
	if (f->cost_cpu.n)
		add(s, ", and %.2f us of processor time", us(f->gain_cpu));
	add(s, ": it has paid for itself ");
	add_paid(s, f->gain, f->paid, "time");
	if (f->cost_cpu.n) {
		add(s, ", ");
		add_paid(s, f->gain_cpu, f->paid_cpu, "processor time");
	}
	add(s, " (a round trip is two); by default a connection is upgraded after %u.",
	    default_ops());
}

void findings_print(FILE *out, const struct findings *f)
{
	struct sentence s = {.len = 0};

	if (f->copy_asked) {
		say_copy(&s, f);
		fprintf(out, "\n%s\n", s.text);
	}
	for (unsigned i = 0; i < f->setups; i++) {
		s = (struct sentence){.len = 0};
		say_setup(&s, &f->setup[i]);
		fprintf(out, "\n%s\n", s.text);
	}
}

static void json_sentence(FILE *out, const char *pattern, const struct sentence *s)
{
	fprintf(out, "\n{\"pattern\":\"%s\",\"sentence\":", pattern);
	write_json_string(out, s->text);
}

static void json_copy(FILE *out, const struct findings *f)
{
	struct sentence s = {.len = 0};
	const char *comma = "";

	say_copy(&s, f);
	json_sentence(out, "copy", &s);
	fprintf(out, ",\"cold_bytes\":%zu,\"compared\":%u,\"wins\":[",
		bench_copy_cold_bytes(), f->copies);
	for (unsigned i = 0; i < f->copies; i++) {
		const struct finding_copy *c = &f->copy[i];
		if (!is_win(c))
			continue;
		fprintf(out,
			"%s{\"pattern\":\"%s\",\"over\":\"%s\",\"size_bytes\":%zu,"
			"\"busy\":%u",
			comma, c->pattern->name, c->who->name, c->size_bytes, c->busy);
		bench_json_spread(out, "ratio", c->ratio);
		fputc('}', out);
		comma = ",";
	}
	fprintf(out, "],\"forbidden\":[");
	comma = "";
	for (enum bench_copy way = BENCH_COPY_WRITE; way < BENCH_COPY_WAYS; way++) {
		if (!bench_copy_forbidden(way))
			continue;
		fputs(comma, out);
		write_json_string(out, bench_copy_forbidden(way));
		comma = ",";
	}
	fprintf(out, "]}");
}

static void json_setup(FILE *out, const struct finding_setup *f)
{
	struct sentence s = {.len = 0};

	say_setup(&s, f);
	json_sentence(out, f->pattern->name, &s);
	fprintf(out, ",\"size_bytes\":%zu,\"busy\":%u,\"default_ops\":%u", f->size_bytes,
		f->busy, default_ops());
	bench_json_spread(out, "cost_ns", f->cost);
	bench_json_spread(out, "cost_cpu_ns", f->cost_cpu);
	bench_json_spread(out, "gain_ns", f->gain);
	bench_json_spread(out, "gain_cpu_ns", f->gain_cpu);
	bench_json_spread(out, "paid_after_ops", f->paid);
	bench_json_spread(out, "paid_after_ops_cpu", f->paid_cpu);
	fputc('}', out);
}

void findings_json(FILE *out, const struct findings *f)
{
	const char *comma = f->copy_asked ? "," : "";

	fprintf(out, ",\"findings\":[");
	if (f->copy_asked)
		json_copy(out, f);
	for (unsigned i = 0; i < f->setups; i++) {
		fputs(comma, out);
		json_setup(out, &f->setup[i]);
		comma = ",";
	}
	fputc(']', out);
}
