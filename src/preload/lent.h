/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that this image has inherited, and that others have lent: docs/processes.md, "Lent connections". */
#ifndef VD_PRELOAD_LENT_H
#define VD_PRELOAD_LENT_H

#include <stdbool.h>

#include "base/sections.h"

/* Once, from the constructor: which tokens there are, and whether anything is lent to us. */
void lent_init(void);

extern unsigned lent_tokens FORK_DATA; /* a bit for each that is held */
extern _Atomic int lent_one
	FORK_DATA; /* a connection that is lent to us, when there is a token */
static inline bool lent_is_any(void)
{
	return __builtin_expect(lent_tokens != 0, 0);
}
/* Some have been closed in the kernel: with the last one the tokens go. */
void lent_closed_slow(void);
static inline void lent_closed(void)
{
	if (lent_is_any())
		lent_closed_slow();
}
/* It goes to a process that is not started by this one. */
void lent_passing(int fd);
/* All calls may go past us from now on: each connection is told of, and no token counts any more. */
void lent_unknown(void);
/* What survives the exec, or a spawn may give another number, goes to an image that holds tokens as this one does, or to another one. */
void lent_leaving(bool is_followed, bool spawns);
/* Children of posix_spawn may lose a token before they begin. */
extern bool lent_closes;
/* They close, or replace, these numbers. */
void lent_is_closed_in_children(int from, int to);

#endif
