/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of the native library between two hosts: puts that are lent, where no device can go on with them, and what
 * goes on beside a call that waits for a device. */
#ifndef VD_TESTS_NATIVE_FAR_BEHIND_H
#define VD_TESTS_NATIVE_FAR_BEHIND_H

#include "native/far_lend.h"

#define BEHIND	  900u
#define LAST_BYTE ((BEHIND - 1) % MOVES + 1)

/* While the peer's library is stopped: no call waits. */
static void lend_to_a_stopped_peer(const struct rig *r, vd_remote *to)
{
	uint32_t begun = lent_begun();

	for (uint32_t i = 0; i < MOVES; i++)
		memset(lent_src[i], (int)i + 1, SLOT);
	pthread_mutex_lock(&r->b->mu);
	for (uint32_t i = 0; i < BEHIND; i++)
		REQUIRE(vd_put(to, SLOT, lent_src[i % MOVES], SLOT, i,
			       VD_LEND | (i % 7 ? 0 : VD_NOTIFY)) == 0);
	pthread_mutex_unlock(&r->b->mu);
	for (uint32_t i = 0; i < BEHIND; i++) {
		struct vd_event ev = rig_event(r->a);

		REQUIRE(ev.kind == VD_EVENT_DONE && ev.tag == i && ev.result == 0);
		if (i % 7 == 0)
			REQUIRE(rig_event(r->b).tag == i);
	}
	REQUIRE(vd_flush(r->a) == 0);
	CHECK_EQ(lent_begun(), begun);
}

/* A redirection stands, so there is no key. */
FAR_TEST(lent_without_a_key)
{
	struct rig r = far_open();
	static uint8_t to_here[BOX_BYTES];
	vd_region *x;
	vd_remote *to;
	vd_detour *d;

	REQUIRE(vd_export(r.b, "box", lent_box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_redirect(x, 0, to_here, BOX_BYTES, &d) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	lend_to_a_stopped_peer(&r, to);
	CHECK(all_are(to_here + SLOT, SLOT, LAST_BYTE));
	REQUIRE(vd_redirect_end(d, NULL) == 0);
	rig_close(&r);
}

static int move_not_now(int fd, const struct door_key *key, uint64_t offset,
			struct door_span *d)
{
	(void)fd, (void)key, (void)offset, (void)d;
	return -EAGAIN;
}

static int may_not_now(int fd, const struct door_key *key)
{
	(void)fd, (void)key;
	return -EAGAIN;
}

static int begin_not_now(int fd, const struct door_key *key, uint64_t offset,
			 struct door_span *d, uint64_t *id)
{
	(void)id;
	return move_not_now(fd, key, offset, d);
}

/* There is a key, and the link beside has failed. Then it is there again. */
FAR_TEST(lent_without_a_link)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	uint32_t begun;

	far_door.move = move_not_now;
	far_door.may_move = may_not_now;
	far_door.begin_move = begin_not_now;
	lend_to_a_stopped_peer(&r, to);
	CHECK(all_are(lent_box + SLOT, SLOT, LAST_BYTE));
	far_door.move = viaduct_door.move;
	far_door.may_move = viaduct_door.may_move;
	far_door.begin_move = begin_counted;
	begun = lent_begun();
	for (uint32_t i = 0; lent_begun() == begun; i++) {
		lend_one(to, i, 0);
		take_one(r.a, i, 0);
	}
	rig_close(&r);
}

/* A short one goes by frames. The next long one waits until that has arrived, and then the device goes on with it. */
FAR_TEST(short_and_long_by_turns)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	uint32_t begun = lent_begun();

	for (uint32_t i = 0; i < 300; i++) {
		REQUIRE(vd_put(to, i % 8 * SLOT, lent_src[i % MOVES], SLOT, i, VD_LEND) ==
			0);
		REQUIRE(vd_put(to, 9 * SLOT, lent_src[0], 100, i, VD_LEND) == 0);
	}
	CHECK_EQ(lent_begun() - begun, 300);
	for (uint32_t i = 0; i < 600; i++)
		REQUIRE(rig_event(r.a).result == 0);
	rig_close(&r);
}

#endif
