/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a measurement: a process of this program, here or on the other host. */
#ifndef VD_MEASURE_END_H
#define VD_MEASURE_END_H

#include <sys/types.h>

#include "measure/bench.h"

struct end {
	pid_t pid;	 /* -1: none of this host's */
	int fd;		 /* what it says; -1 once that is over */
	char text[8192]; /* all of it */
	size_t len;
	struct bench_result res;
};

/* Both ends, and what they are to do. */
struct ends {
	const struct bench_setting *set;
	const struct bench_row *row;
	const struct bench_contender *who;
	const char *report; /* the file for `viaduct run --report` */
	struct end server, client;
};

/* Starts an end here. `address`: of the server, as it said; NULL: this is the server. 0 or -errno. */
int end_start(struct ends *of, const char *address);
/* Closes what it says, and ends it by force. */
void end_stop(struct end *e);
/* Reads what the end has to say, once. False at its end. */
bool end_hear(struct end *e);
/* What follows the word on its first whole line in what was said; NULL: it was not said. */
const char *end_find(const struct end *e, const char *word);
/* The end says that it has failed, or is over without a result. */
bool end_is_bad(const struct end *e);

/* The path of this program, for an end. */
const char *end_program(void);

#endif
