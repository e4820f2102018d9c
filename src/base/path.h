/* SPDX-License-Identifier: Apache-2.0 */
/* File names from the settings, made good for the life of the process. */
#ifndef VD_BASE_PATH_H
#define VD_BASE_PATH_H

#include <stddef.h>

/*
 * Writes text to out with each %p replaced by the process's id, and made absolute,
 * because the file may be opened after the program has changed its directory. 0,
 * -ENAMETOOLONG, or another -errno of getcwd(3).
 */
int path_expand(const char *text, char *out, size_t size);

#endif
