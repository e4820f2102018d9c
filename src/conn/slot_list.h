/* SPDX-License-Identifier: Apache-2.0 */
/* The list of free slots in a table, for processes that share it, and for one that does not. */
#ifndef VD_CONN_SLOT_LIST_H
#define VD_CONN_SLOT_LIST_H

#include <sys/single_threaded.h>

#include "base/atomic.h"
#include "conn/table.h"

/* The list lies in memory that each process of the family writes, also one that has given up its
 * rights: what it says is no index before it is bounded, and no slot while that is in use. */
static inline struct slot *list_pop(struct slot_table *t, uint32_t count)
{
	uint64_t head = load_acquire(&t->free_head);
	while ((uint32_t)head != 0 && (uint32_t)head <= count) {
		struct slot *sl = &t->slots[(uint32_t)head - 1];
		/* Relaxed: another may have taken it; then the exchange fails. */
		uint64_t next = ((head >> 32) + 1) << 32 | load_relaxed(&sl->next_free);
		/* Acquire pairs with list_push: the slot's last user is done with it. */
		if (atomic_compare_exchange_weak_explicit(&t->free_head, &head, next,
							  memory_order_acquire,
							  memory_order_acquire))
			return load_relaxed(&sl->used) ? NULL : sl;
	}
	return NULL;
}

static inline void list_push(struct slot_table *t, struct slot *sl)
{
	uint64_t head = load_relaxed(&t->free_head);
	uint64_t mine;
	do {
		store_relaxed(&sl->next_free, (uint32_t)head);
		mine = ((head >> 32) + 1) << 32 | ((uint32_t)(sl - t->slots) + 1);
	} while (!atomic_compare_exchange_weak_explicit(
		&t->free_head, &head, mine, memory_order_release, memory_order_relaxed));
}

/*
 * Nobody else has the table, and no handler can run: this thread is in a critical section. So the
 * list needs no locked instruction, each of which would wait for all stores before it.
 */
static inline bool list_is_ours(void)
{
	return __libc_single_threaded && !table_is_shared();
}

static inline struct slot *list_pop_ours(struct slot_table *t, uint32_t count)
{
	uint64_t head = load_relaxed(&t->free_head);
	struct slot *sl;
	if ((uint32_t)head == 0 || (uint32_t)head > count)
		return NULL;
	sl = &t->slots[(uint32_t)head - 1];
	store_relaxed(&t->free_head,
		      ((head >> 32) + 1) << 32 | load_relaxed(&sl->next_free));
	return load_relaxed(&sl->used) ? NULL : sl;
}

static inline void list_push_ours(struct slot_table *t, struct slot *sl)
{
	uint64_t head = load_relaxed(&t->free_head);
	store_relaxed(&sl->next_free, (uint32_t)head);
	store_relaxed(&t->free_head,
		      ((head >> 32) + 1) << 32 | ((uint32_t)(sl - t->slots) + 1));
}

/* One that was never in use. */
static inline struct slot *list_fresh(struct slot_table *t, uint32_t count)
{
	uint32_t n = load_relaxed(&t->fresh);
	do {
		if (n >= count)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(
		&t->fresh, &n, n + 1, memory_order_relaxed, memory_order_relaxed));
	return &t->slots[n];
}

#endif
