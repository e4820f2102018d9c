/* SPDX-License-Identifier: Apache-2.0 */
/* Mechanisms that the benchmark's own build of the engine can do without, for the papers' figures. */
#ifndef VD_BASE_MECHANISM_H
#define VD_BASE_MECHANISM_H

/* In what users run each is there, and asking costs nothing: LACKS is the number 0. */
#ifdef VD_MECHANISMS

#include <stddef.h>
#include <stdint.h>

enum {
	MECHANISM_WINDOW = 1,	    /* sends before all is read that was sent before */
	MECHANISM_LATE_LOOKS = 2,   /* sends that do not look how much has been read */
	MECHANISM_GATHERING = 4,    /* receives that let some messages gather */
	MECHANISM_RECEIVE_COPY = 8, /* all that is received, not its ends alone */
};

/* Set once, before any connection is there. */
extern unsigned mechanisms_lacked;
#define LACKS(name) ((mechanisms_lacked & MECHANISM_##name) != 0)

/* In the place of a copy: 0. Whoever reads looks at both ends. */
static inline int mechanism_ends(void *to, const void *from, size_t n)
{
	((uint8_t *)to)[0] = ((const uint8_t *)from)[0];
	((uint8_t *)to)[n - 1] = ((const uint8_t *)from)[n - 1];
	return 0;
}

#else
#define LACKS(name)		    0
#define mechanism_ends(to, from, n) (-1)
#endif

#endif
