/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds a slot: what an entry says, and holders that found no place in the slot
 * itself. */
#ifndef VD_CONN_CROWD_H
#define VD_CONN_CROWD_H

#include <errno.h>

#include "base/kernel.h"
#include "base/self.h"
#include "conn/table.h"

static inline int32_t pid_of(int32_t entry)
{
	return entry < 0 ? -entry : entry & ~HOLDER_CLOSES;
}

/* What the entry of a holder stands for is still there. */
static inline bool is_there(int32_t entry)
{
	int32_t pid = pid_of(entry);
	if (kernel_kill(pid, 0) == -ESRCH)
		return false;
	return entry > 0 || self_shares_image(pid);
}

/* It is another process's, which counts. */
static inline bool is_other(int32_t entry, int32_t self, enum slot_but but)
{
	int32_t pid = pid_of(entry);
	if (pid == 0 || pid == self)
		return false;
	if (but == BUT_NOBODY)
		return !self_has_ended(pid);
	if (entry > 0 ? (entry & HOLDER_CLOSES) != 0 : but == BUT_LEAVING)
		return false;
	return self_shares_image(pid);
}

/*
 * The table has a list of them, for all slots. Each entry is one word: the slot's
 * number, and the holder as it would stand in slot.holders. slot.crowded counts these,
 * and holders that are in no list. It is raised before an entry is made, and lowered
 * after it has gone: so a process that dies in between leaves the slot held, and not
 * free.
 */

bool crowd_has(struct slot_table *t, struct slot *sl, int32_t self);
void crowd_join(struct slot_table *t, struct slot *sl, int32_t self);
void crowd_leave(struct slot_table *t, struct slot *sl, int32_t self);
/* An entry of it becomes another. */
void crowd_change(struct slot_table *t, struct slot *sl, int32_t from, int32_t to);
void crowd_drop_dead(struct slot_table *t, struct slot *sl, int32_t self);
/* By others: see is_other. */
bool crowd_has_others(struct slot_table *t, struct slot *sl, int32_t self,
		      enum slot_but but);

#endif
