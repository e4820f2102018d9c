/* SPDX-License-Identifier: Apache-2.0 */
/* What `viaduct config` has found out, for its ways to print it. */
#ifndef VD_TOOL_CONFIG_CONFIG_H
#define VD_TOOL_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdio.h>

#include "settings/view.h"

struct problem {
	char *place, *text;
};

struct outlook {
	struct view view;    /* first: complaints come with it alone */
	const char *program; /* NULL: for programs that no section is for */
	bool doubt; /* a rule for it, or a file, is not understood: all stays on TCP */
	struct problem *problems;
	size_t problem_count;
};

/* A section of the files; NULL behind the last one. File and line are 0 at first. */
struct section {
	int file;
	size_t at;
	unsigned line;
	char program[RULE_PROGRAM_BYTES];
};

/* The next section that can be understood; begin with all zero. */
bool outlook_section(const struct outlook *o, struct section *s);
/* The value in force, as text. */
void outlook_value(const struct outlook *o, enum value_id id, char *out, size_t size);
/* The memory; ends the command where there is none. */
void *outlook_need(void *memory);
/* table.c, json.c */
void outlook_print(FILE *out, const struct outlook *o);
void outlook_json(FILE *out, const struct outlook *o);

#endif
