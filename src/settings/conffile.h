/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file: found, judged, and read whole into memory of the caller. */
#ifndef VD_SETTINGS_CONFFILE_H
#define VD_SETTINGS_CONFFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CONFFILE_BYTES (64u << 10) /* a larger one is refused */

enum conffile_level {
	CONFFILE_SYSTEM, /* for all users: root's */
	CONFFILE_USER,	 /* the user's own, by XDG_CONFIG_HOME or HOME */
	CONFFILE_NAMED,	 /* in the place of both, by VIADUCT_CONFIG */
	CONFFILE_CHECKED /* looked at by `viaduct config --check`: anybody's */
};

enum conffile_state {
	CONFFILE_NONE,	  /* not looked for */
	CONFFILE_ABSENT,  /* there is none */
	CONFFILE_READ,	  /* `text` holds it */
	CONFFILE_FOREIGN, /* somebody else's, and so ignored */
	CONFFILE_LOOSE,	  /* others can write to it, and so ignored */
	CONFFILE_BAD	  /* cannot be read: nobody knows what it says */
};

struct conffile {
	enum conffile_level level;
	enum conffile_state state;
	char path[PATH_MAX];
	char why[256]; /* a sentence with the remedy, unless ABSENT or READ */
	size_t size;   /* of text */
	char text[CONFFILE_BYTES + 1]; /* its lines, each a string; see conffile_next */
};

/* The system's file. */
extern const char conffile_system[];
/* The user's; false, and "", when neither variable leads to one, or in a setuid program. */
bool conffile_user(char *path, size_t size);
/*
 * Looks at f->path, as a file of the level. No heap; one descriptor for a moment; blocks on
 * the disk only.
 */
void conffile_read(struct conffile *f, enum conffile_level level);
/*
 * The line at *at, without comment and outer blanks; NULL behind the last one. *at is 0
 * at first. Lines that are empty come too, so that callers can count.
 */
const char *conffile_next(const struct conffile *f, size_t *at);

#endif
