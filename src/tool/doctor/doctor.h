/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of `viaduct doctor`: what a check finds, and the checks by group. */
#ifndef VD_TOOL_DOCTOR_DOCTOR_H
#define VD_TOOL_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum finding_state { FINDING_OK, FINDING_NOTE, FINDING_PROBLEM };

/* What one check has found. Begins as OK, and empty. */
struct finding {
	enum finding_state state;
	bool left_out;	/* nothing to find: an earlier check has said why */
	bool is_number; /* the value is `number`, else `word` */
	double number;
	char word[256];
	const char *unit; /* "" where there is none */
	char text[400];	  /* what was found */
	char meaning[240];
	char remedy[320]; /* as text and as meaning: one sentence */
};

struct check {
	const char *name;
	/* Fills the finding in. Blocks for some seconds at the most where all is well. */
	void (*look)(struct finding *f);
};

struct check_group {
	const char *name, *title;
	const struct check *checks;
	size_t count;
};

/* ---- finding.c: how checks say what they found, and how it is printed ---- */

void found(struct finding *f, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void found_number(struct finding *f, double number, const char *unit);
void found_word(struct finding *f, const char *word);
/* The meaning is a sentence of its own; so is the remedy, which is formatted. */
void found_trouble(struct finding *f, enum finding_state state, const char *meaning,
		   const char *remedy, ...) __attribute__((format(printf, 4, 5)));
/* Something that Viaduct needs failed with this error: a problem. */
void found_refused(struct finding *f, const char *call, int error);
void finding_print(FILE *out, const char *name, const struct finding *f);
void finding_json(FILE *out, const char *group, const char *name,
		  const struct finding *f);

/* ---- the checks ---- */

extern const struct check_group doctor_needs, doctor_limits, doctor_speed, doctor_hosts,
	doctor_unused, doctor_way;

/* memory.c */
void check_sealed_memory(struct finding *f);
void check_eventfd(struct finding *f);
void check_proc(struct finding *f);
/* net.c */
/* True when there is TCP over loopback; else it tells so. */
bool loopback_for(struct finding *f);
void check_loopback(struct finding *f);
void check_tcp_counts(struct finding *f);
void check_netns(struct finding *f);
void check_sock_diag(struct finding *f);
/* near.c */
void check_near(struct finding *f);
void check_rewritten(struct finding *f);
/* names.c */
void check_unix_names(struct finding *f);
void check_other_users(struct finding *f);
/* try.c */
void check_library(struct finding *f);
void check_preload(struct finding *f);
void check_direct_path(struct finding *f);
/* measure.c */
void check_wake_up(struct finding *f);
void check_cache_line(struct finding *f);
void check_clock(struct finding *f);

/* The hidden `viaduct doctor --ends`: two processes and a connection between them, for
 * check_direct_path. Returns an exit status. */
int doctor_ends(void);

/* ---- read.c: what files of /proc and /sys say ---- */

/* The text after "NAME:" in such a file; false when there is none. */
bool read_field(const char *path, const char *name, char *buf, size_t size);
/* The least limit of our control groups, of either version; false where there is none. */
bool cgroup_memory_bytes(double *bytes);
bool cgroup_processors(double *processors);
/* The processors that we may use, ascending: how many, and the first `max` of them. */
int processors_allowed(int *list, int max);
double load_now(void);
/* Sorts the values. */
double median_of(double *values, size_t n);

#endif
