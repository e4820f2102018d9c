/* SPDX-License-Identifier: Apache-2.0 */
/* The summary in sentences: where Viaduct is slower, where nothing changes, where it wins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/bench/bench.h"
#include "tool/report/report.h"

enum { LISTED = 16 };

/* One row under Viaduct, compared with TCP. */
struct cell {
	const struct row *row;
	const struct result *r;
};

struct cells {
	unsigned count;
	struct cell *cell; /* the slowest first */
};

static int by_ratio(const void *a, const void *b)
{
	double x = ((const struct cell *)a)->r->ratio.median;
	double y = ((const struct cell *)b)->r->ratio.median;

	return (x > y) - (x < y);
}

static bool collect(struct cells *c, const struct figures *f)
{
	static const char *const overs[] = {"viaduct", "viaduct-nospin", "via-client",
					    "via-server"};

	c->count = 0;
	c->cell = calloc(4 * (size_t)f->rows + 1, sizeof(*c->cell));
	for (unsigned i = 0; c->cell && i < f->rows; i++)
		for (unsigned o = 0; o < 4; o++) {
			const struct result *r = row_find(&f->row[i], overs[o]);

			if (r && r->ratio.median > 0 && row_compares(&f->row[i]))
				c->cell[c->count++] = (struct cell){&f->row[i], r};
		}
	if (c->cell)
		qsort(c->cell, c->count, sizeof(*c->cell), by_ratio);
	return c->cell;
}

/* -1 slower, 0 as fast, 1 faster. */
static int verdict(const struct cell *c)
{
	int level = heat_level(c->r->ratio.median);

	return (level > 0) - (level < 0);
}

/* "36 µs on TCP, 0.19 µs on Viaduct" */
static void put_both(FILE *out, const struct cell *c)
{
	char figure[2][FIGURE_LETTERS];

	putf_escaped(out, "%s on %s, %s %s Viaduct",
		     format_rate(figure[0], c->row, c->row->result[0].rate.median),
		     contender_words(c->row->result[0].over),
		     format_rate(figure[1], c->row, c->r->rate.median),
		     strcmp(c->r->over, "viaduct") ? "with" : "on");
}

static void put_cell(FILE *out, const struct cell *c)
{
	char cell[CELL_LETTERS], figure[3][FIGURE_LETTERS];
	const struct spread *q = &c->r->ratio;
	bool one_end = strcmp(c->r->over, "viaduct") != 0;

	fprintf(out, "<li><b>");
	putf_escaped(out, "%s, %s%s%s", pattern_words(c->row->pattern),
		     format_cell(cell, sizeof(cell), c->row), one_end ? ", " : "",
		     one_end ? contender_words(c->r->over) : "");
	fprintf(out, "</b>: ");
	put_both(out, c);
	fprintf(out, ", <b>%s</b>", format_figure(figure[0], UNIT_RATIO, q->median));
	fprintf(out, " <span class=\"soft\">(pairs: %s to %s%s)</span></li>\n",
		format_figure(figure[1], UNIT_RATIO, q->min),
		format_figure(figure[2], UNIT_RATIO, q->max),
		q->min < 1 && q->max > 1 ? ", they disagree" : "");
}

static unsigned put_list(FILE *out, const struct cells *c, int wanted,
			 const char *heading)
{
	unsigned n = 0, listed = 0;

	for (unsigned i = 0; i < c->count; i++)
		n += verdict(&c->cell[i]) == wanted;
	if (!n)
		return 0;
	fprintf(out, "<h3>%s</h3>\n<ul>\n", heading);
	for (unsigned i = 0; i < c->count && listed < LISTED; i++)
		if (verdict(&c->cell[i]) == wanted) {
			put_cell(out, &c->cell[i]);
			listed++;
		}
	if (n > listed)
		fprintf(out, "<li>and %u more: see the table of ratios below</li>\n",
			n - listed);
	fprintf(out, "</ul>\n");
	return n;
}

static bool same_group(const struct cell *a, const struct cell *b)
{
	return !strcmp(a->row->pattern, b->row->pattern) &&
	       !strcmp(a->r->over, b->r->over);
}

/* The faster cells of a pattern in one line; `weakest` is the first of them. */
static void put_group(FILE *out, const struct cells *c, const struct cell *weakest)
{
	const struct cell *best = weakest;
	char cell[CELL_LETTERS], figure[FIGURE_LETTERS];

	for (const struct cell *i = weakest; i < c->cell + c->count; i++)
		if (same_group(i, weakest))
			best = i;
	if (best == weakest) {
		put_cell(out, best);
		return;
	}
	fprintf(out, "<li><b>");
	put_escaped(out, pattern_words(best->row->pattern));
	if (strcmp(best->r->over, "viaduct") != 0)
		putf_escaped(out, ", %s", contender_words(best->r->over));
	fprintf(out, "</b>: from <b>%s</b> ",
		format_figure(figure, UNIT_RATIO, weakest->r->ratio.median));
	putf_escaped(out, "at %s (", format_cell(cell, sizeof(cell), weakest->row));
	put_both(out, weakest);
	fprintf(out, ") to <b>%s</b> ",
		format_figure(figure, UNIT_RATIO, best->r->ratio.median));
	putf_escaped(out, "at %s (", format_cell(cell, sizeof(cell), best->row));
	put_both(out, best);
	fprintf(out, ")</li>\n");
}

static void put_faster(FILE *out, const struct cells *c)
{
	if (!c->count || verdict(&c->cell[c->count - 1]) <= 0)
		return;
	fprintf(out, "<h3>Faster</h3>\n<ul>\n");
	for (unsigned i = 0; i < c->count; i++) {
		bool first = verdict(&c->cell[i]) > 0;

		for (unsigned n = 0; n < i && first; n++)
			first = verdict(&c->cell[n]) <= 0 ||
				!same_group(&c->cell[n], &c->cell[i]);
		if (first)
			put_group(out, c, &c->cell[i]);
	}
	fprintf(out, "</ul>\n");
}

/* Viaduct against another contender than the first, by the medians of their rates. */
static void put_against(FILE *out, const struct figures *f, const char *over)
{
	unsigned n = 0, faster = 0, busy = 0;
	const struct row *low_row = NULL;
	double low = 0, high = 0;
	char figure[2][FIGURE_LETTERS], cell[CELL_LETTERS];

	for (unsigned i = 0; i < f->rows; i++) {
		const struct result *v = row_find(&f->row[i], "viaduct");
		const struct result *o = row_find(&f->row[i], over);
		double q;

		if (!v || !o || !(v->rate.median > 0) || !(o->rate.median > 0))
			continue;
		q = v->rate.median / o->rate.median;
		if (!strcmp(over, "floor") && q > BENCH_FLOOR_BELIEVED) {
			busy++;
			continue;
		}
		if (!n || q < low) {
			low = q;
			low_row = &f->row[i];
		}
		high = fmax(high, q);
		faster += q > 1;
		n++;
	}
	if (busy)
		fprintf(out,
			"<li><b>The machine was too busy</b> for a comparison with the "
			"raw ring in %u row%s: the ring, which is the machine's own "
			"limit, was slower there than what uses one.</li>\n",
			busy, busy > 1 ? "s" : "");
	if (!n)
		return;
	fprintf(out, "<li><b>Against ");
	put_escaped(out, contender_words(over));
	fprintf(out, "</b>: faster in %u of %u, from <b>%s</b> ", faster, n,
		format_figure(figure[0], UNIT_RATIO, low));
	putf_escaped(out, "(%s, %s)", pattern_words(low_row->pattern),
		     format_cell(cell, sizeof(cell), low_row));
	fprintf(out, " to <b>%s</b> its speed.%s</li>\n",
		format_figure(figure[1], UNIT_RATIO, high),
		strcmp(over, "floor")
			? ""
			: " The raw ring, without sockets, is the machine's own "
			  "limit.");
}

static void put_others(FILE *out, const struct figures *f)
{
	static const char *const others[] = {"tcp-spin", "unix", "ucx", "fi", "floor"};
	bool any = false;

	for (unsigned i = 0; i < f->rows && !any; i++)
		for (unsigned o = 0; o < 5 && !any; o++)
			any = row_find(&f->row[i], "viaduct") &&
			      row_find(&f->row[i], others[o]);
	if (!any)
		return;
	fprintf(out, "<h3>Against others</h3>\n<ul>\n");
	for (unsigned o = 0; o < 5; o++)
		put_against(out, f, others[o]);
	fprintf(out, "</ul>\n");
}

static void put_lead(FILE *out, const struct cells *c)
{
	unsigned counts[3] = {0}, open = 0;

	for (unsigned i = 0; i < c->count; i++) {
		const struct spread *q = &c->cell[i].r->ratio;

		counts[verdict(&c->cell[i]) + 1]++;
		open += q->min < 1 && q->max > 1;
	}
	fprintf(out,
		"<p class=\"lead\">Of %u comparisons with TCP, Viaduct is faster in "
		"<b>%u</b>, "
		"as fast (within 5 %%) in <b>%u</b>, and slower in <b>%u</b>.",
		c->count, counts[2], counts[1], counts[0]);
	if (open)
		fprintf(out, " In %u of them the pairs disagree about which is faster.",
			open);
	fprintf(out, "</p>\n");
}

void words_findings(FILE *out, const struct figures *f)
{
	const json_t *list = json_object_get(f->json, "findings");

	if (!json_array_size(list))
		return;
	fprintf(out, "<h3>What the experiments say</h3>\n<ul>\n");
	for (size_t i = 0; i < json_array_size(list); i++) {
		fprintf(out, "<li>");
		put_escaped(out, json_word(json_array_get(list, i), "sentence"));
		fprintf(out, "</li>\n");
	}
	fprintf(out, "</ul>\n");
}

void words_summary(FILE *out, const struct figures *f)
{
	struct cells c;

	if (!collect(&c, f))
		return;
	if (c.count)
		put_lead(out, &c);
	else if (!json_array_size(json_object_get(f->json, "findings")))
		fprintf(out,
			"<p class=\"lead\">Nothing was measured both on TCP and under "
			"Viaduct, so there is nothing to compare.</p>\n");
	put_list(out, &c, -1, "Slower");
	put_list(out, &c, 0, "As fast");
	put_faster(out, &c);
	put_others(out, f);
	free(c.cell);
}

/* ---- the tiles at the top: a few cells that everybody asks for ---- */

static const struct {
	const char *pattern;
	double size; /* 0: the largest there is */
} tiles[] = {{"rtt", 64}, {"rtt-spin", 64}, {"stream", 64}, {"stream", 0}, {"crr", 64}};

static const struct row *find_tile(const struct figures *f, const char *pattern,
				   double size)
{
	const struct row *found = NULL;

	for (unsigned i = 0; i < f->rows; i++) {
		const struct row *row = &f->row[i];
		const struct result *r = row_find(row, "viaduct");

		if (strcmp(row->pattern, pattern) != 0 || row->conns > 1 ||
		    row->busy > 0 || !strcmp(row->place, "one") || !r ||
		    !(r->ratio.median > 0))
			continue;
		if (size > 0 ? row->size_bytes == size
			     : !found || row->size_bytes > found->size_bytes)
			found = row;
	}
	return found;
}

void words_tiles(FILE *out, const struct figures *f)
{
	const struct row *before = NULL;

	fprintf(out, "<div class=\"tiles\">\n");
	for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
		const struct row *row = find_tile(f, tiles[i].pattern, tiles[i].size);
		char figure[FIGURE_LETTERS], cell[CELL_LETTERS];
		struct cell c = {row, NULL};
		static const char *const classes[] = {"worse", "same", "better"};

		if (!row || row == before)
			continue;
		before = row;
		c.r = row_find(row, "viaduct");
		fprintf(out, "<div class=\"tile\"><span>");
		putf_escaped(out, "%s, %s", pattern_words(row->pattern),
			     format_cell(cell, sizeof(cell), row));
		fprintf(out, "</span><strong class=\"%s\">%s</strong><span>",
			classes[verdict(&c) + 1],
			format_figure(figure, UNIT_RATIO, c.r->ratio.median));
		put_both(out, &c);
		fprintf(out, "</span></div>\n");
	}
	fprintf(out, "</div>\n");
}
