/* SPDX-License-Identifier: Apache-2.0 */
/* The figures in the JSON of `viaduct bench`, as far as its verdict needs them. */
#ifndef VD_MEASURE_FIGURES_H
#define VD_MEASURE_FIGURES_H

#include <jansson.h>
#include <stdbool.h>

/* Strings belong to the document. */
struct result {
	const char *over;
	double direct_bytes;
	const json_t *json;
};

enum { LOAD_LETTERS = 16 };

struct row {
	const char *pattern;
	double size_bytes, conns, active, busy;
	char load[LOAD_LETTERS]; /* quiet, busy, or busy-6: for rows of several loads */
	unsigned results;
	struct result *result;
	const json_t *json;
};

struct figures {
	json_t *json;
	const char *path;
	unsigned rows; /* 0 for a pair of programs */
	struct row *row;
};

/* Returns 0, or -1 after a message. */
int figures_load(struct figures *f, const char *path);
void figures_finish(struct figures *f);
/* Figures of a file that may lack them, or hold something else: 0 or "" then. */
double json_figure(const json_t *object, const char *name);
const char *json_word(const json_t *object, const char *name);
/* False for LogP, whose round trips are those of another pattern, and for experiments. */
bool row_compares(const struct row *row);

#endif
