/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of a program's memory that are kept from one use to the next. */
#ifndef VD_REMOTE_CACHE_H
#define VD_REMOTE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rdma/link.h"
#include "remote/remote.h"

/* All of it is under the folder's lock. cache.c has the rules. */
enum {
	CACHE_ENTRIES = 1024,
	/* Kept, of all links; and never more than half of RLIMIT_MEMLOCK. */
	CACHE_BYTES = 256 << 20,
	/* Memory of vd_alloc up to so much is registered as a whole. */
	CACHE_WHOLE_BYTES = 64 << 20,
};

/* What the own device does there. */
enum cache_kind {
	CACHE_SOURCE, /* reads what is to be written to the peer */
	CACHE_TARGET, /* writes what it has read of the peer */
};

struct across_link;
struct cache_entry;

/*
 * Finds a registration with that link for all of these bytes, or makes one. They stay registered until
 * cache_release. What it has taken is added to the counts of *s, of which `whole` is looked at, too.
 * -ENOMEM and so on: there is none, and all that could be given up for it has been.
 */
int cache_hold(struct across_link *k, enum cache_kind kind, struct across_span *s,
	       const void *at, size_t bytes, struct cache_entry **out);
/* The device has done with it, or never gets to it any more. */
void cache_release(struct cache_entry *e);
const struct link_memory *cache_memory(const struct cache_entry *e);
/* False: it was found that the program has another page there than the device. In a mode for that. */
bool cache_is_sound(const struct cache_entry *e, const void *at, size_t bytes);
/* A registration of somebody else, for which the cache gives up what it must: as link_allow. */
int cache_allow(struct across_link *k, void *start, size_t bytes, uint32_t may,
		struct link_memory *out);
/* Registrations that are not in use are given up, of so many bytes. False: there is none. */
bool cache_give_up(uint64_t bytes);

/* The program's memory there goes: nothing of it is found any more. */
void cache_forget(const void *at, size_t bytes);
/* The same for all of a link, which ends; NULL: of all links. */
void cache_drop(const struct across_link *k);
/* In a forked child, whose parent has them. */
void cache_forked(void);
/* Pinned at this moment. */
uint64_t cache_pinned(void);
/* Of the connections' owners: across_owner. */
extern void (*cache_tell)(uint64_t pinned_bytes, uint32_t evictions);

/* ---- cache_check.c: whether the device and the program have the same pages ---- */

struct cache_proof {
	int fd; /* a pipe that holds some of the pages, -1: none */
	uint32_t pages, of;
};
struct cache_proof cache_proof_make(uintptr_t start, uint64_t bytes);
/* Of what lies in both. True, where nothing is known. */
bool cache_proof_holds(const struct cache_proof *p, uintptr_t start, uint64_t bytes,
		       uintptr_t at, size_t len);
void cache_proof_end(struct cache_proof *p);

#endif
