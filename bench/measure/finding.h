/* SPDX-License-Identifier: Apache-2.0 */
/* What the experiments of `viaduct bench` say about this machine, in a sentence each. */
#ifndef VD_MEASURE_FINDING_H
#define VD_MEASURE_FINDING_H

#include "measure/bench.h"

enum { FINDING_COPIES_MAX = 512, FINDING_SETUPS_MAX = 128 };

/* One way to copy, against the ring in the same pairs. */
struct finding_copy {
	const struct bench_pattern *pattern;
	const struct bench_contender *who;
	size_t size_bytes;
	unsigned busy;
	struct bench_spread ratio;
};

/* Against TCP in the same pairs; in nanoseconds. */
struct finding_setup {
	const struct bench_pattern *pattern;
	size_t size_bytes;
	unsigned busy;
	bool upgraded;
	struct bench_spread cost, cost_cpu; /* of an upgrade */
	struct bench_spread gain, gain_cpu; /* of a round trip */
	struct bench_spread paid, paid_cpu; /* operations of an end until it has paid */
};

struct findings {
	bool copy_asked;
	unsigned copies, setups;
	struct finding_copy copy[FINDING_COPIES_MAX];
	struct finding_setup setup[FINDING_SETUPS_MAX];
};

/* Keeps what the row says, if it is one of an experiment. */
void findings_note(struct findings *f, const struct bench_row *row);
void findings_print(FILE *out, const struct findings *f);
/* ,"findings":[...] */
void findings_json(FILE *out, const struct findings *f);

#endif
