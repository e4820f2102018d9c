/* SPDX-License-Identifier: Apache-2.0 */
/* A lock in memory shared by forked processes, which outlives an owner that dies with it.
 */
#ifndef VD_BASE_LOCK_H
#define VD_BASE_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"
#include "base/sigsafe.h"

/* 0 free; else the owner's thread id, with LOCK_WAITERS when somebody sleeps on it. */
struct lock {
	_Atomic uint32_t word;
};

#define LOCK_WAITERS 0x80000000u

uint32_t lock_self_slow(void);
extern _Thread_local uint32_t lock_self_tid __attribute__((tls_model("initial-exec")));

static inline uint32_t lock_self(void)
{
	return lock_self_tid ? lock_self_tid : lock_self_slow();
}

/*
 * Set in a thread that holds locks over a fork which is done, while handlers of the program's run: it drops them all.
 * Nobody takes a lock twice, so a handler that needs one of them calls it.
 */
extern _Thread_local void (*lock_give_back)(void)
	__attribute__((tls_model("initial-exec")));

/* A signal's handler that comes just before the call may have done it: the call does nothing then. */
static inline void lock_give_all_back(void)
{
	void (*give_back)(void) = lock_give_back;

	if (__builtin_expect(give_back != NULL, 0))
		give_back();
}

void lock_take_slow(struct lock *l);
void lock_drop_slow(struct lock *l);

/* Blocks. When the owner has died, the lock passes on: what it guards commits by one
 * store. */
static inline void lock_take(struct lock *l)
{
	uint32_t expect = 0;
	crit_enter();
	if (!atomic_compare_exchange_strong_explicit(&l->word, &expect, lock_self(),
						     memory_order_acquire,
						     memory_order_relaxed))
		lock_take_slow(l);
}

/*
 * The same, without an atomic step where nobody else can want it before it is dropped: no other
 * process has it, and there is no other thread. Both begin by a call of this one, which it
 * cannot make in the section.
 */
static inline void lock_take_mine(struct lock *l, const _Atomic bool *others_have_it)
{
	crit_enter();
	if (__libc_single_threaded && !load_relaxed(others_have_it) &&
	    !load_relaxed(&l->word)) {
		store_relaxed(&l->word, lock_self());
		fence_compiler();
		return;
	}
	lock_take(l);
	crit_leave();
}

static inline bool lock_try(struct lock *l)
{
	uint32_t expect = 0;
	crit_enter();
	if (atomic_compare_exchange_strong_explicit(&l->word, &expect, lock_self(),
						    memory_order_acquire,
						    memory_order_relaxed))
		return true;
	crit_leave();
	return false;
}

static inline void lock_drop(struct lock *l)
{
	/* The exchange is also the full fence between a cursor store made under the lock
	 * and the look at the peer's armed flag that follows it. */
	if (atomic_exchange(&l->word, 0) & LOCK_WAITERS)
		lock_drop_slow(l);
	crit_leave();
}

/*
 * Of a lock in memory that others may have emptied for another use since this thread took it: it holds it
 * still; and drops it only then.
 */
static inline bool lock_is_mine(struct lock *l)
{
	return (atomic_load(&l->word) & ~LOCK_WAITERS) == lock_self();
}

static inline void lock_drop_if_mine(struct lock *l)
{
	uint32_t now = atomic_load(&l->word);
	bool mine;
	do
		mine = (now & ~LOCK_WAITERS) == lock_self();
	while (mine && !atomic_compare_exchange_weak(&l->word, &now, 0));
	if (mine && (now & LOCK_WAITERS))
		lock_drop_slow(l);
	crit_leave();
}

/* Of one taken by lock_take_mine, where no fence is wanted after it. */
static inline void lock_drop_mine(struct lock *l, const _Atomic bool *others_have_it)
{
	if (!__libc_single_threaded || load_relaxed(others_have_it)) {
		lock_drop(l);
		return;
	}
	fence_compiler();
	store_relaxed(&l->word, 0);
	crit_leave();
}

/* In a forked child: a lock of this process only, which this thread took before the fork. */
static inline void lock_drop_forked(struct lock *l)
{
	store_relaxed(&l->word, 0);
	crit_leave();
}

/* No other process has any lock of this one from now on: who is no thread of it holds none. */
void lock_are_ours(void);
/* A copy of a lock, in memory that this process leaves to others: when a thread of this one holds it,
 * that is as if it had died. */
void lock_leave(struct lock *l);

/*
 * A child of vfork has a thread id of its own in its parent's memory: other threads see by it when it has been killed
 * with a lock. lock_returned is for its parent behind the call, and for a child that has had one itself.
 */
void lock_lend(void);
void lock_returned(bool is_child);

/* In a forked child: the cached thread id is the parent's. */
void lock_forked(void);

#endif
