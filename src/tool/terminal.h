/* SPDX-License-Identifier: Apache-2.0 */
/* How much fits a terminal. */
#ifndef VD_TOOL_TERMINAL_H
#define VD_TOOL_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum { TERMINAL_WIDTH = 80, TERMINAL_LINES = 24 }; /* where it does not tell */

/* Its columns; 0: the output is no terminal. */
int terminal_width(FILE *out);
/* The same, and its lines. */
int terminal_size(FILE *out, int *lines);
/* It is a terminal that knows more than to print: not TERM=dumb. */
bool terminal_has_screen(FILE *out);
/* The same, and NO_COLOR does not say otherwise. */
bool terminal_has_colours(FILE *out);

/*
 * Prints lines of words, each broken where a terminal's width ends, or that in COLUMNS, and what
 * follows `indent` columns in.
 */
void terminal_lines(FILE *out, const char *text, int indent);
/* What a line has room for; 0: it does not matter. */
int terminal_room(FILE *out);

#endif
