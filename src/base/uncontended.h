/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on counters that others may change at the same time, without a locked instruction where
 * there are no others: each of these waits for all stores before it, which costs more than the rest
 * of a call that only passes by. */
#ifndef VD_BASE_UNCONTENDED_H
#define VD_BASE_UNCONTENDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/atomic.h"

/*
 * alone: nobody but this thread uses the word. Its own signal handlers may all the same: so each step
 * is one instruction, which they come before or after.
 */
static inline void single_add32(_Atomic uint32_t *at, uint32_t by, bool alone)
{
	if (alone)
		__asm__ __volatile__("addl %1, %0"
				     : "+m"(*(uint32_t *)at)
				     : "ir"(by)
				     : "memory", "cc");
	else
		atomic_fetch_add(at, by);
}

static inline void single_add64(_Atomic uint64_t *at, uint64_t by, bool alone)
{
	if (alone)
		__asm__ __volatile__("addq %1, %0"
				     : "+m"(*(uint64_t *)at)
				     : "er"(by)
				     : "memory", "cc");
	else
		/* Relaxed: counts that order nothing. */
		fetch_add_relaxed(at, by);
}

/* What was there before. */
static inline uint32_t single_take32(_Atomic uint32_t *at, uint32_t by, bool alone)
{
	uint32_t taken = -by;

	if (!alone)
		return atomic_fetch_sub(at, by);
	__asm__ __volatile__("xaddl %0, %1"
			     : "+r"(taken), "+m"(*(uint32_t *)at)
			     :
			     : "memory", "cc");
	return taken;
}

/* *expect becomes what is there. */
static inline bool single_exchange32(_Atomic uint32_t *at, uint32_t *expect, uint32_t to,
				     bool alone)
{
	bool done;

	if (!alone)
		return atomic_compare_exchange_strong_explicit(
			at, expect, to, memory_order_acquire, memory_order_relaxed);
	__asm__ __volatile__("cmpxchgl %3, %1"
			     : "=@ccz"(done), "+m"(*(uint32_t *)at), "+a"(*expect)
			     : "r"(to)
			     : "memory");
	return done;
}

/* Takes out what is there; NULL when somebody else was faster. */
static inline void *single_take_pointer(void *_Atomic *at, bool alone)
{
	void *there = load_acquire(at), *seen = there;

	if (!alone)
		return atomic_exchange(at, NULL);
	__asm__ __volatile__("cmpxchgq %2, %0"
			     : "+m"(*(void **)at), "+a"(seen)
			     : "r"(NULL)
			     : "memory", "cc");
	return seen == there ? there : NULL;
}

#endif
