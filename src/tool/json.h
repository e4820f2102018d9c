/* SPDX-License-Identifier: Apache-2.0 */
/* What all commands need that print JSON. */
#ifndef VD_TOOL_JSON_H
#define VD_TOOL_JSON_H

#include <stdio.h>

/* Any bytes, as a string of JSON in UTF-8. */
void write_json_string(FILE *out, const char *text);

#endif
