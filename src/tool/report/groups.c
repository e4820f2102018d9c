/* SPDX-License-Identifier: Apache-2.0 */
/* Which bars follow from the figures: what has one size only, quiet and busy, LogP. */
#include <string.h>

#include "tool/report/report.h"

static bool same_pattern(const struct row *a, const struct row *b)
{
	return !strcmp(a->pattern, b->pattern) && a->kind == b->kind;
}

static bool same_but_busy(const struct row *a, const struct row *b)
{
	return same_pattern(a, b) && a->size_bytes == b->size_bytes &&
	       a->conns == b->conns && a->active == b->active &&
	       a->think_us == b->think_us;
}

/* A line through several rows shows this one. */
static bool has_line(const struct figures *f, const struct row *row)
{
	for (unsigned i = 0; i < f->rows; i++) {
		const struct row *r = &f->row[i];

		if (strcmp(r->pattern, row->pattern) != 0 ||
		    r->think_us != row->think_us || r->busy != row->busy)
			continue;
		if (r->conns != row->conns && r->size_bytes == row->size_bytes)
			return true;
		if (r->size_bytes != row->size_bytes && r->conns == row->conns &&
		    row->kind != ROW_OPS && r->kind == row->kind)
			return true;
	}
	return false;
}

static const struct row *quiet_sister(const struct figures *f, const struct row *row)
{
	for (unsigned i = 0; row->busy > 0 && i < f->rows; i++)
		if (!(f->row[i].busy > 0) && same_but_busy(&f->row[i], row))
			return &f->row[i];
	return NULL;
}

static struct spread value_of(const struct row *row, struct spread rate)
{
	struct spread s = {row_value(row, rate.median), row_value(row, rate.min),
			   row_value(row, rate.max)};

	if (row_unit(row) == UNIT_TIME) {
		double t = s.min;

		s.min = s.max;
		s.max = t;
	}
	return s;
}

static int add_result(struct bars *bars, const struct row *row, const struct result *r,
		      const char *state)
{
	struct bar *b = bars_add(bars);

	if (!b)
		return -1;
	b->style = contender_style(r->over);
	b->light = *state && row->busy > 0;
	snprintf(b->name, sizeof(b->name), "%s%s%s", contender_words(r->over),
		 *state ? ", " : "", state);
	b->value = value_of(row, r->rate);
	format_rate(b->text, row, r->rate.median);
	return 0;
}

static int add_group(struct bars *bars, const struct row *row)
{
	struct bar_group *g = bars_group(bars);

	if (!g)
		return -1;
	format_cell(g->name, sizeof(g->name), row);
	for (unsigned i = 0; i < row->results; i++)
		if (row->result[i].rate.median > 0 &&
		    add_result(bars, row, &row->result[i], "") < 0)
			return -1;
	return 0;
}

static int add_states(struct bars *bars, const struct row *quiet, const struct row *busy)
{
	struct bar_group *g = bars_group(bars);

	if (!g)
		return -1;
	format_cell(g->name, sizeof(g->name), quiet);
	for (unsigned i = 0; i < quiet->results; i++) {
		const struct result *q = &quiet->result[i], *b = row_find(busy, q->over);

		if (!(q->rate.median > 0) || !b || !(b->rate.median > 0) ||
		    !strcmp(q->over, "floor"))
			continue;
		if (add_result(bars, quiet, q, "quiet") < 0 ||
		    add_result(bars, busy, b, busy->load) < 0)
			return -1;
	}
	return 0;
}

static int finish(struct album *album, enum section section, const struct row *row,
		  const char *name, struct bars *bars)
{
	struct picture *p;
	bool time = row->kind == ROW_TIME;

	if (!bars->bars)
		return 0;
	p = picture_open(album, section, BARS_WIDTH, bars_height(bars));
	if (!p)
		return -1;
	picture_name(p, "%s-%.40s%s", name, row->pattern,
		     section != SECTION_BUSY && row->busy > 0 ? "-busy" : "");
	snprintf(p->title, sizeof(p->title), "%s%s", pattern_words(row->pattern),
		 section == SECTION_BUSY ? ": quiet against busy" : "");
	snprintf(p->note, sizeof(p->note),
		 "Medians; whiskers: the lowest and the highest of the pairs. %s",
		 time ? "Shorter is better." : "Longer is better.");
	bars_draw(p, bars);
	return picture_close(p);
}

/* Rows of the pattern that stand alone; `row` is the first of them. */
static int draw_alone(struct album *album, const struct figures *f, const struct row *row)
{
	struct bars bars = {0};
	int err = 0;

	for (const struct row *r = f->row; r < f->row + f->rows && !err; r++) {
		if (!same_pattern(r, row) || has_line(f, r) || quiet_sister(f, r))
			continue;
		if (r < row)
			goto done;
		err = add_group(&bars, r);
	}
	if (!err)
		err = finish(album, SECTION_OTHER, row, "bars", &bars);
done:
	bars_finish(&bars);
	return err;
}

static int draw_states(struct album *album, const struct figures *f,
		       const struct row *row)
{
	struct bars bars = {0};
	int err = 0;

	for (const struct row *r = f->row; r < f->row + f->rows && !err; r++) {
		const struct row *quiet = quiet_sister(f, r);

		if (!same_pattern(r, row) || !quiet)
			continue;
		if (r < row)
			goto done;
		err = add_states(&bars, quiet, r);
	}
	if (!err)
		err = finish(album, SECTION_BUSY, row, "busy", &bars);
done:
	bars_finish(&bars);
	return err;
}

static const struct {
	const char *field, *words;
	double scale; /* to seconds */
} logp_figures[] = {
	{"half_rtt_ns", "half a round trip", 1e-9},
	{"latency_ns", "L: half a round trip less both overheads", 1e-9},
	{"send_ns", "o: overhead of a send", 1e-9},
	{"recv_ns", "o: overhead of a receive", 1e-9},
	{"gap_ns", "g: gap between messages", 1e-9},
	{"gap_ns_per_byte", "G: gap for each KiB of long messages", 1024e-9},
};

static int add_logp(struct bars *bars, const struct row *row, size_t n)
{
	struct bar_group *g = bars_group(bars);

	if (!g)
		return -1;
	snprintf(g->name, sizeof(g->name), "%s", logp_figures[n].words);
	for (unsigned i = 0; i < row->results; i++) {
		const json_t *logp = json_object_get(row->result[i].json, "logp");
		struct spread s = json_spread(logp, logp_figures[n].field);
		double scale = logp_figures[n].scale;
		/* Less both overheads it may be below 0: the two ends work at once. */
		bool overlap = json_figure(json_object_get(logp, logp_figures[n].field),
					   "median") < 0;
		struct bar *b = s.median > 0 || overlap ? bars_add(bars) : NULL;

		if (!b)
			continue;
		b->style = contender_style(row->result[i].over);
		snprintf(b->name, sizeof(b->name), "%s",
			 contender_words(row->result[i].over));
		b->value =
			(struct spread){s.median * scale, s.min * scale, s.max * scale};
		if (overlap)
			snprintf(b->text, sizeof(b->text), "none: overlap");
		else
			format_figure(b->text, UNIT_TIME, b->value.median);
	}
	return 0;
}

static int draw_logp(struct album *album, const struct row *row)
{
	struct bars bars = {0};
	struct picture *p = NULL;
	int err = 0;

	for (size_t n = 0; n < sizeof(logp_figures) / sizeof(logp_figures[0]) && !err;
	     n++)
		err = add_logp(&bars, row, n);
	if (!err && bars.bars)
		p = picture_open(album, SECTION_OTHER, BARS_WIDTH, bars_height(&bars));
	if (p) {
		char size[FIGURE_LETTERS];

		picture_name(p, "logp-%.0f%s%s", row->size_bytes,
			     row->busy > 0 ? "-" : "", row->busy > 0 ? row->load : "");
		snprintf(p->title, sizeof(p->title),
			 "LogP: where the time of a %s message goes",
			 format_figure(size, UNIT_SIZE, row->size_bytes));
		snprintf(p->note, sizeof(p->note), "Shorter is better.");
		bars_draw(p, &bars);
		err = picture_close(p);
	}
	bars_finish(&bars);
	return err;
}

int groups_make(struct album *album, const struct figures *f)
{
	int err = 0;

	for (unsigned i = 0; i < f->rows && !err; i++) {
		const struct row *row = &f->row[i];

		if (!strcmp(row->pattern, "logp"))
			err = draw_logp(album, row);
		else if (quiet_sister(f, row))
			err = draw_states(album, f, row);
		else if (!has_line(f, row))
			err = draw_alone(album, f, row);
	}
	return err;
}
