/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of connections: late writes, ids that come back, what a wrong peer may say. */
#include <errno.h>

#include "rdma/ids.h"
#include "unit/test.h"

static uint32_t word(uint32_t id, uint32_t generation)
{
	return link_immediate(id, generation, 5);
}

TEST(an_id_comes_back_when_both_are_through)
{
	struct ids *s;
	uint32_t id, generation, other, next;
	void *cookie = NULL;
	int one, two;

	CHECK_EQ(ids_create(1, &s), 0);
	CHECK_EQ(ids_find(s, word(0, 0), &cookie), IDS_UNKNOWN);
	CHECK_EQ(ids_take(s, &one, &id, &generation), 0);
	CHECK_EQ(ids_take(s, &two, &other, &next), -ENOSPC);
	CHECK_EQ(ids_find(s, word(id, generation), &cookie), IDS_LIVE);
	CHECK(cookie == &one);

	/* We have closed: what still comes is late, and the id is not given out. */
	CHECK_EQ(ids_end_own(s, id), 0);
	CHECK_EQ(ids_find(s, word(id, generation), &cookie), IDS_LATE);
	CHECK_EQ(ids_take(s, &two, &other, &next), -ENOSPC);
	CHECK_EQ(ids_end_peer(s, word(id, generation)), 1);
	CHECK_EQ(ids_find(s, word(id, generation), &cookie), IDS_LATE);

	/* The next of that id has another generation. */
	CHECK_EQ(ids_take(s, &two, &other, &next), 0);
	CHECK_EQ(other, id);
	CHECK(next != generation);
	CHECK_EQ(ids_find(s, word(id, generation), &cookie), IDS_LATE);
	CHECK_EQ(ids_end_peer(s, word(id, generation)), -EPROTO);
	CHECK_EQ(ids_find(s, word(other, next), &cookie), IDS_LIVE);
	CHECK(cookie == &two);

	/* The peer is through first: ours goes on. */
	CHECK_EQ(ids_end_peer(s, word(other, next)), 0);
	CHECK_EQ(ids_end_peer(s, word(other, next)), -EPROTO);
	CHECK_EQ(ids_find(s, word(other, next), &cookie), IDS_LIVE);
	CHECK_EQ(ids_end_own(s, other), 1);
	ids_destroy(s);
}

TEST(the_longest_unused_comes_first)
{
	enum { COUNT = 4, ROUNDS = 1000 };
	uint32_t id[COUNT], generation[COUNT], last = 0;
	struct ids *s;

	CHECK_EQ(ids_create(COUNT, &s), 0);
	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(ids_take(s, NULL, &id[i], &generation[i]), 0);
		CHECK_EQ(id[i], i);
	}
	for (int i = COUNT - 1; i >= 0; i--) {
		ids_end_own(s, id[i]);
		CHECK_EQ(ids_end_peer(s, word(id[i], generation[i])), 1);
	}
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_EQ(ids_take(s, NULL, &id[0], &generation[0]), 0);
		CHECK_EQ(id[0], COUNT - 1 - i % COUNT);
		CHECK(i == 0 || id[0] != last);
		last = id[0];
		ids_end_own(s, id[0]);
		CHECK_EQ(ids_end_peer(s, word(id[0], generation[0])), 1);
	}
	ids_destroy(s);
}

TEST(what_a_wrong_peer_may_say)
{
	uint32_t id, generation;
	struct ids *s;
	void *cookie;

	CHECK_EQ(ids_create(2, &s), 0);
	CHECK_EQ(ids_end_peer(s, word(0, 0)), -EPROTO);
	CHECK_EQ(ids_end_peer(s, word(LINK_IDS - 1, 0)), -EPROTO);
	CHECK_EQ(ids_find(s, word(2, 0), &cookie), IDS_UNKNOWN);
	CHECK_EQ(ids_find(s, word(LINK_IDS - 1, 0), &cookie), IDS_UNKNOWN);
	CHECK_EQ(ids_take(s, NULL, &id, &generation), 0);
	CHECK_EQ(ids_find(s, word(id + 1, 0), &cookie), IDS_UNKNOWN);
	CHECK_EQ(ids_find(s, word(id, generation + 1), &cookie), IDS_LATE);
	CHECK_EQ(ids_end_peer(s, word(id, generation + 1)), -EPROTO);
	ids_destroy(s);
}
