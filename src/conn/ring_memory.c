/* SPDX-License-Identifier: Apache-2.0 */
/* A limit of memory that would kill the program for what its rings have grown into. */
#include "conn/ring_memory.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/group.h"
#include "conn/slot.h"

/* Of the limit so small a part is for grown rings. */
#define PART 8u
/* The limit is read so often, and the rings are looked through. */
#define LIMIT_MS 1000u
#define TAKEN_MS 20u

/* True: a new value is due. Of several threads one finds it. */
static bool is_due(_Atomic uint64_t *at_ms, uint64_t now, uint64_t each_ms)
{
	uint64_t at = load_relaxed(at_ms);
	return (at == 0 || now - at >= each_ms) &&
	       atomic_compare_exchange_strong(at_ms, &at, now);
}

/* Of all rings of the family, as if each area that was entered were in memory as a whole. Slots
 * that were never used are not looked at: they are no memory yet. */
static uint64_t grown_bytes(void)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < slot_count(); i++) {
		struct slot *sl = slot_at(i);
		uint32_t phase = load_relaxed(&sl->phase);
		uint32_t touched =
			__atomic_load_n(&sl->tx.area_touched, __ATOMIC_RELAXED);
		if (load_relaxed(&sl->generation) == 0)
			break;
		if (phase != SLOT_ATTACHED && phase != SLOT_LEAVING)
			continue;
		for (uint32_t area = 1; area <= touched && area < WIRE_AREAS; area++)
			bytes += wire_area_bytes(area);
	}
	return bytes;
}

static _Atomic uint64_t taken; /* at the last look, and since */

bool ring_memory_is_left(uint64_t bytes)
{
	static _Atomic uint64_t most = UINT64_MAX, limit_ms, taken_ms;
	uint64_t now = clock_coarse_ms();
	/* Relaxed, all: by what was found last a ring more, or less, may grow. */
	if (is_due(&limit_ms, now, LIMIT_MS)) {
		uint64_t limit = group_memory_limit();
		store_relaxed(&most, limit == UINT64_MAX ? limit : limit / PART);
	}
	if (load_relaxed(&most) == UINT64_MAX)
		return true;
	if (is_due(&taken_ms, now, TAKEN_MS))
		store_relaxed(&taken, grown_bytes());
	return load_relaxed(&taken) + bytes <= load_relaxed(&most);
}

void ring_memory_taken(uint64_t bytes)
{
	fetch_add_relaxed(&taken, bytes);
}
