/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of the program's memory, kept for the next write from there; bounded. */
#ifndef VD_RDMA_REGCACHE_H
#define VD_RDMA_REGCACHE_H

#include "rdma/link.h"

/*
 * Whole pages are registered. A registration in use is never dropped; of the others, the one
 * unused for longest goes first when entries, bytes, or the system's own limit are short. An
 * entry is right only as long as the memory stays mapped: whoever learns of a change tells it
 * by regcache_invalidate *before* the next take. One call at a time.
 */
struct regcache;

/* Who registers: link_register and link_unregister, or a test. */
struct regcache_registrar {
	int (*add)(void *owner, void *start, size_t bytes, struct link_memory *out);
	void (*drop)(void *owner, struct link_memory *m);
	void *owner;
};

struct regcache_counts {
	uint64_t hits, misses, evictions;
	uint64_t refused;     /* takes that found no room */
	uint64_t invalidated; /* entries */
	uint64_t bytes;	      /* registered now */
	uint32_t entries;     /* now */
};

/* Both bounds above 0. -ENOMEM. */
int regcache_create(uint32_t entries_max, uint64_t bytes_max,
		    const struct regcache_registrar *by, struct regcache **out);
/* Nothing may be in use. */
void regcache_destroy(struct regcache *c);

/*
 * A registration that holds this memory, until regcache_put. -ENOSPC: everything else is in
 * use, or so much is never registered: copy instead. Or what the registrar says.
 */
int regcache_take(struct regcache *c, const void *start, size_t bytes,
		  const struct link_memory **out);
void regcache_put(struct regcache *c, const struct link_memory *m);
/*
 * This memory is not what it was. Nothing is found there again. Returns how many entries are
 * still in use: these go with their last put, and until then the device may read what was there.
 */
uint32_t regcache_invalidate(struct regcache *c, const void *start, size_t bytes);

const struct regcache_counts *regcache_counts(const struct regcache *c);

#endif
