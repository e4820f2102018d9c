/* SPDX-License-Identifier: Apache-2.0 */
/* The file of what was measured of other hosts, as `viaduct doctor` writes it. */
#ifndef VD_TOOL_KEPT_H
#define VD_TOOL_KEPT_H

#include <limits.h>
#include <time.h>

#include "remote/crossover.h"

/* So long what was measured of a host is good enough for not measuring it again. */
enum { KEPT_DAYS = 30 };

/*
 * Puts the line in the place of that host's, in the file of this user, or in root's. Whoever writes at
 * the same time does so before or after. Only lines that the library would believe are kept beside
 * it. 0 and the file, or -errno and the file or "".
 */
int kept_write(const struct crossover *c, char path[PATH_MAX]);
/* Measured longer than KEPT_DAYS ago, or after `now`. */
bool kept_is_old(const struct crossover *c, time_t now);

#endif
