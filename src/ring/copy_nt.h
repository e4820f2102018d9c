/* SPDX-License-Identifier: Apache-2.0 */
/* Whether bulk is copied through the caches or past them: whichever costs the sender less. */
#ifndef VD_RING_COPY_NT_H
#define VD_RING_COPY_NT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one connection, in one process: what its last copies have cost. All 0 at its beginning. Guarded
 * by tx_lock. */
struct past {
	uint64_t skip;	       /* bytes not to be judged: their lines come from memory */
	uint64_t bytes;	       /* copied in the window at hand */
	uint64_t dear;	       /* of these, in pieces that cost too much */
	uint64_t ticks;	       /* what they took, by the processor's clock */
	uint64_t rest;	       /* bytes before the two ways are compared again */
	uint32_t area;	       /* of the ring, whose lines all go that way */
	uint32_t cost;	       /* of a KiB through the caches, once that was too much */
	uint32_t dear_windows; /* in a row */
	bool is_on;	       /* past the caches */
	bool is_trial;	       /* for this window, to compare */
};

/* A piece was copied in so many ticks, in the way that `is_on` says. */
void past_note(struct past *p, size_t bytes, uint64_t ticks);

#endif
