/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that lies in the shared words of a ring is found out, and never moves us outside. */
#include "unit/test.h"

#include <errno.h>
#include <pthread.h>

#include "unit/ring_rig.h"

#ifdef __SANITIZE_THREAD__
#define SCALE 20
#else
#define SCALE 1
#endif

/* What the tests put in. */
#define SOME 1000u

TEST(a_consumed_cursor_that_lies)
{
	const uint64_t lies[] = {
		SOME + 1, SOME + WIRE_AREA0_BYTES, UINT64_MAX, 1ull << 63, 99 /* back */,
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct rig r;
		struct ring_span span;
		rig_open(&r, 2);
		CHECK_EQ(rig_put(&r, SOME, 0, false), SOME);
		CHECK_EQ(rig_take(&r, 100, 0), 100);
		CHECK_EQ(ring_tx_room(&r.tx, r.d, SIZE_MAX),
			 WIRE_AREA0_BYTES - SOME + 100);
		atomic_store(&r.d->consumed, lies[i]);
		CHECK_EQ(ring_tx_room(&r.tx, r.d, SIZE_MAX), -EPROTO);
		CHECK_EQ(ring_tx_span(&r.tx, r.d, r.data, SIZE_MAX, &span), -EPROTO);
		/* It asks only when it must. */
		CHECK_EQ(ring_tx_room(&r.tx, r.d, 1), WIRE_AREA0_BYTES - SOME + 100);
		rig_close(&r);
	}
}

TEST(a_produced_cursor_that_lies)
{
	const uint64_t lies[] = {
		100 + WIRE_AREA0_BYTES + 1, UINT64_MAX, 1ull << 63,
		SOME - 1 /* back */,	    0,
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct rig r;
		rig_open(&r, 2);
		CHECK_EQ(rig_put(&r, SOME, 0, false), SOME);
		CHECK_EQ(rig_take(&r, 100, 0), 100);
		CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), SOME - 100);
		atomic_store(&r.d->produced, lies[i]);
		CHECK_EQ(ring_rx_glance(&r.rx, r.d, r.data).len, 0);
		CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), -EPROTO);
		/* What is known stays readable, and inside. */
		CHECK_EQ(ring_rx_avail(&r.rx, r.d, 1), SOME - 100);
		CHECK_EQ(rig_take(&r, SOME - 100, 100), SOME - 100);
		rig_close(&r);
	}
}

TEST(as_much_as_fits_is_no_lie)
{
	struct rig r;
	rig_open(&r, 2);
	atomic_store(&r.d->produced, WIRE_AREA0_BYTES);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), WIRE_AREA0_BYTES);
	rig_close(&r);
}

struct turn_lie {
	uint64_t at;
	uint32_t area, seq;
};

TEST(a_turn_that_lies)
{
	const struct turn_lie lies[] = {
		{SOME, WIRE_AREAS, 1}, /* no such area */
		{SOME, UINT32_MAX, 1},
		{SOME, 0, 1}, /* to the front, past unread bytes */
		{101, 0, 1},
		{SOME, 1, WIRE_TURNS + 1},	    /* more moves than can be pending */
		{SOME, 1, UINT32_MAX},		    /* back */
		{100 + WIRE_AREA0_BYTES + 1, 1, 1}, /* behind the end */
		{99, 1, 1},			    /* before the cursor */
		{1ull << 63, 1, 1},
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct rig r;
		rig_open(&r, 2);
		CHECK_EQ(rig_put(&r, SOME, 0, false), SOME);
		CHECK_EQ(rig_take(&r, 100, 0), 100);
		for (int k = 0; k < WIRE_TURNS; k++) {
			atomic_store(&r.d->turn_at[k], lies[i].at);
			atomic_store(&r.d->turn_area[k], lies[i].area);
		}
		atomic_store(&r.d->turn_seq, lies[i].seq);
		CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), -EPROTO);
		rig_close(&r);
	}
}

/* A move that was valid when it was noted, and a cursor that does not fit it. */
TEST(a_cursor_beyond_the_last_area)
{
	struct rig r;
	rig_open(&r, 2);
	CHECK_EQ(rig_put(&r, SIZE_MAX / 2, 0, false), WIRE_AREA0_BYTES);
	CHECK(ring_tx_grow(&r.tx, r.d));
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), WIRE_AREA0_BYTES);
	atomic_store(&r.d->produced, WIRE_AREA0_BYTES + WIRE_AREA1_BYTES);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX),
		 WIRE_AREA0_BYTES + WIRE_AREA1_BYTES);
	atomic_store(&r.d->produced, WIRE_AREA0_BYTES + WIRE_AREA1_BYTES + 1);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), -EPROTO);
	rig_close(&r);
}

TEST(a_held_mark_that_lies)
{
	struct rig r;
	rig_open(&r, 2);
	CHECK_EQ(rig_put(&r, SOME, 0, false), SOME);
	atomic_store(&r.d->held_at, WIRE_AREA0_BYTES + 1);
	CHECK_EQ(ring_rx_take_held(&r.rx, r.d), -EPROTO);
	atomic_store(&r.d->held_at, 5); /* an old one */
	CHECK_EQ(ring_rx_take_held(&r.rx, r.d), 0);
	atomic_store(&r.d->held_at, WIRE_AREA0_BYTES);
	CHECK_EQ(ring_rx_take_held(&r.rx, r.d), 1);
	CHECK_EQ(ring_rx_avail(&r.rx, r.d, SIZE_MAX), WIRE_AREA0_BYTES);
	rig_close(&r);
}

/* ---- every word at random, between and during the victim's calls ---- */

static void scribble(struct wire_dir *d, uint64_t *state)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)d;
	uint64_t dice = rig_random(state);
	uint32_t at = (uint32_t)(dice % (sizeof(*d) / sizeof(*word)));
	switch (dice >> 16 & 7) {
	case 0:
		atomic_store(&word[at], (uint32_t)rig_random(state));
		break;
	case 1: /* near the truth */
		atomic_fetch_add(&word[at], (uint32_t)(rig_random(state) % 7) - 3);
		break;
	case 2:
		atomic_fetch_add(&d->produced,
				 rig_random(state) % (WIRE_AREA0_BYTES * 2));
		break;
	case 3:
		atomic_store(&d->consumed, atomic_load(&d->produced) -
						   rig_random(state) % WIRE_AREA1_BYTES);
		break;
	case 4: {
		uint32_t seq = atomic_load(&d->turn_seq) + 1;
		atomic_store(&d->turn_at[seq % WIRE_TURNS],
			     atomic_load(&d->produced) + rig_random(state) % 5000);
		atomic_store(&d->turn_area[seq % WIRE_TURNS],
			     (uint32_t)(rig_random(state) % 4));
		atomic_store(&d->turn_seq, seq);
		break;
	}
	case 5:
		atomic_store(&d->held_at, atomic_load(&d->produced) +
						  rig_random(state) % WIRE_AREA0_BYTES);
		break;
	default:
		break;
	}
}

/* Uses every call once, goes through the bytes, and sees to it that each span is inside. */
static void use(struct rig *r, uint64_t *state)
{
	static uint8_t sink[WIRE_AREA2_BYTES];
	struct ring_span span;
	size_t len = rig_random(state) % (1u << (rig_random(state) % 20)) + 1;
	int64_t n = ring_rx_avail(&r->rx, r->d, len);
	(void)ring_rx_take_held(&r->rx, r->d);
	(void)ring_rx_roomy(&r->rx);
	(void)ring_unread(r->d);
	CHECK(ring_size_hint(r->d) <= WIRE_AREA2_BYTES);
	if (n > 0) {
		size_t skip = rig_random(state) % (size_t)n;
		ring_rx_span(&r->rx, r->data, skip, &span);
		REQUIRE(rig_inside(r, &span));
		memcpy(sink, span.data, span.len);
		ring_rx_span(&r->rx, r->data, 0, &span);
		REQUIRE(rig_inside(r, &span));
		ring_rx_commit(&r->rx, r->d, span.len < len ? span.len : len);
	}
	if (ring_tx_span(&r->tx, r->d, r->data, len, &span) == 0) {
		REQUIRE(rig_inside(r, &span));
		span.len = span.len < len ? span.len : len;
		memset(span.data, 'x', span.len);
		ring_tx_commit(&r->tx, r->d, span.len, len & 1);
		if (span.len == 0)
			(void)ring_tx_grow(&r->tx, r->d);
	}
}

TEST(scribbles_between_the_calls)
{
	uint64_t state = 4711;
	for (int round = 0; round < 2000 / SCALE; round++) {
		struct rig r;
		rig_open(&r, (uint32_t)round % WIRE_AREAS);
		for (int i = 0; i < 60; i++) {
			use(&r, &state);
			if (i >= 5)
				scribble(r.d, &state);
		}
		rig_close(&r);
	}
}

/* ---- the ring's own state, where a process that shares it has turned hostile ---- */

static void garble(void *state, size_t bytes, uint64_t *seed)
{
	for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
		uint32_t word = rig_random(seed) % 3 ? (uint32_t)(rig_random(seed) % 4)
						     : (uint32_t)rig_random(seed);
		memcpy((char *)state + i, &word, sizeof(word));
	}
}

static bool is_within(const struct rig *r, const struct ring_span *span, uint32_t most)
{
	size_t end = ring_area_offset(most) + wire_area_bytes(most);
	size_t at = (size_t)(span->data - r->data);
	return span->data >= r->data && at <= end && span->len <= end - at;
}

TEST(no_span_leaves_the_memory_that_there_is)
{
	uint64_t seed = 99;
	struct rig r;
	rig_open(&r, WIRE_AREAS - 1);
	for (int i = 0; i < 100000 / SCALE; i++) {
		uint32_t most = (uint32_t)rig_random(&seed) % WIRE_AREAS;
		size_t n = rig_random(&seed) % 3000, skip = rig_random(&seed) % 500000;
		struct ring_span span;
		garble(&r.tx, sizeof(r.tx) & ~3u, &seed);
		garble(&r.rx, sizeof(r.rx) & ~3u, &seed);
		ring_rx_span_within(&r.rx, r.data, most, skip, &span);
		CHECK(is_within(&r, &span, most));
		ring_tx_unread_span_within(&r.tx, r.data, most, skip, &span);
		CHECK(is_within(&r, &span, most));
		span.data = ring_tx_glance_in(
			&r.tx, r.data, ring_area_within(ring_tx_area(&r.tx), most), n);
		span.len = n;
		CHECK(!span.data || is_within(&r, &span, most));
		span = ring_rx_glance_in(&r.rx, r.d, r.data,
					 ring_area_within(ring_rx_area(&r.rx), most));
		CHECK(!span.data || is_within(&r, &span, most));
		if (ring_tx_span_within(&r.tx, r.d, r.data, most, n, &span) == 0)
			CHECK(is_within(&r, &span, most));
		/* However many moves it says that there are, which all are here. */
		for (int k = 0; k < WIRE_TURNS; k++)
			r.rx.turn_at[k] = r.rx.consumed;
		ring_rx_span_within(&r.rx, r.data, most, skip, &span);
		CHECK(is_within(&r, &span, most));
		ring_rx_pass_turns(&r.rx);
	}
	rig_close(&r);
}

struct vandal {
	struct wire_dir *d;
	_Atomic bool stop;
};

static void *vandalise(void *arg)
{
	struct vandal *v = arg;
	uint64_t state = 815;
	while (!atomic_load(&v->stop))
		scribble(v->d, &state);
	return NULL;
}

TEST(scribbles_during_the_calls)
{
	uint64_t state = 11;
	for (int round = 0; round < 100 / SCALE; round++) {
		struct rig r;
		struct vandal v;
		pthread_t t;
		rig_open(&r, 2);
		v = (struct vandal){.d = r.d};
		REQUIRE(pthread_create(&t, NULL, vandalise, &v) == 0);
		for (int i = 0; i < 500; i++)
			use(&r, &state);
		atomic_store(&v.stop, true);
		pthread_join(t, NULL);
		rig_close(&r);
	}
}
