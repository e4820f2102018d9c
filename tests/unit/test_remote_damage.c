/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends that meet while what they say is damaged at random. */
#include "unit/daemon_rig.h"

enum { MEETINGS = 300 };
static uint64_t chance;
static uint16_t port = 1000;
static const char bytes[] = "bytes";

static uint32_t pick(uint32_t below)
{
	chance = chance * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(chance >> 33) % below;
}

/* Bytes, or a word that has a meaning. */
static void damage(struct say *s)
{
	uint32_t *const word[] = {&s->kind, &s->place, &s->generation, &s->has_hello};

	if (pick(3))
		return;
	if (pick(2))
		*word[pick(4)] = pick(10);
	for (uint32_t n = pick(3); n > 0; n--)
		((uint8_t *)s)[pick(sizeof(*s))] = (uint8_t)pick(256);
}

static bool meets(uint8_t host)
{
	struct name_end at_q = rig_at(1, 5432), at_p = rig_at(host, port++);
	struct rig_end p, q;
	bool met;

	rig_open(&p, ACROSS_CONNECTED, at_p, at_q);
	rig_open(&q, ACROSS_ACCEPTED, at_q, at_p);
	rig_meet(&p, &q);
	met = p.result == 1 && q.result == 1;
	if (met) {
		/* A place that was damaged has them, or nothing has. */
		rig_put(&q, bytes);
		CHECK(p.a->in->produced == 0 || rig_has(&p, bytes));
	}
	rig_close(&p);
	rig_close(&q);
	return met;
}

/* Some meet, and some do not. With the first host there may be a link that is still waited for; with
 * another one all is well. */
TEST(damaged_words)
{
	int met = 0;

	rig_begin();
	rig_tamper = damage;
	for (int i = 0; i < MEETINGS; i++)
		met += meets(2);
	CHECK(met > 0 && met < MEETINGS);
	rig_tamper = NULL;
	CHECK(meets(3));
}
