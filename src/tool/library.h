/* SPDX-License-Identifier: Apache-2.0 */
/* Where libviaduct-preload.so and its module lie, and how they get into LD_PRELOAD. */
#ifndef VD_TOOL_LIBRARY_H
#define VD_TOOL_LIBRARY_H

#include <stddef.h>

/* The module for programs that need this library. */
#define LIBRARY_RPC	 "libviaduct-rpc.so"
#define LIBRARY_LIBTIRPC "libtirpc.so.3"

/* Beside this executable, else in the installed library folder. 0 or -ENOENT. */
int library_find(char *path, size_t size);
/* The module, beside the library. 0 or -ENOENT. */
int library_find_rpc(const char *library, char *path, size_t size);
/* Puts path, and behind it module unless that is NULL, in front of LD_PRELOAD, once. 0; -EINVAL for
 * a path that the loader would take apart; -ENOMEM. */
int library_preload(const char *path, const char *module);

#endif
