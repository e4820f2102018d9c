/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a table: columns as wide as their texts, and the least important left out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/stat/stat.h"

#define GAP 2

/* The cells' texts, one behind the other, and the beginning of each. */
struct texts {
	char *data;
	size_t used, room;
	size_t *at;
};

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

static int fill(struct texts *t, const struct stat_shape *s, const void *const *items,
		size_t count, const bool *used, size_t *widths)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t c = 0; c < s->column_count; c++) {
			size_t len;

			if (!used[c])
				continue;
			if (t->room - t->used < STAT_CELL) {
				size_t room = t->room * 2 + 16 * STAT_CELL;
				char *data = realloc(t->data, room);

				if (!data)
					return -ENOMEM;
				t->data = data;
				t->room = room;
			}
			t->at[i * s->column_count + c] = t->used;
			if (s->columns[c].rank >= STAT_RATE && !s->rates)
				strcpy(t->data + t->used, "-");
			else
				s->columns[c].print(items[i], t->data + t->used);
			len = strlen(t->data + t->used);
			t->used += len + 1;
			if (len > widths[c])
				widths[c] = len;
		}
	}
	return 0;
}

static size_t total(const struct stat_shape *s, const bool *used, const size_t *widths)
{
	size_t sum = 0;

	for (size_t c = 0; c < s->column_count; c++)
		sum += used[c] ? widths[c] + GAP : 0;
	return sum ? sum - GAP : 0;
}

/* The most important first, and of the others what still fits. */
static void choose(const struct stat_shape *s, bool *used, const size_t *widths)
{
	bool wanted[STAT_COLUMNS_MAX];

	memcpy(wanted, used, s->column_count * sizeof(*used));
	for (size_t c = 0; c < s->column_count; c++)
		used[c] = wanted[c] && rank_of(&s->columns[c]) == 0;
	for (int rank = 1; rank < STAT_RATE; rank++) {
		for (size_t c = 0; c < s->column_count; c++) {
			if (!wanted[c] || rank_of(&s->columns[c]) != rank)
				continue;
			used[c] = true;
			if (total(s, used, widths) > (size_t)s->width)
				used[c] = false;
		}
	}
}

/* Without blanks at the end. */
static void print_line(FILE *out, const struct stat_shape *s, const bool *used,
		       const size_t *widths, const char *data, const size_t *at)
{
	char line[STAT_COLUMNS_MAX * STAT_CELL];
	size_t n = 0;

	for (size_t c = 0; c < s->column_count; c++) {
		const char *text = at ? data + at[c] : s->columns[c].title;
		int width = (int)widths[c];

		if (!used[c])
			continue;
		n += (size_t)sprintf(line + n, "%*s", n ? GAP : 0, "");
		n += (size_t)sprintf(line + n, "%*s",
				     s->columns[c].right ? width : -width, text);
	}
	if (s->cut && n > (size_t)s->width)
		n = (size_t)s->width;
	while (n > 0 && line[n - 1] == ' ')
		n--;
	fprintf(out, "%.*s%s\n", (int)n, line, s->colours ? STAT_CODES_END : "");
}

const char *stat_codes(enum stat_style style, bool has_colours)
{
	if (style == STAT_HEAD)
		return "\033[1m"; /* bold is no colour */
	if (!has_colours)
		return "";
	return style == STAT_ON_RING   ? "\033[32m"
	       : style == STAT_ON_RDMA ? "\033[36m"
	       : style == STAT_ON_TCP  ? "\033[33m"
	       : style == STAT_BETWEEN ? "\033[35m"
				       : "";
}

static void put_style(FILE *out, const struct stat_shape *s, enum stat_style style)
{
	if (s->colours)
		fputs(stat_codes(style, true), out);
	else if (s->style)
		fprintf(out, "%c%c", STAT_STYLE, style);
}

static void print_rows(FILE *out, const struct stat_shape *s, const bool *used,
		       const size_t *widths, const struct texts *t,
		       const void *const *items, size_t count)
{
	size_t shown = count > s->lines ? s->lines - 1 : count;

	put_style(out, s, STAT_HEAD);
	print_line(out, s, used, widths, NULL, NULL);
	for (size_t i = 0; i < shown; i++) {
		put_style(out, s, s->style ? s->style(items[i]) : STAT_PLAIN);
		print_line(out, s, used, widths, t->data, t->at + i * s->column_count);
	}
	if (shown < count)
		fprintf(out, "%zu more\n", count - shown);
}

int stat_table(FILE *out, const struct stat_shape *s, const void *const *items,
	       size_t count)
{
	size_t widths[STAT_COLUMNS_MAX] = {0};
	bool used[STAT_COLUMNS_MAX] = {false};
	struct texts t = {0};
	int r = -ENOMEM;

	t.at = calloc(count * s->column_count + 1, sizeof(*t.at));
	if (t.at) {
		for (size_t c = 0; c < s->column_count; c++) {
			used[c] = is_wanted(s, &s->columns[c]);
			widths[c] = strlen(s->columns[c].title);
		}
		r = fill(&t, s, items, count, used, widths);
	}
	if (r == 0) {
		if (s->width > 0)
			choose(s, used, widths);
		print_rows(out, s, used, widths, &t, items, count);
	}
	free(t.at);
	free(t.data);
	return r;
}
