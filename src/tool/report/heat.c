/* SPDX-License-Identifier: Apache-2.0 */
/* The ratios against TCP as a table in colours: blue is faster, orange is slower. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/report/report.h"

enum { NAMES_MIN = 160, TOP = 82, EDGE = 14, LEGEND = 46, COLUMNS_MAX = 40 };

static const struct level {
	double below; /* the ratios that end here */
	const char *fill, *words;
	bool inverse; /* its text is in the colour of the paper */
	int level;
} levels[] = {
	{0.5, "l3", "< 0.5", true, -3},	    {0.8, "l2", "to 0.8", false, -2},
	{0.95, "l1", "to 0.95", false, -1}, {1.05, "h0", "as fast", false, 0},
	{2, "h1", "to 2 ×", false, 1},	    {5, "h2", "to 5 ×", false, 2},
	{20, "h3", "to 20 ×", false, 3},    {0, "h4", "more", true, 4},
};
enum { LEVELS = sizeof(levels) / sizeof(levels[0]) };

static const struct level *level_of(double ratio)
{
	unsigned i = 0;

	while (i + 1 < LEVELS && ratio >= levels[i].below)
		i++;
	return &levels[i];
}

int heat_level(double ratio)
{
	return level_of(ratio)->level;
}

/* One line of the table: the rows that differ in nothing but their size. */
struct line {
	const struct row *row; /* the first of them */
	const char *over;
	char name[160];
};

struct heat {
	const struct figures *figures;
	unsigned columns, lines;
	double names; /* width of the names of the lines */
	double size[COLUMNS_MAX];
	struct line *line;
};

static bool same_line(const struct row *a, const struct row *b)
{
	return !strcmp(a->pattern, b->pattern) && a->conns == b->conns &&
	       a->active == b->active && a->busy == b->busy && a->think_us == b->think_us;
}

const struct result *heat_result(const struct row *row, const char *over)
{
	const struct result *r = row_find(row, over);

	return r && r->ratio.median > 0 && row_compares(row) ? r : NULL;
}

static void add_size(struct heat *h, double size)
{
	unsigned at = 0;

	while (at < h->columns && h->size[at] < size)
		at++;
	if (h->columns == COLUMNS_MAX || (at < h->columns && h->size[at] == size))
		return;
	memmove(&h->size[at + 1], &h->size[at], (h->columns - at) * sizeof(h->size[0]));
	h->size[at] = size;
	h->columns++;
}

static void add_line(struct heat *h, const struct row *row, const char *over)
{
	struct line *line = &h->line[h->lines];
	const char *one_end = strcmp(over, "viaduct") ? contender_words(over) : "";
	char conns[64] = "", count[2][FIGURE_LETTERS];

	for (unsigned i = 0; i < h->lines; i++)
		if (same_line(h->line[i].row, row) && !strcmp(h->line[i].over, over))
			return;
	if (row->conns > 1 && row->active > 0 && row->active < row->conns)
		snprintf(conns, sizeof(conns), ", %s connections (%s active)",
			 format_figure(count[0], UNIT_COUNT, row->conns),
			 format_figure(count[1], UNIT_COUNT, row->active));
	else if (row->conns > 1)
		snprintf(conns, sizeof(conns), ", %s connections",
			 format_figure(count[0], UNIT_COUNT, row->conns));
	line->row = row;
	line->over = over;
	snprintf(line->name, sizeof(line->name), "%s%s%s%s%s%s",
		 pattern_words(row->pattern), conns, row->busy > 0 ? ", " : "",
		 row->busy > 0 ? row->load : "", *one_end ? ", " : "", one_end);
	h->names = fmax(h->names, svg_text_width(line->name, 11) + 14);
	h->lines++;
}

static void collect(struct heat *h)
{
	static const char *const overs[] = {"viaduct", "via-client", "via-server"};

	for (unsigned i = 0; i < h->figures->rows; i++) {
		const struct row *row = &h->figures->row[i];

		for (unsigned o = 0; o < 3; o++) {
			if (!heat_result(row, overs[o]))
				continue;
			add_size(h, row->size_bytes);
			add_line(h, row, overs[o]);
		}
	}
}

void heat_cell(FILE *out, const struct row *row, const struct result *r, double x,
	       double y)
{
	const struct level *level = level_of(r->ratio.median);
	char text[FIGURE_LETTERS + 4], figure[4][FIGURE_LETTERS], cell[CELL_LETTERS];
	/* The pairs disagree about which one is faster. */
	bool open = r->ratio.min < 1 && r->ratio.max > 1;

	fprintf(out, "<g><title>");
	putf_escaped(out,
		     "%s, %s: %s with TCP, %s with Viaduct; %s in the median (%s to %s)",
		     pattern_words(row->pattern), format_cell(cell, sizeof(cell), row),
		     format_rate(figure[0], row, row->result[0].rate.median),
		     format_rate(figure[1], row, r->rate.median),
		     format_figure(text, UNIT_RATIO, r->ratio.median),
		     format_figure(figure[2], UNIT_RATIO, r->ratio.min),
		     format_figure(figure[3], UNIT_RATIO, r->ratio.max));
	fprintf(out, "</title>");
	svg_rect(out, x + 1, y + 1, HEAT_CELL - 2, HEAT_ROW - 2, level->fill);
	format_figure(figure[0], UNIT_RATIO, r->ratio.median);
	figure[0][strspn(figure[0], "0123456789.,")] = 0; /* without the sign */
	snprintf(text, sizeof(text), "%s%s", figure[0], open ? " ~" : "");
	svg_text(out, x + HEAT_CELL / 2.0, y + HEAT_ROW / 2.0 + 4, ANCHOR_MIDDLE,
		 level->inverse ? "cell inverse" : "cell", text);
	fprintf(out, "</g>\n");
}

static void draw_lines(FILE *out, const struct heat *h)
{
	for (unsigned l = 0; l < h->lines; l++) {
		double y = TOP + l * HEAT_ROW;

		svg_text(out, EDGE + h->names - 10, y + HEAT_ROW / 2.0 + 4, ANCHOR_END,
			 "", h->line[l].name);
		for (unsigned i = 0; i < h->figures->rows; i++) {
			const struct row *row = &h->figures->row[i];
			const struct result *r = heat_result(row, h->line[l].over);

			if (!r || !same_line(row, h->line[l].row))
				continue;
			for (unsigned c = 0; c < h->columns; c++)
				if (h->size[c] == row->size_bytes)
					heat_cell(out, row, r,
						  EDGE + h->names + c * HEAT_CELL, y);
		}
	}
}

void heat_heading(struct picture *p, const char *name)
{
	picture_name(p, "%s", name);
	snprintf(p->title, sizeof(p->title),
		 "Viaduct against TCP: how many times as fast");
	snprintf(p->note, sizeof(p->note),
		 "Medians of the ratios of the pairs; below 1 Viaduct is slower; ~ the "
		 "pairs disagree");
	svg_heading(p);
}

void heat_legend(FILE *out, double x, double y)
{
	for (unsigned i = 0; i < LEVELS; i++) {
		svg_rect(out, x, y - 10, 14, 14, levels[i].fill);
		svg_text(out, x + 19, y + 1, ANCHOR_START, "", levels[i].words);
		x += 28 + svg_text_width(levels[i].words, 11);
	}
}

static int draw(struct album *album, const struct heat *h)
{
	double width = 2 * EDGE + h->names + h->columns * HEAT_CELL;
	struct picture *p = picture_open(album, SECTION_RATIO, width < 620 ? 620 : width,
					 TOP + h->lines * HEAT_ROW + LEGEND);

	if (!p)
		return -1;
	heat_heading(p, "ratio");
	for (unsigned c = 0; c < h->columns; c++) {
		char text[FIGURE_LETTERS];

		svg_text(p->out, EDGE + h->names + (c + 0.5) * HEAT_CELL, TOP - 10,
			 ANCHOR_MIDDLE, "", format_figure(text, UNIT_SIZE, h->size[c]));
	}
	draw_lines(p->out, h);
	heat_legend(p->out, EDGE, TOP + h->lines * HEAT_ROW + 26);
	return picture_close(p);
}

int heat_picture(struct album *album, const struct figures *f)
{
	struct heat h = {.figures = f, .names = NAMES_MIN};
	int err = 0;

	h.line = calloc(3 * (size_t)f->rows + 1, sizeof(*h.line));
	if (!h.line)
		return -1;
	collect(&h);
	if (h.lines)
		err = draw(album, &h);
	free(h.line);
	return err;
}
