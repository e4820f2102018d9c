/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this is a child of vfork, which runs in its parent's memory. */
#ifndef VD_BASE_BORROWED_H
#define VD_BASE_BORROWED_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/sections.h"

/*
 * Set in a thread by each vfork, in memory that it shares with its child, and cleared by
 * the first look in the parent behind the call. It holds who the parent was: borrowed_now().
 */
NEAR_EXTERN _Thread_local pid_t borrowed_mark __attribute__((tls_model("initial-exec")));
bool borrowed_slow(void);

/* Who runs in the thread's place now: its pid, or what borrowed_known says, if not 0. That is set in statically linked
 * programs, which know it without a call that a filter may forbid. */
int borrowed_now(void);
extern int (*borrowed_known)(void);

static inline bool is_borrowed(void)
{
	return __builtin_expect(borrowed_mark, 0) && borrowed_slow();
}

#endif
