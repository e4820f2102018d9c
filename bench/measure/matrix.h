/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of a matrix against TCP, and the list of those below 1.0. */
#ifndef VD_MEASURE_MATRIX_H
#define VD_MEASURE_MATRIX_H

#include "measure/bench.h"
#include "measure/figures.h"

/* One way to run one row under Viaduct. Strings belong to whoever added it. */
struct matrix_cell {
	const char *pattern, *placement, *spin; /* "" where a file does not say */
	char load[BENCH_LOAD_LETTERS];
	double size_bytes, conns, active;
	struct bench_spread ratio; /* of the pairs against TCP */
	unsigned below;		   /* pairs whose ratio is below 1 */
	bool direct;		   /* something went direct */
};

struct matrix {
	struct matrix_cell *cell; /* after matrix_sort the slowest first */
	unsigned cells, room;
	unsigned unmeasured; /* cells of which no pair succeeded; not among `cells` */
};

/* The contenders, as bits, that are to be measured again: with a pair below 1. */
unsigned matrix_doubtful(const struct bench_row *row);
void matrix_add_row(struct matrix *m, const struct bench_row *row);
/* Those of a file of `viaduct bench --json`; the figures must stay as long as m. */
void matrix_add_figures(struct matrix *m, const struct figures *f);
void matrix_finish(struct matrix *m);

/* Below 1.0 is a cell whose median is; certain, one of which each pair is. */
bool matrix_below(const struct matrix_cell *c);
bool matrix_certain(const struct matrix_cell *c);
void matrix_sort(struct matrix *m);
/* "3 of 240 cells below TCP, 1 of them in every pair" */
const char *matrix_sentence(char buf[160], const struct matrix *m);

/* The list, and the sentence as the last line. Sorts. */
void matrix_print(FILE *out, struct matrix *m);
/* ,"matrix":{...}: the same for programs. Sorts. */
void matrix_json(FILE *out, struct matrix *m);
/* The exit status: MATRIX_BELOW when a cell's ratio is below the limit, else 0. */
enum { MATRIX_BELOW = 2 };
int matrix_status(const struct matrix *m, double limit);
/* bench --verdict: the list of what these files hold. Returns an exit status. */
int matrix_verdict(char *const *files, unsigned count, double limit);

#endif
