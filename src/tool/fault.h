/* SPDX-License-Identifier: Apache-2.0 */
/* Why a program that a command line names cannot be started. */
#ifndef VD_TOOL_FAULT_H
#define VD_TOOL_FAULT_H

#include <stddef.h>

/*
 * Writes a sentence without a full stop: what program_find made of name, with what to do. rc is what that
 * returned, -ENOENT or -EACCES, and path what it wrote there. Returns the exit status for it.
 */
int fault_of_program(int rc, const char *name, const char *path, char *text, size_t size);

#endif
