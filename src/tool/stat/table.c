/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a table by libsmartcols, which knows no rank: the least important columns are left out here. */
#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <string.h>

#include "tool/stat/stat.h"

#define GAP "  "

static char *shorten(uint64_t n, unsigned step, const char *units, char *out)
{
	double value = (double)n;
	int unit = -1;

	if (n < 10000 && (step != 1024 || n < step)) {
		sprintf(out, "%u", (unsigned)n);
		return out;
	}
	while (value >= step && units[unit + 1]) {
		value /= step;
		unit++;
	}
	/* 9.96 would become 10.0. */
	sprintf(out, value < 9.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return out;
}

char *stat_size(uint64_t n, char *out)
{
	return shorten(n, 1024, "KMGTPE", out);
}

char *stat_number(uint64_t n, char *out)
{
	return shorten(n, 1000, "kMGTPE", out);
}

char *stat_name(const char *name, char *out, size_t size)
{
	size_t i;

	for (i = 0; name[i] && i + 1 < size; i++)
		out[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
	out[i] = '\0';
	return out;
}

static bool is_wanted(const struct stat_shape *s, const struct stat_column *c)
{
	if (c->rank >= STAT_RATE)
		return s->rates || s->picked;
	return c->rank < STAT_WIDE || s->wide;
}

/* Rates matter where they are wanted. */
static int rank_of(const struct stat_column *c)
{
	return c->rank >= STAT_RATE ? c->rank - STAT_RATE : c->rank;
}

/* The most important first, and of the others what still fits. */
static void choose(const struct stat_shape *s, struct libscols_column *const *columns,
		   const size_t *widths)
{
	size_t sum = 0;

	for (int rank = 0; rank < STAT_RATE; rank++) {
		for (size_t c = 0; c < s->column_count; c++) {
			if (!columns[c] || rank_of(&s->columns[c]) != rank)
				continue;
			if (rank == 0 || sum + widths[c] <= (size_t)s->width)
				sum += widths[c] + strlen(GAP);
			else
				scols_column_set_flags(columns[c], SCOLS_FL_HIDDEN);
		}
	}
}

static const char *text_of(const struct stat_shape *s, const struct stat_column *c,
			   const void *item, char *out)
{
	if (c->rank >= STAT_RATE && !s->rates)
		return "-";
	c->print(item, out);
	return out;
}

static int add_columns(struct libscols_table *t, const struct stat_shape *s,
		       struct libscols_column **columns, size_t *widths)
{
	for (size_t c = 0; c < s->column_count; c++) {
		const struct stat_column *column = &s->columns[c];

		if (!is_wanted(s, column))
			continue;
		columns[c] = scols_table_new_column(t, column->title, 0,
						    column->right ? SCOLS_FL_RIGHT : 0);
		if (!columns[c] ||
		    (s->has_bold &&
		     scols_cell_set_color(scols_column_get_header(columns[c]),
					  STAT_BOLD)))
			return -ENOMEM;
		widths[c] = strlen(column->title);
	}
	return 0;
}

static int add_line(struct libscols_table *t, const struct stat_shape *s,
		    struct libscols_column *const *columns, size_t *widths,
		    const void *item)
{
	struct libscols_line *line = scols_table_new_line(t, NULL);
	char buf[STAT_CELL];

	if (!line || scols_line_set_color(line, s->colour ? s->colour(item) : NULL))
		return -ENOMEM;
	for (size_t c = 0; c < s->column_count; c++) {
		const char *text;

		if (!columns[c])
			continue;
		text = text_of(s, &s->columns[c], item, buf);
		if (scols_line_set_column_data(line, columns[c], text))
			return -ENOMEM;
		if (strlen(text) > widths[c])
			widths[c] = strlen(text);
	}
	return 0;
}

static int fill(struct libscols_table *t, const struct stat_shape *s,
		const void *const *items, size_t count)
{
	struct libscols_column *columns[STAT_COLUMNS_MAX] = {NULL};
	size_t widths[STAT_COLUMNS_MAX] = {0};
	int r = add_columns(t, s, columns, widths);

	for (size_t i = 0; i < count && r == 0; i++)
		r = add_line(t, s, columns, widths, items[i]);
	if (s->width > 0)
		choose(s, columns, widths);
	return r;
}

int stat_table(FILE *out, const struct stat_shape *s, const void *const *items,
	       size_t count)
{
	size_t shown = count > s->lines ? s->lines - 1 : count;
	struct libscols_table *t = scols_new_table();
	int r = -ENOMEM;

	if (t && !scols_table_set_stream(t, out) &&
	    !scols_table_set_column_separator(t, GAP) &&
	    !scols_table_set_termforce(t, SCOLS_TERMFORCE_NEVER) &&
	    !scols_table_enable_colors(t, s->has_bold || s->colour))
		r = fill(t, s, items, shown);
	if (r == 0)
		r = scols_print_table(t);
	scols_unref_table(t);
	if (r == 0 && shown < count)
		fprintf(out, "%zu more\n", count - shown);
	return r;
}
