/* SPDX-License-Identifier: Apache-2.0 */
/* The settings by name: what each accepts, and the profiles, which set several at once. */
#ifndef VD_SETTINGS_VALUE_H
#define VD_SETTINGS_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "settings/config.h"

enum value_id {
	VALUE_PROFILE,
	VALUE_VIADUCT,
	VALUE_UPGRADE_AFTER,
	VALUE_SPIN,
	VALUE_RING_MAX,
	VALUE_REDIRECT,
	VALUE_REGISTRATION,
	VALUE_IO_URING,
	VALUE_GO,
	VALUE_STATIC,
	VALUE_LOG,
	VALUE_REPORT,
	VALUE_COUNT
};

/* Those that a profile sets, from VALUE_VIADUCT on. */
#define VALUE_PROFILE_FIRST VALUE_VIADUCT
#define VALUE_PROFILE_LAST  VALUE_RING_MAX

/* All that is said of a setting anywhere: in files, environment, command line, help. */
struct value_info {
	const char *name;     /* in a file, and as an option of viaduct run */
	const char *variable; /* in the environment */
	const char *argument; /* its name in the help; NULL: no option of that name */
	const char *help;     /* one line */
	const char *allowed;  /* a sentence */
};

extern const struct value_info value_table[VALUE_COUNT];
/* "profile, viaduct, ... and report". Returns buf. */
const char *value_list(char *buf, size_t size);

/* The setting that text, of that length, names; VALUE_COUNT when none. In any case of letters,
 * and with _ for -. */
enum value_id value_find(const char *text, size_t length);
/* The settings of a process that nobody has told anything. */
void value_defaults(struct config *config);
/*
 * Reads text into the fields of config that the setting decides: for a profile several, for the
 * log and the report none. Returns 0, or -EINVAL with a sentence in message that says what is
 * allowed. In a file, names of files have to be absolute.
 */
int value_parse(enum value_id id, const char *text, bool in_file, struct config *config,
		char *message, size_t size);
/* The value as it would be written; not for the profile, the log and the report. */
void value_print(enum value_id id, const struct config *config, char *out, size_t size);
/* True when a good value is taken for a smaller one, because there is none between: *bytes. */
bool value_rounds(enum value_id id, const char *text, uint32_t *bytes);
/* The name of the profile as the table has it; NULL when there is none. */
const char *value_profile(const char *name);

#endif
