/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of the native library between two hosts: exports that end, while a device is at work or not. */
#ifndef VD_TESTS_NATIVE_FAR_ENDS_H
#define VD_TESTS_NATIVE_FAR_ENDS_H

/* Of what has ended nothing is read, by frames or by a key. */
FAR_TEST(gets_of_ended_exports)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], to[BOX_BYTES];

	for (int i = 0; i < 20; i++) {
		vd_region *x;
		vd_remote *from;
		int error;

		memset(box, 7, BOX_BYTES);
		REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_READ, NULL, &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &from) == 0);
		if (i % 2)
			until_got(r.a, from, to, BOX_BYTES);
		REQUIRE(vd_unexport(x) == 0);
		memset(box, 0xee, BOX_BYTES);
		memset(to, 7, BOX_BYTES);
		error = vd_get(from, 0, to, BOX_BYTES);
		CHECK_EQ(error, -ESTALE);
		CHECK(all_are(to, BOX_BYTES, 7));
		vd_unimport(from);
	}
	rig_close(&r);
}

/* Once the export has ended nothing comes there any more; another one in its place has its own key. */
FAR_TEST(ended_exports)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];

	memset(src, 7, BOX_BYTES);
	for (int i = 0; i < 20; i++) {
		vd_region *x;
		vd_remote *to;
		int error;

		REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
		if (i % 2)
			until_far(r.a, to, src, BOX_BYTES);
		REQUIRE(vd_put(to, 0, src, BOX_BYTES, 0, 0) == 0);
		REQUIRE(vd_unexport(x) == 0);
		memset(box, 0xee, BOX_BYTES);
		error = vd_put(to, 0, src, BOX_BYTES, 0, 0);
		CHECK(error == 0 || error == -ESTALE);
		REQUIRE(vd_flush(r.a) == 0);
		CHECK_EQ(vd_put(to, 0, src, BOX_BYTES, 0, 0), -ESTALE);
		CHECK(all_are(box, BOX_BYTES, 0xee));
		vd_unimport(to);
	}
	rig_close(&r);
	CHECK(all_are(box, BOX_BYTES, 0xee));
}

/* Longer under way than the reader takes to hear of an end. */
#define LONG_BYTES (8u << 20)

struct fire {
	vd_remote *to;
	uint8_t *src;
	size_t len;
	bool gets;
	int error;
};

static void *fire(void *arg)
{
	struct fire *f = arg;

	do
		f->error = f->gets ? vd_get(f->to, 0, f->src, f->len)
				   : vd_put(f->to, 0, f->src, f->len, 0, 0);
	while (f->error == 0);
	return NULL;
}

static uint32_t links_beside(vd_conn *c)
{
	struct across_guard g = across_enter();
	uint32_t turn = handle(c)->link->bulk_turn;

	across_leave(g);
	return turn;
}

/* What a device has under way for the peer ends before the key does: no link fails, where the peer was not
 * too slow for the wait. */
FAR_TEST(ended_under_fire)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	uint64_t state = 1;
	uint32_t turn = 0;

	for (int i = 0; i < 40; i++) {
		struct fire f = {.src = src, .len = BOX_BYTES, .gets = i % 2};
		pthread_t thread;
		vd_region *x;

		REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE | VD_READ, NULL,
				  &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &f.to) == 0);
		until_far(r.a, f.to, src, BOX_BYTES);
		CHECK(turn == 0 || r.b->peer_is_slow || links_beside(r.a) == turn);
		turn = links_beside(r.a);
		memset(src, 7, BOX_BYTES);
		REQUIRE(pthread_create(&thread, NULL, fire, &f) == 0);
		usleep(next(&state) % 3000);
		REQUIRE(vd_unexport(x) == 0);
		memset(box, 0xee, BOX_BYTES);
		pthread_join(thread, NULL);
		CHECK_EQ(f.error, -ESTALE);
		CHECK(all_are(box, BOX_BYTES, 0xee));
		vd_unimport(f.to);
	}
	CHECK(r.b->peer_is_slow || links_beside(r.a) == turn);
	rig_close(&r);
	CHECK(all_are(box, BOX_BYTES, 0xee));
}

/* By the end of a connection nothing lands later, and others of the link go on. */
FAR_TEST(closed_under_fire)
{
	struct rig other = far_open();
	static uint8_t box[LONG_BYTES], src[LONG_BYTES];
	uint64_t state = 1;

	for (int i = 0; i < 10; i++) {
		struct rig r = far_open();
		struct fire f = {.src = src, .len = LONG_BYTES, .gets = i % 2};
		pthread_t thread;
		vd_region *x;

		REQUIRE(handle(r.a)->link == handle(other.a)->link);
		REQUIRE(vd_export(r.b, "box", box, LONG_BYTES, VD_WRITE | VD_READ, NULL,
				  &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &f.to) == 0);
		until_far(r.a, f.to, src, LONG_BYTES);
		memset(src, 7, LONG_BYTES);
		REQUIRE(pthread_create(&thread, NULL, fire, &f) == 0);
		usleep(next(&state) % 3000);
		vd_close(r.b);
		memset(box, 0xee, LONG_BYTES);
		pthread_join(thread, NULL);
		CHECK(f.error < 0);
		vd_close(r.a);
		CHECK(all_are(box, LONG_BYTES, 0xee));
	}
	rig_close(&other);
}

/* A peer that says nothing is waited for, but not for ever, and its key is void then. */
FAR_TEST(ended_without_an_answer)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	struct across_key key;
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	until_far(r.a, to, src, BOX_BYTES);
	key = (struct across_key){known(to)->key.address, known(to)->key.link,
				  known(to)->key.key};
	send_begin(r.a); /* so nothing of what it owes is sent */
	REQUIRE(vd_unexport(x) == 0);
	CHECK(r.b->peer_is_slow);
	memset(box, 0xee, BOX_BYTES);
	CHECK_EQ(put_by(&r, &key, src), -EIO);
	send_end(r.a);
	CHECK_EQ(vd_put(to, 0, src, BOX_BYTES, 0, 0), -ESTALE);
	REQUIRE(vd_flush(r.a) == 0 && vd_flush(r.b) == 0);
	CHECK(all_are(box, BOX_BYTES, 0xee));
	rig_close(&r);
}

#endif
