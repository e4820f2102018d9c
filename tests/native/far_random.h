/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of the native library between two hosts: all of it at random, against a model of each byte. */
#ifndef VD_TESTS_NATIVE_FAR_RANDOM_H
#define VD_TESTS_NATIVE_FAR_RANDOM_H

#include "native/far_rig.h"

#define LENT	 20u /* more than a device may be at */
#define EXPECTED 1024u

struct world {
	struct rig r;
	uint64_t state;
	uint8_t *box[BOXES], model[BOXES][BOX_BYTES];
	bool shared[BOXES];
	vd_region *x[BOXES];
	vd_remote *to[BOXES];
	uint32_t tag, names, vain, wait_us;
	uint8_t src[LENT][BOX_BYTES]; /* those of the last puts that were lent */
	bool src_lent[LENT];
	uint32_t lent, done;
	/* Tags of notifications that have not been looked at, and of which box: those of an export that has ended need
	 * not come. */
	uint32_t expected[EXPECTED], expected_first, expected_end;
	int expected_box[EXPECTED];
};

static void expect(struct world *w, uint32_t tag, int box)
{
	REQUIRE(w->expected_end - w->expected_first < EXPECTED);
	w->expected[w->expected_end % EXPECTED] = tag;
	w->expected_box[w->expected_end++ % EXPECTED] = box;
}

static void expect_no_more(struct world *w, int box)
{
	for (uint32_t i = w->expected_first; i != w->expected_end; i++)
		if (w->expected_box[i % EXPECTED] == box)
			w->expected_box[i % EXPECTED] = -1;
}

/* In their order, up to this one. */
static void note_until(struct world *w, uint32_t tag)
{
	struct vd_event ev;

	do {
		ev = rig_event(w->r.b);
		REQUIRE(ev.kind == VD_EVENT_NOTIFY);
		while (w->expected[w->expected_first % EXPECTED] != ev.tag)
			REQUIRE(w->expected_box[w->expected_first++ % EXPECTED] == -1);
		w->expected_first++;
	} while (ev.tag != tag);
}

static void export_again(struct world *w, int i)
{
	char name[16];

	/* A new one each time: a flush need not ask, so the end of the last may be unheard. */
	snprintf(name, sizeof(name), "%u", ++w->names);
	if (w->x[i]) {
		REQUIRE(vd_unexport(w->x[i]) == 0);
		expect_no_more(w, i);
		memset(w->box[i], 0xdd, BOX_BYTES);
		if (next(&w->state) % 2) /* one that comes too late */
			vd_put(w->to[i], 0, w->model[i], BOX_BYTES, 0, 0);
		REQUIRE(vd_flush(w->r.a) == 0);
		CHECK(all_are(w->box[i], BOX_BYTES, 0xdd));
		vd_unimport(w->to[i]);
		if (w->shared[i])
			REQUIRE(vd_free(w->box[i]) == 0);
		else
			free(w->box[i]);
	}
	w->shared[i] = next(&w->state) % 2;
	if (w->shared[i])
		REQUIRE(vd_alloc(BOX_BYTES, (void **)&w->box[i]) == 0);
	else
		w->box[i] = calloc(1, BOX_BYTES);
	memset(w->model[i], 0, BOX_BYTES);
	REQUIRE(vd_export(w->r.b, name, w->box[i], BOX_BYTES, VD_READ | VD_WRITE, NULL,
			  &w->x[i]) == 0);
	REQUIRE(vd_import(w->r.a, name, RIG_MS, &w->to[i]) == 0);
}

static void put_some(struct world *w, int i, bool notifies)
{
	static uint8_t src[BOX_BYTES];
	int r;
	uint32_t at = next(&w->state) % BOX_BYTES,
		 len = next(&w->state) % (BOX_BYTES - at + 1), tag = ++w->tag * LENT;

	if (next(&w->state) % 3 == 0)
		len %= 3000;
	rig_fill(src, len, next(&w->state));
	memcpy(w->model[i] + at, src, len);
	if (notifies)
		expect(w, tag, i);
	r = vd_put(w->to[i], at, src, len, tag, notifies ? VD_NOTIFY : 0);
	REQUIRE(r == 0);
	memset(src, 0xcc, len);
	if (!notifies)
		return;
	note_until(w, tag);
	REQUIRE(memcmp(w->box[i], w->model[i], BOX_BYTES) == 0);
}

static void take_lent(struct world *w)
{
	struct vd_event ev = rig_event(w->r.a);

	REQUIRE(ev.kind == VD_EVENT_DONE && ev.result == 0);
	/* A short one need not wait for others in the queue. */
	REQUIRE(ev.tag % LENT < LENT && w->src_lent[ev.tag % LENT]);
	w->src_lent[ev.tag % LENT] = false;
	memset(w->src[ev.tag % LENT], 0xcc, BOX_BYTES);
	w->done++;
}

/* Those before it may still be queued, or under way. Their tags are no others'. */
static void lend_some(struct world *w, int i)
{
	uint32_t at = next(&w->state) % BOX_BYTES,
		 len = next(&w->state) % (BOX_BYTES - at + 1), n, tag;
	bool notifies = next(&w->state) % 3 == 0;

	while (w->lent - w->done >= LENT)
		take_lent(w);
	for (n = 0; w->src_lent[n]; n++)
		;
	w->src_lent[n] = true;
	w->lent++;
	tag = ++w->tag * LENT + n;
	if (next(&w->state) % 8 == 0)
		len %= 100;
	rig_fill(w->src[n], len, next(&w->state));
	memcpy(w->model[i] + at, w->src[n], len);
	if (notifies)
		expect(w, tag, i);
	REQUIRE(vd_put(w->to[i], at, w->src[n], len, tag,
		       VD_LEND | (notifies ? VD_NOTIFY : 0)) == 0);
	/* All that is under way is there. */
	if (notifies && next(&w->state) % 4 == 0) {
		note_until(w, tag);
		REQUIRE(memcmp(w->box[i], w->model[i], BOX_BYTES) == 0);
	}
}

static void lend_many(struct world *w, int i)
{
	uint32_t n = 1 + next(&w->state) % LENT;

	while (n-- > 0)
		lend_some(w, i);
}

/* With the nth write from now on what is on its way is lost, or comes late; 0: with none. */
static void disturb(struct world *w, uint32_t nth)
{
	struct across_guard g = across_enter();
	struct across_link *k = handle(w->r.a)->link;

	if (k && k->bulk)
		fake_break(k->bulk->link, nth, LINK_PEER_DEAD);
	across_leave(g);
}

static void *disturb_soon(void *arg)
{
	struct world *w = arg;
	struct across_guard g;

	usleep(w->wait_us);
	g = across_enter();
	if (handle(w->r.a)->link)
		bulk_give_up(handle(w->r.a)->link);
	across_leave(g);
	return NULL;
}

/* Another thread gives the link beside up while one is put. */
static void put_disturbed(struct world *w, int i)
{
	uint32_t key = key_of(w->to[i]);
	pthread_t thread;

	w->wait_us = next(&w->state) % 300;
	REQUIRE(pthread_create(&thread, NULL, disturb_soon, w) == 0);
	put_some(w, i, false);
	pthread_join(thread, NULL);
	if (!key || key_of(w->to[i]))
		return;
	/* It was in vain: the owner has heard that first. */
	REQUIRE(vd_flush(w->r.a) == 0);
	CHECK(!is_reached(w->x[i]));
	w->vain++;
}

static void lend_disturbed(struct world *w, int i)
{
	pthread_t thread;

	w->wait_us = next(&w->state) % 300;
	REQUIRE(pthread_create(&thread, NULL, disturb_soon, w) == 0);
	lend_many(w, i);
	pthread_join(thread, NULL);
}

/* Perhaps while another thread gives the link beside up. */
static void get_some(struct world *w, int i, bool is_disturbed)
{
	static uint8_t dst[BOX_BYTES];
	uint32_t at = next(&w->state) % BOX_BYTES,
		 len = next(&w->state) % (BOX_BYTES - at + 1);
	pthread_t thread;

	w->wait_us = next(&w->state) % 300;
	if (is_disturbed)
		REQUIRE(pthread_create(&thread, NULL, disturb_soon, w) == 0);
	memset(dst, 0xcc, sizeof(dst));
	REQUIRE(vd_get(w->to[i], at, dst + at, len) == 0);
	REQUIRE(memcmp(dst + at, w->model[i] + at, len) == 0);
	REQUIRE(all_are(dst, at, 0xcc));
	REQUIRE(all_are(dst + at + len, BOX_BYTES - at - len, 0xcc));
	if (is_disturbed)
		pthread_join(thread, NULL);
	/* Its key is gone where that was in vain, but the owner's is not void then. */
	if (next(&w->state) % 4 == 0)
		REQUIRE(vd_forget(dst, BOX_BYTES) == 0);
}

/* There, or back. */
static void send_some(struct world *w)
{
	vd_conn *from = next(&w->state) % 2 ? w->r.a : w->r.b;
	size_t len = 1 + next(&w->state) % (next(&w->state) % 4 ? 3000 : 200000), n;
	uint64_t at = next(&w->state);
	const void *got;
	void *p;

	REQUIRE(vd_reserve(from, len, &p) == 0);
	rig_fill(p, len, at);
	REQUIRE(vd_commit(from, len) == 0);
	REQUIRE(vd_peek(from == w->r.a ? w->r.b : w->r.a, &got, &n, RIG_MS) == 0);
	REQUIRE(n == len && rig_is(got, n, at));
	REQUIRE(vd_release(from == w->r.a ? w->r.b : w->r.a) == 0);
}

static void step(struct world *w)
{
	int i = (int)(next(&w->state) % BOXES);
	uint64_t old, was;

	switch (next(&w->state) % 32) {
	case 0:
		export_again(w, i);
		break;
	case 1:
		disturb(w, 1 + (uint32_t)next(&w->state) % 3);
		break;
	case 2:
		void_keys();
		break;
	case 3:
	case 4:
		put_disturbed(w, i);
		break;
	case 5:
		memcpy(&was, w->model[i] + 800, 8);
		REQUIRE(vd_fetch_add(w->to[i], 800, 3, &old) == 0);
		REQUIRE(old == was);
		was += 3;
		memcpy(w->model[i] + 800, &was, 8);
		break;
	case 6:
		REQUIRE(vd_flush(w->r.a) == 0);
		REQUIRE(memcmp(w->box[i], w->model[i], BOX_BYTES) == 0);
		break;
	case 7:
		usleep(5000); /* a new link beside */
		break;
	case 8:
	case 9:
	case 10:
	case 11:
	case 12:
	case 13:
	case 14:
		put_some(w, i, true);
		break;
	case 15:
	case 16:
	case 17:
		send_some(w);
		break;
	case 18:
		get_some(w, i, false);
		break;
	case 19:
		get_some(w, i, true);
		break;
	case 20:
		lend_disturbed(w, i);
		break;
	case 21:
	case 22:
		lend_many(w, i);
		break;
	case 23:
	case 24:
		lend_some(w, i);
		break;
	default:
		put_some(w, i, false);
	}
}

FAR_TEST(at_random)
{
	const char *seed = getenv("NATIVE_SEED"), *rounds = getenv("NATIVE_ROUNDS");
	uint64_t from = seed ? strtoull(seed, NULL, 10) : 1,
		 count = rounds ? strtoull(rounds, NULL, 10) : 6, by_device = 0, got = 0,
		 vain = 0, begun = lent_begun();
	static struct world w;

	for (uint64_t n = from; n < from + count; n++) {
		memset(&w, 0, sizeof(w));
		w.state = n * 0x9e3779b97f4a7c15ull | 1;
		w.r = far_open();
		fake_linger(across_world, true);
		for (int i = 0; i < BOXES; i++)
			export_again(&w, i);
		for (int i = 0; i < 400; i++)
			step(&w);
		REQUIRE(vd_flush(w.r.a) == 0);
		for (int i = 0; i < BOXES; i++)
			REQUIRE(memcmp(w.box[i], w.model[i], BOX_BYTES) == 0);
		while (w.done != w.lent)
			take_lent(&w);
		disturb(&w, 0);
		by_device += far_puts(w.r.a);
		got += counted(w.r.a, NATIVE_FAR_GETS);
		vain += w.vain;
		rig_close(&w.r);
		for (int i = 0; i < BOXES; i++)
			CHECK(w.shared[i] ? vd_free(w.box[i]) == 0 : (free(w.box[i]), 1));
	}
	begun = lent_begun() - begun;
	printf("%llu puts and %llu gets by the device, which went on with %llu of the "
	       "puts, "
	       "%llu puts in vain, %u late writes\n",
	       (unsigned long long)by_device, (unsigned long long)got,
	       (unsigned long long)begun, (unsigned long long)vain,
	       fake_counts(across_world)->strays);
	CHECK(by_device > 0 && begun > 0 && got > 0 && vain > 0);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
}

#endif
