/* SPDX-License-Identifier: Apache-2.0 */
/* Of the random test: its seeds, its orders, and the owner of the boxes. */
#ifndef VD_TESTS_NATIVE_RANDOM_OWNER_H
#define VD_TESTS_NATIVE_RANDOM_OWNER_H

#include <dlfcn.h>

#include "native/rig.h"

#define LANES_MOST 3u
#define BOXES	   3u /* of a lane: own memory; of vd_alloc; and one for redirections */
#define REDIRECTED 2u
#define BOX_BYTES  30000u
#define STEPS	   120u
#define GUARD	   64u
#define DETOURS	   4u
#define POISON	   0xee
#define OLD	   0x80

struct rng {
	uint64_t state;
};

static uint32_t next(struct rng *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return (uint32_t)(r->state >> 16);
}

static struct rng rng_of(uint64_t seed, uint32_t stream)
{
	struct rng r = {(seed * 64 + stream) * 0x9e3779b97f4a7c15ull | 1};

	for (int i = 0; i < 4; i++)
		next(&r);
	return r;
}

static uint64_t sum_of(const uint8_t *at)
{
	uint64_t sum = 1469598103934665603ull;

	for (uint32_t i = 0; i < BOX_BYTES; i++)
		sum = (sum ^ at[i]) * 1099511628211ull;
	return sum;
}

static bool is_all(const uint8_t *at, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

static void make_old(uint8_t *at)
{
	for (uint32_t i = 0; i < BOX_BYTES; i++)
		at[i] |= OLD;
}

/* What a round is like; the same in both processes. */
struct plan {
	uint64_t seed;
	uint32_t lanes;
	bool kills, forks;
	bool lowers;  /* where that can be done: the connection goes back to TCP */
	bool handles; /* the driver has handlers alone, and closes while a thread waits */
	bool any;     /* events are waited for by vd_wait_any */
};

static struct plan plan_of(uint64_t seed)
{
	struct rng r = rng_of(seed, 63);
	struct plan p = {.seed = seed, .lanes = 1 + next(&r) % LANES_MOST};

	p.kills = next(&r) % 3 == 0;
	p.forks = next(&r) % 4 == 0;
	p.lowers = next(&r) % 3 == 0 && dlsym(RTLD_DEFAULT, "viaduct_door");
	p.handles = !p.kills && next(&r) % 2;
	p.any = next(&r) % 2;
	return p;
}

static struct plan plan;

/* Handlers close nothing: after one of them the wait goes on. */
static int wait_event(vd_conn *c, struct vd_event *ev, int timeout_ms)
{
	vd_conn *const conns[2] = {NULL, c};
	int r = 0, which = 1;

	if (!plan.any)
		return vd_wait(c, ev, 1, timeout_ms);
	while (r == 0)
		r = vd_wait_any(conns, 2, ev, 1, timeout_ms, &which);
	REQUIRE(which == 1);
	return r;
}

/* True: done. False: the other end was killed, as it is to be. */
static bool ok(int r)
{
	if (r == 0)
		return true;
	if (!plan.kills || r != -ECONNRESET)
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)plan.seed,
			strerror(-r));
	REQUIRE(plan.kills && r == -ECONNRESET);
	return false;
}

static const char *box_name(uint32_t lane, uint32_t box, char name[32])
{
	snprintf(name, 32, "box %u of lane %u", box, lane);
	return name;
}

/* ---- orders ---- */

enum { ORDER_SUM, ORDER_RENEW, ORDER_REDIRECT, ORDER_REDIRECT_END };

/* Put to the lane's bell. */
struct order {
	uint32_t what, box, answer; /* answer: whether one is wanted, and its number */
	uint32_t offset, len;
};

/* Put back to the lane's desk, at the number's place: orders follow before they are answered. */
struct answer {
	uint32_t number;
	uint64_t sum;
};

/* ---- the owner ---- */

struct side {
	uint8_t *memory; /* between guards */
	uint8_t *was;	 /* when it was ended */
	uint32_t offset, len, from, run;
	vd_detour *d;
};

struct owned {
	uint8_t *at;
	bool shared;
	vd_region *x;
	uint8_t *dead; /* the one before it: nobody writes there */
	bool dead_shared;
	struct side sides[DETOURS];
	uint32_t count;
};

struct desk {
	vd_conn *c;
	uint32_t lane;
	struct rng rng;
	struct order bell[16];
	uint32_t bell_at;
	vd_region *bell_x;
	vd_remote *answers;
	struct owned boxes[BOXES];
	pthread_mutex_t mu; /* several threads take events of one lane */
	uint32_t obeyed;
	bool is_over;
	pthread_cond_t turn;
};

static void bury(struct owned *o)
{
	if (!o->dead)
		return;
	REQUIRE(is_all(o->dead, BOX_BYTES, POISON));
	if (o->dead_shared)
		REQUIRE(vd_free(o->dead) == 0);
	else
		free(o->dead);
	o->dead = NULL;
}

static bool make_box(struct desk *k, uint32_t number)
{
	struct owned *o = &k->boxes[number];
	char name[32];
	void *at;

	o->shared = number == 1 && next(&k->rng) % 4 != 0;
	if (o->shared)
		REQUIRE(vd_alloc(BOX_BYTES, &at) == 0);
	else
		at = calloc(1, BOX_BYTES);
	o->at = at;
	return ok(vd_export(k->c, box_name(k->lane, number, name), at, BOX_BYTES,
			    number == REDIRECTED ? VD_WRITE : VD_READ | VD_WRITE, k,
			    &o->x));
}

static bool renew(struct desk *k, uint32_t number)
{
	struct owned *o = &k->boxes[number];

	REQUIRE(vd_unexport(o->x) == 0);
	memset(o->at, POISON, BOX_BYTES);
	bury(o);
	o->dead = o->at;
	o->dead_shared = o->shared;
	return make_box(k, number);
}

static void redirect(struct desk *k, const struct order *order)
{
	struct owned *o = &k->boxes[REDIRECTED];
	struct side *s = &o->sides[o->count++];

	*s = (struct side){.offset = order->offset, .len = order->len};
	s->memory = malloc(s->len + 2 * GUARD);
	memset(s->memory, POISON, s->len + 2 * GUARD);
	REQUIRE(vd_redirect(o->x, s->offset, s->memory + GUARD, s->len, &s->d) == 0);
}

static void redirect_end(struct side *s)
{
	struct vd_redirected done;

	if (!s->d)
		return;
	REQUIRE(vd_redirect_end(s->d, &done) == 0);
	s->d = NULL;
	REQUIRE(done.kind == VD_REDIRECT_NONE ? done.len == 0
					      : done.len > 0 && done.offset <= s->len &&
							done.len <= s->len - done.offset);
	REQUIRE((done.kind == VD_REDIRECT_FULL) == (done.len == s->len));
	s->from = (uint32_t)done.offset;
	s->run = (uint32_t)done.len;
	s->was = malloc(s->len + 2 * GUARD);
	memcpy(s->was, s->memory, s->len + 2 * GUARD);
}

/*
 * The order's turn has come after all that was put before it. Each put to this box has a number as its
 * bytes, below OLD, that counts from the last sum on, which has made OLD of all bytes. So it is known
 * which one is the newer.
 */
static void merge(struct owned *o)
{
	for (uint32_t i = 0; i < o->count; i++) {
		struct side *s = &o->sides[i];

		redirect_end(s);
		REQUIRE(memcmp(s->was, s->memory, s->len + 2 * GUARD) == 0);
		REQUIRE(is_all(s->memory, GUARD, POISON));
		REQUIRE(is_all(s->memory + GUARD + s->len, GUARD, POISON));
		for (uint32_t n = s->from; n < s->from + s->run; n++) {
			uint8_t *to = &o->at[s->offset + n], byte = s->memory[GUARD + n];

			REQUIRE(byte > 0 && byte < OLD);
			if (*to >= OLD || byte > *to)
				*to = byte;
		}
		free(s->memory);
		free(s->was);
	}
	o->count = 0;
}

static bool obey(struct desk *k, const struct order *order)
{
	struct owned *o = &k->boxes[order->box];
	struct answer answer = {.number = order->answer};

	/* At any moment of what is put meanwhile. */
	if (o->count > 0 && next(&k->rng) % 2)
		redirect_end(&o->sides[next(&k->rng) % o->count]);
	switch (order->what) {
	case ORDER_RENEW:
		merge(o);
		if (!renew(k, order->box))
			return false;
		break;
	case ORDER_REDIRECT:
		for (uint32_t i = 0; i < o->count; i++)
			redirect_end(&o->sides[i]);
		if (o->count < DETOURS)
			redirect(k, order);
		break;
	case ORDER_REDIRECT_END:
		for (uint32_t i = 0; i < o->count; i++)
			redirect_end(&o->sides[i]);
		break;
	case ORDER_SUM:
		merge(o);
		answer.sum = sum_of(o->at);
		if (order->box == REDIRECTED)
			make_old(o->at);
	}
	if (!order->answer)
		return true;
	return ok(vd_put(k->answers, order->answer % 16 * sizeof(answer), &answer,
			 sizeof(answer), order->answer, VD_NOTIFY));
}

/* The event of an order: several threads may have got one of this lane each, in their order. */
static void take_order(const struct vd_event *event, void *arg)
{
	struct desk *k = arg;
	struct order order;

	pthread_mutex_lock(&k->mu);
	while (k->obeyed != event->tag)
		pthread_cond_wait(&k->turn, &k->mu);
	order = k->bell[event->offset / sizeof(order)];
	REQUIRE(event->len == sizeof(order) && order.box < BOXES);
	k->is_over = k->is_over || !obey(k, &order);
	k->obeyed++;
	pthread_cond_broadcast(&k->turn);
	pthread_mutex_unlock(&k->mu);
}

static void *work(void *arg)
{
	vd_conn *c = arg;
	struct vd_event ev = {0};
	int r;

	while (ev.kind != VD_EVENT_END) {
		r = wait_event(c, &ev, -1);
		if (r < 0)
			break;
		if (ev.kind == VD_EVENT_NOTIFY)
			take_order(&ev, ev.user);
		else
			ok(ev.result);
	}
	return NULL;
}

static void desk_close(struct desk *k)
{
	for (uint32_t i = 0; i < BOXES; i++) {
		struct owned *o = &k->boxes[i];

		for (uint32_t n = 0; n < o->count; n++) {
			free(o->sides[n].memory);
			free(o->sides[n].was);
		}
		bury(o);
		if (o->shared)
			REQUIRE(vd_free(o->at) == 0);
		else
			free(o->at);
	}
	pthread_mutex_destroy(&k->mu);
	pthread_cond_destroy(&k->turn);
}

static bool desk_open(struct desk *k, vd_conn *c, uint32_t lane)
{
	char name[32];

	*k = (struct desk){.c = c, .lane = lane, .rng = rng_of(plan.seed, 32 + lane)};
	pthread_mutex_init(&k->mu, NULL);
	pthread_cond_init(&k->turn, NULL);
	for (uint32_t i = 0; i < BOXES; i++)
		if (!make_box(k, i))
			return false;
	snprintf(name, sizeof(name), "answers of lane %u", lane);
	if (!ok(vd_import(c, name, RIG_MS, &k->answers)))
		return false;
	snprintf(name, sizeof(name), "bell of lane %u", lane);
	if (!ok(vd_export(c, name, k->bell, sizeof(k->bell), VD_WRITE, k, &k->bell_x)))
		return false;
	if (lane % 2 == plan.seed % 2)
		REQUIRE(vd_on_notify(k->bell_x, take_order, k) == 0);
	return true;
}

#endif
