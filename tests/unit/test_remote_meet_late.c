/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings between hosts where an answer comes too late: whoever asked has been told so by then, and who
 * has answered does not know it. */
#include "unit/daemon_rig.h"

enum { Q = RIG_Q, P = RIG_P };
static const char by_q[] = "these are Q's", by_p[] = "and these are P's";

static void carry_both_ways(struct rig_end *p, struct rig_end *q)
{
	rig_put(q, by_q);
	CHECK(rig_has(p, by_q));
	rig_put(p, by_p);
	CHECK(rig_has(q, by_p));
}

/* Those of earlier tests are gone. */
static void end_links(void)
{
	rig_begin();
	for (int i = 0; i < ACROSS_LINKS; i++)
		if (across_links[i].link)
			link_abort(across_links[i].link);
	rig_steps();
	CHECK_EQ(rig_links(), 0);
}

/* P was slow to answer: its daemon has said so meanwhile, and Q asks again. */
static void meet_late(uint32_t kind, int before)
{
	struct rig_end p[2], q[2];

	end_links();
	for (int i = 0; i < before; i++)
		rig_join(&p[i], &q[i]);
	rig_late = kind;
	rig_join(&p[before], &q[before]);
	CHECK_EQ(rig_late, 0);
	CHECK_EQ(rig_links(), 2);
	CHECK_EQ(rig_places(q[0].a->link), before + 1);
	CHECK_EQ(rig_places(p[0].a->link), before + 1);
	for (int i = 0; i <= before; i++)
		carry_both_ways(&p[i], &q[i]);
	for (int i = 0; i <= before; i++) {
		rig_close(&p[i]);
		rig_close(&q[i]);
	}
}

TEST(who_says_too_late_who_it_is_meets_all_the_same)
{
	meet_late(SAY_I_AM, 0);
	meet_late(SAY_I_AM, 1);
}

TEST(who_takes_a_new_link_too_late_gets_another)
{
	meet_late(SAY_TAKEN, 0);
}

TEST(who_takes_a_place_too_late_has_it)
{
	meet_late(SAY_TAKEN, 1);
}

/* P has a place there, of which Q does not know which it is; P's last note gives Q's back. */
static void end_in_doubt(bool q_first)
{
	struct rig_end p[2], q[2];

	end_links();
	rig_join(&p[0], &q[0]);
	rig_open(&p[1], ACROSS_CONNECTED, rig_at(P, ++rig_port), rig_at(Q, 5432));
	rig_open(&q[1], ACROSS_ACCEPTED, p[1].a->peer, p[1].a->local);
	rig_late = SAY_TAKEN;
	for (int i = 0; i < 10 && rig_late; i++) {
		rig_step(&p[1]);
		rig_step(&q[1]);
	}
	REQUIRE(rig_late == 0 && p[1].result == 0 && q[1].result == 0);
	CHECK_EQ(rig_places(q[0].a->link), 2);
	CHECK_EQ(rig_places(p[0].a->link), 2);
	rig_close(q_first ? &q[1] : &p[1]);
	CHECK_EQ(rig_places(q[0].a->link), 2);
	rig_close(q_first ? &p[1] : &q[1]);
	CHECK_EQ(rig_places(q[0].a->link), 1);
	carry_both_ways(&p[0], &q[0]);
	rig_close(&p[0]);
	rig_close(&q[0]);
}

TEST(a_place_in_doubt_is_not_given_to_others)
{
	end_in_doubt(true);
	end_in_doubt(false);
}
