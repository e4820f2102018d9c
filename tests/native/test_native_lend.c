/* SPDX-License-Identifier: Apache-2.0 */
/* Puts whose source is lent: they do not wait, come in their order, and give the source back once. */
#include <semaphore.h>
#include <sys/resource.h>

#include "native/rig.h"

#define BIG  (1u << 20)
#define MANY 48u
#define MORE 5000u

/* Events but those of lent puts are none of this test's. */
static struct vd_event next_done(vd_conn *c)
{
	struct vd_event ev = rig_event(c);

	REQUIRE(ev.kind == VD_EVENT_DONE);
	return ev;
}

static void fill_word(uint8_t *to, size_t len, uint32_t number)
{
	rig_fill(to, len, number * 1000003ull);
}

static bool is_word(const uint8_t *from, size_t len, uint32_t number)
{
	return rig_is(from, len, number * 1000003ull);
}

/* Both ends here. Short ones are done at once, or soon. */
NATIVE_TEST(each_is_given_back_once)
{
	struct rig r = rig_open();
	static uint8_t box[300000], src[300000];
	static const uint32_t lens[] = {0,    1,      100,    512,   513,
					5000, 262144, 262145, 300000};
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t len = lens[i % 9], at = (sizeof(box) - len) / 2;
		bool notifies = i % 2;
		struct vd_event ev;

		fill_word(src, len, i);
		REQUIRE(vd_put(h, at, src, len, i,
			       VD_LEND | (notifies ? VD_NOTIFY : 0)) == 0);
		ev = next_done(r.a);
		REQUIRE(ev.tag == i && ev.offset == at && ev.len == len &&
			ev.result == 0);
		memset(src, 0, len);
		if (notifies) {
			ev = rig_event(r.b);
			REQUIRE(ev.kind == VD_EVENT_NOTIFY && ev.tag == i);
			REQUIRE(ev.offset == at && ev.len == len);
		} else {
			REQUIRE(vd_flush(r.a) == 0);
		}
		REQUIRE(is_word(box + at, len, i));
	}
	rig_check_path(r.a);
	rig_close(&r);
}

/* In memory that both ends map the put is a copy, and done when it returns. */
NATIVE_TEST(in_mapped_memory)
{
	struct rig r = rig_open();
	struct vd_event ev;
	vd_region *x;
	vd_remote *h;
	void *at;

	REQUIRE(vd_alloc(BIG, &at) == 0);
	REQUIRE(vd_export(r.b, "box", at, BIG, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	if (rig_path() == VD_PATH_SHM)
		CHECK_STR(vd_remote_reason(h), "none");
	for (uint32_t i = 0; i < 200; i++) {
		static uint8_t src[BIG];

		fill_word(src, i * 5000, i);
		REQUIRE(vd_put(h, 0, src, i * 5000, i, VD_LEND | VD_NOTIFY) == 0);
		if (rig_path() == VD_PATH_SHM)
			REQUIRE(vd_wait(r.a, &ev, 1, 0) == 1);
		else
			ev = next_done(r.a);
		REQUIRE(ev.kind == VD_EVENT_DONE && ev.tag == i && ev.result == 0);
		REQUIRE(rig_event(r.b).tag == i);
		REQUIRE(is_word(at, i * 5000, i));
	}
	rig_close(&r);
	CHECK_EQ(vd_free(at), 0);
}

/* ---- a peer that is stopped ---- */

struct boxes {
	vd_region *x, *y;
	uint8_t *big;
	void *page;
};

static struct boxes open_boxes(vd_conn *c)
{
	struct boxes b = {.big = calloc(MANY, BIG)};

	REQUIRE(vd_alloc(4096, &b.page) == 0);
	REQUIRE(vd_export(c, "page", b.page, 4096, VD_WRITE, NULL, &b.y) == 0);
	REQUIRE(vd_export(c, "big", b.big, (size_t)MANY * BIG, VD_READ | VD_WRITE, NULL,
			  &b.x) == 0);
	return b;
}

/* Each event after the bytes of all before it, whichever way it comes. */
static void check_order(vd_conn *c)
{
	struct boxes b = open_boxes(c);
	struct vd_event ev;
	const void *p;
	size_t len;

	for (uint32_t i = 0; i < MANY; i++) {
		REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1 && ev.kind == VD_EVENT_NOTIFY);
		REQUIRE(ev.tag == i && ev.len == BIG);
		REQUIRE(is_word(b.big + (size_t)i * BIG, BIG, i));
	}
	REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1 && ev.kind == VD_EVENT_NOTIFY);
	CHECK_EQ(ev.tag, MORE);
	CHECK_STR((char *)b.page, "placed");
	REQUIRE(vd_peek(c, &p, &len, RIG_MS) == 0);
	CHECK_STR((const char *)p, "a message");
	CHECK_EQ(*(uint64_t *)(void *)b.big, 7);
	CHECK_EQ(vd_release(c), 0);
	REQUIRE(vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_END);
	vd_close(c);
	free(b.big);
	CHECK_EQ(vd_free(b.page), 0);
}

static uint8_t *lend_all(vd_remote *big, unsigned flags)
{
	uint8_t *src = malloc((size_t)MANY * BIG);

	for (uint32_t i = 0; i < MANY; i++) {
		fill_word(src + (size_t)i * BIG, BIG, i);
		REQUIRE(vd_put(big, (uint64_t)i * BIG, src + (size_t)i * BIG, BIG, i,
			       VD_LEND | flags) == 0);
	}
	return src;
}

static void take_done(vd_conn *c, uint8_t *src)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct vd_event ev = next_done(c);

		REQUIRE(ev.tag == i && ev.result == 0);
		REQUIRE(ev.offset == (uint64_t)i * BIG && ev.len == BIG);
		memset(src + (size_t)i * BIG, 0xee, BIG);
	}
}

static void *go_on(void *arg)
{
	usleep(100000);
	kill(*(pid_t *)arg, SIGCONT);
	return NULL;
}

/* No call waits for the peer. What comes behind them keeps its place: a put to mapped memory, an ordinary put, a
 * message, an atomic. */
NATIVE_TEST(peer_is_stopped)
{
	struct rig_child child = rig_spawn(check_order);
	uint64_t seven = 7, old = 0;
	vd_remote *big, *page;
	pthread_t thread;
	uint8_t *src;
	void *p;

	REQUIRE(vd_import(child.c, "page", RIG_MS, &page) == 0);
	REQUIRE(vd_import(child.c, "big", RIG_MS, &big) == 0);
	kill(child.pid, SIGSTOP);
	src = lend_all(big, VD_NOTIFY);
	REQUIRE(vd_put(page, 0, "placed", 7, MORE, VD_LEND | VD_NOTIFY) == 0);
	/* The others may wait, and for no longer than the lent ones. */
	REQUIRE(pthread_create(&thread, NULL, go_on, &child.pid) == 0);
	REQUIRE(vd_put(big, 0, &seven, 8, 0, 0) == 0);
	REQUIRE(vd_get(big, 0, &old, 8) == 0);
	CHECK_EQ(old, 7);
	REQUIRE(vd_compare_swap(big, 0, 7, 8, &old) == 0 && old == 7);
	REQUIRE(vd_compare_swap(big, 0, 8, 7, &old) == 0 && old == 8);
	REQUIRE(vd_reserve(child.c, 100, &p) == 0);
	strcpy(p, "a message");
	REQUIRE(vd_commit(child.c, 10) == 0);
	take_done(child.c, src);
	CHECK_EQ(next_done(child.c).tag, MORE);
	CHECK_EQ(vd_flush(child.c), 0);
	pthread_join(thread, NULL);
	rig_check_path(child.c);
	vd_close(child.c);
	rig_reap(&child, 0);
	free(src);
}

static void just_be(vd_conn *c)
{
	struct boxes b = open_boxes(c);
	struct vd_event ev;

	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind != VD_EVENT_END)
		;
	vd_close(c);
	free(b.big);
	vd_free(b.page);
}

/* All come back with the error, in their order, and then the end. */
NATIVE_TEST(peer_is_killed)
{
	for (int round = 0; round < 4; round++) {
		struct rig_child child = rig_spawn(just_be);
		vd_conn *conns[1] = {child.c};
		struct vd_event ev;
		int status, which, failed = 0;
		vd_remote *big;
		uint8_t *src;

		REQUIRE(vd_import(child.c, "big", RIG_MS, &big) == 0);
		if (round % 2)
			kill(child.pid, SIGSTOP);
		src = lend_all(big, 0);
		kill(child.pid, SIGKILL);
		for (uint32_t i = 0; i < MANY; i++) {
			REQUIRE(vd_wait_any(conns, 1, &ev, 1, RIG_MS, &which) == 1);
			REQUIRE(ev.kind == VD_EVENT_DONE && ev.tag == i);
			REQUIRE(ev.result == 0 || ev.result == -ECONNRESET);
			REQUIRE(!failed || ev.result);
			failed += ev.result != 0;
		}
		CHECK(failed > 0 || round % 2 == 0);
		free(src);
		ev = rig_event(child.c);
		CHECK_EQ(ev.kind, VD_EVENT_END);
		CHECK_EQ(ev.result, -ECONNRESET);
		CHECK_EQ(vd_put(big, 0, "x", 1, 0, VD_LEND), -ECONNRESET);
		CHECK_EQ(vd_wait(child.c, &ev, 1, 0), -ECONNRESET);
		vd_close(child.c);
		REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
	}
}

/* With the queue full, and a sender that blocks behind it; after the close all memory is the program's. */
static void *put_one(void *arg)
{
	rig_call_begins();
	CHECK_EQ(vd_put(arg, 0, "x", 1, 0, 0), -EPIPE);
	return NULL;
}

NATIVE_TEST(close_with_a_queue)
{
	struct rig_child child = rig_spawn(just_be);
	vd_remote *big;
	pthread_t thread;
	uint8_t *src;
	int status;

	REQUIRE(vd_import(child.c, "big", RIG_MS, &big) == 0);
	kill(child.pid, SIGSTOP);
	src = lend_all(big, 0);
	REQUIRE(pthread_create(&thread, NULL, put_one, big) == 0);
	rig_await_call();
	vd_close(child.c);
	free(src);
	pthread_join(thread, NULL);
	kill(child.pid, SIGKILL);
	REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
}

/* As many as there may be of each kind; never a wait. */
NATIVE_TEST(limits)
{
	struct rig_child child = rig_spawn(just_be);
	static uint8_t src[100];
	struct vd_event ev[64];
	vd_remote *big;
	int r = 0, n, done = 0, status;
	uint32_t i = 0;

	REQUIRE(vd_import(child.c, "big", RIG_MS, &big) == 0);
	kill(child.pid, SIGSTOP);
	for (; r == 0; i++)
		r = vd_put(big, 0, src, sizeof(src), i, VD_LEND);
	CHECK_EQ(r, -EAGAIN);
	CHECK_EQ(i, VD_LENT_MOST + 1);
	REQUIRE((n = vd_wait(child.c, ev, 64, RIG_MS)) > 0);
	for (int k = 0; k < n; k++)
		CHECK_EQ(vd_put(big, 0, src, sizeof(src), i, VD_LEND), 0);
	CHECK_EQ(vd_put(big, 0, src, sizeof(src), i, VD_LEND), -EAGAIN);
	kill(child.pid, SIGCONT);
	for (done = 0; done < VD_LENT_MOST; done += n)
		REQUIRE((n = vd_wait(child.c, ev, 64, RIG_MS)) > 0);
	kill(child.pid, SIGSTOP);
	/* No more notifications than the peer may have. */
	for (i = 0, r = 0; r == 0; i++) {
		r = vd_put(big, 0, src, sizeof(src), i, VD_LEND | VD_NOTIFY);
		if (r == 0 && vd_wait(child.c, ev, 1, 0) != 1)
			REQUIRE(i < VD_LENT_MOST);
	}
	CHECK_EQ(r, -EAGAIN);
	CHECK_EQ(i, 1025);
	kill(child.pid, SIGCONT);
	vd_close(child.c);
	REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
}

/* ---- no memory ---- */

#define HOARD 65536 /* bytes; less than the queue takes */

/* A put of the first use of the queue, while there is no memory for that. */
static int lend_without_memory(vd_remote *h, const void *src, size_t len)
{
	struct rlimit was, none;
	void **all = NULL, **one;
	int r;

	REQUIRE(getrlimit(RLIMIT_AS, &was) == 0);
	none = (struct rlimit){0, was.rlim_max};
	REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
	while ((one = malloc(HOARD))) {
		*one = all;
		all = one;
	}
	r = vd_put(h, 0, src, len, 1, VD_LEND | VD_NOTIFY);
	REQUIRE(setrlimit(RLIMIT_AS, &was) == 0);
	while ((one = all)) {
		all = *one;
		free(one);
	}
	return r;
}

/* Such a put is none of the notifications that the peer may have. */
NATIVE_TEST(without_memory)
{
	static uint8_t box[5000], src[5000];
	struct rig r;
	uint32_t i = 0;
	vd_region *x;
	vd_remote *h;

#ifdef __SANITIZE_ADDRESS__
	SKIP("where malloc finds no memory it ends the program");
#endif
	r = rig_open();
	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_EQ(lend_without_memory(h, src, sizeof(src)), -ENOMEM);
	for (; vd_put(h, 0, src, 8, i, VD_LEND | VD_NOTIFY) == 0; i++)
		CHECK_EQ(next_done(r.a).tag, i);
	CHECK_EQ(i, 1024);
	rig_close(&r);
}

/* ---- threads ---- */

static void *wait_for_done(void *arg)
{
	struct vd_event ev = {0};

	rig_call_begins();
	CHECK_EQ(vd_wait(arg, &ev, 1, -1), 1);
	CHECK_EQ(ev.kind, VD_EVENT_DONE);
	CHECK_EQ(ev.tag, 9);
	return NULL;
}

/* The thread that waits is the reader, and another one lends: nothing else is said. */
NATIVE_TEST(event_for_a_sleeper)
{
	struct rig r = rig_open();
	static uint8_t box[BIG], src[BIG];
	static const size_t lens[] = {0, 8, 5000, BIG};
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, BIG, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	rig_check_path(r.a);
	for (int i = 0; i < 40; i++) {
		pthread_t thread;

		REQUIRE(pthread_create(&thread, NULL, wait_for_done, r.a) == 0);
		rig_await_call();
		REQUIRE(vd_put(h, 0, src, lens[i % 4], 9, VD_LEND) == 0);
		pthread_join(thread, NULL);
	}
	rig_close(&r);
}

#define LENDERS 3u
#define ROUNDS	200u
#define SLOTS	8u
#define PART	70000u

/* A thread that lends all the time, and takes the events: the queue is seldom empty. */
struct tide {
	vd_remote *h;
	vd_conn *c;
	_Atomic bool is_high, is_over;
};

static void *lend_always(void *arg)
{
	struct tide *t = arg;
	static uint8_t src[PART];
	struct vd_event ev[16];
	int out = 0, n;

	while (!atomic_load(&t->is_over)) {
		while (out < VD_LENT_MOST) {
			REQUIRE(vd_put(t->h, 0, src, sizeof(src), 0, VD_LEND) == 0);
			out++;
		}
		atomic_store(&t->is_high, true);
		n = vd_wait(t->c, ev, 16, 0);
		REQUIRE(n > 0 || n == -ETIMEDOUT);
		out -= n > 0 ? n : 0;
	}
	for (; out > 0; out--)
		next_done(t->c);
	return NULL;
}

/* A call waits for what was lent before, and not for what is lent meanwhile. */
NATIVE_TEST(others_lend_all_the_time)
{
	struct rig r = rig_open();
	static uint8_t box[PART];
	struct tide t = {.c = r.a};
	uint64_t word, page = 0;
	pthread_t thread;
	vd_region *x, *y;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_READ | VD_WRITE, NULL, &x) ==
		0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &t.h) == 0);
	REQUIRE(pthread_create(&thread, NULL, lend_always, &t) == 0);
	while (!atomic_load(&t.is_high))
		usleep(1000);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(vd_flush(r.a), 0);
		CHECK_EQ(vd_get(t.h, 0, &word, 8), 0);
		CHECK_EQ(vd_put(t.h, 0, &word, 8, 0, 0), 0);
	}
	CHECK_EQ(vd_export(r.a, "page", &page, 8, VD_READ, NULL, &y), 0);
	atomic_store(&t.is_over, true);
	pthread_join(thread, NULL);
	rig_close(&r);
}

struct lender {
	vd_remote *h;
	uint32_t number;
	sem_t free; /* sources */
};

/* Some are lent, some are not: the last one decides. */
static void *lend_many(void *arg)
{
	struct lender *l = arg;
	static uint8_t src[LENDERS][SLOTS][PART];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint8_t *from = src[l->number][i % SLOTS];
		bool lends = i % 3 != 0;

		while (sem_wait(&l->free) != 0)
			;
		fill_word(from, PART, i);
		REQUIRE(vd_put(l->h, l->number * PART, from, PART, l->number,
			       lends ? VD_LEND : 0) == 0);
		if (!lends)
			sem_post(&l->free);
	}
	return NULL;
}

/* Sources are given back in the order of their puts. */
NATIVE_TEST(threads_lend)
{
	struct rig r = rig_open();
	static uint8_t box[LENDERS * PART];
	struct lender l[LENDERS];
	pthread_t threads[LENDERS];
	uint32_t lent = LENDERS * (ROUNDS - (ROUNDS + 2) / 3);
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	for (uint32_t i = 0; i < LENDERS; i++) {
		l[i] = (struct lender){.h = h, .number = i};
		REQUIRE(sem_init(&l[i].free, 0, SLOTS - 4) == 0);
		REQUIRE(pthread_create(&threads[i], NULL, lend_many, &l[i]) == 0);
	}
	for (uint32_t i = 0; i < lent; i++)
		sem_post(&l[next_done(r.a).tag].free);
	for (uint32_t i = 0; i < LENDERS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(vd_flush(r.a), 0);
	for (uint32_t i = 0; i < LENDERS; i++) {
		CHECK(is_word(box + i * PART, PART, ROUNDS - 1));
		sem_destroy(&l[i].free);
	}
	rig_check_path(r.a);
	rig_close(&r);
}
