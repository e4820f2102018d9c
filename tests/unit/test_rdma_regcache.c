/* SPDX-License-Identifier: Apache-2.0 */
/* The registration cache over a registrar that keeps books: bounds, last use, invalidation. */
#include <errno.h>
#include <stdint.h>

#include "rdma/regcache.h"
#include "unit/test.h"

enum { PAGE = 4096, PAGES = 64, MEMORIES = 64 };

/* Never touched: a registrar that only counts. */
#define AT(page) ((char *)(uintptr_t)(0x10000000 + (page) * (uintptr_t)PAGE))

struct book {
	uint32_t registered; /* now */
	uint64_t bytes;
	uint32_t adds;
	uint64_t limit; /* as of the system, or 0 */
	int error;
};

static int book_add(void *owner, void *start, size_t bytes, struct link_memory *out)
{
	struct book *b = owner;

	CHECK_EQ((uintptr_t)start % PAGE, 0);
	CHECK_EQ(bytes % PAGE, 0);
	if (b->error)
		return b->error;
	if (b->limit && b->bytes + bytes > b->limit)
		return -ENOMEM;
	b->adds++;
	b->registered++;
	b->bytes += bytes;
	out->handle = b;
	out->key = b->adds;
	return 0;
}

static void book_drop(void *owner, struct link_memory *m)
{
	struct book *b = owner;

	CHECK(m->handle == b);
	m->handle = NULL;
	b->registered--;
	b->bytes -= m->bytes;
}

static struct regcache *cache(struct book *b, uint32_t entries, uint32_t pages)
{
	struct regcache_registrar by = {book_add, book_drop, b};
	struct regcache *c;

	memset(b, 0, sizeof(*b));
	REQUIRE(regcache_create(entries, (uint64_t)pages * PAGE, &by, &c) == 0);
	return c;
}

/* The key of what holds it; it is given back at once. */
static uint32_t use(struct regcache *c, const char *start, size_t bytes)
{
	const struct link_memory *m;

	if (regcache_take(c, start, bytes, &m) < 0)
		return 0;
	CHECK((uintptr_t)start >= m->start &&
	      (uintptr_t)start + bytes <= m->start + m->bytes);
	regcache_put(c, m);
	return m->key;
}

TEST(what_was_registered_is_found_again)
{
	struct book b;
	struct regcache *c = cache(&b, 4, 100);

	CHECK_EQ(use(c, AT(1) + 5, 10), 1);
	CHECK_EQ(use(c, AT(1), PAGE), 1); /* the whole page is */
	CHECK_EQ(use(c, AT(1), PAGE + 1), 2);
	CHECK_EQ(use(c, AT(2), 1), 2);
	CHECK_EQ(use(c, AT(2) + PAGE - 1, 0), 2);
	CHECK_EQ(use(c, AT(3), 0), 3);
	CHECK_EQ(regcache_counts(c)->hits, 3);
	CHECK_EQ(regcache_counts(c)->misses, 3);
	CHECK_EQ(regcache_counts(c)->entries, 3);
	CHECK_EQ(regcache_counts(c)->bytes, 4 * PAGE);
	regcache_destroy(c);
	CHECK_EQ(b.registered, 0);
}

TEST(the_longest_unused_goes_first)
{
	struct book b;
	struct regcache *c = cache(&b, 3, 100);

	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(use(c, AT(2 * i), 1), i + 1);
	CHECK_EQ(use(c, AT(0), 1), 1);
	CHECK_EQ(use(c, AT(10), 1), 4); /* in place of the second */
	CHECK_EQ(use(c, AT(0), 1), 1);
	CHECK_EQ(use(c, AT(4), 1), 3);
	CHECK_EQ(use(c, AT(10), 1), 4);
	CHECK_EQ(use(c, AT(2), 1), 5);
	CHECK_EQ(regcache_counts(c)->evictions, 2);
	CHECK_EQ(b.registered, 3);
	regcache_destroy(c);
}

TEST(bytes_are_bounded_and_what_is_used_stays)
{
	const struct link_memory *one, *two, *three;
	struct book b;
	struct regcache *c = cache(&b, 10, 8);

	CHECK_EQ(regcache_take(c, AT(0), 4 * PAGE, &one), 0);
	CHECK_EQ(regcache_take(c, AT(8), 4 * PAGE, &two), 0);
	CHECK_EQ(regcache_take(c, AT(16), 1, &three), -ENOSPC);
	CHECK_EQ(regcache_take(c, AT(32), 8 * PAGE + 1, &three), -ENOSPC);
	CHECK_EQ(regcache_take(c, AT(32), SIZE_MAX - 3, &three), -EFAULT);
	CHECK_EQ(regcache_counts(c)->refused, 2);
	regcache_put(c, one);
	CHECK_EQ(regcache_take(c, AT(16), 1, &three), 0);
	CHECK_EQ(regcache_counts(c)->evictions, 1);
	CHECK_EQ(b.bytes, 5 * PAGE);
	regcache_put(c, two);
	regcache_put(c, three);
	/* So much that everything else goes. */
	CHECK(use(c, AT(32), 8 * PAGE) != 0);
	CHECK_EQ(b.registered, 1);
	regcache_destroy(c);
}

TEST(the_systems_own_limit_and_its_errors)
{
	const struct link_memory *m;
	struct book b;
	struct regcache *c = cache(&b, 3, 100);

	b.limit = 2 * PAGE;
	CHECK_EQ(use(c, AT(0), 1), 1);
	CHECK_EQ(use(c, AT(2), 1), 2);
	CHECK_EQ(use(c, AT(4), 1), 3);
	CHECK_EQ(regcache_counts(c)->evictions, 1);
	CHECK_EQ(regcache_take(c, AT(6), 3 * PAGE, &m), -ENOMEM);
	CHECK_EQ(regcache_counts(c)->entries, 0);
	b.error = -EFAULT;
	CHECK_EQ(regcache_take(c, AT(6), 1, &m), -EFAULT);
	b.error = 0;
	CHECK_EQ(use(c, AT(6), 1), 4);
	regcache_destroy(c);
	CHECK_EQ(b.registered, 0);
}

TEST(nothing_is_found_where_memory_has_changed)
{
	const struct link_memory *m;
	struct book b;
	struct regcache *c = cache(&b, 8, 100);

	CHECK_EQ(regcache_take(c, AT(4), 2 * PAGE, &m), 0);
	CHECK_EQ(regcache_invalidate(c, AT(3), PAGE), 0);
	CHECK_EQ(regcache_invalidate(c, AT(6), PAGE), 0);
	CHECK_EQ(regcache_invalidate(c, AT(5), 0), 0);
	CHECK_EQ(use(c, AT(5), 1), 1);
	/* It is still in use, and found no more. */
	CHECK_EQ(regcache_invalidate(c, AT(5) + PAGE - 1, 1), 1);
	CHECK_EQ(use(c, AT(4), 1), 2);
	CHECK_EQ(b.registered, 2);
	CHECK_EQ(regcache_invalidate(c, AT(0), 5 * PAGE), 1);
	CHECK_EQ(b.registered, 1);
	CHECK_EQ(regcache_counts(c)->invalidated, 2);
	regcache_put(c, m);
	CHECK_EQ(b.registered, 0);
	regcache_destroy(c);
}

/* Against a model: the time at which each page last changed, and each key's own time. */
TEST(anything_in_any_order)
{
	enum { ENTRIES = 7, LIMIT = 20, ROUNDS = 200000 };
	const struct link_memory *held[MEMORIES] = {NULL};
	static uint32_t changed[PAGES], added[ROUNDS + 1];
	uint64_t random = 7, before;
	struct book b;
	struct regcache *c = cache(&b, ENTRIES, LIMIT);
	uint32_t count = 0;

	for (uint32_t round = 1; round < ROUNDS; round++) {
		uint32_t page, pages, what;

		random = random * 6364136223846793005 + 1442695040888963407;
		page = (uint32_t)(random >> 33) % PAGES;
		pages = 1 + (uint32_t)(random >> 40) % 6;
		what = (uint32_t)(random >> 50) % 8;
		if (page + pages > PAGES)
			continue;
		if (what == 0) {
			regcache_invalidate(c, AT(page), (size_t)pages * PAGE);
			for (uint32_t i = page; i < page + pages; i++)
				changed[i] = round;
		} else if (what < 4 && count) {
			uint32_t n = (uint32_t)(random >> 20) % count;

			CHECK(held[n]->handle == &b);
			regcache_put(c, held[n]);
			held[n] = held[--count];
		} else if (count < MEMORIES) {
			const struct link_memory *m;

			before = regcache_counts(c)->misses;
			if (regcache_take(c, AT(page), (size_t)pages * PAGE, &m) < 0)
				continue;
			if (regcache_counts(c)->misses > before)
				added[m->key] = round;
			for (uint32_t i = page; i < page + pages; i++)
				CHECK(added[m->key] > changed[i]);
			held[count++] = m;
		}
		CHECK(regcache_counts(c)->entries <= ENTRIES);
		CHECK(regcache_counts(c)->bytes <= LIMIT * PAGE);
		CHECK_EQ(regcache_counts(c)->entries, b.registered);
		CHECK_EQ(regcache_counts(c)->bytes, b.bytes);
	}
	CHECK(regcache_counts(c)->hits > 1000 && regcache_counts(c)->evictions > 1000);
	while (count)
		regcache_put(c, held[--count]);
	regcache_destroy(c);
	CHECK_EQ(b.registered, 0);
}
