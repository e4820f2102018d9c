/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the library as options of viaduct run: checked, then put into the
 * environment. */
#ifndef VD_CLI_SETTING_H
#define VD_CLI_SETTING_H

#include <stddef.h>

struct setting {
	const char *option;   /* without the dashes */
	const char *argument; /* its name in the help; NULL when there is none */
	const char *variable;
	/* Writes the variable's value. Returns 0, or -EINVAL when value cannot be right.
	 */
	int (*check)(const char *value, char *out, size_t size);
	const char *want; /* the complaint, unless check has a better one */
	const char *help;
};

enum { SETTINGS_MAX = 16 };

extern const struct setting settings[];
extern const size_t setting_count;

/* Checks and sets; says what is wrong on stderr. 0 or -EINVAL. */
int setting_apply(const struct setting *s, const char *value);

#endif
