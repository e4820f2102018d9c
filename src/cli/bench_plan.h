/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of `viaduct bench` measures: its options, and the rows that follow from
 * them. */
#ifndef VD_CLI_BENCH_PLAN_H
#define VD_CLI_BENCH_PLAN_H

#include "cli/bench.h"

enum { PLAN_LIST_MAX = 32 };

enum plan_placement { PLAN_TWO, PLAN_ONE, PLAN_FREE };

struct plan {
	const struct bench_pattern *patterns[PLAN_LIST_MAX];
	size_t sizes[PLAN_LIST_MAX];
	unsigned pattern_count, size_count;
	bool sizes_given, load_quiet, load_busy;
	unsigned pairs;
	unsigned conns[PLAN_LIST_MAX], conns_count; /* the first is 1 */
	unsigned active;			    /* of them at most; 0: all */
	unsigned busy[2], loads; /* busy loops beside: first all rows so, then so */
	unsigned think_us;
	enum plan_placement placement;
	const char *over; /* comma-separated names of contenders, or NULL */
	char *const *server, *const *client; /* of the user's own; NULL: patterns */
	unsigned wait_s;
	const char *unfit; /* an option that means nothing for these, or NULL */
	const char *csv;
	const char *json;   /* file, "-", or NULL */
	const char *report; /* folder that holds this file, or NULL */
	struct bench_setting set;
};

/* Fills in the plan. Returns 0; 1 when help was printed; -EINVAL after a message. */
int plan_parse(struct plan *plan, int argc, char **argv);
const char *plan_placement_name(enum plan_placement placement);
/* The contenders of a row, the one to compare with first. Returns how many. */
unsigned plan_contenders(const struct plan *plan, const struct bench_pattern *pattern,
			 unsigned conns, const struct bench_contender **who);
/* True when the pattern is measured at this size and with this many connections. */
bool plan_wants(const struct plan *plan, const struct bench_pattern *pattern, size_t size,
		unsigned conns);
/* How many of the connections have messages under way. */
unsigned plan_active(const struct plan *plan, unsigned conns);
unsigned plan_conns_max(const struct plan *plan);

#endif
