/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that is cancelled goes on until it has left the library, and leaves nothing locked there. */
#include "unit/cancelled.h"
#include "native/rig.h"

#define NOTES 600u

/* A thread that has been cancelled already makes all these calls. */
struct doomed {
	struct rig r;
	_Atomic int calls;
};

#define CALL(expression, want)                                                           \
	do {                                                                             \
		CHECK_EQ(expression, want);                                              \
		atomic_fetch_add(&d->calls, 1);                                          \
	} while (0)

static void *call_all(void *arg)
{
	static struct vd_event ev[NOTES];
	static uint8_t box[1 << 20], src[1 << 20];
	struct doomed *d = arg;
	const void *said;
	vd_listener *l;
	vd_region *x, *y;
	vd_remote *h, *mapped;
	vd_detour *detour;
	uint64_t old;
	void *p, *at;
	size_t len;
	int state;

	pthread_cancel(pthread_self());
	CALL(vd_wait(d->r.b, ev, NOTES, RIG_MS), (int)NOTES);
	CALL(vd_export(d->r.b, "box", box, sizeof(box), VD_READ | VD_WRITE, NULL, &x), 0);
	CALL(vd_import(d->r.a, "box", RIG_MS, &h), 0);
	CALL(vd_put(h, 0, src, sizeof(src), 1, VD_NOTIFY), 0);
	CALL(vd_put(h, 0, src, 8, 1, VD_NOTIFY), 0);
	CALL(vd_flush(d->r.a), 0);
	CALL(vd_get(h, 0, src, sizeof(src)), 0);
	CALL(vd_fetch_add(h, 0, 1, &old), 0);
	CALL(vd_compare_swap(h, 0, 1, 2, &old), 0);
	CALL(vd_reserve(d->r.a, 100000, &p), 0);
	CALL(vd_commit(d->r.a, 100000), 0);
	CALL(vd_peek(d->r.b, &said, &len, RIG_MS), 0);
	CALL(vd_release(d->r.b), 0);
	CALL(vd_fd(d->r.b) >= 0, true);
	CALL(vd_alloc(100, &at), 0);
	CALL(vd_export(d->r.b, "mapped", at, 100, VD_WRITE, NULL, &y), 0);
	CALL(vd_import(d->r.a, "mapped", RIG_MS, &mapped), 0);
	CALL(vd_put(mapped, 0, src, 100, 1, VD_NOTIFY), 0);
	CALL(vd_wait(d->r.b, ev, NOTES, RIG_MS) > 0, true);
	CALL(vd_redirect(y, 0, src, 100, &detour), 0);
	CALL(vd_redirect_end(detour, NULL), 0);
	CALL(vd_on_notify(y, NULL, NULL), 0);
	CALL(vd_unexport(y), 0);
	CALL(vd_free(at), 0);
	CALL(vd_path(d->r.a) >= 0, true);
	CALL(vd_listen("127.0.0.1", "0", &l), 0);
	vd_listener_close(l);
	vd_unimport(h);
	CALL(vd_unexport(x), 0);
	/* So far it could have been. A sanitizer does not follow a thread that is. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
	return NULL;
}

NATIVE_TEST(calls_are_no_points_of_cancellation)
{
	struct doomed d = {rig_open(), 0};
	char box[8];
	pthread_t thread;
	vd_region *x;
	vd_remote *h;
	void *result;

	REQUIRE(vd_export(d.r.b, "x", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(d.r.a, "x", RIG_MS, &h) == 0);
	/* So many that the peer is told when they have been taken. */
	for (uint32_t i = 0; i < NOTES; i++)
		REQUIRE(vd_put(h, 0, "x", 1, i, VD_NOTIFY) == 0);
	REQUIRE(vd_flush(d.r.a) == 0);
	REQUIRE(pthread_create(&thread, NULL, call_all, &d) == 0);
	pthread_join(thread, &result);
	CHECK(result == NULL);
	CHECK_EQ(atomic_load(&d.calls), 27);
	CHECK_EQ(vd_flush(d.r.b), 0);
	CHECK_EQ(vd_flush(d.r.a), 0);
	rig_close(&d.r);
}
