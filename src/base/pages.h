/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without the heap of the program, which one of its signal handlers that calls us may have interrupted. */
#ifndef VD_BASE_PAGES_H
#define VD_BASE_PAGES_H

#include <stddef.h>

/*
 * Blocks of whole pages, a power of two. What is given back is kept for the next one of its size.
 *
 * A block is always in one place: who has taken it, or one place of the table of those that are kept. It goes from the
 * one to the other by one atomic step, and there is no lock. So:
 * - a handler may come between any two instructions, and a thread or a child of vfork may end there: what is lost at
 *   most is the block that it had;
 * - a forked child finds in the table what nobody had at the fork. What other threads had is lost to it, as in the heap;
 * - what is kept never exceeds PAGES_KEPT of one size, nor what was in use at one time. More is unmapped, as are larger
 *   blocks than PAGES_MOST.
 */
#define PAGES_LEAST 4096u
#define PAGES_MOST  (1u << 20)
#define PAGES_KEPT  (4u << 20)

/* Not zeroed; NULL: there is no memory. errno stays as it is. */
void *pages_take(size_t bytes);
/* bytes: as they were asked for. NULL is nothing. */
void pages_give(void *memory, size_t bytes);

/*
 * Memory that is never given back, zeroed, and for any type. NULL: there is none. Also without a lock, with the same
 * consequences; errno stays.
 */
void *pages_for_good(size_t bytes);

#endif
