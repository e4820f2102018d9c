/* SPDX-License-Identifier: Apache-2.0 */
/* Which cells of a matrix are below TCP: from the rows as measured, or from JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/matrix.h"

unsigned matrix_doubtful(const struct bench_row *row)
{
	unsigned doubtful = 0;

	for (unsigned w = 1; w < row->contenders; w++) {
		struct bench_spread q = bench_spread(row, w, BENCH_RATIO);
		if (q.n && q.min < 1)
			doubtful |= 1u << w;
	}
	return doubtful;
}

static void add_cell(struct matrix *m, const struct matrix_cell *cell)
{
	if (!cell->ratio.n) {
		m->unmeasured++;
		return;
	}
	if (m->cells == m->room) {
		unsigned room = m->room ? 2 * m->room : 64;
		void *more = realloc(m->cell, room * sizeof(*m->cell));
		if (!more)
			abort(); /* a list that lacks a cell would be a lie */
		m->cell = more;
		m->room = room;
	}
	m->cell[m->cells++] = *cell;
}

/* ratios: NAN where there is none. */
static void add_ratios(struct matrix *m, struct matrix_cell *cell, const double *ratios,
		       unsigned n)
{
	cell->ratio = bench_spread_of(ratios, n);
	for (unsigned i = 0; i < n; i++)
		cell->below += ratios[i] < 1;
	add_cell(m, cell);
}

void matrix_add_row(struct matrix *m, const struct bench_row *row)
{
	for (unsigned w = 1; w < row->contenders; w++) {
		double ratios[BENCH_PAIRS_MAX];
		struct matrix_cell cell = {
			.pattern = row->pattern->name,
			.placement = row->placement,
			.spin = bench_spin_name(row->who[w]),
			.size_bytes = (double)row->size_bytes,
			.conns = row->conns,
			.active = row->active,
		};
		snprintf(cell.load, sizeof(cell.load), "%s", row->load);
		for (unsigned i = 0; i < row->pairs; i++) {
			ratios[i] = bench_figure(row, w, i, BENCH_RATIO);
			cell.direct = cell.direct || row->samples[w][i].direct_bytes;
		}
		add_ratios(m, &cell, ratios, row->pairs);
	}
}

static void add_result(struct matrix *m, const struct row *row, const struct result *r,
		       const char *placement)
{
	const json_t *samples = json_object_get(r->json, "ratio_samples");
	double ratios[BENCH_PAIRS_MAX];
	unsigned n = 0;
	struct matrix_cell cell = {
		.pattern = row->pattern,
		.placement = json_word(row->json, "placement"),
		.spin = json_word(r->json, "spin"),
		.size_bytes = row->size_bytes,
		.conns = row->conns,
		.active = row->active,
		.direct = r->direct_bytes > 0,
	};

	snprintf(cell.load, sizeof(cell.load), "%s", row->load);
	if (!*cell.placement)
		cell.placement = placement;
	for (; n < json_array_size(samples) && n < BENCH_PAIRS_MAX; n++) {
		double v = json_number_value(json_array_get(samples, n));
		ratios[n] = v > 0 ? v : NAN;
	}
	add_ratios(m, &cell, ratios, n);
}

static bool is_viaduct(const struct result *r)
{
	return !strcmp(r->over, "viaduct") || !strcmp(r->over, "viaduct-nospin");
}

void matrix_add_figures(struct matrix *m, const struct figures *f)
{
	const char *placement = json_word(json_object_get(f->json, "run"), "placement");

	for (unsigned i = 0; i < f->rows; i++) {
		const struct row *row = &f->row[i];
		if (strcmp(row->result[0].over, "tcp") || !row_compares(row))
			continue;
		for (unsigned w = 1; w < row->results; w++)
			if (is_viaduct(&row->result[w]))
				add_result(m, row, &row->result[w], placement);
	}
}

void matrix_finish(struct matrix *m)
{
	free(m->cell);
	memset(m, 0, sizeof(*m));
}

bool matrix_below(const struct matrix_cell *c)
{
	return c->ratio.median < 1;
}

bool matrix_certain(const struct matrix_cell *c)
{
	return c->ratio.max < 1;
}

static int by_ratio(const void *a, const void *b)
{
	double x = ((const struct matrix_cell *)a)->ratio.median;
	double y = ((const struct matrix_cell *)b)->ratio.median;

	return (x > y) - (x < y);
}

void matrix_sort(struct matrix *m)
{
	if (m->cells)
		qsort(m->cell, m->cells, sizeof(*m->cell), by_ratio);
}

struct counts {
	unsigned below, certain;
};

static struct counts count(const struct matrix *m)
{
	struct counts c = {0};

	for (unsigned i = 0; i < m->cells; i++) {
		c.below += matrix_below(&m->cell[i]);
		c.certain += matrix_certain(&m->cell[i]);
	}
	return c;
}

const char *matrix_sentence(char buf[160], const struct matrix *m)
{
	struct counts c = count(m);
	int n = snprintf(buf, 160, "%u of %u cells below TCP", c.below, m->cells);

	if (c.below)
		n += snprintf(buf + n, 160 - (size_t)n, ", %u of them in every pair",
			      c.certain);
	if (m->unmeasured)
		snprintf(buf + n, 160 - (size_t)n, "; %u could not be measured",
			 m->unmeasured);
	return buf;
}

static void print_cell(FILE *out, const struct matrix_cell *c)
{
	char size[16], conns[32], ratio[48];

	/* A file may have any number. */
	bench_format_size(size, (size_t)fmin(fmax(c->size_bytes, 0), 1e15));
	if (c->active < c->conns && c->active > 0)
		snprintf(conns, sizeof(conns), "%.0f/%.0f", c->conns, c->active);
	else
		snprintf(conns, sizeof(conns), "%.0f", c->conns);
	snprintf(ratio, sizeof(ratio), "%.3f (%.3f..%.3f)", c->ratio.median, c->ratio.min,
		 c->ratio.max);
	fprintf(out, "%-12s %8s %6s %-9s %-9s %-4s  %-22s %2u of %2u%s%s\n", c->pattern,
		size, conns, *c->placement ? c->placement : "-", c->load,
		*c->spin ? c->spin : "-", ratio, c->below, c->ratio.n,
		matrix_certain(c) ? "  every pair" : "", c->direct ? "" : "  on TCP");
}

void matrix_print(FILE *out, struct matrix *m)
{
	char sentence[160];

	matrix_sort(m);
	for (unsigned i = 0; i < m->cells && matrix_below(&m->cell[i]); i++) {
		if (!i)
			fprintf(out, "\n%-12s %8s %6s %-9s %-9s %-4s  %-22s %s\n",
				"below TCP", "size", "conns", "placement", "load", "spin",
				"ratio", "pairs below");
		print_cell(out, &m->cell[i]);
	}
	fprintf(out, "\n%s\n", matrix_sentence(sentence, m));
}

void matrix_json(FILE *out, struct matrix *m)
{
	struct counts n = count(m);

	matrix_sort(m);
	fprintf(out,
		",\n\"matrix\":{\"cells\":%u,\"unmeasured\":%u,\"below\":%u,"
		"\"below_in_every_pair\":%u,\"list\":[",
		m->cells, m->unmeasured, n.below, n.certain);
	for (unsigned i = 0; i < m->cells && matrix_below(&m->cell[i]); i++) {
		const struct matrix_cell *c = &m->cell[i];
		fprintf(out,
			"%s\n{\"pattern\":\"%s\",\"size_bytes\":%.0f,\"conns\":%.0f,"
			"\"active\":%.0f,\"placement\":\"%s\",\"load\":\"%s\","
			"\"spin\":\"%s\"",
			i ? "," : "", c->pattern, c->size_bytes, c->conns, c->active,
			c->placement, c->load, c->spin);
		bench_json_spread(out, "ratio", c->ratio);
		fprintf(out, ",\"pairs\":%u,\"pairs_below\":%u,\"direct\":%s}",
			c->ratio.n, c->below, c->direct ? "true" : "false");
	}
	fprintf(out, "]}");
}

int matrix_status(const struct matrix *m, double limit)
{
	for (unsigned i = 0; i < m->cells; i++)
		if (m->cell[i].ratio.median < limit)
			return MATRIX_BELOW;
	return 0;
}

int matrix_verdict(char *const *files, unsigned files_count, double limit)
{
	struct figures *f = calloc(files_count, sizeof(*f));
	struct matrix m = {0};
	int status = f ? 0 : 1;

	for (unsigned i = 0; i < files_count && !status; i++) {
		status = figures_load(&f[i], files[i]) < 0;
		if (!status)
			matrix_add_figures(&m, &f[i]);
	}
	if (!status && m.cells + m.unmeasured == 0) {
		fprintf(stderr,
			"viaduct bench: nothing was measured both on TCP and "
			"under Viaduct in %s\n",
			files[0]);
		status = 1;
	}
	if (!status) {
		matrix_print(stdout, &m);
		status = matrix_status(&m, limit);
	}
	for (unsigned i = 0; f && i < files_count; i++)
		figures_finish(&f[i]);
	free(f);
	matrix_finish(&m);
	return status;
}
