/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of `viaduct bench --matrix`: one table in colours, and the cells below TCP. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/bench/matrix.h"
#include "tool/report/report.h"

enum { TOP = 110, EDGE = 14, LEGEND = 46, NAMES_MIN = 160, COLUMNS_MAX = 48 };

/* One way to run a row. */
struct column {
	const char *place, *over, *load;
	double busy;
};

struct table {
	const struct figures *figures;
	unsigned columns, lines;
	double names; /* width of the names of the lines */
	struct column column[COLUMNS_MAX];
	const struct row **line; /* the first row of each */
};

static bool same_line(const struct row *a, const struct row *b)
{
	return !strcmp(a->pattern, b->pattern) && a->size_bytes == b->size_bytes &&
	       a->conns == b->conns && a->active == b->active;
}

static void line_name(char *buf, size_t size, const struct row *row)
{
	char cell[CELL_LETTERS];
	struct row plain = *row;

	plain.busy = 0;
	plain.place = "";
	snprintf(buf, size, "%s, %s", pattern_words(row->pattern),
		 format_cell(cell, sizeof(cell), &plain));
}

static void add_line(struct table *t, const struct row *row)
{
	char name[CELL_LETTERS + 64];

	for (unsigned i = 0; i < t->lines; i++)
		if (same_line(t->line[i], row))
			return;
	line_name(name, sizeof(name), row);
	t->names = fmax(t->names, svg_text_width(name, 11) + 14);
	t->line[t->lines++] = row;
}

static bool in_column(const struct column *c, const struct row *row, const char *over)
{
	return !strcmp(c->place, row->place) && c->busy == row->busy &&
	       !strcmp(c->over, over);
}

/* Two processors before one, quiet before busy, spinning before not. */
static int by_place(const void *a, const void *b)
{
	const struct column *x = a, *y = b;
	int place = strcmp(y->place, x->place);

	if (place || x->busy != y->busy)
		return place ? place : x->busy < y->busy ? -1 : 1;
	return strcmp(x->over, y->over);
}

static void add_column(struct table *t, const struct row *row, const char *over)
{
	for (unsigned i = 0; i < t->columns; i++)
		if (in_column(&t->column[i], row, over))
			return;
	if (t->columns == COLUMNS_MAX)
		return;
	t->column[t->columns++] = (struct column){row->place, over, row->load, row->busy};
	qsort(t->column, t->columns, sizeof(t->column[0]), by_place);
}

static void collect(struct table *t)
{
	static const char *const overs[] = {"viaduct", "viaduct-nospin"};

	for (unsigned i = 0; i < t->figures->rows; i++)
		for (unsigned o = 0; o < 2; o++) {
			const struct row *row = &t->figures->row[i];

			if (!heat_result(row, overs[o]))
				continue;
			add_column(t, row, overs[o]);
			add_line(t, row);
		}
}

static void draw_heads(FILE *out, const struct table *t)
{
	for (unsigned c = 0; c < t->columns; c++) {
		const struct column *col = &t->column[c];
		double x = EDGE + t->names + (c + 0.5) * HEAT_CELL;

		svg_text(out, x, TOP - 40, ANCHOR_MIDDLE, "strong",
			 place_words(col->place));
		svg_text(out, x, TOP - 25, ANCHOR_MIDDLE, "", col->load);
		svg_text(out, x, TOP - 10, ANCHOR_MIDDLE, "",
			 strcmp(col->over, "viaduct") ? "spin off" : "spin on");
	}
}

static void draw_line(FILE *out, const struct table *t, unsigned line)
{
	const struct figures *f = t->figures;
	double y = TOP + line * HEAT_ROW;
	char name[CELL_LETTERS + 64];

	line_name(name, sizeof(name), t->line[line]);
	svg_text(out, EDGE + t->names - 10, y + HEAT_ROW / 2.0 + 4, ANCHOR_END, "", name);
	for (unsigned i = 0; i < f->rows; i++)
		for (unsigned c = 0; c < t->columns; c++) {
			const struct row *row = &f->row[i];
			const char *over = t->column[c].over;

			if (same_line(row, t->line[line]) &&
			    in_column(&t->column[c], row, over) && heat_result(row, over))
				heat_cell(out, row, heat_result(row, over),
					  EDGE + t->names + c * HEAT_CELL, y);
		}
}

static int draw(struct album *album, const struct table *t)
{
	double width = 2 * EDGE + t->names + t->columns * HEAT_CELL;
	double bottom = TOP + t->lines * HEAT_ROW;
	struct picture *p =
		picture_open(album, SECTION_RATIO, fmax(width, 620), bottom + LEGEND);

	if (!p)
		return -1;
	heat_heading(p, "matrix");
	draw_heads(p->out, t);
	for (unsigned i = 0; i < t->lines; i++)
		draw_line(p->out, t, i);
	heat_legend(p->out, EDGE, bottom + 26);
	return picture_close(p);
}

int matrix_picture(struct album *album, const struct figures *f)
{
	struct table t = {.figures = f, .names = NAMES_MIN};
	int err = 0;

	t.line = calloc(f->rows + 1, sizeof(*t.line));
	if (!t.line)
		return -1;
	collect(&t);
	if (t.lines)
		err = draw(album, &t);
	free(t.line);
	return err;
}

static void put_cell(FILE *out, const struct matrix_cell *c)
{
	char size[FIGURE_LETTERS], ratio[3][FIGURE_LETTERS];

	fprintf(out, "<tr><th scope=\"row\">");
	put_escaped(out, pattern_words(c->pattern));
	fprintf(out, "</th><td class=\"n\">%s</td><td class=\"n\">%.0f</td><td>",
		format_figure(size, UNIT_SIZE, c->size_bytes), c->conns);
	put_escaped(out, place_words(c->placement));
	fprintf(out, "</td><td>%s</td><td>", c->load);
	put_escaped(out, c->spin);
	fprintf(out,
		"</td><td class=\"n\"><b class=\"worse\">%s</b></td>"
		"<td class=\"n\">%s to %s</td><td class=\"n\">%u of "
		"%u</td><td>%s</td></tr>\n",
		format_figure(ratio[0], UNIT_RATIO, c->ratio.median),
		format_figure(ratio[1], UNIT_RATIO, c->ratio.min),
		format_figure(ratio[2], UNIT_RATIO, c->ratio.max), c->below, c->ratio.n,
		matrix_certain(c) ? "every pair"
		: c->direct	  ? ""
				  : "stayed on TCP");
}

void matrix_write(FILE *out, const struct figures *f)
{
	static const char *const heads[] = {
		"what", "size",	     "connections", "processors",  "load",
		"spin", "times TCP", "pairs",	    "pairs below", ""};
	struct matrix m = {0};
	char sentence[160];

	matrix_add_figures(&m, f);
	matrix_sort(&m);
	fprintf(out, "<section><h2>Below TCP</h2>\n<p class=\"lead\">%s.</p>\n",
		matrix_sentence(sentence, &m));
	if (m.cells && matrix_below(&m.cell[0])) {
		fprintf(out, "<div class=\"scroll\"><table class=\"figures\">\n"
			     "<thead><tr>");
		for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
			fprintf(out, "<th scope=\"col\">%s</th>", heads[i]);
		fprintf(out, "</tr></thead>\n<tbody>\n");
		for (unsigned i = 0; i < m.cells && matrix_below(&m.cell[i]); i++)
			put_cell(out, &m.cell[i]);
		fprintf(out, "</tbody></table></div>\n");
	}
	fprintf(out, "</section>\n");
	matrix_finish(&m);
}
