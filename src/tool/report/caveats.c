/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader must know before believing the figures, and how to get them again. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/report/report.h"

enum { LISTED = 8 };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void warn_failures(FILE *out, const struct figures *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->rows; i++)
		for (unsigned r = 0; r < f->row[i].results; r++) {
			const json_t *errors =
				json_object_get(f->row[i].result[r].json, "errors");
			char cell[CELL_LETTERS];

			for (size_t e = 0; e < json_array_size(errors); e++) {
				const char *text =
					json_string_value(json_array_get(errors, e));

				if (n++ >= LISTED)
					continue;
				fprintf(out, "<li><b>A measurement failed.</b> ");
				putf_escaped(out, "%s, %s, %s: %s",
					     pattern_words(f->row[i].pattern),
					     format_cell(cell, sizeof(cell), &f->row[i]),
					     contender_words(f->row[i].result[r].over),
					     text ? text : "");
				fprintf(out, "</li>\n");
			}
		}
	if (n > LISTED)
		fprintf(out, "<li>%u more measurements failed.</li>\n", n - LISTED);
}

/* The reasons as they stand in the JSON: "shared (2)". */
static void put_reasons(FILE *out, const struct result *r)
{
	json_t *reasons = json_object_get(r->json, "reasons"), *count;
	const char *name, *comma = "";

	json_object_foreach(reasons, name, count)
	{
		putf_escaped(out, "%s%s (%.0f)", comma, name, json_number_value(count));
		comma = ", ";
	}
	if (!*comma)
		fprintf(out, "none is given");
}

static void warn_tcp(FILE *out, const struct figures *f)
{
	for (unsigned i = 0; i < f->rows; i++) {
		const struct result *r = row_find(&f->row[i], "viaduct");
		char cell[CELL_LETTERS];

		if (!r || !r->under_viaduct || r->direct_bytes > 0 ||
		    !(r->rate.median > 0) || !row_wants_direct(&f->row[i]))
			continue;
		fprintf(out, "<li><b>Nothing went direct.</b> ");
		putf_escaped(out, "%s, %s: Viaduct's figure is one of TCP. Reasons: ",
			     pattern_words(f->row[i].pattern),
			     format_cell(cell, sizeof(cell), &f->row[i]));
		put_reasons(out, r);
		fprintf(out, "</li>\n");
	}
}

/* Half of the figures have a best pair that is so many times the worst. */
static void warn_noise(FILE *out, const struct figures *f)
{
	double *wide;
	unsigned n = 0, room = 0;

	for (unsigned i = 0; i < f->rows; i++)
		room += f->row[i].results;
	wide = calloc(room + 1, sizeof(*wide));
	for (unsigned i = 0; wide && i < f->rows; i++)
		for (unsigned r = 0; r < f->row[i].results; r++) {
			const struct spread *s = &f->row[i].result[r].rate;

			if (s->median > 0)
				wide[n++] = s->max / s->min;
		}
	if (!wide)
		return;
	qsort(wide, n, sizeof(*wide), by_value);
	if (n && wide[n / 2] >= 1.5)
		fprintf(out,
			"<li><b>The figures are noisy.</b> In half of the measurements "
			"the "
			"best pair was at least %.1f times as fast as the worst. Other "
			"work "
			"ran on the machine, or the measurements were short: repeat it "
			"on a "
			"quiet machine, with more and longer pairs.</li>\n",
			wide[n / 2]);
	free(wide);
}

static void warn_placement(FILE *out, const struct figures *f)
{
	double low = DBL_MAX, high = 0;

	for (unsigned i = 0; i < f->rows; i++)
		if (f->row[i].line_ns > 0) {
			low = fmin(low, f->row[i].line_ns);
			high = fmax(high, f->row[i].line_ns);
		}
	if (high > 2 * low)
		fprintf(out,
			"<li><b>The processors moved.</b> A round trip through one cache "
			"line took from %.0f to %.0f ns in different rows: compare only "
			"rows "
			"whose column <i>line</i> agrees.</li>\n",
			low, high);
}

static void warn_load(FILE *out, const struct figures *f)
{
	const json_t *machine = json_object_get(f->json, "machine");
	double load = strtod(json_word(machine, "load"), NULL);
	double cpus = json_figure(machine, "cpus");

	if (cpus > 0 && load > 0.5 * cpus)
		fprintf(out,
			"<li><b>The machine was not idle</b> when this began: its load "
			"was "
			"%.1f, with %.0f processor%s.</li>\n",
			load, cpus, cpus > 1 ? "s" : "");
}

void words_warnings(FILE *out, const struct figures *f)
{
	char *text = NULL;
	size_t len = 0;
	FILE *list = open_memstream(&text, &len);

	if (!list)
		return;
	warn_failures(list, f);
	warn_tcp(list, f);
	warn_noise(list, f);
	warn_placement(list, f);
	warn_load(list, f);
	if (!fclose(list) && len)
		fprintf(out,
			"<div class=\"caution\"><h2>Before you believe it</h2>\n<ul>\n%s"
			"</ul></div>\n",
			text);
	free(text);
}

/* Each of them once, in their order: what --patterns and --over take. */
static void put_patterns(FILE *out, const struct figures *f)
{
	const char *comma = " --patterns ";

	for (unsigned i = 0; i < f->rows; i++) {
		bool seen = false;

		for (unsigned n = 0; n < i && !seen; n++)
			seen = !strcmp(f->row[n].pattern, f->row[i].pattern);
		if (seen)
			continue;
		putf_escaped(out, "%s%s", comma, f->row[i].pattern);
		comma = ",";
	}
}

static void put_sizes(FILE *out, const struct figures *f)
{
	const char *comma = " --sizes ";

	for (double done = 0, next;; done = next) {
		next = DBL_MAX;
		for (unsigned i = 0; i < f->rows; i++)
			if (f->row[i].size_bytes > done)
				next = fmin(next, f->row[i].size_bytes);
		if (next == DBL_MAX)
			return;
		if (fmod(next, 1048576) == 0)
			fprintf(out, "%s%.0fM", comma, next / 1048576);
		else if (fmod(next, 1024) == 0)
			fprintf(out, "%s%.0fK", comma, next / 1024);
		else
			fprintf(out, "%s%.0f", comma, next);
		comma = ",";
	}
}

static void put_conns(FILE *out, const struct figures *f)
{
	const char *comma = " --conns ";
	double active = 0;
	bool any = !f->matrix; /* which has some by itself */

	for (double done = 1, next;; done = next) {
		next = DBL_MAX;
		for (unsigned i = 0; i < f->rows; i++)
			if (f->row[i].conns > done)
				next = fmin(next, f->row[i].conns);
		if (next == DBL_MAX)
			break;
		fprintf(out, "%s%.0f", comma, next);
		comma = ",";
		any = true;
	}
	if (!any)
		fprintf(out, " --conns 1");
	for (unsigned i = 0; i < f->rows; i++)
		if (f->row[i].active < f->row[i].conns)
			active = fmax(active, f->row[i].active);
	if (active > 0)
		fprintf(out, " --active %.0f", active);
}

/* Measured beside, without being asked for, where neither load nor placement is given. */
static bool is_crowd(const struct figures *f, const struct row *row)
{
	const char *given = json_word(json_object_get(f->json, "run"), "placement");

	return f->matrix && !strcmp(row->place, "free") && !strstr(given, "free");
}

static bool has_crowd(const struct figures *f)
{
	for (unsigned i = 0; i < f->rows; i++)
		if (is_crowd(f, &f->row[i]))
			return true;
	return false;
}

/* From the fewest busy loops to the most. */
static void put_loads(FILE *out, const struct figures *f)
{
	const char *comma = " --load ";

	for (double last = -1;;) {
		const struct row *next = NULL;
		for (unsigned i = 0; i < f->rows; i++)
			if (f->row[i].busy > last &&
			    (!next || f->row[i].busy < next->busy))
				next = &f->row[i];
		if (!next)
			return;
		if (strncmp(next->load, "busy-", 5) != 0)
			fprintf(out, "%s%s", comma, next->load);
		else
			fprintf(out, "%s%.0f", comma, next->busy);
		comma = ",";
		last = next->busy;
	}
}

static void put_load(FILE *out, const struct figures *f)
{
	double named = 0, think_us = 0;
	bool crowd = has_crowd(f), differ = false;

	for (unsigned i = 0; i < f->rows; i++) {
		const struct row *row = &f->row[i];
		if (!strcmp(row->load, "busy") && !is_crowd(f, row))
			named = row->busy;
		differ = differ || row->busy != f->row[0].busy ||
			 !strncmp(row->load, "busy-", 5);
		think_us = fmax(think_us, row->think_us);
	}
	if (!crowd && (f->matrix || differ))
		put_loads(out, f);
	if (named > 0)
		fprintf(out, " --busy %.0f", named);
	if (think_us > 0)
		fprintf(out, " --think %.0f", think_us);
}

/* Of the matrix: what it would not measure again by itself. */
static void put_matrix(FILE *out, const struct figures *f)
{
	unsigned on = 0, off = 0;

	for (unsigned i = 0; i < f->rows; i++) {
		on += row_find(&f->row[i], "viaduct") != NULL;
		off += row_find(&f->row[i], "viaduct-nospin") != NULL;
	}
	if (!on || !off)
		fprintf(out, " --spin %s", on ? "on" : "off");
	fprintf(out, " --recheck %.0f",
		json_figure(json_object_get(f->json, "run"), "recheck"));
}

void words_command(FILE *out, const struct figures *f)
{
	const json_t *run = json_object_get(f->json, "run");

	fprintf(out, "viaduct bench --report DIR%s", f->matrix ? " --matrix" : "");
	put_patterns(out, f);
	put_sizes(out, f);
	put_conns(out, f);
	put_load(out, f);
	if (f->matrix)
		put_matrix(out, f);
	if (json_figure(run, "pairs") > 0)
		fprintf(out, " --pairs %.0f", json_figure(run, "pairs"));
	if (json_figure(run, "time_s") > 0)
		fprintf(out, " --time %g", json_figure(run, "time_s"));
	if (*json_word(run, "placement") && !has_crowd(f))
		putf_escaped(out, " --placement %s", json_word(run, "placement"));
	if (*json_word(run, "congestion"))
		putf_escaped(out, " --congestion %s", json_word(run, "congestion"));
}
