/* SPDX-License-Identifier: Apache-2.0 */
/* The native interface, call by call, with both ends in one process and in two. */
#include "native/rig.h"

NATIVE_TEST(put_with_notification)
{
	struct rig r = rig_open();
	char box[16] = "";
	struct vd_event ev;
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, &r, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_EQ(vd_remote_size(h), sizeof(box));
	CHECK_EQ(vd_remote_rights(h), VD_WRITE);
	CHECK_EQ(vd_put(h, 4, "hello", 6, 7, VD_NOTIFY), 0);
	ev = rig_event(r.b);
	CHECK_EQ(ev.kind, VD_EVENT_NOTIFY);
	CHECK_EQ(ev.tag, 7);
	CHECK_EQ(ev.offset, 4);
	CHECK_EQ(ev.len, 6);
	CHECK(ev.where == x);
	CHECK(ev.user == &r);
	CHECK_STR(box + 4, "hello");
	vd_unimport(h);
	CHECK_EQ(vd_unexport(x), 0);
	rig_check_path(r.a);
	rig_close(&r);
}

/* Nobody calls anything at the other end. */
NATIVE_TEST(bytes_arrive_without_the_owner)
{
	struct rig r = rig_open();
	size_t len = 3u << 20;
	uint8_t *box = calloc(1, len), *src = malloc(len);
	vd_region *x;
	vd_remote *h;

	rig_fill(src, len, 5);
	REQUIRE(vd_export(r.a, "box", box, len, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.b, "box", RIG_MS, &h) == 0);
	for (int i = 0; i < 3; i++) {
		memset(box, 0, len);
		CHECK_EQ(vd_put(h, 0, src, len, 0, 0), 0);
		CHECK_EQ(vd_flush(r.b), 0);
		CHECK(rig_is(box, len, 5));
	}
	rig_check_path(r.b);
	rig_close(&r);
	free(box);
	free(src);
}

static void echo_peer(vd_conn *c)
{
	uint8_t *box = calloc(1, 1 << 20);
	struct vd_event ev = {0};
	vd_region *x;
	vd_remote *h;
	int r;

	REQUIRE(vd_export(c, "there", box, 1 << 20, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(c, "back", RIG_MS, &h) == 0);
	while ((r = vd_wait(c, &ev, 1, -1)) == 1 && ev.kind == VD_EVENT_NOTIFY)
		CHECK_EQ(vd_put(h, ev.offset, box + ev.offset, ev.len, ev.tag, VD_NOTIFY),
			 0);
	CHECK_EQ(r, 1);
	CHECK_EQ(ev.kind, VD_EVENT_END);
	CHECK_EQ(ev.result, 0);
	CHECK_EQ(vd_wait(c, &ev, 1, -1), -EPIPE);
	vd_close(c);
	free(box);
}

NATIVE_TEST(echo_between_processes)
{
	struct rig_child child = rig_spawn(echo_peer);
	static uint8_t src[1 << 20], back[1 << 20];
	static const uint32_t lens[] = {0, 1, 64, 4096, 70000, 1 << 20};
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(child.c, "back", back, sizeof(back), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(child.c, "there", RIG_MS, &h) == 0);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t len = lens[i % 6], at = i * 7 % (sizeof(src) - len + 1);
		struct vd_event ev;

		rig_fill(src, len, i);
		REQUIRE(vd_put(h, at, src, len, i, VD_NOTIFY) == 0);
		ev = rig_event(child.c);
		CHECK_EQ(ev.tag, i);
		CHECK_EQ(ev.offset, at);
		CHECK_EQ(ev.len, len);
		REQUIRE(rig_is(back + at, len, i));
	}
	rig_check_path(child.c);
	vd_close(child.c);
	rig_reap(&child, 0);
}

NATIVE_TEST(wrong_arguments)
{
	struct rig r = rig_open();
	uint64_t box[4] = {0}, old;
	char long_name[VD_NAME_MAX + 2];
	struct vd_event ev;
	vd_region *x, *y;
	vd_remote *h, *w;

	memset(long_name, 'n', sizeof(long_name));
	long_name[VD_NAME_MAX + 1] = '\0';
	CHECK_EQ(vd_export(r.a, "", box, 8, VD_READ, NULL, &x), -EINVAL);
	CHECK_EQ(vd_export(r.a, NULL, box, 8, VD_READ, NULL, &x), -EINVAL);
	CHECK_EQ(vd_export(r.a, long_name, box, 8, VD_READ, NULL, &x), -EINVAL);
	CHECK_EQ(vd_export(r.a, "n", box, 0, VD_READ, NULL, &x), -EINVAL);
	CHECK_EQ(vd_export(r.a, "n", box, 8, 0, NULL, &x), -EINVAL);
	CHECK_EQ(vd_export(r.a, "n", box, 8, 4, NULL, &x), -EINVAL);
	REQUIRE(vd_export(r.a, long_name + 1, box, sizeof(box), VD_READ, NULL, &x) == 0);
	CHECK_EQ(vd_export(r.a, long_name + 1, box, 8, VD_READ, NULL, &y), -EEXIST);
	REQUIRE(vd_export(r.a, "w", box, sizeof(box), VD_WRITE, NULL, &y) == 0);
	CHECK_EQ(vd_import(r.b, "none", 0, &h), -ETIMEDOUT);
	CHECK_EQ(vd_import(r.b, "none", 20, &h), -ETIMEDOUT);
	REQUIRE(vd_import(r.b, long_name + 1, RIG_MS, &h) == 0);
	REQUIRE(vd_import(r.b, "w", RIG_MS, &w) == 0);
	CHECK_EQ(vd_put(h, 0, box, 8, 0, 0), -EACCES);
	CHECK_EQ(vd_get(w, 0, &old, 8), -EACCES);
	CHECK_EQ(vd_fetch_add(h, 0, 1, &old), -EACCES);
	CHECK_EQ(vd_fetch_add(w, 0, 1, &old), -EACCES);
	CHECK_EQ(vd_put(w, 0, box, 8, 0, 4), -EINVAL);
	CHECK_EQ(vd_put(w, 25, box, 8, 0, 0), -ERANGE);
	CHECK_EQ(vd_put(w, 33, box, 0, 0, VD_NOTIFY), -ERANGE);
	CHECK_EQ(vd_put(w, UINT64_MAX, box, 8, 0, 0), -ERANGE);
	CHECK_EQ(vd_get(h, 8, &old, sizeof(box)), -ERANGE);
	CHECK_EQ(vd_wait(r.a, &ev, 0, 0), -EINVAL);
	CHECK_EQ(vd_wait(r.a, &ev, 1, 0), -ETIMEDOUT);
	CHECK_EQ(vd_wait(r.a, &ev, 1, 20), -ETIMEDOUT);
	CHECK_EQ(vd_unexport(y), 0);
	CHECK_EQ(vd_flush(r.a), 0);
	CHECK_EQ(vd_put(w, 0, box, 8, 0, 0), -ESTALE);
	/* The name is free again, the old handle stays what it was. */
	REQUIRE(vd_export(r.a, "w", box, 8, VD_WRITE, NULL, &y) == 0);
	CHECK_EQ(vd_flush(r.a), 0);
	CHECK_EQ(vd_put(w, 0, box, 8, 0, 0), -ESTALE);
	rig_close(&r);
	vd_close(NULL);
	vd_unimport(NULL);
	vd_listener_close(NULL);
}

NATIVE_TEST(as_many_exports_as_there_may_be)
{
	struct rig r = rig_open();
	static vd_region *x[VD_EXPORTS_MAX];
	vd_region *more;
	vd_remote *h;
	char box[8], name[16];

	for (int i = 0; i < VD_EXPORTS_MAX; i++) {
		snprintf(name, sizeof(name), "box %d", i);
		REQUIRE(vd_export(r.a, name, box, 8, VD_WRITE, NULL, &x[i]) == 0);
	}
	CHECK_EQ(vd_export(r.a, "more", box, 8, VD_WRITE, NULL, &more), -ENOSPC);
	REQUIRE(vd_import(r.b, "box 1023", RIG_MS, &h) == 0);
	CHECK_EQ(vd_unexport(x[7]), 0);
	CHECK_EQ(vd_export(r.a, "more", box, 8, VD_WRITE, NULL, &more), 0);
	REQUIRE(vd_import(r.b, "more", RIG_MS, &h) == 0);
	CHECK_EQ(vd_put(h, 0, "1234567", 8, 0, 0), 0);
	CHECK_EQ(vd_flush(r.b), 0);
	CHECK_STR(box, "1234567");
	rig_close(&r);
}

NATIVE_TEST(get)
{
	struct rig r = rig_open();
	size_t len = 100000;
	uint8_t *box = malloc(len), *dst = calloc(1, len);
	vd_region *x;
	vd_remote *h;

	rig_fill(box, len, 3);
	REQUIRE(vd_export(r.a, "box", box, len, VD_READ, NULL, &x) == 0);
	REQUIRE(vd_import(r.b, "box", RIG_MS, &h) == 0);
	CHECK_EQ(vd_get(h, 0, dst, len), 0);
	CHECK(rig_is(dst, len, 3));
	CHECK_EQ(vd_get(h, len - 3, dst, 3), 0);
	CHECK(rig_is(dst, 3, 3 + len - 3));
	CHECK_EQ(vd_get(h, len, dst, 0), 0);
	CHECK_EQ(vd_unexport(x), 0);
	CHECK_EQ(vd_get(h, 0, dst, 1), -ESTALE);
	rig_close(&r);
	free(box);
	free(dst);
}

/* A get sees what was put before it on the same connection. */
NATIVE_TEST(get_after_put)
{
	struct rig r = rig_open();
	static uint8_t box[50000], src[50000], dst[50000];
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.a, "b", box, sizeof(box), VD_READ | VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.b, "b", RIG_MS, &h) == 0);
	for (uint32_t i = 0; i < 200; i++) {
		rig_fill(src, sizeof(src), i);
		REQUIRE(vd_put(h, 0, src, sizeof(src), 0, 0) == 0);
		REQUIRE(vd_get(h, 0, dst, sizeof(dst)) == 0);
		REQUIRE(rig_is(dst, sizeof(dst), i));
	}
	rig_check_path(r.b);
	rig_close(&r);
}

struct adder {
	vd_remote *h;
	int wrong;
};

static void *add_many(void *arg)
{
	struct adder *a = arg;
	uint64_t old, last = 0;

	for (int i = 0; i < 500; i++) {
		a->wrong += vd_fetch_add(a->h, 8, 1, &old) != 0 || (i && old <= last);
		last = old;
	}
	return NULL;
}

NATIVE_TEST(atomics_of_several_threads)
{
	struct rig r = rig_open();
	_Atomic uint64_t box[2] = {5, 0};
	struct adder adders[20];
	pthread_t threads[20];
	uint64_t old;
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.a, "box", (void *)box, sizeof(box), VD_READ | VD_WRITE, NULL,
			  &x) == 0);
	REQUIRE(vd_import(r.b, "box", RIG_MS, &h) == 0);
	CHECK_EQ(vd_compare_swap(h, 0, 4, 6, &old), 0);
	CHECK_EQ(old, 5);
	CHECK_EQ(vd_compare_swap(h, 0, 5, 7, &old), 0);
	CHECK_EQ(old, 5);
	CHECK_EQ(atomic_load(&box[0]), 7);
	CHECK_EQ(vd_fetch_add(h, 4, 1, NULL), -EINVAL);
	CHECK_EQ(vd_fetch_add(h, 16, 1, NULL), -ERANGE);
	for (int i = 0; i < 20; i++) {
		adders[i] = (struct adder){h, 0};
		REQUIRE(pthread_create(&threads[i], NULL, add_many, &adders[i]) == 0);
	}
	for (int i = 0; i < 10000; i++)
		atomic_fetch_add(&box[1], 1);
	for (int i = 0; i < 20; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(adders[i].wrong, 0);
	}
	CHECK_EQ(atomic_load(&box[1]), 20000);
	rig_close(&r);
}

/* Threads that wait for different things on one connection: one reads for all of them. */
struct waiter {
	vd_conn *c;
	vd_remote *h;
	int n, wrong;
};

static void *flush_many(void *arg)
{
	struct waiter *w = arg;
	uint8_t piece[3000];

	memset(piece, 1, sizeof(piece));
	for (int i = 0; i < 300; i++) {
		w->wrong += vd_put(w->h, 0, piece, sizeof(piece), 0, 0) != 0;
		w->wrong += vd_flush(w->c) != 0;
	}
	return NULL;
}

static void *take_many(void *arg)
{
	struct waiter *w = arg;
	struct vd_event ev[7];

	while (w->n > 0) {
		int got = vd_wait(w->c, ev, 7 < w->n ? 7 : w->n, RIG_MS);

		if (got <= 0)
			break;
		w->n -= got;
	}
	return NULL;
}

NATIVE_TEST(threads_share_a_connection)
{
	struct rig r = rig_open();
	static uint8_t box[3000], other[8];
	struct waiter w[4], taker = {.c = r.b, .n = 5000};
	pthread_t threads[5];
	vd_region *x, *y;
	vd_remote *h, *k;

	REQUIRE(vd_export(r.a, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_export(r.b, "other", other, sizeof(other), VD_WRITE, NULL, &y) == 0);
	REQUIRE(vd_import(r.b, "box", RIG_MS, &h) == 0);
	REQUIRE(vd_import(r.a, "other", RIG_MS, &k) == 0);
	for (int i = 0; i < 4; i++) {
		w[i] = (struct waiter){.c = r.b, .h = h};
		REQUIRE(pthread_create(&threads[i], NULL, flush_many, &w[i]) == 0);
	}
	REQUIRE(pthread_create(&threads[4], NULL, take_many, &taker) == 0);
	for (uint32_t i = 0; i < 5000; i++)
		REQUIRE(vd_put(k, 0, "seven77", 8, i, VD_NOTIFY) == 0);
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(w[i].wrong, 0);
	CHECK_EQ(taker.n, 0);
	rig_check_path(r.b);
	rig_close(&r);
}

/* The peer's program takes none: the sender waits, and everything else goes on. */
static void *notify_many(void *arg)
{
	struct waiter *w = arg;

	for (int i = 0; i < w->n; i++)
		w->wrong += vd_put(w->h, 0, &i, sizeof(i), (uint32_t)i, VD_NOTIFY) != 0;
	return NULL;
}

NATIVE_TEST(notifications_that_nobody_takes)
{
	struct rig r = rig_open();
	uint32_t box = 0, other = 0, seen = 0;
	struct waiter w = {.n = 3000};
	pthread_t thread;
	vd_region *x, *y;
	vd_remote *k;

	REQUIRE(vd_export(r.b, "box", &box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_export(r.b, "o", &other, sizeof(other), VD_READ | VD_WRITE, NULL,
			  &y) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &w.h) == 0);
	REQUIRE(vd_import(r.a, "o", RIG_MS, &k) == 0);
	REQUIRE(pthread_create(&thread, NULL, notify_many, &w) == 0);
	/* Up to what may be under way it comes; then no more. */
	while (*(volatile uint32_t *)&box != 1023)
		REQUIRE(vd_put(k, 0, &seen, 4, 0, 0) == 0 && vd_flush(r.a) == 0);
	for (int i = 0; i < 20; i++)
		REQUIRE(vd_get(k, 0, &seen, 4) == 0);
	CHECK_EQ(box, 1023);
	for (uint32_t i = 0; i < 3000; i++)
		REQUIRE(rig_event(r.b).tag == i);
	pthread_join(thread, NULL);
	CHECK_EQ(w.wrong, 0);
	rig_close(&r);
}

NATIVE_TEST(descriptor_for_event_loops)
{
	struct rig r = rig_open();
	char box[8];
	struct vd_event ev;
	struct pollfd p;
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	p = (struct pollfd){.fd = vd_fd(r.b), .events = POLLIN};
	REQUIRE(p.fd >= 0);
	CHECK_EQ(vd_fd(r.b), p.fd);
	CHECK_EQ(poll(&p, 1, 0), 0);
	for (uint32_t i = 0; i < 500; i++) {
		REQUIRE(vd_put(h, 0, "abcdefg", 8, i, VD_NOTIFY) == 0);
		REQUIRE(poll(&p, 1, RIG_MS) == 1);
		REQUIRE(vd_wait(r.b, &ev, 1, 0) == 1);
		REQUIRE(ev.tag == i);
		REQUIRE(poll(&p, 1, 0) == 0);
		CHECK_EQ(vd_wait(r.b, &ev, 1, 0), -ETIMEDOUT);
	}
	vd_close(r.a);
	CHECK_EQ(poll(&p, 1, RIG_MS), 1);
	CHECK_EQ(vd_wait(r.b, &ev, 1, 0), 1);
	CHECK_EQ(ev.kind, VD_EVENT_END);
	CHECK_EQ(ev.result, 0);
	CHECK_EQ(poll(&p, 1, 0), 0);
	vd_close(r.b);
}

/* What a caller waits for is read by the service thread now and then: that watches the connection on when the caller
 * has left. */
NATIVE_TEST(events_behind_a_wait_that_the_service_ended)
{
	for (int i = 0; i < 800; i++) {
		struct rig r = rig_open();
		struct pollfd p = {.fd = vd_fd(r.a), .events = POLLIN};
		char box[8];
		vd_region *xa, *xb;
		vd_remote *a, *b;

		REQUIRE(vd_fd(r.b) >= 0);
		REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &xb) ==
			0);
		REQUIRE(vd_export(r.a, "box", box, sizeof(box), VD_WRITE, NULL, &xa) ==
			0);
		REQUIRE(vd_import(r.b, "box", RIG_MS, &a) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &b) == 0);
		REQUIRE(vd_put(a, 0, "abcdefg", 8, 1, VD_NOTIFY) == 0);
		REQUIRE(poll(&p, 1, RIG_MS) == 1);
		rig_close(&r);
	}
}
