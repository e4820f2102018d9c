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

/* ---- who waits to send, behind a device ---- */

static void *put_x(void *arg)
{
	REQUIRE(vd_put(arg, 3 * SLOT, "x", 1, 0, 0) == 0);
	return NULL;
}

static void *wait_and_fail(void *arg)
{
	int r = vd_put(arg, 3 * SLOT, "x", 1, 0, 0);

	CHECK(r == -ECONNRESET || r == -EPIPE);
	return NULL;
}

/* A thread has its turn to send, and waits for a device. */
static pthread_t wait_behind(const struct rig *r, void *(*call)(void *), void *arg)
{
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, call, arg) == 0);
	while (pthread_mutex_trylock(&r->a->turn) == 0) {
		pthread_mutex_unlock(&r->a->turn);
		usleep(100);
	}
	/* The stream is everybody's meanwhile. */
	while (pthread_mutex_trylock(&r->a->wr) != 0)
		usleep(100);
	pthread_mutex_unlock(&r->a->wr);
	return thread;
}

#define COMES 50u

/* It reads what comes, and what is asked is answered. */
FAR_TEST(behind_a_device_it_reads)
{
	struct rig r = far_open();
	static uint8_t own;
	vd_region *x, *y;
	vd_remote *to = lend_open(&r, &x), *back;
	uint32_t before = atomic_load(&sleepless);
	pthread_t thread;
	uint8_t got;

	REQUIRE(vd_export(r.a, "back", &own, 1, VD_WRITE | VD_READ, NULL, &y) == 0);
	REQUIRE(vd_import(r.b, "back", RIG_MS, &back) == 0);
	atomic_store(&is_stuck, true);
	lend_one(to, 0, 0);
	thread = wait_behind(&r, put_x, to);
	for (uint8_t i = 1; i <= COMES; i++) {
		REQUIRE(vd_put(back, 0, &i, 1, 0, 0) == 0);
		if (i % 2)
			REQUIRE(vd_flush(r.b) == 0);
		REQUIRE(vd_get(back, 0, &got, 1) == 0);
		CHECK_EQ(got, i);
		usleep(1000);
	}
	CHECK_EQ(lent_box[3 * SLOT], 0);
	atomic_store(&is_stuck, false);
	pthread_join(thread, NULL);
	/* What has come just before it was to sleep, at most. */
	CHECK(atomic_load(&sleepless) - before <= 3 * COMES + 10);
	take_one(r.a, 0, 0);
	REQUIRE(vd_flush(r.a) == 0);
	CHECK_EQ(lent_box[3 * SLOT], 'x');
	rig_close(&r);
}

static void *lend_slot(void *arg)
{
	REQUIRE(vd_put(arg, 2 * SLOT, lent_src[2], SLOT, 2, VD_LEND) == 0);
	return NULL;
}

/* The connection ends, and whoever waits so hears of that. */
FAR_TEST(over_behind_a_device)
{
	struct rig other = far_open();

	for (int round = 0; round < 4; round++) {
		struct rig r = far_open();
		vd_region *x;
		vd_remote *to = lend_open(&r, &x);
		struct vd_event ev;
		pthread_t thread;

		atomic_store(&is_stuck, true);
		lend_one(to, 0, 0);
		thread = wait_behind(&r, wait_and_fail, to);
		if (round % 2)
			vd_close(r.b);
		else
			conn_over(round ? r.a : r.b, -ECONNRESET);
		pthread_join(thread, NULL);
		ev = rig_event(r.a);
		CHECK(ev.kind == VD_EVENT_DONE && ev.tag == 0);
		CHECK_EQ(rig_event(r.a).kind, VD_EVENT_END);
		atomic_store(&is_stuck, false);
		vd_close(r.a);
		if (round % 2 == 0)
			vd_close(r.b);
	}
	rig_close(&other);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
}

static _Atomic bool is_closed;

static void *close_here(void *arg)
{
	vd_close(arg);
	atomic_store(&is_closed, true);
	return NULL;
}

/* vd_close is through with all but the callers, and none of those is in a wait. */
static bool awaits_callers(vd_conn *c)
{
	bool is;

	pthread_mutex_lock(&c->mu);
	is = c->error && c->callers == 0 && c->followers == 1;
	pthread_mutex_unlock(&c->mu);
	return is;
}

/* A close beside whoever waits so: that has still to take `wr` when its wait is over. */
FAR_TEST(closed_behind_a_device)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	pthread_t putter, closer;

	atomic_store(&is_closed, false);
	atomic_store(&is_stuck, true);
	lend_one(to, 0, 0);
	putter = wait_behind(&r, wait_and_fail, to);
	pthread_mutex_lock(&r.a->wr);
	REQUIRE(pthread_create(&closer, NULL, close_here, r.a) == 0);
	while (!atomic_load(&is_closed) && !awaits_callers(r.a))
		usleep(1000);
	REQUIRE(!atomic_load(&is_closed));
	pthread_mutex_unlock(&r.a->wr);
	pthread_join(putter, NULL);
	pthread_join(closer, NULL);
	atomic_store(&is_stuck, false);
	vd_close(r.b);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
}

/* Another far one is not begun past one that waits to send: the frame is behind the first alone, or behind both. */
FAR_TEST(turns_behind_a_device)
{
	struct rig r = far_open();
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	pthread_t first, second;

	atomic_store(&is_stuck, true);
	lend_one(to, 0, 0);
	memset(lent_src[2], 3, SLOT);
	first = wait_behind(&r, put_x, to);
	REQUIRE(pthread_create(&second, NULL, lend_slot, to) == 0);
	usleep(20000);
	CHECK_EQ(under_way(r.a), 1);
	atomic_store(&is_stuck, false);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	take_one(r.a, 0, 0);
	CHECK_EQ(rig_event(r.a).tag, 2);
	REQUIRE(vd_flush(r.a) == 0);
	CHECK(lent_box[3 * SLOT] == 'x' && all_are(lent_box + 2 * SLOT, SLOT, 3));
	rig_close(&r);
}

static uint8_t got_box[BOX_BYTES];

static void *get_all(void *arg)
{
	REQUIRE(vd_get(arg, 0, got_box, BOX_BYTES) == 0);
	return NULL;
}

/* A get by the device, behind one that is lent and still in the queue, to go by frames: that has landed before. */
FAR_TEST(gets_behind_the_queue)
{
	struct rig r = far_open();
	static uint8_t short_src[100];
	vd_region *x;
	vd_remote *to = lend_open(&r, &x);
	pthread_t thread;

	until_got(r.a, to, got_box, BOX_BYTES);
	for (uint8_t i = 1; i <= 10; i++) {
		uint64_t before = counted(r.a, NATIVE_FAR_GETS);

		atomic_store(&is_stuck, true);
		lend_one(to, 0, 0);
		memset(short_src, i, sizeof(short_src));
		REQUIRE(vd_put(to, 5 * SLOT, short_src, sizeof(short_src), 1, VD_LEND) ==
			0);
		thread = wait_behind(&r, get_all, to);
		/* Nothing lands by frames for a moment. */
		pthread_mutex_lock(&r.b->mu);
		atomic_store(&is_stuck, false);
		usleep(10000);
		pthread_mutex_unlock(&r.b->mu);
		pthread_join(thread, NULL);
		CHECK(all_are(got_box + 5 * SLOT, sizeof(short_src), i));
		CHECK(all_are(got_box, SLOT, 1));
		CHECK_EQ(counted(r.a, NATIVE_FAR_GETS), before + 1);
		take_one(r.a, 0, 0);
		CHECK_EQ(rig_event(r.a).tag, 1);
	}
	rig_close(&r);
}

/* A look at the device on the way to another event: what is due by that is sent by the call, which is the last. */
FAR_TEST(looked_at_beside_an_event)
{
	struct rig r = far_open();
	static uint8_t own[1];
	vd_region *x, *y;
	vd_remote *to = lend_open(&r, &x), *back;
	struct pollfd p = {.events = POLLIN};
	struct vd_event ev;

	REQUIRE(vd_export(r.a, "back", own, 1, VD_WRITE, NULL, &y) == 0);
	REQUIRE(vd_import(r.b, "back", RIG_MS, &back) == 0);
	p.fd = vd_fd(r.a);
	for (uint32_t i = 0; i < 10; i++) {
		atomic_store(&is_stuck, true);
		lend_one(to, i, VD_NOTIFY);
		REQUIRE(vd_put(back, 0, "y", 1, 7, VD_NOTIFY) == 0);
		REQUIRE(poll(&p, 1, RIG_MS) == 1);
		for (int n = 0; n < 50; n++)
			across_settle();
		sees_all = true;
		REQUIRE(vd_wait(r.a, &ev, 1, 0) == 1);
		sees_all = false;
		CHECK(ev.kind == VD_EVENT_NOTIFY && ev.tag == 7);
		CHECK_EQ(rig_event(r.b).tag, i);
		atomic_store(&is_stuck, false);
		take_one(r.a, i, 0);
	}
	rig_close(&r);
}

#endif
