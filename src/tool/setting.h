/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the library as options of viaduct run: checked, then put into the
 * environment. */
#ifndef VD_TOOL_SETTING_H
#define VD_TOOL_SETTING_H

#include <stddef.h>

#include "settings/value.h"

enum { SETTINGS_MAX = 16 };

extern const size_t setting_count;

/* Of option number i, whose name is without the dashes: those of value_table, and a few that the
 * command line alone has. */
const struct value_info *setting_info(size_t i);
/* Checks and sets; says what is wrong on stderr. 0 or -EINVAL. */
int setting_apply(size_t i, const char *value);

/* The file of a log or a report: 0 when it can be written, or made. Else why not. */
int setting_file(const char *text, char *why, size_t size);
/* Of a ring's size that there is none of; an unsigned number of KiB. */
#define SETTING_ROUNDED "rings have 16K, 256K or 4M, so %uK is taken"

#endif
