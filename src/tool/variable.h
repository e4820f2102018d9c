/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the environment whose names are one slip away from a setting's. */
#ifndef VD_TOOL_VARIABLE_H
#define VD_TOOL_VARIABLE_H

/* The variable with its value, as `VIADUCT_SPIM=1`, and the name that was meant. */
typedef void variable_slip(void *context, const char *text, const char *meant);

/* Calls say for each. Other programs' variables with our prefix are left alone. */
void variable_slips(variable_slip *say, void *context);

#define VARIABLE_SLIP "there is no such variable; did you mean %s?"

#endif
