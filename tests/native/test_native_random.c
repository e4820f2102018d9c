/* SPDX-License-Identifier: Apache-2.0 */
/* The whole interface at random, between two processes, against a model; now and then one is killed.
 * NATIVE_SEED and NATIVE_ROUNDS say where to begin and how long to go on. */
#include "native/rig.h"

#define BOXES	  4
#define BOX_BYTES 40000u
#define STEPS	  150

/* What a notification of the driver asks of the owner: the box above, the question below. */
enum { ASK_SUM, ASK_RENEW_OWN, ASK_RENEW_SHARED, ASKS };

static uint32_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

static uint64_t sum_of(const uint8_t *at)
{
	uint64_t sum = 1469598103934665603ull;

	for (uint32_t i = 0; i < BOX_BYTES; i++)
		sum = (sum ^ at[i]) * 1099511628211ull;
	return sum;
}

/* ---- the owner of the boxes: a process that does what it is told ---- */

struct owned {
	uint8_t *at;
	bool shared;
	vd_region *x;
};

static void renew(vd_conn *c, struct owned *o, int number, bool shared)
{
	char name[16];
	void *at;

	if (o->x) {
		REQUIRE(vd_unexport(o->x) == 0);
		memset(o->at, 0xee, BOX_BYTES);
		if (o->shared)
			REQUIRE(vd_free(o->at) == 0);
		else
			free(o->at);
	}
	o->shared = shared;
	if (shared)
		REQUIRE(vd_alloc(BOX_BYTES, &at) == 0);
	else
		at = calloc(1, BOX_BYTES + 8);
	o->at = at;
	snprintf(name, sizeof(name), "box%d", number);
	REQUIRE(vd_export(c, name, at, BOX_BYTES, VD_READ | VD_WRITE, NULL, &o->x) == 0);
}

static void own(vd_conn *c)
{
	struct owned boxes[BOXES] = {0};
	struct vd_event ev;
	uint8_t bell;
	vd_region *x;
	vd_remote *answers;

	for (int i = 0; i < BOXES; i++)
		renew(c, &boxes[i], i, i & 1);
	REQUIRE(vd_export(c, "bell", &bell, 1, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(c, "answers", RIG_MS, &answers) == 0);
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY) {
		uint32_t number = ev.tag / ASKS;
		uint64_t sum;

		if (ev.tag % ASKS != ASK_SUM)
			renew(c, &boxes[number], (int)number,
			      ev.tag % ASKS == ASK_RENEW_SHARED);
		sum = sum_of(boxes[number].at);
		if (vd_put(answers, 0, &sum, sizeof(sum), ev.tag, VD_NOTIFY) < 0)
			break;
	}
	vd_close(c);
	for (int i = 0; i < BOXES; i++)
		CHECK(boxes[i].shared ? vd_free(boxes[i].at) == 0
				      : (free(boxes[i].at), 1));
}

/* ---- the driver ---- */

struct drive {
	vd_conn *c;
	vd_remote *bell, *box[BOXES];
	uint64_t answer, state;
	vd_region *answers;
	uint8_t model[BOXES][BOX_BYTES];
};

/* The owner's answer: by then all that was put before is in place. */
static void ask(struct drive *d, uint32_t number, uint32_t what)
{
	uint32_t tag = number * ASKS + what;
	char name[16];

	REQUIRE(vd_put(d->bell, 0, "", 0, tag, VD_NOTIFY) == 0);
	if (what != ASK_SUM)
		memset(d->model[number], 0, BOX_BYTES);
	REQUIRE(rig_event(d->c).tag == tag);
	REQUIRE(d->answer == sum_of(d->model[number]));
	if (what == ASK_SUM)
		return;
	snprintf(name, sizeof(name), "box%u", number);
	REQUIRE(vd_put(d->box[number], 0, "x", 1, 0, 0) == -ESTALE);
	vd_unimport(d->box[number]);
	REQUIRE(vd_import(d->c, name, RIG_MS, &d->box[number]) == 0);
}

static void put_some(struct drive *d, uint32_t number)
{
	static uint8_t src[BOX_BYTES];
	uint32_t at = next(&d->state) % BOX_BYTES,
		 len = next(&d->state) % (BOX_BYTES - at + 1);

	if (next(&d->state) % 2)
		len %= 100;
	rig_fill(src, len, next(&d->state));
	memcpy(d->model[number] + at, src, len);
	REQUIRE(vd_put(d->box[number], at, src, len, 0, 0) == 0);
}

static void get_some(struct drive *d, uint32_t number)
{
	static uint8_t dst[BOX_BYTES];
	uint32_t at = next(&d->state) % BOX_BYTES,
		 len = next(&d->state) % (BOX_BYTES - at + 1);

	REQUIRE(vd_get(d->box[number], at, dst, len) == 0);
	REQUIRE(memcmp(dst, d->model[number] + at, len) == 0);
}

static void add_some(struct drive *d, uint32_t number)
{
	uint32_t at = next(&d->state) % (BOX_BYTES / 8) * 8;
	uint64_t old, was, add = next(&d->state);

	memcpy(&was, d->model[number] + at, 8);
	REQUIRE(vd_fetch_add(d->box[number], at, add, &old) == 0);
	REQUIRE(old == was);
	was += add;
	REQUIRE(vd_compare_swap(d->box[number], at, was, ~was, &old) == 0);
	REQUIRE(old == was);
	was = ~was;
	memcpy(d->model[number] + at, &was, 8);
}

static void step(struct drive *d)
{
	uint32_t number = next(&d->state) % BOXES;

	switch (next(&d->state) % 12) {
	case 0:
		ask(d, number, ASK_RENEW_OWN);
		break;
	case 1:
		ask(d, number, ASK_RENEW_SHARED);
		break;
	case 2:
		ask(d, number, ASK_SUM);
		break;
	case 3:
		REQUIRE(vd_flush(d->c) == 0);
		break;
	case 4:
	case 5:
		get_some(d, number);
		break;
	case 6:
		add_some(d, number);
		break;
	default:
		put_some(d, number);
	}
}

/* It may be in the midst of anything. */
static void kill_it(struct drive *d, struct rig_child *child)
{
	struct vd_event ev = {0};
	static uint8_t src[BOX_BYTES];
	int r = 0;

	for (uint32_t n = next(&d->state) % 40; n > 0; n--)
		REQUIRE(vd_put(d->box[n % BOXES], 0, src, BOX_BYTES, 0, 0) == 0);
	REQUIRE(vd_put(d->bell, 0, "", 0, next(&d->state) % (ASKS * BOXES), VD_NOTIFY) ==
		0);
	kill(child->pid, SIGKILL);
	while (r == 0 || r == -ESTALE)
		r = vd_put(d->box[next(&d->state) % BOXES], 0, src, BOX_BYTES, 0, 0);
	CHECK_EQ(r, -ECONNRESET);
	while (vd_wait(d->c, &ev, 1, RIG_MS) == 1 && ev.kind != VD_EVENT_END)
		;
	CHECK_EQ(ev.result, -ECONNRESET);
}

static void round_of(uint64_t seed)
{
	static struct drive d;
	struct rig_child child = rig_spawn(own);
	bool kills;
	char name[16];

	memset(&d, 0, sizeof(d));
	d.c = child.c;
	d.state = seed * 0x9e3779b97f4a7c15ull | 1;
	next(&d.state);
	kills = next(&d.state) % 4 == 0;
	REQUIRE(vd_export(d.c, "answers", &d.answer, 8, VD_WRITE, NULL, &d.answers) == 0);
	REQUIRE(vd_import(d.c, "bell", RIG_MS, &d.bell) == 0);
	for (int i = 0; i < BOXES; i++) {
		snprintf(name, sizeof(name), "box%d", i);
		REQUIRE(vd_import(d.c, name, RIG_MS, &d.box[i]) == 0);
	}
	for (int i = 0; i < STEPS; i++)
		step(&d);
	for (uint32_t i = 0; i < BOXES; i++)
		ask(&d, i, ASK_SUM);
	if (kills)
		kill_it(&d, &child);
	else
		rig_check_path(d.c);
	vd_close(d.c);
	rig_reap(&child, kills ? 128 + SIGKILL : 0);
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

NATIVE_TEST(random)
{
	uint64_t seed = number_of("NATIVE_SEED", 1),
		 rounds = number_of("NATIVE_ROUNDS", 12);

	for (uint64_t i = 0; i < rounds; i++) {
		printf("seed %llu\n", (unsigned long long)(seed + i));
		round_of(seed + i);
	}
}
