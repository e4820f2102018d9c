/* SPDX-License-Identifier: Apache-2.0 */
/* Holders of a slot that found no place in it: a list in the table. */
#include "conn/crowd.h"

#include "base/atomic.h"

static uint64_t entry_of(uint32_t slot, int32_t holder)
{
	return holder == 0 ? 0 : ((uint64_t)slot + 1) << 32 | (uint32_t)holder;
}

static uint32_t number_of(const struct slot_table *t, const struct slot *sl)
{
	return (uint32_t)(sl - t->slots);
}

/* The holders of that slot one after the other, 0 behind the last; `at` is 0 at first. */
static int32_t next(const struct slot_table *t, uint32_t slot, uint32_t *at)
{
	while (*at < TABLE_CROWD) {
		uint64_t entry = atomic_load(&t->crowd[(*at)++]);

		if (entry >> 32 == (uint64_t)slot + 1)
			return (int32_t)entry;
	}
	return 0;
}

/* 0 is none. False: there is no such entry, or no room. */
static bool change(struct slot_table *t, uint32_t slot, int32_t from, int32_t to)
{
	for (uint32_t i = 0; i < TABLE_CROWD; i++) {
		uint64_t entry = entry_of(slot, from);

		if (atomic_compare_exchange_strong(&t->crowd[i], &entry,
						   entry_of(slot, to)))
			return true;
	}
	return false;
}

bool crowd_has(struct slot_table *t, struct slot *sl, int32_t self)
{
	return atomic_load(&sl->crowded) && change(t, number_of(t, sl), self, self);
}

void crowd_join(struct slot_table *t, struct slot *sl, int32_t self)
{
	atomic_fetch_add(&sl->crowded, 1);
	change(t, number_of(t, sl), 0, self);
}

void crowd_leave(struct slot_table *t, struct slot *sl, int32_t self)
{
	uint32_t slot = number_of(t, sl);

	if (atomic_load(&sl->crowded) == 0)
		return;
	if (!change(t, slot, self, 0) && !change(t, slot, self | HOLDER_CLOSES, 0))
		change(t, slot, -self, 0);
	atomic_fetch_sub(&sl->crowded, 1);
}

void crowd_change(struct slot_table *t, struct slot *sl, int32_t from, int32_t to)
{
	if (atomic_load(&sl->crowded))
		change(t, number_of(t, sl), from, to);
}

void crowd_drop_dead(struct slot_table *t, struct slot *sl, int32_t self)
{
	uint32_t slot = number_of(t, sl), at = 0;
	int32_t entry;

	while (atomic_load(&sl->crowded) && (entry = next(t, slot, &at)))
		if (pid_of(entry) != self && !is_there(entry) &&
		    change(t, slot, entry, 0))
			atomic_fetch_sub(&sl->crowded, 1);
}

bool crowd_has_others(struct slot_table *t, struct slot *sl, int32_t self,
		      enum slot_but but)
{
	/* The count first: who comes after it is forked by one who is found. */
	uint32_t slot = number_of(t, sl), all = atomic_load(&sl->crowded), listed = 0;
	uint32_t at = 0;
	int32_t entry;

	if (all == 0)
		return false;
	for (; (entry = next(t, slot, &at)); listed++)
		if (is_other(entry, self, but))
			return true;
	return all > listed;
}
