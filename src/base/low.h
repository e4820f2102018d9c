/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that the kernel makes has the lowest free number, which is the program's. */
#ifndef VD_BASE_LOW_H
#define VD_BASE_LOW_H

#include <stdbool.h>

#include "base/borrowed.h"
#include "base/kernel.h"
#include "base/lock.h"

/*
 * Held from before Viaduct makes a descriptor until that has been moved or closed; around each call of the
 * program's that puts a file at a number of its choice, if that number is free; and over each fork, whose child
 * would keep the descriptor. Otherwise the program's file would take the place of ours, be used and closed in its
 * stead.
 *
 * Inside are nothing but calls to the kernel that wait for nobody, and fds_adopt, with its lock: so it may be taken
 * under every other lock. Files by a path of the user's or of the program's may be on a server that does not answer:
 * they are opened without it.
 *
 * Over a fork it is the forking thread's. A dup2 in handlers of pthread_atfork, which run there meanwhile, goes on
 * without taking it again, or, behind the fork, has it given back first. A child of vfork has descriptors of its own,
 * and may be killed at any moment, in its parent's memory: it does without.
 */
extern struct lock low_lock;
extern _Thread_local bool low_is_forking __attribute__((tls_model("initial-exec")));

static inline bool low_does_without(void)
{
	return low_is_forking || is_borrowed();
}

static inline void low_begin(void)
{
	if (low_is_forking)
		lock_give_all_back();
	if (!low_does_without())
		lock_take(&low_lock);
}

static inline void low_end(void)
{
	if (!low_does_without())
		lock_drop(&low_lock);
}

/* Makes a descriptor by `call`, a number or -errno, and moves it by `move`, as fds_adopt. */
#define LOW_MADE(move, call)                                                             \
	__extension__({                                                                  \
		low_begin();                                                             \
		int made_ = (int)(call);                                                 \
		made_ = made_ < 0 ? made_ : (move)(made_);                               \
		low_end();                                                               \
		made_;                                                                   \
	})

static inline bool low_read_text(const char *path, char *text, size_t size)
{
	low_begin();
	bool some = kernel_read_text(path, text, size);
	low_end();
	return some;
}

#endif
