/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line an event, to a file, never to the program's own stderr unless asked.
 */
#ifndef VD_BASE_LOG_H
#define VD_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_OFF, LOG_ERROR, LOG_INFO, LOG_DEBUG };

extern int log_level_now; /* LOG_OFF until log_init */

/* The level that these bytes name, as the first part of VIADUCT_LOG does; -1: none. */
int log_level_of(const char *name, size_t len);
/* VIADUCT_LOG=LEVEL[:FILE]; see viaduct-run(1). Called once, by config_get. */
void log_init(const char *setting);
/* The file that such a setting leads to; false: to none, or to standard error. */
bool log_file(const char *setting, char *path, size_t size);
/* Appends one line, written by a single write to a descriptor above the program's own. */
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The same without a trace in this process's memory: in the child of vfork that is its parent's. */
void log_line_apart(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define log_at(level, ...)                                                               \
	do {                                                                             \
		if (__builtin_expect(log_level_now >= (level), 0))                       \
			log_line(level, __VA_ARGS__);                                    \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
