/* SPDX-License-Identifier: Apache-2.0 */
/* The first line of a file of /proc or /sys. */
#ifndef VD_TOOL_FIRST_LINE_H
#define VD_TOOL_FIRST_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* The first line, without its end; false, and "", when it cannot be read. */
bool read_first_line(const char *path, char *buf, size_t size);

#endif
