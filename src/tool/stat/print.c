/* SPDX-License-Identifier: Apache-2.0 */
/* Which columns and lines of `viaduct stat` are printed, and in which order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/stat/stat.h"

/* ---- columns by their names ---- */

/* Of a name that ends at a comma. */
static const struct stat_column *find_column(const struct stat_options *o,
					     const char *name)
{
	size_t count, n = strcspn(name, ",");
	const struct stat_column *c = stat_columns_of(o, &count);

	for (size_t i = 0; i < count; i++)
		if (strlen(c[i].title) == n && !strncasecmp(c[i].title, name, n))
			return &c[i];
	return NULL;
}

static int check_column(const struct stat_options *o, const char *option,
			const char *name)
{
	const struct stat_column *c = find_column(o, name), *all;
	int n = (int)strcspn(name, ",");
	size_t count;

	if (c && c->rank >= STAT_RATE && !o->watch)
		warn_line("viaduct stat: --%s `%.*s`: that is for --watch", option, n,
			  name);
	else if (c)
		return 0;
	else
		warn_line(
			"viaduct stat: --%s `%.*s`: there is no such column; these are:",
			option, n, name);
	all = stat_columns_of(o, &count);
	for (size_t i = 0; !c && i < count; i++)
		warn_line("  %s", all[i].title);
	return -EINVAL;
}

/* The name behind this one, or NULL. */
static const char *next_name(const char *name)
{
	name += strcspn(name, ",");
	return *name ? name + 1 : NULL;
}

int stat_check_columns(const struct stat_options *o)
{
	size_t n = 0;

	for (const char *name = o->columns; name; name = next_name(name)) {
		if (check_column(o, "columns", name) < 0)
			return -EINVAL;
		if (++n > STAT_COLUMNS_MAX) {
			warn_line("viaduct stat: --columns: more than %d",
				  STAT_COLUMNS_MAX);
			return -EINVAL;
		}
	}
	return o->sort && (strchr(o->sort, ',') || check_column(o, "sort", o->sort) < 0)
		       ? -EINVAL
		       : 0;
}

/* Those that were asked for, each of which is shown however wide the line becomes. */
static size_t pick_columns(const struct stat_options *o,
			   struct stat_column picked[STAT_COLUMNS_MAX])
{
	size_t n = 0;

	for (const char *name = o->columns; name; name = next_name(name)) {
		picked[n] = *find_column(o, name);
		picked[n].rank = picked[n].rank >= STAT_RATE ? STAT_RATE : 0;
		n++;
	}
	return n;
}

/* ---- lines ---- */

/* Numbers from the greatest, texts from the least, and else as they were: items lie in
 * one array in that order. */
static int compare_items(const void *a, const void *b, void *by)
{
	const void *x = *(const void *const *)a, *y = *(const void *const *)b;
	const struct stat_column *c = by;
	char s[STAT_CELL], t[STAT_CELL];
	int r;

	if (c->value) {
		r = (c->value(x) < c->value(y)) - (c->value(x) > c->value(y));
	} else {
		c->print(x, s);
		c->print(y, t);
		r = strcmp(s, t);
	}
	return r ? r : (x > y) - (x < y);
}

/* What there is a line for, if the filters let it pass. */
static size_t list_shown(const struct stat_view *v, const struct stat_options *o,
			 const void **items)
{
	size_t n = 0;

	for (size_t i = 0; o->rpc && i < v->call_count; i++)
		if (v->calls[i].shown)
			items[n++] = &v->calls[i];
	for (size_t i = 0; o->processes && i < v->process_count; i++)
		if (v->processes[i].shown)
			items[n++] = &v->processes[i];
	for (size_t i = 0; !o->rpc && !o->processes && i < v->row_count; i++)
		if (v->rows[i].shown)
			items[n++] = &v->rows[i];
	return n;
}

static const char *colour_of_row(const void *item)
{
	switch (((const struct stat_row *)item)->path) {
	case OBSERVE_RING:
		return "\033[32m"; /* green */
	case OBSERVE_RDMA:
		return "\033[36m"; /* cyan */
	case OBSERVE_SWITCHING:
		return "\033[35m"; /* magenta */
	default:
		return "\033[33m"; /* yellow */
	}
}

static int print_items(FILE *out, struct stat_shape *shape, const struct stat_options *o,
		       const void **items, size_t n)
{
	struct stat_column picked[STAT_COLUMNS_MAX];

	if (n == 0)
		return 0;
	if (o->sort)
		qsort_r(items, n, sizeof(*items), compare_items,
			(void *)find_column(o, o->sort));
	shape->columns = stat_columns_of(o, &shape->column_count);
	if (o->columns) {
		shape->column_count = pick_columns(o, picked);
		shape->columns = picked;
		shape->picked = true;
	}
	return stat_table(out, shape, items, n);
}

int stat_print(FILE *out, struct stat_view *v, const struct stat_options *o,
	       const struct stat_page *page)
{
	struct stat_shape shape = {
		.width = page->width,
		.wide = o->wide,
		.rates = v->has_rates,
		.lines = page->lines > 0 ? page->lines : SIZE_MAX,
		.has_bold = page->has_bold,
		.colour = page->has_colours && !o->processes && !o->rpc ? colour_of_row
									: NULL,
	};
	size_t all = o->rpc	    ? v->call_count
		     : o->processes ? v->process_count
				    : v->row_count;
	const void **items = malloc((all + 1) * sizeof(*items));
	int r;

	if (!items)
		return -ENOMEM;
	r = print_items(out, &shape, o, items, list_shown(v, o, items));
	free(items);
	return r;
}
