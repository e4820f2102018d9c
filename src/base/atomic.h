/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of words that somebody else reads or writes meanwhile; each name says its order. */
#ifndef VD_BASE_ATOMIC_H
#define VD_BASE_ATOMIC_H

/*
 * relaxed   the word alone: nothing is said of what stands around it
 * acquire   what follows sees all that the other side did before its release of this value
 * release   who acquires this value sees all that was done before
 * full      both sides that store, then fence_full, then load: one of them sees the other's store
 *
 * C11's own names without an order (atomic_load) are sequentially consistent. They stay where a
 * word is rare and the strongest order costs nothing, and so do those that name two orders, as a
 * compare and exchange does. A comment at the place says what the pair permits.
 */
#include <stdatomic.h>

#define load_relaxed(at)	 atomic_load_explicit(at, memory_order_relaxed)
#define load_acquire(at)	 atomic_load_explicit(at, memory_order_acquire)
#define store_relaxed(at, value) atomic_store_explicit(at, value, memory_order_relaxed)
#define store_release(at, value) atomic_store_explicit(at, value, memory_order_release)
#define fence_full()		 atomic_thread_fence(memory_order_seq_cst)
/* For what happens on this thread, a signal's handler or a death: the compiler keeps the order. */
#define fence_compiler() atomic_signal_fence(memory_order_seq_cst)

/* These return what was there before. */
#define exchange_relaxed(at, value)                                                      \
	atomic_exchange_explicit(at, value, memory_order_relaxed)
#define exchange_acquire(at, value)                                                      \
	atomic_exchange_explicit(at, value, memory_order_acquire)
#define fetch_add_relaxed(at, by) atomic_fetch_add_explicit(at, by, memory_order_relaxed)
#define fetch_sub_relaxed(at, by) atomic_fetch_sub_explicit(at, by, memory_order_relaxed)
#define fetch_or_relaxed(at, bits)                                                       \
	atomic_fetch_or_explicit(at, bits, memory_order_relaxed)
#define fetch_and_relaxed(at, bits)                                                      \
	atomic_fetch_and_explicit(at, bits, memory_order_relaxed)

#endif
