/* SPDX-License-Identifier: Apache-2.0 */
/* Which lines follow from the figures: over the sizes, and over the number of connections. */
#include <string.h>

#include "tool/report/report.h"

/* A kind of plot: which rows belong into one, and what is drawn of each result. */
struct plot {
	enum section section;
	const char *name, *title, *note; /* of the pattern's words: %s */
	enum unit x_unit, y_unit;
	const char *x_label;
	bool (*same)(const struct row *a, const struct row *b);
	bool (*wants)(const struct row *row);
	double (*x)(const struct row *row);
	struct spread (*y)(const struct row *row, const struct result *r);
};

static bool same_but_size(const struct row *a, const struct row *b)
{
	return !strcmp(a->pattern, b->pattern) && a->conns == b->conns &&
	       a->active == b->active && a->busy == b->busy && a->think_us == b->think_us;
}

static bool same_but_conns(const struct row *a, const struct row *b)
{
	return !strcmp(a->pattern, b->pattern) && a->size_bytes == b->size_bytes &&
	       a->busy == b->busy && a->think_us == b->think_us;
}

static double size_of(const struct row *row)
{
	return row->size_bytes;
}

static double conns_of(const struct row *row)
{
	return row->conns;
}

static bool wants_time(const struct row *row)
{
	return row->kind == ROW_TIME;
}

static bool wants_bytes(const struct row *row)
{
	return row->kind == ROW_BYTES;
}

static bool wants_any(const struct row *row)
{
	(void)row;
	return true;
}

/* Spinning costs the processors' whole time, by definition. */
static bool wants_cpu(const struct row *row)
{
	return row->kind == ROW_TIME && strcmp(row->pattern, "rtt-spin") != 0 &&
	       strcmp(row->pattern, "rtt-poll") != 0;
}

static struct spread inverse(struct spread s, double factor)
{
	if (!(s.median > 0))
		return s;
	return (struct spread){factor / s.median, factor / s.max, factor / s.min};
}

static struct spread times(struct spread s, double factor)
{
	return (struct spread){s.median * factor, s.min * factor, s.max * factor};
}

static struct spread time_of(const struct row *row, const struct result *r)
{
	(void)row;
	return inverse(r->rate, 1);
}

static struct spread rate_of(const struct row *row, const struct result *r)
{
	(void)row;
	return r->rate;
}

static struct spread bytes_of(const struct row *row, const struct result *r)
{
	return times(r->rate, row->bytes_per_op);
}

static struct spread cpu_of(const struct row *row, const struct result *r)
{
	struct spread s = inverse(json_spread(r->json, "ops_per_cpu_s"), 1);

	(void)row;
	if (!(s.median > 0))
		s.median = s.min = s.max = r->cpu_ns_per_op * 1e-9;
	return s;
}

static struct spread cpu_per_kib(const struct row *row, const struct result *r)
{
	return times(cpu_of(row, r), 1024 / row->bytes_per_op);
}

#define SPREADS "Lines: medians; bars: the lowest and the highest of the pairs. "

static const struct plot plots[] = {
	{SECTION_LATENCY, "latency", "%s: time by message size",
	 SPREADS "Lower is better.", UNIT_SIZE, UNIT_TIME, "message size", same_but_size,
	 wants_time, size_of, time_of},
	{SECTION_THROUGHPUT, "throughput", "%s: bytes a second by message size",
	 SPREADS "Higher is better.", UNIT_SIZE, UNIT_BYTES_RATE, "message size",
	 same_but_size, wants_bytes, size_of, bytes_of},
	{SECTION_CONNS, "connections", "%s: operations a second by connections",
	 SPREADS "Higher is better.", UNIT_COUNT, UNIT_RATE, "connections",
	 same_but_conns, wants_any, conns_of, rate_of},
	{SECTION_CPU, "cpu", "%s: processor time of a round trip",
	 "Both ends together. " SPREADS "Lower is better.", UNIT_SIZE, UNIT_TIME,
	 "message size", same_but_size, wants_cpu, size_of, cpu_of},
	{SECTION_CPU, "cpu-message", "%s: processor time of a message",
	 "Both ends together. " SPREADS "Lower is better.", UNIT_SIZE, UNIT_TIME,
	 "message size", same_but_size, wants_bytes, size_of, cpu_of},
	{SECTION_CPU, "cpu-kib", "%s: processor time of a KiB",
	 "Both ends together. " SPREADS "Lower is better.", UNIT_SIZE, UNIT_TIME,
	 "message size", same_but_size, wants_bytes, size_of, cpu_per_kib},
};

static struct series *series_of(struct lines *lines, const char *over)
{
	for (unsigned i = 0; i < lines->count; i++)
		if (!strcmp(lines->series[i].over, over))
			return &lines->series[i];
	if (lines->count == SERIES_MAX)
		return NULL;
	lines->series[lines->count].over = over;
	lines->series[lines->count].points = 0;
	return &lines->series[lines->count++];
}

static void add_point(struct lines *lines, const struct row *row, const struct result *r,
		      double x, struct spread y)
{
	struct series *s = y.median > 0 && x > 0 ? series_of(lines, r->over) : NULL;
	char cell[CELL_LETTERS], figure[3][FIGURE_LETTERS];
	struct point *p;
	unsigned at = 0;

	if (!s || s->points == POINTS_MAX)
		return;
	while (at < s->points && s->point[at].x < x)
		at++;
	if (at < s->points && s->point[at].x == x)
		return; /* measured twice: the first one stands */
	p = &s->point[at];
	memmove(p + 1, p, (s->points - at) * sizeof(*p));
	s->points++;
	p->x = x;
	p->y = y;
	snprintf(p->hover, sizeof(p->hover), "%s, %s: %s (%s to %s)",
		 contender_words(r->over), format_cell(cell, sizeof(cell), row),
		 format_figure(figure[0], lines->y_unit, y.median),
		 format_figure(figure[1], lines->y_unit, y.min),
		 format_figure(figure[2], lines->y_unit, y.max));
}

/* What exists for one connection only, as the raw ring. */
static void drop_single(struct lines *lines)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < lines->count; i++)
		if (lines->series[i].points > 1)
			lines->series[kept++] = lines->series[i];
	lines->count = kept;
}

/* Returns true when there is more than one point to draw a line through. */
static bool gather(struct lines *lines, const struct figures *f, const struct plot *plot,
		   const struct row *first)
{
	unsigned most = 0;

	lines->count = 0;
	lines->x_unit = plot->x_unit;
	lines->y_unit = plot->y_unit;
	lines->x_label = plot->x_label;
	for (const struct row *row = first; row < f->row + f->rows; row++) {
		if (!plot->same(first, row) || !plot->wants(row))
			continue;
		for (unsigned i = 0; i < row->results; i++)
			add_point(lines, row, &row->result[i], plot->x(row),
				  plot->y(row, &row->result[i]));
	}
	for (unsigned i = 0; i < lines->count; i++)
		if (lines->series[i].points > most)
			most = lines->series[i].points;
	if (plot->section == SECTION_CONNS)
		drop_single(lines);
	return most > 1;
}

/* An earlier row has drawn this one; or it is busy, and its quiet sister is drawn. */
static bool is_drawn(const struct figures *f, const struct plot *plot,
		     const struct row *row)
{
	struct row quiet = *row;

	quiet.busy = 0;
	for (const struct row *r = f->row; r < row; r++)
		if (plot->same(r, row) && plot->wants(r))
			return true;
	for (const struct row *r = f->row; row->busy > 0 && r < f->row + f->rows; r++)
		if (plot->same(r, &quiet))
			return true;
	return false;
}

static int draw(struct album *album, const struct plot *plot, const struct lines *lines,
		const struct row *row)
{
	struct picture *p = picture_open(album, plot->section, LINES_WIDTH, LINES_HEIGHT);
	char words[96], cell[64], tail[32] = "";
	bool by_conns = plot->x == conns_of;

	if (!p)
		return -1;
	if (by_conns)
		snprintf(words, sizeof(words), "%s, %s", pattern_words(row->pattern),
			 format_figure(cell, UNIT_SIZE, row->size_bytes));
	else if (row->conns > 1)
		snprintf(words, sizeof(words), "%s (%.0f connections)",
			 pattern_words(row->pattern), row->conns);
	else
		snprintf(words, sizeof(words), "%s", pattern_words(row->pattern));
	snprintf(p->title, sizeof(p->title), plot->title, words);
	snprintf(p->note, sizeof(p->note), "%s%s",
		 row->busy > 0 ? "Processors busy otherwise. " : "", plot->note);
	if (by_conns)
		snprintf(tail, sizeof(tail), "-%.0f", row->size_bytes);
	else if (row->conns > 1)
		snprintf(tail, sizeof(tail), "-x%.0f", row->conns);
	picture_name(p, "%s-%.24s%s%s%s", plot->name, row->pattern, tail,
		     row->busy > 0 ? "-" : "", row->busy > 0 ? row->load : "");
	lines_draw(p, lines);
	return picture_close(p);
}

int plots_make(struct album *album, const struct figures *f)
{
	static struct lines lines; /* large */

	for (size_t n = 0; n < sizeof(plots) / sizeof(plots[0]); n++) {
		const struct plot *plot = &plots[n];

		for (unsigned i = 0; i < f->rows; i++) {
			const struct row *row = &f->row[i];

			if (!plot->wants(row) || is_drawn(f, plot, row) ||
			    !gather(&lines, f, plot, row))
				continue;
			if (draw(album, plot, &lines, row) < 0)
				return -1;
		}
	}
	return 0;
}
