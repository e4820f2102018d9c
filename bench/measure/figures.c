/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what `viaduct bench --json` wrote, for its verdict; it leaves alone what it does not know. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "measure/figures.h"

/* Beyond what can be measured of anything. */
#define FIGURE_MOST 1e30

double json_figure(const json_t *object, const char *name)
{
	double v = json_number_value(json_object_get(object, name)), size = fabs(v);

	return size <= FIGURE_MOST && size >= 1 / FIGURE_MOST ? v : 0;
}

const char *json_word(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "";
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

bool row_compares(const struct row *row)
{
	return strcmp(row->pattern, "logp") != 0 && !begins(row->pattern, "setup");
}

static int load_result(struct result *r, const json_t *json)
{
	r->json = json;
	r->over = json_word(json, "over");
	r->direct_bytes = json_figure(json, "direct_bytes");
	return *r->over ? 0 : -1;
}

/* A number of loops has a name of its own where the word busy stands for another. */
static void set_load(struct row *row)
{
	unsigned busy = (unsigned)fmin(fmax(row->busy, 0), 9999);

	if (row->busy > 0 && begins(json_word(row->json, "load"), "busy-"))
		snprintf(row->load, sizeof(row->load), "busy-%u", busy);
	else
		snprintf(row->load, sizeof(row->load), "%s",
			 row->busy > 0 ? "busy" : "quiet");
}

static int load_row(struct row *row, const json_t *json)
{
	const json_t *results = json_object_get(json, "results");

	row->json = json;
	row->pattern = json_word(json, "pattern");
	row->size_bytes = json_figure(json, "size_bytes");
	row->conns = json_figure(json, "conns");
	row->active = json_figure(json, "active");
	row->busy = json_figure(json, "busy");
	set_load(row);
	if (!*row->pattern || !json_array_size(results))
		return -1;
	row->result = calloc(json_array_size(results), sizeof(*row->result));
	if (!row->result)
		return -1;
	for (; row->results < json_array_size(results); row->results++)
		if (load_result(&row->result[row->results],
				json_array_get(results, row->results)) < 0)
			return -1;
	return 0;
}

static int load_rows(struct figures *f)
{
	const json_t *rows = json_object_get(f->json, "rows");
	size_t n = json_array_size(rows);

	if (!n) {
		warn_line("viaduct bench: %s holds no figures (`rows` is missing or "
			  "empty); `viaduct bench --json FILE` writes them",
			  f->path);
		return -1;
	}
	f->row = calloc(n, sizeof(*f->row));
	for (; f->row && f->rows < n; f->rows++) {
		if (load_row(&f->row[f->rows], json_array_get(rows, f->rows)) == 0)
			continue;
		warn_line(
			"viaduct bench: %s: rows[%u] lacks `pattern`, or `results` with "
			"`over`: no file of `viaduct bench`, or a damaged one",
			f->path, f->rows);
		f->rows++; /* has what is to be freed */
		return -1;
	}
	return f->row ? 0 : -1;
}

int figures_load(struct figures *f, const char *path)
{
	json_error_t error;
	FILE *in;

	memset(f, 0, sizeof(*f));
	f->path = path;
	in = fopen(path, "re");
	if (!in) {
		warn_line("viaduct bench: cannot read %s: %s", path, strerror(errno));
		return -1;
	}
	f->json = json_loadf(in, 0, &error);
	if (!f->json && ferror(in)) {
		warn_line("viaduct bench: cannot read %s: %s", path, strerror(errno));
		fclose(in);
		return -1;
	}
	fclose(in);
	if (!f->json) {
		warn_line("viaduct bench: %s is not JSON: line %d: %s; give a file that "
			  "`viaduct bench --json FILE` wrote",
			  path, error.line, error.text);
		return -1;
	}
	return strcmp(json_word(f->json, "kind"), "programs") ? load_rows(f) : 0;
}

void figures_finish(struct figures *f)
{
	for (unsigned i = 0; i < f->rows; i++)
		free(f->row[i].result);
	free(f->row);
	json_decref(f->json);
	memset(f, 0, sizeof(*f));
}
