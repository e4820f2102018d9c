/* SPDX-License-Identifier: Apache-2.0 */
/* Why a program that a command line names cannot be started, and a process not be looked into. */
#ifndef VD_TOOL_FAULT_H
#define VD_TOOL_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Writes a sentence without a full stop: what program_find made of name, with what to do. rc is what that
 * returned, -ENOENT or -EACCES, and path what it wrote there. Returns the exit status for it.
 */
int fault_of_program(int rc, const char *name, const char *path, char *text, size_t size);
/* True for a thread beside its process's first: the sentence, without a full stop, says whose. */
bool fault_of_thread(pid_t pid, char *text, size_t size);

#endif
