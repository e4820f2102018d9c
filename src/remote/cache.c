/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of a program's memory that are kept from one use to the next. */
/*
 * A device reads and writes registered memory alone: pages that are pinned, and known to it. That takes
 * system calls. So a registration is kept after its use, and found again by its range: VMMC-2's
 * user-managed TLB (Dubnicki and others, 1997), with a device's registrations in the place of its entries.
 *
 * Why it is right. A registration is of pages, not of addresses: where the program has other pages at an
 * address later, the device still has the old ones. So the program says when its memory goes (vd_forget).
 * The library does, for what vd_* gives back or exchanges; and at a fork all is dropped. `check` of the
 * setting `registration` looks for programs that do not: cache_check.c.
 *
 * A registration is *listed* while it can be found, and *held* while an operation uses it. It is
 * unregistered when it is neither. Whatever takes it out of the list (eviction, vd_forget, the end of its
 * link, a fork) so never takes it from under a device. What is held is not evicted.
 *
 * Registrations are a link's: its protection domain. Memory that was registered as a source is not for
 * a target: it may be read-only. The reverse is fine. Only the own device may use them, never the peer.
 *
 * The list is sorted by owner (a link, and a kind), then by address. No registration of an owner lies
 * within another, since the inner one goes: so their ends are in the order of their beginnings. Of all that
 * begin at or before an address the last one reaches furthest, and a search by halves finds it.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/kernel.h"
#include "base/log.h"
#include "remote/cache.h"
#include "remote/parts.h"
#include "settings/config.h"

#define PAGE 4096u

_Static_assert(ACROSS_LINKS * 2 <= 1 << 12, "an owner's number fits above a page's");

struct cache_entry {
	struct across_link *of; /* NULL: free */
	struct link_memory memory;
	uint32_t owner, holders;
	bool is_listed;
	struct cache_entry *older, *newer; /* of the listed ones, by their last use */
	struct cache_entry *next_spare;
	struct cache_proof proof;
};

struct place {
	uintptr_t start, end;
	uint32_t owner, entry;
};

static struct cache_entry entries[CACHE_ENTRIES];
static struct place list[CACHE_ENTRIES];
static uint64_t
	keys[CACHE_ENTRIES];  /* key_of each of the list, which a search reads alone */
static uint32_t listed, used; /* used: one past the last entry that ever was */
static struct cache_entry *oldest, *newest;
static struct cache_entry *spare; /* the free ones below `used` */
static uint64_t pinned;
void (*cache_tell)(uint64_t pinned_bytes, uint32_t evictions);

uint64_t cache_pinned(void)
{
	return pinned;
}

static void tell(uint32_t evictions)
{
	if (cache_tell)
		cache_tell(pinned, evictions);
}

static void pin(uint64_t more)
{
	pinned += more;
	tell(0);
}

/* ---- by their last use ---- */

static void use_no_more(struct cache_entry *e)
{
	*(e->older ? &e->older->newer : &oldest) = e->newer;
	*(e->newer ? &e->newer->older : &newest) = e->older;
	e->older = e->newer = NULL;
}

static void use_now(struct cache_entry *e)
{
	e->older = newest;
	*(newest ? &newest->newer : &oldest) = e;
	newest = e;
}

/* ---- the list ---- */

static uint32_t owner_of(const struct across_link *k, enum cache_kind kind)
{
	return (uint32_t)(k - across_links) * 2 + (uint32_t)kind;
}

/* Registrations begin at pages: their order, and that of any address among them. */
static uint64_t key_of(uint32_t owner, uintptr_t at)
{
	return (uint64_t)owner << 52 | at / PAGE;
}

/* How many of the list come before what begins behind that address. No step depends on a branch, which
 * would be predicted wrongly every other time. */
static uint32_t before(uint32_t owner, uintptr_t at)
{
	uint64_t key = key_of(owner, at);
	uint32_t from = 0, n = listed;

	while (n > 1) {
		from += n / 2 * (keys[from + n / 2 - 1] <= key);
		n -= n / 2;
	}
	return from + (n == 1 && keys[from] <= key);
}

/* The place of what holds all of that, or `listed`. */
static uint32_t find(uint32_t owner, uintptr_t at, uintptr_t end)
{
	uint32_t n = before(owner, at);

	return n > 0 && list[n - 1].owner == owner && list[n - 1].end >= end ? n - 1
									     : listed;
}

static void end_entry(struct cache_entry *e)
{
	cache_proof_end(&e->proof);
	link_unregister(e->of->link, &e->memory);
	e->of = NULL;
	e->next_spare = spare;
	spare = e;
	pin(-e->memory.bytes);
}

static void unlist(uint32_t n)
{
	struct cache_entry *e = &entries[list[n].entry];

	listed--;
	memmove(&list[n], &list[n + 1], (listed - n) * sizeof(list[0]));
	memmove(&keys[n], &keys[n + 1], (listed - n) * sizeof(keys[0]));
	use_no_more(e);
	e->is_listed = false;
	if (e->holders == 0)
		end_entry(e);
}

/* What lies within what is to be listed is of no more use. */
static void unlist_within(uint32_t owner, uintptr_t start, uintptr_t end)
{
	uint32_t n = before(owner, start - 1);

	while (n < listed && list[n].owner == owner && list[n].end <= end)
		unlist(n);
}

static void enlist(struct cache_entry *e)
{
	uintptr_t start = e->memory.start, end = start + e->memory.bytes;
	uint32_t n;

	unlist_within(e->owner, start, end);
	if (e->owner & CACHE_TARGET)
		unlist_within(e->owner - CACHE_TARGET, start, end);
	n = before(e->owner, start);
	memmove(&list[n + 1], &list[n], (listed - n) * sizeof(list[0]));
	memmove(&keys[n + 1], &keys[n], (listed - n) * sizeof(keys[0]));
	listed++;
	keys[n] = key_of(e->owner, start);
	list[n] = (struct place){start, end, e->owner, (uint32_t)(e - entries)};
	e->is_listed = true;
	use_now(e);
}

static uint32_t place_of(const struct cache_entry *e)
{
	return before(e->owner, e->memory.start) - 1;
}

/* ---- giving up ---- */

/* The one that was not used for the longest time, of those that nothing uses. Its bytes, or 0. */
static uint64_t evict(void)
{
	struct cache_entry *e = oldest;
	uint64_t bytes;

	while (e && e->holders)
		e = e->newer;
	if (!e)
		return 0;
	bytes = e->memory.bytes;
	unlist(place_of(e));
	return bytes;
}

static uint32_t evict_some(uint64_t bytes)
{
	uint32_t count = 0;
	uint64_t one = 1;

	for (uint64_t sum = 0; sum < bytes && one; sum += one) {
		one = evict();
		count += one != 0;
	}
	return count;
}

/* As link_allow, with what is given up for it. */
static int allow(struct across_link *k, void *start, uint64_t bytes, uint32_t may,
		 struct link_memory *out, uint32_t *evictions)
{
	uint32_t count;
	int r;

	do {
		r = link_allow(k->link, start, bytes, may, out);
		count = r == -ENOMEM ? evict_some(bytes) : 0;
		*evictions += count;
	} while (count > 0);
	return r;
}

bool cache_give_up(uint64_t bytes)
{
	uint32_t count = evict_some(bytes);

	tell(count);
	return count > 0;
}

int cache_allow(struct across_link *k, void *start, size_t bytes, uint32_t may,
		struct link_memory *out)
{
	uint32_t count = 0;
	int r = allow(k, start, bytes, may, out, &count);

	tell(count);
	return r;
}

/* ---- making them ---- */

static uint64_t most_bytes(void)
{
	uint64_t most = CACHE_BYTES;
	struct rlimit limit;

	if (kernel_getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur / 2 < most)
		most = limit.rlim_cur / 2;
	return most;
}

static bool has_free_entry(void)
{
	return spare || used < CACHE_ENTRIES;
}

static struct cache_entry *take_entry(void)
{
	struct cache_entry *e = spare;

	if (!e)
		return &entries[used++];
	spare = e->next_spare;
	return e;
}

/* Among what is kept, if it can be made; *keeps: for that many bytes. False: all entries are in use. */
static bool make_room(struct across_span *s, uint64_t bytes, bool *keeps)
{
	uint64_t most =
		config_get()->registration == CONFIG_REGISTER_ONCE ? 0 : most_bytes();

	if (bytes <= most && pinned + bytes > most)
		s->evictions += evict_some(pinned + bytes - most);
	*keeps = pinned + bytes <= most;
	if (!has_free_entry() && evict())
		s->evictions++;
	return has_free_entry();
}

static int make(struct across_link *k, enum cache_kind kind, struct across_span *s,
		uintptr_t start, uint64_t bytes, struct cache_entry **out)
{
	uint32_t may = kind == CACHE_TARGET ? LINK_MAY_SINK : 0;
	struct link_memory memory;
	struct cache_entry *e;
	bool keeps;
	int r = -ENOSPC;

	if (make_room(s, bytes, &keeps))
		r = allow(k, (void *)start, bytes, may, &memory, &s->evictions);
	if (r < 0)
		return r;
	/* Only now: what was given up for it has left more of them. */
	e = take_entry();
	e->of = k;
	e->memory = memory;
	e->owner = owner_of(k, kind);
	e->holders = 0;
	e->is_listed = false;
	e->proof = (struct cache_proof){.fd = -1};
	pin(bytes);
	if (keeps && config_get()->registration == CONFIG_REGISTER_CHECK)
		e->proof = cache_proof_make(start, bytes);
	if (keeps)
		enlist(e);
	*out = e;
	return 0;
}

static int make_pages(struct across_link *k, enum cache_kind kind, struct across_span *s,
		      const void *at, size_t bytes, struct cache_entry **out)
{
	uintptr_t start = (uintptr_t)at & -(uintptr_t)PAGE,
		  end = ((uintptr_t)at + bytes + PAGE - 1) & -(uintptr_t)PAGE;

	return make(k, kind, s, start, end - start, out);
}

/* Memory that belongs together is registered at once, where that can be had. */
static int make_for(struct across_link *k, enum cache_kind kind, struct across_span *s,
		    const void *at, size_t bytes, struct cache_entry **out)
{
	uintptr_t from = (uintptr_t)at, whole = (uintptr_t)s->whole;

	if (whole && whole <= from && from + bytes <= whole + s->whole_bytes &&
	    s->whole_bytes <= CACHE_WHOLE_BYTES && s->whole_bytes <= most_bytes() &&
	    config_get()->registration != CONFIG_REGISTER_ONCE &&
	    make_pages(k, kind, s, s->whole, s->whole_bytes, out) == 0)
		return 0;
	return make_pages(k, kind, s, at, bytes, out);
}

/* ---- using them ---- */

static struct cache_entry *lookup(const struct across_link *k, enum cache_kind kind,
				  uintptr_t at, uintptr_t end)
{
	uint32_t n = find(owner_of(k, kind), at, end);

	if (n == listed && kind == CACHE_SOURCE)
		n = find(owner_of(k, CACHE_TARGET), at, end);
	return n == listed ? NULL : &entries[list[n].entry];
}

bool cache_is_sound(const struct cache_entry *e, const void *at, size_t bytes)
{
	if (cache_proof_holds(&e->proof, e->memory.start, e->memory.bytes, (uintptr_t)at,
			      bytes))
		return true;
	log_error("the program has other memory at %p than it had when that was "
		  "registered (%zu bytes): vd_forget() was not called before it went",
		  at, bytes);
	return false;
}

int cache_hold(struct across_link *k, enum cache_kind kind, struct across_span *s,
	       const void *at, size_t bytes, struct cache_entry **out)
{
	struct cache_entry *e = lookup(k, kind, (uintptr_t)at, (uintptr_t)at + bytes);
	int r = 0;

	if (e && !cache_is_sound(e, at, bytes)) {
		s->broken++;
		unlist(place_of(e));
		e = NULL;
	}
	if (e) {
		s->hits++;
		if (e != newest) {
			use_no_more(e);
			use_now(e);
		}
	} else {
		s->misses++;
		r = make_for(k, kind, s, at, bytes, &e);
	}
	if (r < 0)
		return r;
	e->holders++;
	*out = e;
	return 0;
}

void cache_release(struct cache_entry *e)
{
	if (--e->holders == 0 && !e->is_listed)
		end_entry(e);
}

const struct link_memory *cache_memory(const struct cache_entry *e)
{
	return &e->memory;
}

/* ---- when the memory goes, or the link ---- */

void cache_forget(const void *at, size_t bytes)
{
	uintptr_t start = (uintptr_t)at, end = start + bytes;

	for (uint32_t n = listed; n-- > 0;)
		if (list[n].start < end && start < list[n].end)
			unlist(n);
}

void cache_drop(const struct across_link *k)
{
	for (uint32_t n = listed; n-- > 0;)
		if (!k || entries[list[n].entry].of == k)
			unlist(n);
}

void cache_forked(void)
{
	for (uint32_t i = 0; i < used; i++) {
		if (entries[i].of)
			cache_proof_end(&entries[i].proof);
		entries[i].of = NULL;
	}
	listed = used = 0;
	oldest = newest = spare = NULL;
	pinned = 0;
}
