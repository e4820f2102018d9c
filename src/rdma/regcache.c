/* SPDX-License-Identifier: Apache-2.0 */
/* The registration cache: a list by last use, looked through from its young end. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "rdma/regcache.h"

#define PAGE UINT64_C(4096)

/* A lookup is a walk, which is cheap beside a write for some hundreds of entries. */
struct entry {
	struct link_memory memory; /* first: regcache_put gets its address */
	struct entry *younger, *older;
	uint32_t users;
	bool is_stale;
};

struct regcache {
	struct regcache_registrar by;
	uint32_t entries_max;
	uint64_t bytes_max;
	struct regcache_counts counts;
	struct entry *youngest, *oldest;
	struct entry *free; /* by `older` */
	struct entry all[];
};

int regcache_create(uint32_t entries_max, uint64_t bytes_max,
		    const struct regcache_registrar *by, struct regcache **out)
{
	struct regcache *c = calloc(1, sizeof(*c) + entries_max * sizeof(c->all[0]));

	if (!c)
		return -ENOMEM;
	c->by = *by;
	c->entries_max = entries_max;
	c->bytes_max = bytes_max;
	for (uint32_t i = 0; i < entries_max; i++) {
		c->all[i].older = c->free;
		c->free = &c->all[i];
	}
	*out = c;
	return 0;
}

static void unlink_entry(struct regcache *c, struct entry *e)
{
	*(e->younger ? &e->younger->older : &c->youngest) = e->older;
	*(e->older ? &e->older->younger : &c->oldest) = e->younger;
}

static void link_youngest(struct regcache *c, struct entry *e)
{
	e->younger = NULL;
	e->older = c->youngest;
	*(c->youngest ? &c->youngest->younger : &c->oldest) = e;
	c->youngest = e;
}

static void drop(struct regcache *c, struct entry *e)
{
	assert(e->users == 0);
	unlink_entry(c, e);
	c->counts.entries--;
	c->counts.bytes -= e->memory.bytes;
	c->by.drop(c->by.owner, &e->memory);
	e->older = c->free;
	c->free = e;
}

void regcache_destroy(struct regcache *c)
{
	if (!c)
		return;
	while (c->youngest)
		drop(c, c->youngest);
	free(c);
}

/* False: all are in use. */
static bool evict(struct regcache *c)
{
	struct entry *e = c->oldest;

	while (e && e->users)
		e = e->younger;
	if (!e)
		return false;
	drop(c, e);
	c->counts.evictions++;
	return true;
}

static struct entry *find(struct regcache *c, uintptr_t start, uint64_t bytes)
{
	struct entry *e = c->youngest;

	while (e && (e->is_stale || start < e->memory.start ||
		     start - e->memory.start > e->memory.bytes ||
		     bytes > e->memory.bytes - (start - e->memory.start)))
		e = e->older;
	return e;
}

/* Whole pages. False: there is no such memory. */
static bool round_out(uintptr_t *start, uint64_t *bytes)
{
	uint64_t end;

	if (__builtin_add_overflow(*start, *bytes, &end) ||
	    __builtin_add_overflow(end, PAGE - 1, &end))
		return false;
	*start &= ~(PAGE - 1);
	*bytes = (end & ~(PAGE - 1)) - *start;
	return true;
}

static int add(struct regcache *c, uintptr_t start, uint64_t bytes, struct entry **out)
{
	struct entry *e;
	int r;

	while (!c->free || c->counts.bytes > c->bytes_max - bytes)
		if (!evict(c))
			return -ENOSPC;
	e = c->free;
	do {
		r = c->by.add(c->by.owner, (void *)start, bytes, &e->memory);
		/* The system's limit, which others share. */
	} while (r == -ENOMEM && evict(c) && (e = c->free));
	if (r < 0)
		return r;
	c->free = e->older;
	e->memory.start = start;
	e->memory.bytes = bytes;
	e->users = 0;
	e->is_stale = false;
	link_youngest(c, e);
	c->counts.entries++;
	c->counts.bytes += bytes;
	*out = e;
	return 0;
}

int regcache_take(struct regcache *c, const void *start, size_t bytes,
		  const struct link_memory **out)
{
	uintptr_t from = (uintptr_t)start;
	uint64_t whole = bytes ? bytes : 1;
	struct entry *e = find(c, from, whole);
	int r = 0;

	if (e) {
		c->counts.hits++;
		unlink_entry(c, e);
		link_youngest(c, e);
	} else {
		c->counts.misses++;
		if (!round_out(&from, &whole))
			r = -EFAULT;
		else if (whole > c->bytes_max)
			r = -ENOSPC;
		else
			r = add(c, from, whole, &e);
		if (r < 0) {
			c->counts.refused += r == -ENOSPC;
			return r;
		}
	}
	e->users++;
	*out = &e->memory;
	return 0;
}

void regcache_put(struct regcache *c, const struct link_memory *m)
{
	struct entry *e = &c->all[(const struct entry *)(const void *)m - c->all];

	assert(e->users > 0);
	if (--e->users == 0 && e->is_stale)
		drop(c, e);
}

uint32_t regcache_invalidate(struct regcache *c, const void *start, size_t bytes)
{
	uintptr_t from = (uintptr_t)start;
	uint32_t in_use = 0;
	struct entry *e, *next;

	if (bytes == 0)
		return 0;
	for (e = c->youngest; e; e = next) {
		next = e->older;
		/* One begins inside of the other. */
		if (from - e->memory.start >= e->memory.bytes &&
		    e->memory.start - from >= bytes)
			continue;
		if (!e->is_stale)
			c->counts.invalidated++;
		e->is_stale = true;
		if (e->users)
			in_use++;
		else
			drop(c, e);
	}
	return in_use;
}

const struct regcache_counts *regcache_counts(const struct regcache *c)
{
	return &c->counts;
}
