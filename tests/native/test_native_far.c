/* SPDX-License-Identifier: Apache-2.0 */
/* The native library between two hosts, both of which are this process, on the fake interconnect: puts
 * that a device writes, among those that go by frames, while keys are voided and links fail. */
/* See far.c. */
#define main __attribute__((visibility("default"))) native_far_main
int native_far_main(int argc, char **argv);
#include "native/far_rig.h"

#include "native/far_ends.h"
#include "native/far_lend.h"

#include "native/far_behind.h"
#include "native/far_puts.h"
#include "native/far_random.h"

FAR_TEST(a_device_writes_them)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	struct vd_event ev;
	uint64_t before;
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, box, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	until_far(r.a, to, src, BOX_BYTES);
	before = far_puts(r.a);
	for (uint32_t i = 0; i < 50; i++) {
		rig_fill(src, BOX_BYTES, i);
		REQUIRE(vd_put(to, 5, src, BOX_BYTES - 5, i, VD_NOTIFY) == 0);
		/* It is there before its event, and before the call returns. */
		CHECK(rig_is(box + 5, BOX_BYTES - 5, i));
		ev = rig_event(r.b);
		CHECK(ev.kind == VD_EVENT_NOTIFY && ev.tag == i && ev.where == x &&
		      ev.user == box && ev.offset == 5 && ev.len == BOX_BYTES - 5);
	}
	CHECK_EQ(far_puts(r.a), before + 50);
	/* Shorter ones do not go that way, nor longer ones elsewhere. */
	REQUIRE(vd_put(to, 0, src, LEAST - 1, 0, 0) == 0);
	CHECK_EQ(vd_put(to, 1, src, BOX_BYTES, 0, 0), -ERANGE);
	CHECK_EQ(far_puts(r.a), before + 50);
	/* Behind it: it is in place before that one is made. */
	memset(src, 1, LEAST - 1);
	REQUIRE(vd_put(to, 0, src, LEAST - 1, 0, 0) == 0);
	memset(src, 2, BOX_BYTES);
	REQUIRE(vd_put(to, 0, src, LEAST, 0, 0) == 0);
	CHECK_EQ(far_puts(r.a), before + 51);
	CHECK(all_are(box, LEAST, 2));
	REQUIRE(vd_flush(r.a) == 0);
	CHECK(all_are(box, LEAST, 2));
	rig_close(&r);
}

FAR_TEST(a_device_brings_them)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], to[BOX_BYTES], mark[LEAST];
	uint64_t before, hits;
	vd_region *x[2];
	vd_remote *from[2];

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_READ, NULL, &x[0]) == 0);
	REQUIRE(vd_export(r.b, "also", box, BOX_BYTES, VD_WRITE, NULL, &x[1]) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &from[0]) == 0);
	REQUIRE(vd_import(r.a, "also", RIG_MS, &from[1]) == 0);
	until_got(r.a, from[0], to, BOX_BYTES);
	before = counted(r.a, NATIVE_FAR_GETS);
	hits = counted(r.a, NATIVE_HITS);
	for (uint32_t i = 0; i < 50; i++) {
		rig_fill(box, BOX_BYTES, i);
		/* By frames, to another export of the same memory: it has landed before. */
		memset(mark, (int)i, 100);
		REQUIRE(vd_put(from[1], 1000, mark, 100, 0, 0) == 0);
		memset(to, 0xaa, BOX_BYTES);
		REQUIRE(vd_get(from[0], 5, to + 5, BOX_BYTES - 9) == 0);
		CHECK(all_are(to, 5, 0xaa) && all_are(to + BOX_BYTES - 4, 4, 0xaa));
		CHECK(all_are(to + 1000, 100, (uint8_t)i));
		CHECK(rig_is(to + 5, 995, i + 5));
		CHECK(rig_is(to + 1100, BOX_BYTES - 1104, i + 1100));
	}
	CHECK_EQ(counted(r.a, NATIVE_FAR_GETS), before + 50);
	CHECK_EQ(counted(r.a, NATIVE_HITS), hits + 50);
	/* Shorter ones do not go that way, nor longer ones elsewhere. */
	REQUIRE(vd_get(from[0], 0, to, LEAST - 1) == 0);
	CHECK_EQ(vd_get(from[0], 1, to, BOX_BYTES), -ERANGE);
	CHECK_EQ(vd_get(from[1], 0, to, BOX_BYTES), -EACCES);
	CHECK_EQ(vd_put(from[0], 0, to, BOX_BYTES, 0, 0), -EACCES);
	CHECK_EQ(counted(r.a, NATIVE_FAR_GETS), before + 50);
	rig_close(&r);
}

/* Puts of one piece and of several, in vain: the owner hears of that before it hears the bytes. */
FAR_TEST(in_vain)
{
	const size_t bytes = (600u << 10) + 5;
	struct rig r = far_open();
	uint8_t *box = calloc(1, bytes), *src = calloc(1, bytes);
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, bytes, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	for (uint8_t i = 1; i < 9; i++) {
		size_t len = i % 2 ? bytes : LEAST;

		until_far(r.a, to, src, bytes);
		CHECK(is_reached(x));
		memset(src, i, bytes);
		void_keys();
		REQUIRE(vd_put(to, 0, src, len, i, VD_NOTIFY) == 0);
		CHECK_EQ(rig_event(r.b).tag, i);
		CHECK(all_are(box, len, i));
		CHECK(!is_reached(x));
	}
	rig_close(&r);
	REQUIRE(vd_forget(src, bytes) == 0);
	free(box);
	free(src);
}

static bool is_answered_reach(vd_conn *c)
{
	bool is;

	pthread_mutex_lock(&c->mu);
	is = c->reach_id == 0;
	pthread_mutex_unlock(&c->mu);
	return is;
}

/* A peer that asks for a key over and over: each would be the whole memory, registered anew. */
FAR_TEST(asked_without_end)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	int again = reach_again_ms;
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	reach_again_ms = 1000 * 3600;
	for (int i = 0; i < 50; i++) {
		struct frame f = {.type = FRAME_REACH, .id = to->id};

		pthread_mutex_lock(&r.a->mu);
		r.a->reach_id = to->id;
		pthread_mutex_unlock(&r.a->mu);
		REQUIRE(send_frame(r.a, &f, NULL) == 0);
		while (!is_answered_reach(r.a))
			REQUIRE(vd_flush(r.a) == 0);
	}
	CHECK_EQ(x->key_number, 1);
	CHECK(is_reached(x));
	reach_again_ms = again;
	/* The one that it has is good. */
	until_far(r.a, to, src, BOX_BYTES);
	CHECK_EQ(x->key_number, 1);
	rig_close(&r);
}

/* Nor once the connection has, for a peer that has kept the key. */
FAR_TEST(ended_connections)
{
	struct rig r = far_open(), other = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES];
	struct across_key key;
	vd_region *x;
	vd_remote *to;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to) == 0);
	until_far(r.a, to, src, BOX_BYTES);
	key = (struct across_key){known(to)->key.address, known(to)->key.link,
				  known(to)->key.key};
	memset(src, 8, BOX_BYTES);
	CHECK_EQ(put_by(&other, &key, src), 0);
	CHECK(all_are(box, BOX_BYTES, 8));
	vd_close(r.a);
	CHECK_EQ(rig_event(r.b).kind, VD_EVENT_END);
	memset(src, 9, BOX_BYTES);
	CHECK_EQ(put_by(&other, &key, src), -EIO);
	CHECK(all_are(box, BOX_BYTES, 8));
	vd_close(r.b);
	rig_close(&other);
	CHECK(all_are(box, BOX_BYTES, 8));
}

/* A redirection takes nothing that a device writes; while one stands there is no key. */
FAR_TEST(redirections)
{
	struct rig r = far_open();
	static uint8_t box[BOX_BYTES], src[BOX_BYTES], to[BOX_BYTES];
	struct vd_redirected done;
	uint64_t before;
	vd_detour *d, *e;
	vd_region *x;
	vd_remote *remote;

	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &remote) == 0);
	REQUIRE(vd_redirect(x, 0, to, BOX_BYTES, &d) == 0);
	memset(src, 1, BOX_BYTES);
	for (int i = 0; i < 5; i++) {
		REQUIRE(vd_put(remote, 0, src, BOX_BYTES, 0, 0) == 0);
		REQUIRE(vd_flush(r.a) == 0);
	}
	CHECK_EQ(far_puts(r.a), 0);
	CHECK(all_are(box, BOX_BYTES, 0) && all_are(to, BOX_BYTES, 1));
	REQUIRE(vd_redirect_end(d, &done) == 0);
	CHECK_EQ(done.kind, VD_REDIRECT_FULL);
	until_far(r.a, remote, src, BOX_BYTES);
	before = far_puts(r.a);
	memset(to, 0xee, BOX_BYTES);
	REQUIRE(vd_redirect(x, 0, to, BOX_BYTES, &d) == 0);
	CHECK_EQ(vd_redirect(x, 5, src, 1, &e), -EBUSY);
	memset(src, 3, BOX_BYTES);
	REQUIRE(vd_put(remote, 0, src, BOX_BYTES, 0, 0) == 0);
	CHECK_EQ(far_puts(r.a), before + 1);
	CHECK(all_are(box, BOX_BYTES, 3) && all_are(to, BOX_BYTES, 0xee));
	memset(src, 4, BOX_BYTES);
	REQUIRE(vd_put(remote, 7, src, LEAST - 1, 0, 0) == 0);
	memset(src, 5, BOX_BYTES);
	REQUIRE(vd_put(remote, 0, src, BOX_BYTES, 0, 0) == 0);
	CHECK_EQ(far_puts(r.a), before + 2);
	REQUIRE(vd_redirect_end(d, &done) == 0);
	CHECK_EQ(done.kind, VD_REDIRECT_NONE);
	CHECK(all_are(to, BOX_BYTES, 5));
	rig_close(&r);
}

/* Memory of vd_alloc is one writer's: the second peer gets no key, nor does one for a part of it. */
FAR_TEST(one_writer)
{
	struct rig r = far_open(), other = far_open();
	static uint8_t src[BOX_BYTES];
	vd_region *x[3];
	vd_remote *to[3];
	uint64_t was;
	void *box;

	REQUIRE(vd_alloc(BOX_BYTES, &box) == 0);
	REQUIRE(vd_export(r.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x[0]) == 0);
	REQUIRE(vd_export(other.b, "box", box, BOX_BYTES, VD_WRITE, NULL, &x[1]) == 0);
	REQUIRE(vd_export(other.b, "part", (uint8_t *)box + 8, LEAST, VD_WRITE, NULL,
			  &x[2]) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &to[0]) == 0);
	REQUIRE(vd_import(other.a, "box", RIG_MS, &to[1]) == 0);
	REQUIRE(vd_import(other.a, "part", RIG_MS, &to[2]) == 0);
	until_far(r.a, to[0], src, BOX_BYTES);
	memset(src, 4, BOX_BYTES);
	for (int i = 0; i < 5; i++) {
		REQUIRE(vd_put(to[1], 0, src, BOX_BYTES, 0, 0) == 0);
		REQUIRE(vd_put(to[2], 0, src, LEAST, 0, 0) == 0);
		REQUIRE(vd_flush(other.a) == 0);
	}
	CHECK_EQ(far_puts(other.a), 0);
	CHECK(all_are(box, BOX_BYTES, 4));
	CHECK_EQ(vd_free(box), -EBUSY);
	REQUIRE(vd_unexport(x[0]) == 0);
	was = far_puts(other.a);
	until_far(other.a, to[1], src, BOX_BYTES);
	CHECK(far_puts(other.a) > was);
	REQUIRE(vd_unexport(x[1]) == 0);
	until_far(other.a, to[2], src, LEAST);
	CHECK_EQ(vd_free(box), -EBUSY); /* a device writes to a part of it */
	rig_close(&other);
	rig_close(&r);
	CHECK_EQ(vd_free(box), 0);
}
