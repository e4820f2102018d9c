/* SPDX-License-Identifier: Apache-2.0 */
/* The ring as a stream: every byte once and in order, over all areas, turns and sizes. */
#include "unit/test.h"

#include <pthread.h>
#include <sched.h>

#include "unit/ring_rig.h"

/* What one thread does shows ThreadSanitizer nothing, and takes a minute under it. */
#ifdef __SANITIZE_THREAD__
#define FLOW_BYTES	(4ull << 20)
#define BY_ONE_THREAD() SKIP("by one thread there is no race to see")
#else
#define FLOW_BYTES	(100ull << 20)
#define BY_ONE_THREAD() ((void)0)
#endif
#define WALKS 12

TEST(layout)
{
	CHECK_EQ(sizeof(struct wire_dir), 512);
	CHECK_EQ(offsetof(struct wire_dir, produced), 0);
	CHECK_EQ(offsetof(struct wire_dir, consumed), 128);
	CHECK_EQ(offsetof(struct wire_dir, tx_armed), 256);
	CHECK_EQ(offsetof(struct wire_dir, rx_armed), 384);
	/* One writing side per pair of lines. */
	CHECK(offsetof(struct wire_dir, turn_seq) < 128);
	CHECK(offsetof(struct wire_dir, fin) < 384);
	CHECK(offsetof(struct wire_dir, want_down) < 512);
	CHECK(sizeof(struct wire) <= WIRE_HEADER_BYTES);
	CHECK_EQ(wire_area_offset(0, 0), 4096);
	for (unsigned dir = 0; dir < 2; dir++) {
		uint64_t at = WIRE_HEADER_BYTES + (uint64_t)dir * WIRE_DIR_DATA_BYTES;
		for (unsigned area = 0; area < WIRE_AREAS; area++) {
			CHECK_EQ(wire_area_offset(dir, area), at);
			/* Offsets are masked. */
			CHECK_EQ(wire_area_bytes(area) & (wire_area_bytes(area) - 1), 0);
			at += wire_area_bytes(area);
		}
	}
	CHECK_EQ(wire_area_offset(1, 2) + wire_area_bytes(2), WIRE_TOTAL_BYTES);
}

TEST(empty_and_full)
{
	struct rig r;
	struct ring_span span;
	rig_open(&r, 0);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), 0);
	CHECK_EQ(ring_tx_room(&r.tx, r.d, 1), WIRE_AREA0_BYTES);
	CHECK_EQ(ring_rx_glance(&r.rx, r.d, r.data).len, 0);
	CHECK(ring_tx_glance(&r.tx, r.data, WIRE_AREA0_BYTES) == r.data);
	CHECK(!ring_tx_glance(&r.tx, r.data, WIRE_AREA0_BYTES + 1));
	CHECK_EQ(rig_put(&r, WIRE_AREA0_BYTES + 5, 0, false), WIRE_AREA0_BYTES);
	CHECK_EQ(ring_tx_room(&r.tx, r.d, 1), 0);
	CHECK_EQ(ring_tx_span(&r.tx, r.d, r.data, 1, &span), 0);
	CHECK_EQ(span.len, 0);
	CHECK(!ring_tx_glance(&r.tx, r.data, 1));
	CHECK(!ring_tx_grow(&r.tx, r.d)); /* it may not */
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), WIRE_AREA0_BYTES);
	CHECK(!ring_rx_roomy(&r.rx));
	CHECK_EQ(rig_take(&r, 1, 0), 1);
	CHECK_EQ(ring_tx_room(&r.tx, r.d, 1), 1);
	CHECK_EQ(rig_put(&r, 5, WIRE_AREA0_BYTES, false), 1);
	CHECK_EQ(rig_take(&r, SIZE_MAX / 2, 1), WIRE_AREA0_BYTES);
	CHECK(ring_rx_roomy(&r.rx));
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), 0);
	rig_close(&r);
}

TEST(wraps_at_every_offset)
{
	BY_ONE_THREAD();
	struct rig r;
	uint64_t put = 0, took = 0;
	rig_open(&r, 0);
	/* A length without a common factor: each offset is once the first and the last. */
	for (int i = 0; i < 3 * (int)WIRE_AREA0_BYTES; i++) {
		put += (uint64_t)rig_put(&r, 4097, put, false);
		took += (uint64_t)rig_take(&r, 4097, took);
		REQUIRE(put == took);
		i += 7;
	}
	rig_close(&r);
}

TEST(grows_while_full_and_rests_when_calm)
{
	struct rig r;
	uint64_t put = 0, took = 0;
	unsigned downs = 0;
	rig_open(&r, 2);
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK_EQ(put, WIRE_AREA0_BYTES);
	CHECK(ring_tx_grow(&r.tx, r.d));
	CHECK_EQ(r.tx.area[r.tx.turn_seq % WIRE_TURNS], 1);
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK_EQ(put, WIRE_AREA0_BYTES + WIRE_AREA1_BYTES);
	CHECK(ring_tx_grow(&r.tx, r.d)); /* the reader is still in the first */
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK_EQ(put, WIRE_DIR_DATA_BYTES);
	CHECK(!ring_tx_grow(&r.tx, r.d));
	/* Peeks across both turns. */
	CHECK_EQ(rig_look(&r, 0, SIZE_MAX / 2, 0), WIRE_DIR_DATA_BYTES);
	CHECK_EQ(rig_look(&r, WIRE_AREA0_BYTES - 1, 2, WIRE_AREA0_BYTES - 1), 2);
	CHECK_EQ(rig_look(&r, WIRE_AREA0_BYTES, 1, WIRE_AREA0_BYTES), 1);
	took += (uint64_t)rig_take(&r, SIZE_MAX / 2, took);
	CHECK_EQ(took, put);
	for (int i = 0; i < 4000; i++) {
		uint32_t area = r.tx.area[r.tx.turn_seq % WIRE_TURNS];
		put += (uint64_t)rig_put(&r, 1000, put, false);
		took += (uint64_t)rig_take(&r, 1000, took);
		REQUIRE(put == took);
		downs += r.tx.area[r.tx.turn_seq % WIRE_TURNS] < area;
	}
	CHECK_EQ(downs, 2);
	CHECK_EQ(r.tx.area[r.tx.turn_seq % WIRE_TURNS], 0);
	CHECK_EQ(r.rx.area, 0);
	rig_close(&r);
}

/* The reader takes what was published before the producer has moved on, and looks no more. */
TEST(moves_that_the_reader_has_not_heard_of)
{
	struct rig r;
	struct ring_span span;
	uint64_t put = 0, took = 0;
	rig_open(&r, 2);
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	REQUIRE(ring_tx_grow(&r.tx, r.d));
	for (int i = 0; i < 4000 && r.tx.turn_seq < 2; i++) {
		REQUIRE(ring_tx_span(&r.tx, r.d, r.data, 1000, &span) == 0);
		size_t len = span.len < 1000 ? span.len : 1000;
		rig_fill(span.data, len, put);
		put += len;
		atomic_store(&r.d->produced, put); /* as the commit does, first */
		took += (uint64_t)rig_take(&r, SIZE_MAX / 2, took);
		REQUIRE(put == took);
		ring_tx_commit(&r.tx, r.d, len, false);
	}
	CHECK_EQ(r.tx.turn_seq, 2);
	CHECK_EQ(r.rx.turn_seq, 1);
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK(ring_tx_grow(&r.tx, r.d));
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK(ring_tx_grow(&r.tx, r.d)); /* the third */
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	CHECK_EQ(put - took, WIRE_DIR_DATA_BYTES);
	CHECK_EQ(rig_take(&r, SIZE_MAX / 2, took), WIRE_DIR_DATA_BYTES);
	rig_close(&r);
}

TEST(a_held_byte_is_seen_when_it_is_pushed_or_taken)
{
	struct rig r;
	rig_open(&r, 2);
	CHECK_EQ(rig_put(&r, 10, 0, true), 10);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), 0);
	ring_tx_push(&r.tx, r.d);
	CHECK_EQ(rig_take(&r, 100, 0), 10);
	CHECK_EQ(rig_put(&r, 10, 10, true), 10);
	CHECK_EQ(ring_rx_take_held(&r.rx, r.d), 1);
	CHECK_EQ(rig_take(&r, 4, 10), 4);
	/* The consumer is ahead of the published cursor now; that is no lie. */
	CHECK_EQ(rig_put(&r, 10, 20, true), 10);
	CHECK_EQ(rig_take(&r, 100, 14), 6);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), 0);
	CHECK_EQ(rig_put(&r, 1, 30, false), 1);
	CHECK_EQ(rig_take(&r, 100, 20), 11);
	CHECK_EQ(ring_rx_take_held(&r.rx, r.d), 0);
	rig_close(&r);
}

/* A calm move, an idle one, and growth, all since the reader has last looked. */
TEST(as_many_moves_as_there_can_be)
{
	struct rig r;
	uint64_t put = 0;
	rig_open(&r, 2);
	for (int i = 0; i < 3; i++) {
		put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
		CHECK_EQ(ring_tx_grow(&r.tx, r.d), i < 2);
	}
	CHECK_EQ(rig_take(&r, SIZE_MAX / 2, 0), put);
	r.tx.calm = 4; /* the next interval ends calmly */
	uint64_t took = put;
	while (r.tx.turn_seq == 2) {
		struct ring_span span;
		REQUIRE(ring_tx_span(&r.tx, r.d, r.data, 4096, &span) == 0);
		size_t len = span.len < 4096 ? span.len : 4096;
		rig_fill(span.data, len, put);
		put += len;
		atomic_store(&r.d->produced, put);
		took += (uint64_t)rig_take(&r, SIZE_MAX / 2, took);
		ring_tx_commit(&r.tx, r.d, len, false);
	}
	CHECK_EQ(put, took);
	CHECK(rig_spare(&r, true));
	CHECK_EQ(r.tx.turn_seq, 4);
	CHECK(!rig_spare(&r, true));
	for (int i = 0; i < 3; i++) {
		put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
		CHECK_EQ(ring_tx_grow(&r.tx, r.d), i < 2);
	}
	CHECK_EQ(r.tx.turn_seq - r.rx.turn_seq, WIRE_TURNS);
	CHECK_EQ(put - took, WIRE_DIR_DATA_BYTES);
	CHECK_EQ(rig_take(&r, SIZE_MAX / 2, took), WIRE_DIR_DATA_BYTES);
	rig_close(&r);
}

/* The producer finds what is unread again, in whatever areas it lies. */
static void rig_unread(struct rig *r, uint64_t took, uint64_t put)
{
	uint64_t unread, skip = 0;
	REQUIRE(ring_tx_unread(&r->tx, r->d, &unread) == 0);
	REQUIRE(unread == put - took);
	while (skip < unread) {
		struct ring_span span;
		ring_tx_unread_span(&r->tx, r->data, unread - skip, &span);
		REQUIRE(rig_inside(r, &span));
		REQUIRE(span.len > 0 && span.len <= unread - skip);
		REQUIRE(rig_wrong(span.data, span.len, took + skip) == span.len);
		skip += span.len;
	}
}

/* ---- where bulk goes ---- */

#define BULK 65536u

/* Sends and takes messages of BULK; returns how far in the data the last of them reached. */
static size_t bulk(struct rig *r, unsigned count, uint64_t *at, uint64_t *all, bool near)
{
	size_t most = 0;
	for (unsigned i = 0; i < count; i++) {
		ring_tx_place(&r->tx, r->d, *all, near);
		for (size_t done = 0; done < BULK;) {
			struct ring_span span;
			REQUIRE(ring_tx_span(&r->tx, r->d, r->data, BULK - done, &span) ==
				0);
			if (span.len == 0) {
				REQUIRE(ring_tx_grow(&r->tx, r->d));
				continue;
			}
			if (span.len > BULK - done)
				span.len = BULK - done;
			rig_fill(span.data, span.len, *at + done);
			r->tx.bulk += span.len;
			*all += span.len;
			ring_tx_commit(&r->tx, r->d, span.len, false);
			done += span.len;
			size_t end = (size_t)(span.data - r->data) + span.len;
			most = end > most ? end : most;
		}
		REQUIRE(rig_take(r, SIZE_MAX / 2, *at) == BULK);
		*at += BULK;
	}
	return most;
}

TEST(bulk_goes_through_more_than_a_cache_holds)
{
	BY_ONE_THREAD();
	struct rig r;
	uint64_t at = 0, all = 0;
	rig_open(&r, 2);
	/* Not for the first few megabytes: the fewest pages. */
	bulk(&r, 400, &at, &all, false);
	CHECK_EQ(ring_tx_area(&r.tx), 1);
	bulk(&r, 300, &at, &all, false);
	CHECK_EQ(ring_tx_area(&r.tx), 2);
	/* Two megabytes and more, and not the whole of it. */
	size_t most = bulk(&r, 100, &at, &all, false) - ring_area_offset(2);
	CHECK(most >= 2u << 20 && most < WIRE_AREA2_BYTES);
	/* Small messages, then nothing, and all of it is given back. */
	for (int i = 0; i < 4000; i++, at += 1000) {
		REQUIRE(rig_put(&r, 1000, at, false) == 1000);
		REQUIRE(rig_take(&r, 1000, at) == 1000);
	}
	CHECK_EQ(ring_tx_area(&r.tx), 0);
	CHECK(rig_spare(&r, true));
	/* It is earned anew. */
	bulk(&r, 400, &at, &all, false);
	CHECK_EQ(ring_tx_area(&r.tx), 1);
	rig_close(&r);
}

TEST(bulk_to_our_own_processor_stays_hot)
{
	BY_ONE_THREAD();
	struct rig r;
	uint64_t at = 0, all = 0;
	rig_open(&r, 2);
	bulk(&r, 700, &at, &all, true);
	CHECK_EQ(ring_tx_area(&r.tx), 1);
	CHECK(bulk(&r, 100, &at, &all, true) <= WIRE_AREA0_BYTES + 2 * BULK);
	/* The consumer moves away, and comes back. */
	bulk(&r, 200, &at, &all, false);
	CHECK_EQ(ring_tx_area(&r.tx), 2);
	bulk(&r, 200, &at, &all, true);
	CHECK_EQ(ring_tx_area(&r.tx), 1);
	CHECK(bulk(&r, 100, &at, &all, true) <= WIRE_AREA0_BYTES + 2 * BULK);
	rig_close(&r);
}

TEST(connections_share_what_bulk_goes_through)
{
	BY_ONE_THREAD();
	struct rig r[20];
	uint64_t at[20] = {0}, all = 0;
	for (int k = 0; k < 20; k++)
		rig_open(&r[k], 2);
	for (int i = 0; i < 800; i++)
		for (int k = 0; k < 20; k++)
			bulk(&r[k], 1, &at[k], &all, false);
	for (int k = 0; k < 20; k++)
		CHECK_EQ(r[k].tx.area_touched, 1);
	/* All but three fall silent. */
	for (int i = 0; i < 400; i++)
		for (int k = 0; k < 3; k++)
			bulk(&r[k], 1, &at[k], &all, false);
	for (int k = 0; k < 20; k++)
		CHECK_EQ(ring_tx_area(&r[k].tx), k < 3 ? 2 : 1);
	/* And come back. */
	for (int i = 0; i < 800; i++)
		for (int k = 0; k < 20; k++)
			bulk(&r[k], 1, &at[k], &all, false);
	for (int k = 0; k < 20; k++)
		CHECK_EQ(ring_tx_area(&r[k].tx), 1);
	for (int k = 0; k < 20; k++)
		rig_close(&r[k]);
}

/* What the consumer has not taken stays where it is. */
TEST(no_way_to_the_front_past_unread_bytes)
{
	struct rig r;
	uint64_t put = 0;
	rig_open(&r, 1);
	put += (uint64_t)rig_put(&r, SIZE_MAX / 2, put, false);
	REQUIRE(ring_tx_grow(&r.tx, r.d));
	put += (uint64_t)rig_put(&r, BULK, put, false);
	CHECK_EQ(rig_take(&r, put - 1, 0), put - 1);
	r.tx.look_at = put;
	CHECK(ring_tx_strays(&r.tx));
	ring_tx_front(&r.tx, r.d);
	CHECK_EQ(r.tx.turn_seq, 1);
	CHECK(!ring_tx_strays(&r.tx)); /* it does not look again at once */
	CHECK_EQ(rig_take(&r, 1, put - 1), 1);
	/* Nor past bytes that are held. */
	CHECK_EQ(rig_put(&r, BULK, put, true), BULK);
	ring_tx_front(&r.tx, r.d);
	CHECK_EQ(r.tx.turn_seq, 1);
	ring_tx_push(&r.tx, r.d);
	CHECK_EQ(rig_take(&r, BULK, put), BULK);
	put += BULK;
	ring_tx_front(&r.tx, r.d);
	CHECK_EQ(r.tx.turn_seq, 2);
	CHECK_EQ(rig_put(&r, SIZE_MAX / 2, put, false), WIRE_AREA1_BYTES);
	rig_unread(&r, put, put + WIRE_AREA1_BYTES);
	CHECK_EQ(rig_take(&r, SIZE_MAX / 2, put), WIRE_AREA1_BYTES);
	rig_close(&r);
}

/* Goes to the front where it may, now and then earlier than it would. */
static void rig_front(struct rig *r, uint64_t dice)
{
	if (dice % 4 == 0)
		r->tx.look_at = r->tx.produced;
	if (ring_tx_strays(&r->tx))
		ring_tx_front(&r->tx, r->d);
}

/* Sizes, lag, growth, holding and peeks at random; cursors from `start` on. */
static void random_walk(uint64_t seed, uint64_t start, uint32_t area_limit, int steps)
{
	struct rig r;
	uint64_t put = start, took = start, state = seed;
	bool turned = false;
	unsigned spared = 0;
	rig_open(&r, area_limit);
	r.tx.produced = r.tx.pushed = r.tx.credit = start;
	for (int i = 0; i < WIRE_TURNS; i++)
		r.tx.base[i] = start;
	r.rx.consumed = r.rx.seen = r.rx.base = start;
	atomic_store(&r.d->produced, start);
	atomic_store(&r.d->consumed, start);
	atomic_store(&r.d->held_at, start);
	for (int i = 0; i < steps; i++) {
		uint64_t dice = rig_random(&state);
		size_t len = rig_random(&state) % (1u << (dice % 21)) + 1;
		switch (dice >> 8 & 7) {
		case 0:
		case 1:
		case 2: {
			rig_front(&r, dice >> 24);
			int64_t n = rig_put(&r, len, put, (dice >> 16 & 3) == 0);
			REQUIRE(n >= 0);
			put += (uint64_t)n;
			if ((size_t)n < len) {
				ring_tx_push(&r.tx, r.d);
				turned |= (dice >> 20 & 1) && ring_tx_grow(&r.tx, r.d);
			}
			break;
		}
		case 3:
		case 4: {
			int64_t n = rig_take(&r, len, took);
			REQUIRE(n >= 0);
			took += (uint64_t)n;
			break;
		}
		case 5: { /* all of it */
			if (dice >> 16 & 1) {
				REQUIRE(ring_rx_take_held(&r.rx, r.d) >= 0);
				took += (uint64_t)rig_take(&r, SIZE_MAX / 2, took);
				REQUIRE(took == put);
			}
			break;
		}
		case 6: {
			size_t have = (size_t)(r.rx.seen - r.rx.consumed);
			size_t skip = rig_random(&state) % (have + 1);
			REQUIRE(rig_look(&r, skip, len, took + skip) >= 0);
			rig_unread(&r, took, put);
			break;
		}
		default:
			ring_tx_push(&r.tx, r.d);
			spared += rig_spare(&r, dice >> 16 & 1);
		}
		REQUIRE(put - took <= WIRE_DIR_DATA_BYTES);
	}
	ring_tx_push(&r.tx, r.d);
	took += (uint64_t)rig_take(&r, SIZE_MAX / 2, took);
	CHECK_EQ(took, put);
	CHECK_EQ(turned, area_limit > 0);
	CHECK_EQ(spared > 0, area_limit > 0);
	rig_close(&r);
}

TEST(random_walks)
{
	BY_ONE_THREAD();
	for (uint64_t seed = 1; seed <= WALKS; seed++)
		random_walk(seed * 0x9e3779b97f4a7c15ull, 0, 2, 4000);
}

/* Cursors run free: nothing special happens where they pass zero. */
TEST(cursors_wrap_around)
{
	BY_ONE_THREAD();
	for (uint32_t limit = 0; limit < WIRE_AREAS; limit++)
		for (uint64_t seed = 1; seed <= (WALKS + 3) / 4; seed++)
			random_walk(seed * 0xbf58476d1ce4e5b9ull,
				    -(uint64_t)(WIRE_AREA1_BYTES * seed), limit, 3000);
}

static void *produce(void *arg)
{
	struct rig *r = arg;
	uint64_t at = 0, state = 42;
	while (at < FLOW_BYTES) {
		size_t len = rig_random(&state) % (1u << (rig_random(&state) % 18)) + 1;
		if (len > FLOW_BYTES - at)
			len = (size_t)(FLOW_BYTES - at);
		size_t done = 0;
		rig_front(r, rig_random(&state));
		while (done < len) {
			int64_t n = rig_put(r, len - done, at + done, false);
			REQUIRE(n >= 0);
			done += (size_t)n;
			if (n > 0)
				continue;
			if (rig_random(&state) % 4 == 0)
				ring_tx_grow(&r->tx, r->d);
			else
				sched_yield();
		}
		at += len;
	}
	return NULL;
}

TEST(two_threads)
{
	struct rig r;
	pthread_t t;
	uint64_t at = 0, state = 7;
	rig_open(&r, 2);
	REQUIRE(pthread_create(&t, NULL, produce, &r) == 0);
	while (at < FLOW_BYTES) {
		size_t len = rig_random(&state) % (1u << (rig_random(&state) % 18)) + 1;
		int64_t n = rig_take(&r, len, at);
		REQUIRE(n >= 0);
		at += (uint64_t)n;
		if (n == 0)
			sched_yield();
	}
	pthread_join(t, NULL);
	CHECK_EQ(at, FLOW_BYTES);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), 0);
	rig_close(&r);
}
