/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run of `viaduct bench` is: shown while it runs, ended early by ^C, and what failed. */
#ifndef VD_MEASURE_PROGRESS_H
#define VD_MEASURE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/bench.h"

enum { PROGRESS_FAILURES = 10, PROGRESS_FAILURE_LETTERS = 256 };

/* Of measurements: one contender, once. Begins as zeros. */
struct progress {
	bool is_shown;
	uint64_t started_ns;
	unsigned total, done, failures;
	char failure[PROGRESS_FAILURES][PROGRESS_FAILURE_LETTERS];
};

/* From here on the time counts; shown where standard error is a terminal. */
void progress_begin(struct progress *p);
void progress_show(const struct progress *p, const struct bench_row *row, unsigned pair,
		   const char *who);
/* That one is over. */
void progress_note(struct progress *p, const struct bench_row *row, unsigned pair,
		   unsigned who);
void progress_hide(const struct progress *p);
/* Names on standard error what failed, and why. */
void progress_failures(const struct progress *p);

/* SIGINT, SIGTERM and SIGHUP end the run after the results that there are; a second one at once. */
void progress_catch(void);
/* The signal, or 0. */
int progress_interrupted(void);
/* Ends by that signal, if there was one; flushes first. */
void progress_die(void);

#endif
