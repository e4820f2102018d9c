/* SPDX-License-Identifier: Apache-2.0 */
/* Where the command viaduct lies, and what lies beside it. */
#ifndef VD_TOOL_SELF_H
#define VD_TOOL_SELF_H

#include <stdbool.h>
#include <stddef.h>

/* The command's own path: of this executable, or what self_is said. "viaduct" where nobody can tell. */
const char *self_program(void);
/* True when /proc shows no processes, so that neither they nor this command's folder are known. */
bool self_lacks_proc(void);
/* What to say then. */
#define SELF_NO_PROC "/proc shows no processes: mount it, `mount -t proc proc /proc`"
/* For another program that acts for the command: this is the command's path. */
void self_is(const char *path);
/* The first of `beside` in the command's folder and `installed` that can be read; else the second. */
void self_find(const char *beside, const char *installed, char *path, size_t size);

#endif
