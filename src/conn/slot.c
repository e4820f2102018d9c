/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slots: allocation without locks, and the list of processes that hold each. */
#include "base/kernel.h"
#include "base/atomic.h"
#include "conn/slot.h"

#include <emmintrin.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/sections.h"
#include "base/self.h"
#include "conn/crowd.h"
#include "conn/slot_list.h"
#include "conn/table.h"

/* Few: a server that forks goes round so many, and each fork copies the pages of their records. */
#define RECLAIM_LEAST 16u

static struct slot_table *table NEAR_DATA;
static uint32_t table_count NEAR_DATA;
static _Atomic uint8_t *marks NEAR_DATA; /* the table's */

int slot_table_init(uint32_t count, uint32_t sheets)
{
	table = table_map(count, sheets);
	if (!table)
		return -errno;
	table_count = count;
	marks = table_marks(table);
	self_init();
	table_count_here(table);
	return 0;
}

void slot_table_forking(void)
{
	if (table)
		table_forking(table);
}

NEAR_CODE uint32_t slot_index(const struct slot *sl)
{
	return (uint32_t)(sl - table->slots);
}

_Atomic uint8_t *slot_records(void)
{
	return table->records;
}

struct passed_entry *slot_passed(void)
{
	return table->passed;
}

struct passed_entry *slot_passed_next(void)
{
	return &table->passed[fetch_add_relaxed(&table->next_passed, 1) % PASSED_ENTRIES];
}

struct earn_costs *slot_costs(void)
{
	return &table->costs;
}

uint32_t slot_count(void)
{
	return table_count;
}

FORK_CODE struct slot *slot_at(uint32_t index)
{
	return &table->slots[index];
}

/* Drops holders that died; true when none is left. */
static FORK_CODE bool drop_dead(struct slot_table *t, struct slot *sl, int32_t self)
{
	crowd_drop_dead(t, sl, self);
	/* First: a child that is not on its way any more is among the holders. */
	bool empty = !atomic_load(&sl->forking) && !atomic_load(&sl->crowded);
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t pid = atomic_load(&sl->holders[i]);
		if (pid == 0)
			continue;
		if (pid_of(pid) != self && !is_there(pid))
			atomic_compare_exchange_strong(&sl->holders[i], &pid, 0);
		else
			empty = false;
	}
	return empty;
}

NEAR_CODE static void free_if_unheld(struct slot *sl)
{
	/* Before the holders: a slot that is freed and taken again meanwhile differs in it. */
	uint32_t used = atomic_load(&sl->used);
	if (used == 0 || atomic_load(&sl->forking) || atomic_load(&sl->crowded))
		return;
	for (int i = 0; i < SLOT_HOLDERS; i++)
		if (atomic_load(&sl->holders[i]) != 0)
			return;
	/* Of two processes that let go together, one wins. */
	if (atomic_compare_exchange_strong(&sl->used, &used, 0))
		list_push(table, sl);
}

FORK_CODE void slot_forked(struct slot *sl)
{
	if (atomic_fetch_sub(&sl->forking, 1) == 1)
		free_if_unheld(sl);
}

/* Slots whose holders have died come back: how many. */
static uint32_t reclaim(void)
{
	int32_t self = self_pid();
	uint32_t end = load_relaxed(&table->fresh);
	uint32_t freed = 0;
	for (uint32_t i = 0; i < end && i < table_count; i++) {
		struct slot *sl = &table->slots[i];
		if (!atomic_load(&sl->used) || !drop_dead(table, sl, self))
			continue;
		free_if_unheld(sl);
		freed += !atomic_load(&sl->used);
	}
	return freed;
}

/*
 * Processes that end without a close, as the children of many servers do, leave their slots.
 * These are looked for before the table grows: not at each slot, for it costs a look at all.
 */
static struct slot *take_dead(void)
{
	uint32_t end = load_relaxed(&table->fresh);
	if (end < RECLAIM_LEAST || end < load_relaxed(&table->next_reclaim))
		return NULL;
	if (reclaim() < end / 4)
		store_relaxed(&table->next_reclaim, end + end / 4);
	return list_pop(table, table_count);
}

static __attribute__((noinline)) struct slot *alloc_rarely(void)
{
	struct slot *sl = list_pop(table, table_count);
	if (!sl)
		sl = take_dead();
	if (!sl)
		sl = list_fresh(table, table_count);
	if (!sl && reclaim() > 0)
		sl = list_pop(table, table_count);
	return sl;
}

/* What a short connection writes to: see struct slot. By hand, since the compiler takes an instruction
 * for it that is slow to begin. */
#define EARLY_BYTES offsetof(struct slot, native_counts)
static_assert(offsetof(struct slot, cookie) == sizeof(__m128i), "the first is for all");
static_assert(EARLY_BYTES == 12 * sizeof(__m128i), "three lines");

#ifdef __SANITIZE_THREAD__
/* A slow thread may look at any word of it, and finds out that it is another's. So each is stored as a
 * whole, which the sanitizer does not see of what follows. */
static void empty(struct slot *sl)
{
	_Atomic uint64_t *at = (_Atomic uint64_t *)(void *)sl;
	for (size_t i = sizeof(__m128i) / sizeof(*at); i < sizeof(*sl) / sizeof(*at); i++)
		store_relaxed(&at[i], 0);
}
#else
static inline void empty(struct slot *sl)
{
	__m128i *at = (__m128i *)(void *)sl, none = _mm_setzero_si128();
	/* The last one to have it came no further. */
	bool was_short = phase_is_early(load_relaxed(&sl->phase)) &&
			 !load_relaxed(&sl->ops) && !load_relaxed(&sl->native);
	_mm_store_si128(at + 1, none);
	_mm_store_si128(at + 2, none);
	_mm_store_si128(at + 3, none);
	_mm_store_si128(at + 4, none);
	_mm_store_si128(at + 5, none);
	_mm_store_si128(at + 6, none);
	_mm_store_si128(at + 7, none);
	_mm_store_si128(at + 8, none);
	_mm_store_si128(at + 9, none);
	_mm_store_si128(at + 10, none);
	_mm_store_si128(at + 11, none);
	if (__builtin_expect(!was_short, 0))
		memset((uint8_t *)sl + EARLY_BYTES, 0, sizeof(*sl) - EARLY_BYTES);
}
#endif

NEAR_CODE struct slot *slot_alloc(void)
{
	struct slot *sl = NULL;
	uint32_t generation;
	/* Where slots are a private copy, what is free there is others' to take, as well. */
	if (!table || table_is_private())
		return NULL;
	if (list_is_ours())
		sl = list_pop_ours(table, table_count);
	if (!sl)
		sl = alloc_rarely();
	if (!sl)
		return NULL;
	generation = load_relaxed(&sl->generation) + 1;
	generation += generation == 0;
	if (load_relaxed(&table->leavers))
		atomic_store(&marks[slot_index(sl)], 0);
	empty(sl);
	store_relaxed(&sl->generation, generation);
	store_relaxed(&sl->holders[0], self_pid());
	/* Release: who takes it for used finds it held. */
	store_release(&sl->used, generation);
	return sl;
}

/* False: it was passed on, to where nobody counts. Relaxed: nobody else changes any of it, but who
 * looks for the slots of the dead and finds this unheld in between; of the two, one frees it. */
static bool release_alone(struct slot *sl, int32_t self)
{
	uint32_t used = load_relaxed(&sl->used);
	if (load_relaxed(&sl->holders[0]) != self || load_relaxed(&sl->crowded) ||
	    load_relaxed(&sl->forking))
		return false;
	store_relaxed(&sl->holders[0], 0);
	if (used != 0 && atomic_compare_exchange_strong(&sl->used, &used, 0))
		list_push(table, sl);
	return true;
}

NEAR_CODE bool slot_release_ours(struct slot *sl)
{
	/* In a private copy others are among the holders. */
	if (!list_is_ours() || table_is_private())
		return false;
	store_relaxed(&sl->holders[0], 0);
	store_relaxed(&sl->used, 0);
	list_push_ours(table, sl);
	return true;
}

NEAR_CODE void slot_release(struct slot *sl, bool alone)
{
	int32_t self = self_pid();
	bool listed = false;
	if (alone && release_alone(sl, self))
		return;
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		/* Nobody else lists this process, or takes it out while it lives. */
		int32_t pid = load_relaxed(&sl->holders[i]);
		if (pid_of(pid) == self) {
			atomic_store(&sl->holders[i], 0);
			listed = true;
		}
	}
	if (!listed)
		crowd_leave(table, sl, self);
	free_if_unheld(sl);
}

static bool take_place(struct slot *sl, int32_t self)
{
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t none = 0;
		if (atomic_load(&sl->holders[i]) == self ||
		    atomic_compare_exchange_strong(&sl->holders[i], &none, self))
			return true;
	}
	return false;
}

FORK_CODE void slot_hold(struct slot *sl)
{
	int32_t self = self_pid();
	if (crowd_has(table, sl, self) || take_place(sl, self))
		return;
	drop_dead(table, sl, self);
	if (!take_place(sl, self))
		crowd_join(table, sl, self);
}

void slot_hold_foreign(struct slot *sl)
{
	atomic_fetch_add(&sl->crowded, 1);
}

/* A hostile process may have set it: then the socket stays on TCP. */
static bool is_marked(struct slot *sl)
{
	return load_relaxed(&sl->left) && load_acquire(&marks[slot_index(sl)]);
}

bool slot_is_shared(struct slot *sl)
{
	int held = 0;
	/* Acquire: a child that is not counted as on its way any more is among the holders. */
	if (load_acquire(&sl->forking) || load_acquire(&sl->crowded) ||
	    load_relaxed(&sl->former) || slot_is_lent(sl) || is_marked(sl))
		return true;
	for (int i = 0; i < SLOT_HOLDERS; i++)
		held += load_relaxed(&sl->holders[i]) != 0;
	return held > 1;
}

/* Bits of slot.seen that the other end must have been told of. */
#define SEEN_SHUT (SEEN_SHUT_WR | SEEN_SHUT_RD)

/* By what can be read of the table that this process has left: nobody there has it any more. What
 * was set there in the meantime and cannot be asked for keeps it on TCP. */
static bool is_let_go(struct slot *sl, int32_t self)
{
	uint32_t generation = atomic_load(&sl->former), i = slot_index(sl);
	const struct slot_table *t = table_former();
	struct slot *old = t ? (struct slot *)&t->slots[i] : NULL;
	if (generation == 0)
		return true;
	if (!old || atomic_load(&old->used) != generation || atomic_load(&old->forking) ||
	    atomic_load(&old->crowded) || atomic_load(&table_former_marks()[i]) ||
	    atomic_load(&old->options) == OPTIONS_KERNEL ||
	    (atomic_load(&old->seen) & SEEN_SHUT))
		return false;
	for (int k = 0; k < SLOT_HOLDERS; k++) {
		int32_t pid = atomic_load(&old->holders[k]);
		if (pid != 0 && pid_of(pid) != self && is_there(pid))
			return false;
	}
	/* For good: nobody there can come by it again, but from us. */
	atomic_store(&sl->former, 0);
	return true;
}

bool slot_is_held_alone(struct slot *sl, enum slot_but but)
{
	int32_t self = self_pid();
	/* A child of vfork, whose memory takes it for its parent: that holds it as well. */
	if (self != kernel_getpid() || (but == BUT_NOBODY && slot_is_lent(sl)))
		return false;
	drop_dead(table, sl, self);
	if (atomic_load(&sl->forking) || crowd_has_others(table, sl, self, but))
		return false;
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		if (is_other(atomic_load(&sl->holders[i]), self, but))
			return false;
	}
	/* After the holders: a mark is made before its maker ends. */
	return !is_marked(sl) && is_let_go(sl, self);
}

static void change_entry(struct slot *sl, int32_t from, int32_t to)
{
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t entry = from;
		if (atomic_compare_exchange_strong(&sl->holders[i], &entry, to))
			return;
	}
	crowd_change(table, sl, from, to);
}

void slot_closing(struct slot *sl, bool closes)
{
	int32_t self = self_pid(), marked = self | HOLDER_CLOSES;
	if (self == kernel_getpid())
		change_entry(sl, closes ? self : marked, closes ? marked : self);
}

bool slot_close_is_last(struct slot *sl)
{
	if (slot_is_alone(sl))
		return true;
	slot_closing(sl, true);
	return slot_is_held_alone(sl, BUT_CLOSING);
}

void slot_ends_by_exec(struct slot *sl, bool ends)
{
	int32_t self = self_pid();
	change_entry(sl, ends ? self : -self, ends ? -self : self);
}

/* ---- leaving the table ---- */

void slot_pass_on_slow(struct slot *sl)
{
	if (!slot_is_alone(sl) && atomic_load(&sl->former))
		atomic_store(&table_former_marks()[slot_index(sl)], 1);
}

/* This process, or one that it was forked from, has left a table, where others of its family are. */
static bool has_left;

struct slot_table *slot_leave_begin(void)
{
	if (!table)
		return NULL;
	has_left = true;
	atomic_store(&table->leavers, 1);
	return table_leave_begin(table);
}

/* Threads of other processes count no more, nor do locks that they hold. */
static void forget_others(struct slot *sl, bool inside, bool asleep)
{
	atomic_store(&sl->ctl.word, 0);
	atomic_store(&sl->rx_lock.word, 0);
	atomic_store(&sl->tx_lock.word, 0);
	if (!inside) {
		atomic_fetch_and(&sl->gate_rx, ~GATE_COUNT_MASK);
		atomic_fetch_and(&sl->gate_tx, ~GATE_COUNT_MASK);
	}
	if (!asleep) {
		atomic_store(&sl->sleepers_rx, 0);
		atomic_store(&sl->sleepers_tx, 0);
	}
}

/* Those that nobody else has, in the new table: they are free in the old one then. */
static uint32_t only_ours;

void slot_leave_copy(struct slot_table *to, struct slot *sl, bool inside, bool asleep)
{
	uint32_t i = slot_index(sl), n = atomic_load(&to->fresh);
	struct slot *copy = &to->slots[i];
	bool alone = slot_is_alone(sl);
	/* What cannot be followed in the old table: then somebody else has it for ever. */
	bool lost = !table_former_next() || atomic_load(&sl->crowded) || is_marked(sl) ||
		    atomic_load(&sl->former) || slot_is_lent(sl);
	if (atomic_load(&copy->used)) /* it has several descriptors */
		return;
	memcpy((void *)copy, (const void *)sl, sizeof(*copy));
	atomic_store(&copy->forking, 0);
	atomic_store(&copy->crowded, 0);
	memset((void *)copy->holders, 0, sizeof(copy->holders));
	atomic_store(&copy->holders[0], self_pid());
	atomic_store(&copy->next_free, alone ? only_ours : 0);
	atomic_store(&copy->left, !alone);
	atomic_store(&copy->former, alone || lost ? 0 : atomic_load(&sl->used));
	if (i >= n)
		atomic_store(&to->fresh, i + 1);
	if (alone) {
		only_ours = i + 1;
		return;
	}
	forget_others(copy, inside, asleep);
	atomic_store(&table_marks(to)[i], lost);
	if (!table_can_mark())
		atomic_store(&marks[i], 1);
	atomic_fetch_add(&sl->left, 1);
}

/* `table` is the old one for the moment. */
static void release_only_ours(const struct slot_table *made)
{
	while (only_ours) {
		uint32_t i = only_ours - 1;
		only_ours = atomic_load(&made->slots[i].next_free);
		slot_release(&table->slots[i], false);
	}
}

bool slot_leave_end(struct slot_table *to)
{
	uint32_t end = atomic_load(&to->fresh);
	struct slot_table *at = table, *away;
	/* Below that there is memory that nobody has touched. */
	atomic_store(&to->next_reclaim, end + end / 4);
	away = table_leave_swap(at, to);
	if (!away) {
		only_ours = 0;
		return false;
	}
	table = away;
	release_only_ours(at);
	table = at;
	table_leave_end(away);
	return true;
}

/* ---- leaving it amid threads ---- */

/* Or nobody: a thread may be letting it go, of which the rest is done in the copy. */
static bool may_be_ours(struct slot *sl, int32_t self)
{
	bool others = false;
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t pid = atomic_load(&sl->holders[i]);
		if (pid_of(pid) == self)
			return true;
		others |= pid != 0;
	}
	return atomic_load(&sl->crowded) > 0 || (!others && !atomic_load(&sl->forking));
}

/* In the old table; as slot_is_alone, and slot_release. */
static bool let_go_alone(struct slot_table *t, struct slot *sl, int32_t self)
{
	uint32_t used = atomic_load(&sl->used);
	drop_dead(t, sl, self);
	if (atomic_load(&sl->forking) || atomic_load(&sl->crowded) ||
	    (atomic_load(&sl->left) && atomic_load(&table_marks(t)[sl - t->slots])))
		return false;
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t pid = atomic_load(&sl->holders[i]);
		if (pid != 0 && pid_of(pid) != self)
			return false;
	}
	for (int i = 0; i < SLOT_HOLDERS; i++)
		atomic_store(&sl->holders[i], 0);
	if (used != 0 && atomic_compare_exchange_strong(&sl->used, &used, 0))
		list_push(t, sl);
	return true;
}

/* A thread that was amid a section of its own goes on in the copy: for the others it has died. */
static void leave_locks(struct slot *sl)
{
	lock_leave(&sl->ctl);
	lock_leave(&sl->rx_lock);
	lock_leave(&sl->tx_lock);
}

static void part_from(struct slot_table *away, uint32_t i, int32_t self)
{
	struct slot *old = &away->slots[i];
	if (!atomic_load(&old->used) || !may_be_ours(old, self))
		return;
	leave_locks(old);
	if (let_go_alone(away, old, self))
		return;
	/* It stays on TCP for good: who may have it by us is not told any more. Marks first. */
	atomic_store(&marks[i], 1);
	atomic_store(&table_marks(away)[i], 1);
	atomic_fetch_add(&table->slots[i].left, 1);
	atomic_fetch_add(&old->left, 1);
}

bool slot_part(bool closes)
{
	struct slot_table *away;
	int32_t self = self_pid();
	uint32_t end;
	if (!table)
		return true;
	has_left = true;
	atomic_store(&table->leavers, 1);
	away = table_part(table);
	if (!away)
		return false;
	lock_are_ours();
	end = atomic_load(&table->fresh);
	for (uint32_t i = 0; i < end && i < table_count; i++)
		part_from(away, i, self);
	table_part_end(away, closes);
	return true;
}

bool slot_table_has_others(void)
{
	return table && table_has_others(table);
}

bool slot_table_has_others_since(uint32_t fork, bool forking)
{
	return !table || has_left || atomic_load(&table->leavers) ||
	       table_has_others_since(table, fork, forking);
}

FORK_CODE void slot_table_uncounted(void)
{
	if (table)
		atomic_store(&table->uncounted, 1);
}

void slot_table_note_wait(void)
{
	if (table)
		atomic_fetch_add(&table->waits_on_parents, 1);
}

uint32_t slot_table_waits(void)
{
	return table ? atomic_load(&table->waits_on_parents) : 0;
}

bool slot_is_left(struct slot *sl)
{
	return is_marked(sl);
}
