/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on counters that others may change at the same time, without a locked instruction where
 * there are no others: each of these waits for all stores before it, which costs more than the rest
 * of a call that only passes by. */
#ifndef VD_BASE_SINGLE_H
#define VD_BASE_SINGLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

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
		atomic_fetch_add_explicit(at, by, memory_order_relaxed);
}

/* *expect becomes what is there. */
static inline bool single_exchange32(_Atomic uint32_t *at, uint32_t *expect, uint32_t to,
				     bool alone)
{
	bool done;

	if (!alone)
		return atomic_compare_exchange_weak_explicit(
			at, expect, to, memory_order_acquire, memory_order_relaxed);
	__asm__ __volatile__("cmpxchgl %3, %1"
			     : "=@ccz"(done), "+m"(*(uint32_t *)at), "+a"(*expect)
			     : "r"(to)
			     : "memory");
	return done;
}

#endif
