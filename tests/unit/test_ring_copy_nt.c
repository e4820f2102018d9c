/* SPDX-License-Identifier: Apache-2.0 */
/* Through the caches or past them: the cheaper of two ways, whose costs change. */
#include "unit/test.h"

#include "ring/copy_nt.h"

#define PIECE 16384u
#define MB    (1u << 20)

/* Ticks that a KiB costs now, through the caches and past them. */
struct cost {
	uint64_t through, past;
};

/* Copies so much; returns the bytes that went past the caches. */
static uint64_t copy(struct past *p, uint64_t bytes, struct cost cost)
{
	uint64_t past = 0;
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		past += p->is_on ? PIECE : 0;
		past_note(p, PIECE, (p->is_on ? cost.past : cost.through) * PIECE / 1024);
	}
	return past;
}

static const struct cost shared = {340, 50}, apart = {1400, 60};
/* Where the source is not in the caches, either way costs. */
static const struct cost slow = {700, 600};

TEST(through_the_caches_where_that_is_cheap)
{
	struct past p = {0};
	CHECK_EQ(copy(&p, 1000ull * MB, shared), 0);
}

TEST(past_them_where_that_is_cheaper)
{
	struct past p = {0};
	CHECK(copy(&p, 1000ull * MB, apart) >= 990ull * MB);
}

TEST(not_where_the_source_is_what_costs)
{
	struct past p = {0};
	CHECK(copy(&p, 1000ull * MB, slow) <= 10ull * MB);
}

TEST(follows_what_changes)
{
	struct past p = {0};
	for (int i = 0; i < 5; i++) {
		/* At once where it becomes dear, after a while where it becomes cheap. */
		CHECK(copy(&p, 100ull * MB, apart) >= 95ull * MB);
		copy(&p, 1100ull * MB, shared);
		CHECK_EQ(copy(&p, 100ull * MB, shared), 0);
	}
}

/* What passes is not taken for a cost of the way, nor a piece that was interrupted. */
TEST(judges_only_copies)
{
	struct past p = {0};
	for (int i = 0; i < 100; i++) {
		REQUIRE(copy(&p, 3 * MB, apart) == 0);
		REQUIRE(copy(&p, MB, shared) == 0);
	}
	for (int i = 0; i < 10000; i++) {
		past_note(&p, PIECE, i % 8 ? 340 * PIECE / 1024 : 1u << 30);
		REQUIRE(!p.is_on);
	}
}

/* Of many connections that begin together, each need not find out all by itself. */
TEST(connections_learn_from_each_other)
{
	struct past p[8] = {0};
	uint64_t through = 0;
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < 8; i++)
			through += MB - copy(&p[i], MB, apart);
	CHECK(through <= 8 * 2 * MB);
	/* One that is cheap among them has nothing to learn, nor what passes there. */
	struct past near = {0};
	for (int round = 0; round < 100; round++) {
		copy(&p[0], MB, apart);
		CHECK_EQ(copy(&near, MB, round % 2 ? apart : shared), 0);
	}
}
