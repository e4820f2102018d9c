/* SPDX-License-Identifier: Apache-2.0 */
/* All settings and rules of a process together, each with the place that it comes from. */
#ifndef VD_SETTINGS_VIEW_H
#define VD_SETTINGS_VIEW_H

#include <stdbool.h>

#include "settings/conffile.h"
#include "settings/config.h"
#include "settings/rules.h"
#include "settings/value.h"

#define VIEW_FILES 2

enum view_effect {
	VIEW_SKIPPED, /* the line, or the variable, is as if it were not there */
	VIEW_IGNORED, /* the whole file is, because others can write to it */
	VIEW_FOREIGN, /* the whole file is, as somebody else's: no mistake */
	VIEW_DOUBT    /* a rule may be lost: every connection stays on TCP */
};

/* Where a setting in force was made. */
struct view_source {
	const char *text;    /* as it is written there; NULL: the default is in force */
	const char *profile; /* the profile that made it, or NULL */
	const char *file;    /* NULL: the environment */
	unsigned line;
};

struct view {
	/* Set by the caller, before view_load. */
	const char *exe, *argv0; /* base names of the program; NULL: of no program */
	bool strict;		 /* look also at what is for other programs */
	/* What is wrong; place is FILE, FILE:LINE, or VARIABLE=VALUE. May be NULL. */
	void (*complain)(struct view *v, enum view_effect effect, const char *file,
			 const char *place, const char *message);

	/* view_load */
	bool privileged; /* a setuid program: nothing is read */
	bool env_off;	 /* the environment switches Viaduct off: no file is read */
	struct conffile files[VIEW_FILES];
	/* view_resolve */
	struct config config; /* but neither report nor program */
	struct view_source source[VALUE_COUNT];
	struct rules rules; /* in the order in which they are asked */
	bool doubt;	    /* a rule, or a file, was not understood */
	bool full;	    /* there are more rules than RULES_MAX: said once */
	unsigned complaints;
	unsigned sections; /* of the files, whether they fit or not */
};

/* Reads the files, unless the environment makes that needless. */
void view_load(struct view *v);
/* Puts files and environment together. May be called again, after other `complain`. */
void view_resolve(struct view *v);
/* The pattern of the programs for which this line, which begins with [, opens a section. False
 * when it cannot be understood. */
bool view_section(const char *line, char glob[RULE_PROGRAM_BYTES]);

#endif
