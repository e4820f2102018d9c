/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the library as options of viaduct run: checked, then put into the
 * environment. */
#ifndef VD_TOOL_SETTING_H
#define VD_TOOL_SETTING_H

#include <stddef.h>

struct setting {
	const char *option;   /* without the dashes */
	const char *argument; /* its name in the help; NULL when there is none */
	const char *variable;
	/* Writes the variable's value. Returns 0, or -EINVAL when value cannot be right.
	 */
	int (*check)(const char *value, char *out, size_t size);
	const char *want; /* the complaint, unless check has one */
	const char *help;
};

enum { SETTINGS_MAX = 16 };

extern const struct setting settings[];
extern const size_t setting_count;

/* Checks and sets; says what is wrong on stderr. 0 or -EINVAL. */
int setting_apply(const struct setting *s, const char *value);

/* The file of a log or a report: 0 when it can be written, or made. Else why not. */
int setting_file(const char *text, char *why, size_t size);
/* Of a ring's size that there is none of; an unsigned number of KiB. */
#define SETTING_ROUNDED "rings have 16K, 256K or 4M, so %uK is taken"

#endif
