/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests between two hosts: what puts cost their device, and what is told beside them. */
#ifndef VD_TESTS_NATIVE_FAR_PUTS_H
#define VD_TESTS_NATIVE_FAR_PUTS_H

#include "native/far_rig.h"

/* What a put costs its device: figures of docs/native.md. Beside these there are grants, a few for a hundred. */
FAR_TEST(what_a_put_costs)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	const struct across_link *k = handle(r.a)->link;
	uint64_t posts, beside;
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, box, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	until_far(r.a, to, src, BOX_BYTES);
	across_watch_all(LINK_WATCH_MAX);
	/* A write, and behind it the fence. */
	beside = link_posted(k->bulk->link);
	for (uint32_t i = 0; i < 100; i++)
		REQUIRE(vd_put(to, 0, src, BOX_BYTES, i, 0) == 0);
	CHECK_EQ(link_posted(k->bulk->link) - beside, 200);
	/* The bytes and the event are one write with an immediate. */
	posts = link_posted(k->link);
	for (uint32_t i = 0; i < 100; i++) {
		REQUIRE(vd_put(to, 0, src, 64, i, VD_NOTIFY) == 0);
		CHECK_EQ(rig_event(r.b).tag, i);
	}
	posts = link_posted(k->link) - posts;
	CHECK(posts >= 100 && posts < 125);
	across_watch_all(ACROSS_WATCH_MS);
	rig_close(&r);
}

static _Atomic int refusals;

static ssize_t refuse_first(int fd, const struct iovec *iov, int count, int flags)
{
	if ((flags & MSG_DONTWAIT) && atomic_exchange(&refusals, 0))
		return -EAGAIN;
	return viaduct_door.send(fd, iov, count, flags);
}

static uint32_t always(int fd)
{
	(void)fd;
	return 1;
}

/* A frame was made, which would have told how many events were taken, and the stream was full; then the device
 * has done what it was for. */
FAR_TEST(what_was_taken_is_told)
{
	struct rig r = far_open();
	static uint8_t boxes[2][BOX_BYTES], src[BOX_BYTES];
	vd_remote *there, *here;
	uint64_t before;
	vd_region *x;

	REQUIRE(vd_export(r.b, "there", boxes[0], BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_export(r.a, "here", boxes[1], BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "there", RIG_MS, &there) == 0);
	REQUIRE(vd_import(r.b, "here", RIG_MS, &here) == 0);
	until_far(r.a, there, src, BOX_BYTES);
	REQUIRE(vd_put(here, 0, src, 1, 0, VD_NOTIFY) == 0);
	rig_event(r.a);
	before = far_puts(r.a);
	far_door.reach_least = always;
	far_door.send = refuse_first;
	atomic_store(&refusals, 1);
	REQUIRE(vd_put(there, 0, src, 100, 0, 0) == 0);
	far_door.send = viaduct_door.send;
	far_door.reach_least = viaduct_door.reach_least;
	CHECK_EQ(far_puts(r.a), before + 1);
	CHECK_EQ(r.a->notes_taken, 1);
	CHECK_EQ(r.a->notes_told, r.b->notes_spent);
	rig_close(&r);
}

/* ---- trips, whose instructions are counted ---- */

/*
 * How many instructions the library takes for a put, and for a wait that finds its event, or that sleeps for it
 * (docs/native.md, "Between hosts, measured"):
 *
 *	valgrind --tool=callgrind --toggle-collect=vd_put build/tests/native/native-far trips
 *	VIADUCT_SPIN=0 valgrind --tool=callgrind --toggle-collect=vd_wait build/tests/native/native-far trips_asleep
 *
 * Of what each call takes, what is below the functions of the fake interconnect (op_...) is to be taken away.
 */
#define TRIPS	     1000
#define TRIPS_ASLEEP 100
#define TRIP_BYTES   8

static void trips_begin(const struct rig *r, vd_remote *to[2])
{
	static uint8_t boxes[2][TRIP_BYTES];
	vd_region *x;

	for (int i = 0; i < 2; i++) {
		vd_conn *own = i ? r->b : r->a, *peer = i ? r->a : r->b;

		REQUIRE(vd_export(peer, "box", boxes[i], TRIP_BYTES, VD_WRITE, NULL,
				  &x) == 0);
		REQUIRE(vd_import(own, "box", RIG_MS, &to[i]) == 0);
		REQUIRE(vd_flush(own) == 0);
		/* As where nothing says from which size on that pays. */
		atomic_store(&handle(own)->redirect_least, 0);
	}
	across_watch_all(LINK_WATCH_MAX);
	atomic_store(&across_is_stopped, true);
}

static void trips_end(void)
{
	atomic_store(&across_is_stopped, false);
	across_watch_all(ACROSS_WATCH_MS);
}

/* All that is under way arrives; nobody polls for it. */
static void let_arrive(void)
{
	struct across_guard g = across_enter();

	for (int i = 0; i < 200; i++)
		fake_step(across_world);
	across_leave(g);
}

FAR_TEST(trips)
{
	struct rig r = far_open();
	struct vd_event ev;
	uint64_t word = 0;
	vd_remote *to[2];

	trips_begin(&r, to);
	for (uint32_t i = 0; i < TRIPS; i++)
		for (int k = 0; k < 2; k++, word++) {
			REQUIRE(vd_put(to[k], 0, &word, sizeof(word), i, VD_NOTIFY) == 0);
			let_arrive();
			REQUIRE(vd_wait(k ? r.a : r.b, &ev, 1, -1) == 1);
			CHECK(ev.tag == i && ev.len == sizeof(word));
		}
	trips_end();
	rig_close(&r);
}

static void *take_trips(void *arg)
{
	struct vd_event ev;

	for (uint32_t i = 0; i < TRIPS_ASLEEP; i++) {
		rig_call_begins();
		REQUIRE(vd_wait(arg, &ev, 1, -1) == 1);
		CHECK(ev.tag == i);
	}
	return NULL;
}

FAR_TEST(trips_asleep)
{
	struct rig r = far_open();
	pthread_t thread;
	uint64_t word = 0;
	vd_remote *to[2];

	trips_begin(&r, to);
	REQUIRE(pthread_create(&thread, NULL, take_trips, r.b) == 0);
	for (uint32_t i = 0; i < TRIPS_ASLEEP; i++) {
		rig_await_call();
		REQUIRE(vd_put(to[0], 0, &word, sizeof(word), i, VD_NOTIFY) == 0);
		let_arrive();
	}
	pthread_join(thread, NULL);
	trips_end();
	rig_close(&r);
}

#endif
