/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's own descriptors: kept high, close-on-exec, and safe from the program's close.
 */
#ifndef VD_BASE_FDS_H
#define VD_BASE_FDS_H

#include <stdbool.h>

/*
 * Takes over fd: moves it to a high number and marks it as Viaduct's. Returns the new
 * number; on failure fd is closed and -EMFILE is returned (too close to RLIMIT_NOFILE).
 */
int fds_adopt(int fd);
/* Closes a descriptor that fds_adopt returned. A negative number is ignored. */
void fds_close(int fd);
/* True when the number is one of Viaduct's. A few nanoseconds. */
bool fds_is_ours(int fd);
/* The lowest number that Viaduct may hold now, for loops over ranges of descriptors. */
int fds_lowest(void);

#endif
