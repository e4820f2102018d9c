/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of the native library between two hosts: puts whose source is lent, and with which a device goes on. */
#ifndef VD_TESTS_NATIVE_FAR_LEND_H
#define VD_TESTS_NATIVE_FAR_LEND_H

#include <poll.h>

#include "native/far_rig.h"
#include "native/lend.h"

#define MOVES DOOR_MOVES_MOST
#define SLOT  (BOX_BYTES / MOVES) /* a device writes them */

static uint8_t lent_src[MOVES][BOX_BYTES], lent_box[BOX_BYTES];

/* What is done at the device, that end does not hear of. */
static void hold(vd_conn *c, bool holds)
{
	struct across_guard g = across_enter();

	fake_leave(handle(c)->link->context->context, holds);
	across_leave(g);
}

static uint32_t under_way(vd_conn *c)
{
	struct across_guard g = across_enter();
	uint32_t n = 0;

	for (const struct across_move *p = handle(c)->moves; p; p = p->next)
		n++;
	across_leave(g);
	return n;
}

static void give_up_beside(vd_conn *c)
{
	struct across_guard g = across_enter();

	bulk_give_up(handle(c)->link);
	across_leave(g);
}

static bool has_beside(vd_conn *c)
{
	struct across_guard g = across_enter();
	bool has = handle(c)->link->bulk;

	across_leave(g);
	return has;
}

static vd_remote *lend_open(const struct rig *r, vd_region **x)
{
	vd_remote *to;

	memset(lent_box, 0, BOX_BYTES);
	memset(lent_src[0], 0, BOX_BYTES);
	REQUIRE(vd_export(r->b, "box", lent_box, BOX_BYTES, VD_WRITE | VD_READ, NULL,
			  x) == 0);
	REQUIRE(vd_import(r->a, "box", RIG_MS, &to) == 0);
	until_far(r->a, to, lent_src[0], BOX_BYTES);
	return to;
}

/* Each has a place of its own, as long as no more are under way than there may be. */
static void lend_one(vd_remote *to, uint32_t i, unsigned flags)
{
	memset(lent_src[i % MOVES], (int)i + 1, SLOT);
	REQUIRE(vd_put(to, i % MOVES * SLOT, lent_src[i % MOVES], SLOT, i,
		       VD_LEND | flags) == 0);
}

static void take_one(vd_conn *c, uint32_t i, int result)
{
	struct vd_event ev = rig_event(c);

	REQUIRE(ev.kind == VD_EVENT_DONE && ev.tag == i && ev.result == result);
	REQUIRE(ev.offset == i % MOVES * SLOT && ev.len == SLOT);
	memset(lent_src[i % MOVES], 0xcc, SLOT);
}

static bool is_there(const uint8_t *box, uint32_t i)
{
	return all_are(box + i % MOVES * SLOT, SLOT, (uint8_t)(i + 1));
}

static bool are_there(uint32_t first, uint32_t end)
{
	while (first < end && is_there(lent_box, first))
		first++;
	return first == end;
}

/* All are under way at once: no call waits, and no event comes before the device has done with it. */
FAR_TEST(a_device_goes_on)
{
	struct rig r = far_open();
	uint64_t before, posts;
	struct vd_event ev;
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	const struct across_link *k = handle(r.a)->link;

	before = far_puts(r.a);
	posts = link_posted(k->bulk->link);
	across_watch_all(LINK_WATCH_MAX);
	hold(r.a, true);
	for (uint32_t i = 0; i < MOVES; i++)
		lend_one(to, i, VD_NOTIFY);
	CHECK_EQ(under_way(r.a), MOVES);
	CHECK_EQ(vd_wait(r.a, &ev, 1, 10), -ETIMEDOUT);
	CHECK_EQ(vd_wait(r.b, &ev, 1, 10), -ETIMEDOUT);
	CHECK_EQ(far_puts(r.a), before);
	/* One fence is enough for some. */
	CHECK_EQ(link_posted(k->bulk->link) - posts, MOVES + 4);
	hold(r.a, false);
	for (uint32_t i = 0; i < MOVES; i++)
		take_one(r.a, i, 0);
	CHECK(are_there(0, MOVES));
	for (uint32_t i = 0; i < MOVES; i++) {
		ev = rig_event(r.b);
		CHECK(ev.kind == VD_EVENT_NOTIFY && ev.tag == i && ev.len == SLOT);
	}
	CHECK_EQ(far_puts(r.a), before + MOVES);
	across_watch_all(ACROSS_WATCH_MS);
	rig_close(&r);
}

/* More than may be under way: a call waits for the first of them, and not for its event to be taken. */
FAR_TEST(more_than_may_be_under_way)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	uint64_t before = far_puts(r.a);

	memset(lent_src, 9, sizeof(lent_src));
	for (uint32_t i = 0; i < 200; i++)
		REQUIRE(vd_put(to, i % MOVES * SLOT, lent_src[i % MOVES], SLOT, i,
			       VD_LEND) == 0);
	CHECK(under_way(r.a) <= MOVES);
	for (uint32_t i = 0; i < 200; i++)
		REQUIRE(rig_event(r.a).tag == i);
	CHECK_EQ(far_puts(r.a), before + 200);
	rig_close(&r);
}

static void *lend_over(void *arg)
{
	static uint8_t src[SLOT];

	memset(src, 0x77, SLOT);
	rig_call_begins();
	REQUIRE(vd_put(arg, SLOT + 1, src, SLOT, 100, VD_LEND) == 0);
	return NULL;
}

/* One that has bytes of the same place waits for those: what is sent again is never older than what is there. */
FAR_TEST(one_over_another)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	pthread_t thread;

	for (uint32_t round = 0; round < 6; round++) {
		across_watch_all(LINK_WATCH_MAX);
		hold(r.a, true);
		for (uint32_t i = 0; i < 5; i++)
			lend_one(to, i, 0);
		REQUIRE(pthread_create(&thread, NULL, lend_over, to) == 0);
		rig_await_call();
		CHECK_EQ(under_way(r.a), 5);
		if (round % 2)
			give_up_beside(r.a);
		hold(r.a, false);
		pthread_join(thread, NULL);
		for (uint32_t i = 0; i < 5; i++)
			take_one(r.a, i, 0);
		CHECK_EQ(rig_event(r.a).tag, 100);
		REQUIRE(vd_flush(r.a) == 0);
		CHECK(all_are(lent_box + SLOT + 1, SLOT, 0x77));
		CHECK(is_there(lent_box, 0) && is_there(lent_box, 3) &&
		      lent_box[SLOT] == 2);
		until_far(r.a, to, lent_src[0], BOX_BYTES);
	}
	across_watch_all(ACROSS_WATCH_MS);
	rig_close(&r);
}

/* What is sent or asked later comes behind them. */
FAR_TEST(behind_those_under_way)
{
	struct rig r = far_open();
	static uint8_t to_here[BOX_BYTES];
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	uint64_t word, got = counted(r.a, NATIVE_FAR_GETS);
	uint32_t tag = 0, last, at;
	const void *message;
	size_t len;
	void *p;

	for (uint32_t round = 0; round < 60; round++) {
		uint32_t first = tag;

		for (uint32_t n = 1 + round % 5; n > 0; n--)
			lend_one(to, tag++, 0);
		last = tag - 1;
		at = last % MOVES * SLOT;
		switch (round % 6) {
		case 0:
			REQUIRE(vd_put(to, at, "x", 1, 0, 0) == 0);
			REQUIRE(vd_flush(r.a) == 0);
			CHECK(lent_box[at] == 'x' && are_there(first, last) &&
			      all_are(lent_box + at + 1, SLOT - 1, (uint8_t)tag));
			break;
		case 1:
			REQUIRE(vd_get(to, 0, to_here, BOX_BYTES) == 0);
			CHECK(is_there(to_here, last) && is_there(to_here, first));
			break;
		case 2:
			REQUIRE(vd_get(to, at + SLOT - 100, to_here, 100) == 0);
			CHECK(all_are(to_here, 100, (uint8_t)tag));
			break;
		case 3:
			at += (uint32_t)(-(uintptr_t)(lent_box + at) % 8);
			REQUIRE(vd_fetch_add(to, at, 0, &word) == 0);
			CHECK(all_are((uint8_t *)&word, 8, (uint8_t)tag));
			break;
		case 4:
			REQUIRE(vd_reserve(r.a, 8, &p) == 0 && vd_commit(r.a, 8) == 0);
			REQUIRE(vd_peek(r.b, &message, &len, RIG_MS) == 0);
			CHECK(are_there(first, tag));
			REQUIRE(vd_release(r.b) == 0);
			break;
		default:
			memset(to_here, 0, BOX_BYTES);
			REQUIRE(vd_put(to, 0, to_here, BOX_BYTES, 0, 0) == 0);
			CHECK(all_are(lent_box, BOX_BYTES, 0));
		}
		for (; first < tag; first++)
			take_one(r.a, first, 0);
	}
	CHECK(counted(r.a, NATIVE_FAR_GETS) > got);
	rig_close(&r);
}

/* All of them are lost at once, some of them perhaps there: the bytes go by frames, in their order, and the key is
 * void before. */
FAR_TEST(those_under_way_are_lost)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);

	fake_linger(across_world, true);
	for (uint32_t round = 0; round < 20; round++) {
		uint64_t before;

		until_far(r.a, to, lent_src[0], BOX_BYTES);
		before = far_puts(r.a);
		if (round % 2)
			hold(r.a, true);
		for (uint32_t i = 0; i < MOVES; i++)
			lend_one(to, i, VD_NOTIFY);
		/* A fork, or it has failed. */
		if (round % 3 == 0)
			void_keys();
		else
			give_up_beside(r.a);
		CHECK(!has_beside(r.a) || round % 2 == 0);
		if (round % 2)
			hold(r.a, false);
		for (uint32_t i = 0; i < MOVES; i++) {
			CHECK_EQ(rig_event(r.b).tag, i);
			take_one(r.a, i, 0);
		}
		CHECK(are_there(0, MOVES));
		CHECK(round % 2 == 0 || far_puts(r.a) == before);
		CHECK(far_puts(r.a) == before + MOVES || !is_reached(x));
		for (int i = 0; i < 50; i++)
			across_settle();
		CHECK(are_there(0, MOVES));
	}
	fake_linger(across_world, false);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
	rig_close(&r);
}

/* The export ends meanwhile: nothing lands afterwards, and each source comes back. */
FAR_TEST(ended_while_lent)
{
	struct rig r = far_open();

	across_watch_all(LINK_WATCH_MAX);
	for (uint32_t round = 0; round < 12; round++) {
		vd_region *x;
		vd_remote *to = lend_open(&r, &x);
		uint32_t turn = links_beside(r.a);

		if (round % 4 == 3)
			hold(r.a, true);
		for (uint32_t i = 0; i < MOVES; i++)
			lend_one(to, i, round % 2 ? VD_NOTIFY : 0);
		REQUIRE(vd_unexport(x) == 0);
		memset(lent_box, 0xee, BOX_BYTES);
		/* Its key was void when nothing was under way. */
		CHECK(r.b->peer_is_slow || links_beside(r.a) == turn);
		if (round % 4 == 3) {
			CHECK(r.b->peer_is_slow);
			r.b->peer_is_slow = false;
			hold(r.a, false);
		}
		for (uint32_t i = 0; i < MOVES; i++)
			take_one(r.a, i, 0);
		REQUIRE(vd_flush(r.a) == 0);
		CHECK_EQ(known(to)->users, 0);
		CHECK(all_are(lent_box, BOX_BYTES, 0xee));
		vd_unimport(to);
	}
	across_watch_all(ACROSS_WATCH_MS);
	rig_close(&r);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
}

/* The connection ends, by either side and in every manner: each source comes back once, before the end, and the
 * device does not read there any more. */
FAR_TEST(over_while_lent)
{
	struct rig other = far_open();

	fake_linger(across_world, true);
	across_watch_all(LINK_WATCH_MAX);
	for (uint32_t round = 0; round < 16; round++) {
		struct rig r = far_open();
		vd_region *x;
		vd_remote *to = lend_open(&r, &x);
		uint32_t failed = 0;
		struct vd_event ev;

		if (round % 8 == 1 || round % 8 == 2 || round % 8 == 7)
			hold(r.a, true);
		for (uint32_t i = 0; i < MOVES; i++)
			lend_one(to, i, round % 3 ? VD_NOTIFY : 0);
		switch (round % 4) {
		case 0:
		case 1: /* waits, but not for ever */
			vd_close(r.a);
			memset(lent_src, 0xcc, sizeof(lent_src));
			break;
		default:
			conn_over(round % 4 == 2 ? r.a : r.b, -ECONNRESET);
			hold(other.a, false);
			for (uint32_t i = 0; i < MOVES; i++) {
				ev = rig_event(r.a);
				REQUIRE(ev.kind == VD_EVENT_DONE && ev.tag == i);
				REQUIRE(ev.result == 0 || ev.result == -ECONNRESET ||
					ev.result == -EPIPE);
				failed += ev.result != 0;
				memset(lent_src[i], 0xcc, SLOT);
			}
			CHECK(failed == MOVES || round % 8 != 2);
			CHECK_EQ(rig_event(r.a).kind, VD_EVENT_END);
		}
		hold(other.a, false);
		for (int i = 0; i < 50; i++)
			across_settle();
		CHECK(memchr(lent_box, 0xcc, BOX_BYTES) == NULL);
		if (round % 4 > 1)
			vd_close(r.a);
		vd_close(r.b);
		memset(lent_box, 0xee, BOX_BYTES);
		for (int i = 0; i < 50; i++)
			across_settle();
		CHECK(all_are(lent_box, BOX_BYTES, 0xee));
	}
	fake_linger(across_world, false);
	across_watch_all(ACROSS_WATCH_MS);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
	rig_close(&other);
}

/* ---- who waits for the event ---- */

static void *wait_for_lent(void *arg)
{
	struct vd_event ev = {0};

	rig_call_begins();
	CHECK_EQ(vd_wait(arg, &ev, 1, -1), 1);
	CHECK(ev.kind == VD_EVENT_DONE && ev.tag == 9);
	return NULL;
}

/* The reader sleeps, and another thread lends. */
FAR_TEST(lent_beside_a_sleeper)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);

	for (int i = 0; i < 40; i++) {
		pthread_t thread;

		REQUIRE(pthread_create(&thread, NULL, wait_for_lent, r.a) == 0);
		rig_await_call();
		lend_one(to, 9, i % 2 ? VD_NOTIFY : 0);
		pthread_join(thread, NULL);
		if (i % 2)
			CHECK_EQ(rig_event(r.b).tag, 9);
	}
	rig_close(&r);
}

/* Nobody calls at that end: the peer has its event, and then the descriptor is readable. */
FAR_TEST(lent_without_a_call)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	struct pollfd p = {.events = POLLIN};
	vd_conn *conns[2] = {r.a, r.b};
	struct vd_event ev;
	int which;

	for (uint32_t i = 0; i < 60; i++) {
		uint32_t count = 1 + i % 8;

		for (uint32_t k = 0; k < count; k++)
			lend_one(to, k, VD_NOTIFY);
		for (uint32_t k = 0; k < count; k++)
			CHECK_EQ(rig_event(r.b).tag, k);
		for (uint32_t k = 0; k < count; k++)
			take_one(r.a, k, 0);
	}
	for (uint32_t i = 0; i < 30; i++) {
		lend_one(to, i, 0);
		REQUIRE(vd_wait_any(conns, 2, &ev, 1, RIG_MS, &which) == 1);
		CHECK(which == 0 && ev.kind == VD_EVENT_DONE && ev.tag == i);
	}
	p.fd = vd_fd(r.a);
	for (uint32_t i = 0; i < 30; i++) {
		lend_one(to, i, i % 2 ? VD_NOTIFY : 0);
		REQUIRE(poll(&p, 1, RIG_MS) == 1);
		REQUIRE(vd_wait(r.a, &ev, 1, 0) == 1);
		CHECK(ev.kind == VD_EVENT_DONE && ev.tag == i);
		if (i % 2)
			CHECK_EQ(rig_event(r.b).tag, i);
	}
	rig_close(&r);
}

static _Atomic int stuck_fd;

static ssize_t send_but_there(int fd, const struct iovec *iov, int count, int flags)
{
	return fd == atomic_load(&stuck_fd) ? -EAGAIN
					    : viaduct_door.send(fd, iov, count, flags);
}

/* Until so many are in the queue, the first being a device's or not. */
static void until_queue(vd_conn *c, uint32_t count, bool is_far)
{
	bool is = false;

	while (!is) {
		usleep(1000);
		pthread_mutex_lock(&c->mu);
		is = load_relaxed(&c->lend.count) == count && lend_is_far(c) == is_far;
		pthread_mutex_unlock(&c->mu);
	}
}

/* Nobody calls, and the event of the first has no room in the stream for some time; then the second is under way. */
FAR_TEST(lent_behind_what_is_stuck)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);

	across_watch_all(LINK_WATCH_MAX);
	far_door.send = send_but_there;
	atomic_store(&stuck_fd, r.a->fd);
	lend_one(to, 0, VD_NOTIFY);
	until_queue(r.a, 1, false);
	hold(r.a, true);
	lend_one(to, 1, VD_NOTIFY);
	usleep(100000);
	atomic_store(&stuck_fd, -1);
	until_queue(r.a, 1, true);
	usleep(100000);
	hold(r.a, false);
	until_queue(r.a, 0, false);
	CHECK_EQ(rig_event(r.b).tag, 0);
	CHECK_EQ(rig_event(r.b).tag, 1);
	take_one(r.a, 0, 0);
	take_one(r.a, 1, 0);
	far_door.send = viaduct_door.send;
	across_watch_all(ACROSS_WATCH_MS);
	rig_close(&r);
}

#define LENDERS 3u

static void *lend_in_turn(void *arg)
{
	vd_remote *to = arg;

	for (uint32_t i = 0; i < 150; i++)
		REQUIRE(vd_put(to, i % MOVES * SLOT, lent_src[i % MOVES], SLOT - i % 7, i,
			       VD_LEND | (i % 5 ? 0 : VD_NOTIFY)) == 0);
	return NULL;
}

/* Threads that lend, one that takes the events, and the links that fail beneath them. */
FAR_TEST(threads_lend_to_a_device)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	pthread_t threads[LENDERS];
	uint32_t done = 0, notes = 0;
	struct vd_event ev;

	memset(lent_src, 5, sizeof(lent_src));
	for (uint32_t i = 0; i < LENDERS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, lend_in_turn, to) == 0);
	while (done < LENDERS * 150 || notes < LENDERS * 30) {
		if (vd_wait(r.a, &ev, 1, 1) == 1)
			done += ev.kind == VD_EVENT_DONE && ev.result == 0;
		if (vd_wait(r.b, &ev, 1, 1) == 1)
			notes += ev.kind == VD_EVENT_NOTIFY;
		if (done % 100 == 50)
			give_up_beside(r.a);
	}
	for (uint32_t i = 0; i < LENDERS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(done, LENDERS * 150);
	CHECK_EQ(notes, LENDERS * 30);
	REQUIRE(vd_flush(r.a) == 0);
	CHECK(all_are(lent_box, SLOT - 7, 5));
	rig_close(&r);
}

#endif
