/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without the heap of the program, which one of its signal handlers that calls us may have interrupted. */
#include "base/pages.h"

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/lock.h"

/* 4 KiB, 8 KiB, ... */
#define SIZES 9u
static_assert(PAGES_LEAST << (SIZES - 1) == PAGES_MOST, "one for each size");
/* Of one size at most. */
#define PLACES 64u

typedef void *_Atomic place;
/* What a processor takes from another at once: two lines. */
#define APART 128u
static alignas(APART) place kept[SIZES][PLACES];

static void *map(size_t bytes)
{
	long at = kernel_call6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at < 0 ? NULL : (void *)at;
}

static void unmap(void *memory, size_t bytes)
{
	kernel_call4(SYS_munmap, (long)memory, (long)bytes, 0, 0);
}

static size_t whole_pages(size_t bytes)
{
	return (bytes + PAGES_LEAST - 1) & ~(size_t)(PAGES_LEAST - 1);
}

/* Which of the sizes; up to PAGES_MOST. */
static uint32_t size_of(size_t bytes)
{
	if (bytes <= PAGES_LEAST)
		return 0;
	return 32 - (uint32_t)__builtin_clz((uint32_t)(bytes - 1) / PAGES_LEAST);
}

static uint32_t places_of(uint32_t size)
{
	uint32_t most = PAGES_KEPT / (PAGES_LEAST << size);

	return most < PLACES ? most : PLACES;
}

/* Where this thread looks first. Threads that began together are not in each other's way. */
static uint32_t first_place(void)
{
	const uint32_t apart = APART / sizeof(place);
	uint32_t self = lock_self();

	return self * apart + self / (PLACES / apart);
}

void *pages_take(size_t bytes)
{
	uint32_t size, places, first = first_place();
	void *memory;

	if (bytes > PAGES_MOST)
		return bytes > PTRDIFF_MAX ? NULL : map(whole_pages(bytes));
	size = size_of(bytes);
	places = places_of(size); /* a power of two */
	for (uint32_t i = 0; i < places; i++) {
		place *at = &kept[size][(first + i) & (places - 1)];

		/* Acquire: what its last owner did with it is over. */
		if (load_relaxed(at) && (memory = exchange_acquire(at, NULL)))
			return memory;
	}
	return map(PAGES_LEAST << size);
}

void pages_give(void *memory, size_t bytes)
{
	uint32_t size, places, first = first_place();

	if (!memory)
		return;
	if (bytes > PAGES_MOST) {
		unmap(memory, whole_pages(bytes));
		return;
	}
	size = size_of(bytes);
	places = places_of(size);
	for (uint32_t i = 0; i < places; i++) {
		place *at = &kept[size][(first + i) & (places - 1)];
		void *none = NULL;

		if (!load_relaxed(at) && atomic_compare_exchange_strong_explicit(
						 at, &none, memory, memory_order_release,
						 memory_order_relaxed))
			return;
	}
	unmap(memory, PAGES_LEAST << size);
}

/* ---- for good ---- */

#define REGION_BYTES 65536u
/* Enough for most programs. */
#define FIRST_BYTES 16384u
#define EACH	    alignof(max_align_t)

/*
 * The head of a region. What comes behind it and behind `used` more bytes is zero, and nobody's. A new one is
 * all zero: nothing needs to be written into it before the others can see it.
 */
struct region {
	alignas(max_align_t) _Atomic size_t used;
};

static union {
	struct region head;
	uint8_t bytes[FIRST_BYTES];
} first;
static struct region *_Atomic region = &first.head;

/* NULL: it has no room. */
static void *cut(struct region *r, size_t bytes)
{
	size_t room = (r == &first.head ? FIRST_BYTES : REGION_BYTES) - sizeof(*r);
	size_t used = load_relaxed(&r->used);

	while (bytes <= room - used)
		if (atomic_compare_exchange_weak(&r->used, &used, used + bytes))
			return (uint8_t *)(r + 1) + used;
	return NULL;
}

/* In the place of one that is full. False: there is no memory. */
static bool renew(struct region *full)
{
	struct region *r = map(REGION_BYTES);

	if (!r)
		return false;
	if (!atomic_compare_exchange_strong(&region, &full, r))
		unmap(r, REGION_BYTES); /* another was faster */
	return true;
}

void *pages_for_good(size_t bytes)
{
	size_t whole = (bytes + EACH - 1) & ~(EACH - 1);
	struct region *r;
	void *memory;

	/* What is large would leave much of the rest unused. */
	if (whole > FIRST_BYTES / 4)
		return map(whole_pages(bytes));
	do {
		r = atomic_load(&region);
		memory = cut(r, whole);
	} while (!memory && renew(r));
	/* A last try, which takes less. */
	return memory ? memory : map(whole_pages(bytes));
}
