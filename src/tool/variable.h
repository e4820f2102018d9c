/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the environment whose names are one slip away from a setting's. */
#ifndef VD_TOOL_VARIABLE_H
#define VD_TOOL_VARIABLE_H

#include <stdbool.h>
#include <stddef.h>

/* The variable with its value, as `VIADUCT_SPIM=1`, and the name that was meant. */
typedef void variable_slip(void *context, const char *text, const char *meant);

/* Calls say for each. Other programs' variables with our prefix are left alone. */
void variable_slips(variable_slip *say, void *context);

/* True when the words differ by one byte too many, too few or wrong, or by two that are exchanged. */
bool variable_one_slip(const char *a, size_t n, const char *b, size_t m);

#define VARIABLE_SLIP "there is no such variable; did you mean %s?"

#endif
