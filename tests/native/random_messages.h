/* SPDX-License-Identifier: Apache-2.0 */
/* Of the random test: messages beside all else, each with its answer, and in order with puts. */
#ifndef VD_TESTS_NATIVE_RANDOM_MESSAGES_H
#define VD_TESTS_NATIVE_RANDOM_MESSAGES_H

#include "native/random_owner.h"

/*
 * The driver puts each message's number to a slot of the owner's before it sends the message; both its
 * size and its bytes follow from the seed. The owner checks them and answers. So many are under way at most
 * that no slot is used again before its message was seen.
 */
#define MESSAGES    80u
#define MESSAGES_ON 24u
#define SLOTS	    32u

static uint32_t message_slots[SLOTS];

static size_t message_size(struct rng *r)
{
	static const uint32_t most[] = {1, 100, 3000, 9000, 70000, 400000};
	uint32_t kind = next(r) % 32;

	return 1 + next(r) % most[kind == 0 ? 5 : kind < 4 ? 4 : kind % 4];
}

static size_t answer_size(uint32_t number)
{
	return 1 + number * 37 % 2000;
}

/* Those before it may be looked for in vain. */
static int look_for(vd_conn *c, struct rng *r, const void **p, size_t *len)
{
	int result = -ETIMEDOUT;

	for (uint32_t n = next(r) % 4; n > 0 && result == -ETIMEDOUT; n--)
		result = vd_peek(c, p, len, (int)(next(r) % 3));
	return result == -ETIMEDOUT ? vd_peek(c, p, len, -1) : result;
}

static bool send_message(vd_conn *c, struct rng *r, size_t len, uint32_t number)
{
	size_t more = next(r) % 3000;
	void *p;

	if (!ok(vd_reserve(c, len + more, &p)))
		return false;
	if (next(r) % 16 == 0 && (!ok(vd_commit(c, 0)) || !ok(vd_reserve(c, len, &p))))
		return false;
	rig_fill(p, len, number);
	return ok(vd_commit(c, len));
}

static bool take_answer(vd_conn *c, struct rng *r, uint32_t number)
{
	const void *p;
	size_t len;

	if (!ok(look_for(c, r, &p, &len)))
		return false;
	REQUIRE(len == answer_size(number) && rig_is(p, len, number));
	return ok(vd_release(c));
}

/* The driver's. */
static void *drive_messages(void *arg)
{
	struct rng sizes = rng_of(plan.seed, 50), r = rng_of(plan.seed, 51);
	uint32_t sent = 0, answered = 0;
	vd_conn *c = arg;
	vd_remote *slots;

	if (!ok(vd_import(c, "slots", RIG_MS, &slots)))
		return NULL;
	while (answered < MESSAGES) {
		if (sent < MESSAGES && sent - answered < MESSAGES_ON && next(&r) % 3) {
			sent++;
			if (!ok(vd_put(slots, sent % SLOTS * sizeof(sent), &sent,
				       sizeof(sent), 0, 0)) ||
			    !send_message(c, &r, message_size(&sizes), sent))
				return NULL;
		} else if (sent > answered && !take_answer(c, &r, ++answered)) {
			return NULL;
		}
	}
	return c;
}

/* The owner's, until the end. */
static void *own_messages(void *arg)
{
	struct rng sizes = rng_of(plan.seed, 50), r = rng_of(plan.seed, 52);
	vd_conn *c = arg;
	const void *p;
	size_t len;
	int result;

	for (uint32_t n = 1; (result = look_for(c, &r, &p, &len)) == 0; n++) {
		bool early = next(&r) % 2;

		REQUIRE(n <= MESSAGES && len == message_size(&sizes));
		REQUIRE(message_slots[n % SLOTS] == n);
		REQUIRE(rig_is(p, len, n));
		if (early && !ok(vd_release(c)))
			return NULL;
		if (!send_message(c, &r, answer_size(n), n) ||
		    (!early && !ok(vd_release(c))))
			return NULL;
	}
	REQUIRE(result == -EPIPE || plan.kills);
	return NULL;
}

#endif
