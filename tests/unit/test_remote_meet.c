/* SPDX-License-Identifier: Apache-2.0 */
/* Whose link a connection between hosts goes by. Q is a server on host 1, P a process on host 2, and
 * they have a link. M knows all that Q or P tells anybody, and wants a place on it. */
#include "unit/daemon_rig.h"

enum { Q = RIG_Q, P = RIG_P, THIRD = 3 };
static struct say m_said;
static const char by_m[] = "these bytes were chosen by M", by_q[] = "these are Q's";

/* ---- honest ends ---- */

TEST(connections_of_two_processes_share_a_link)
{
	enum { MORE = ACROSS_PLACES + 1 };
	struct rig_end p[MORE + 1], q[MORE + 1];
	struct name_end at_p = rig_at(P, 80), at_q = rig_at(Q, 4000);

	for (int i = 0; i < MORE; i++)
		rig_join(&p[i], &q[i]);
	/* P accepts, too. */
	rig_open(&p[MORE], ACROSS_ACCEPTED, at_p, at_q);
	rig_open(&q[MORE], ACROSS_CONNECTED, at_q, at_p);
	rig_meet(&q[MORE], &p[MORE]);
	for (int i = 0; i <= MORE; i++) {
		int shared = i < ACROSS_PLACES ? 0 : ACROSS_PLACES;

		CHECK_EQ(q[i].a->link, q[shared].a->link);
		CHECK_EQ(p[i].a->link, p[shared].a->link);
		rig_put(&q[i], by_q);
		CHECK(rig_has(&p[i], by_q));
		rig_put(&p[i], by_q);
		CHECK(rig_has(&q[i], by_q));
	}
	CHECK(q[0].a->link != q[ACROSS_PLACES].a->link);
	for (int i = 0; i <= MORE; i++) {
		rig_close(&p[i]);
		rig_close(&q[i]);
	}
	CHECK_EQ(rig_links(), 4);
}

static uint8_t told[SIPHASH_BYTES];

static void name_another(struct say *s)
{
	if (s->kind != SAY_LINK)
		return;
	memcpy(told, rig_said[SAY_I_AM].number, sizeof(told));
	s->token++;
	rig_tamper = NULL;
}

/* P has told another number by then. */
TEST(each_proof_has_a_number_of_its_own)
{
	struct rig_end p, q;

	rig_tamper = name_another;
	rig_join(&p, &q);
	CHECK(rig_tamper == NULL);
	CHECK(memcmp(told, rig_said[SAY_I_AM].number, sizeof(told)) != 0);
	rig_close(&p);
	rig_close(&q);
}

/* P's end has failed, and Q's has not heard of it; or that was never P's, but somebody's who said that
 * he is P. */
TEST(a_link_that_the_peer_has_not_is_replaced)
{
	struct rig_end p[2], q[2];

	rig_join(&p[0], &q[0]);
	p[0].a->link->token ^= 1;
	rig_join(&p[1], &q[1]);
	CHECK_EQ(rig_said[SAY_GONE].kind, SAY_GONE);
	CHECK(q[1].a->link != q[0].a->link);
	p[0].a->link->token ^= 1;
	for (int i = 0; i < 2; i++) {
		rig_put(&q[i], by_q);
		CHECK(rig_has(&p[i], by_q));
		rig_close(&p[i]);
		rig_close(&q[i]);
	}
}

/* ---- M connects to Q, and says that it is P ---- */

struct stage {
	struct rig_end p, q; /* honest */
	struct rig_end with_m;
	int places, links;
};

/* Q has asked who that is. */
static void m_connects(struct stage *st, uint8_t host)
{
	rig_join(&st->p, &st->q);
	st->places = rig_places(st->q.a->link);
	st->links = rig_links();
	rig_open(&st->with_m, ACROSS_ACCEPTED, rig_at(Q, 5432), rig_at(host, RIG_THEIRS));
	rig_step(&st->with_m);
	REQUIRE(rig_heard.kind == SAY_WHO);
}

static void say_as_p(uint32_t uid)
{
	struct say s = say_begin(SAY_I_AM); /* P's process, as it says */

	rig_answer(uid, &s);
}

/* It names the place that P has. */
static struct say taken(const struct stage *st)
{
	struct say s = say_begin(SAY_TAKEN);

	s.token = st->q.a->link->token;
	s.place = st->p.a->place;
	s.generation = st->p.a->generation;
	return s;
}

/* Q has met nobody, and its link with P is as it was. */
static void is_unharmed(struct stage *st)
{
	rig_steps();
	CHECK_EQ(rig_places(st->q.a->link), st->places);
	CHECK_EQ(st->p.a->in->produced, 0);
	rig_put(&st->q, by_q);
	CHECK(rig_has(&st->p, by_q));
	CHECK(!st->p.lost && !st->q.lost);
	rig_close(&st->p);
	rig_close(&st->q);
	rig_close(&st->with_m);
	CHECK_EQ(rig_links(), st->links);
}

/* Such an M is a stranger: it gets a link of its own, or none. */
static void is_another(uint32_t uid, uint8_t host)
{
	struct stage st;
	struct say s;

	m_connects(&st, host);
	say_as_p(uid);
	rig_step(&st.with_m);
	rig_step(&st.with_m);
	CHECK_EQ(rig_heard.kind, SAY_LINK);
	CHECK(rig_heard.token != st.q.a->link->token);
	CHECK_EQ(rig_heard.has_hello, 1);
	s = taken(&st);
	rig_answer(uid, &s);
	rig_step(&st.with_m);
	CHECK_EQ(st.with_m.result, -VD_REASON_HELLO);
	if (st.with_m.result == 1) {
		rig_put(&st.with_m, by_m);
		CHECK(!rig_has(&st.p, by_m));
	}
	is_unharmed(&st);
}

TEST(another_user_of_the_same_host)
{
	is_another(RIG_OTHER, P);
}

TEST(the_same_user_of_another_host)
{
	is_another(RIG_USER, THIRD);
}

enum proof { NO_PROOF, WRONG_SECRET, OLD_PROOF, ITS_OWN, RIGHT_PROOF };

/* Of the user and host of P, it is told of the link, and lacks the secret alone. */
static void answer_named(struct stage *st, enum proof proof, uint32_t uid)
{
	const struct say old = rig_said[SAY_TAKEN];
	uint8_t secret[SIPHASH_BYTES] = {1, 2, 3};
	struct say s = taken(st);
	/* As M sees the meeting. */
	struct peer m = {.role = ACROSS_CONNECTED,
			 .local = st->with_m.a->peer,
			 .peer = st->with_m.a->local};

	memcpy(m.peer_number, rig_heard.number, sizeof(m.peer_number));
	if (proof == OLD_PROOF)
		s = old;
	else if (proof == WRONG_SECRET)
		say_prove(&m, secret, &s);
	else if (proof == ITS_OWN) /* what Q itself has proved, sent back */
		memcpy(s.proof, rig_heard.proof, sizeof(s.proof));
	else if (proof == RIGHT_PROOF)
		say_prove(&m, st->p.a->link->theirs, &s);
	m_said = s;
	rig_answer(uid, &s);
	rig_step(&st->with_m);
}

static void m_is_named_the_link(struct stage *st)
{
	m_connects(st, P);
	say_as_p(RIG_USER);
	rig_step(&st->with_m);
	rig_step(&st->with_m);
	CHECK_EQ(rig_heard.kind, SAY_LINK);
	CHECK_EQ(rig_heard.token, st->q.a->link->token);
	CHECK_EQ(rig_heard.has_hello, 0);
}

TEST(who_lacks_the_secret_has_no_part_in_a_link)
{
	for (enum proof proof = NO_PROOF; proof < RIGHT_PROOF; proof++) {
		struct stage st;

		/* Old proofs are of the link that is shared again. */
		m_is_named_the_link(&st);
		answer_named(&st, proof, RIG_USER);
		CHECK_EQ(st.with_m.result, -VD_REASON_HELLO);
		is_unharmed(&st);
	}
}

TEST(a_right_proof_of_another_user_is_none)
{
	struct stage st;

	m_is_named_the_link(&st);
	answer_named(&st, RIGHT_PROOF, RIG_OTHER);
	CHECK_EQ(st.with_m.result, -VD_REASON_HELLO);
	is_unharmed(&st);
}

/* So it was the secret that all the others lacked. */
TEST(the_secret_proves)
{
	struct stage st;

	m_is_named_the_link(&st);
	answer_named(&st, RIGHT_PROOF, RIG_USER);
	CHECK_EQ(st.with_m.result, 1);
	CHECK_EQ(st.with_m.a->link, st.q.a->link);
	/* M has nothing there to end its connection with: the link goes. */
	link_abort(st.q.a->link->link);
	rig_steps();
	rig_close(&st.with_m);
	rig_close(&st.p);
	rig_close(&st.q);
}

/* Even of the same two ends, on the same link. */
TEST(a_proof_is_good_for_one_meeting)
{
	struct rig_end again;
	struct stage st;

	m_is_named_the_link(&st);
	answer_named(&st, RIGHT_PROOF, RIG_USER);
	CHECK_EQ(st.with_m.result, 1);
	rig_open(&again, ACROSS_ACCEPTED, st.with_m.a->local, st.with_m.a->peer);
	rig_step(&again);
	say_as_p(RIG_USER);
	rig_step(&again);
	rig_step(&again);
	CHECK_EQ(rig_heard.token, m_said.token);
	rig_answer(RIG_USER, &m_said);
	rig_step(&again);
	CHECK_EQ(again.result, -VD_REASON_HELLO);
	link_abort(st.q.a->link->link);
	rig_steps();
	rig_close(&again);
	rig_close(&st.with_m);
	rig_close(&st.p);
	rig_close(&st.q);
}

/* ---- P connects to M, who names the link ---- */

static uint8_t p_number[SIPHASH_BYTES];

/* P has said who it is, and how many places its link has in use. */
static void p_connects(struct stage *st, uint8_t host, uint32_t uid)
{
	struct say s = say_begin(SAY_WHO);
	struct name_end at_p = rig_at(P, ++rig_port), at_m = rig_at(host, RIG_THEIRS);

	rig_join(&st->p, &st->q);
	st->places = rig_places(st->q.a->link);
	st->links = rig_links();
	rig_open(&st->with_m, ACROSS_CONNECTED, at_p, at_m);
	rig_step(&st->with_m); /* it publishes */
	rig_ask(&at_m, &at_p, uid, &s);
	rig_step(&st->with_m);
	CHECK_EQ(rig_heard.kind, SAY_I_AM);
	memcpy(p_number, rig_heard.number, sizeof(p_number));
}

/* What Q would say. */
static struct say named(const struct stage *st)
{
	struct say s = say_begin(SAY_LINK);

	s.token = st->p.a->link->token;
	s.place = st->q.a->place;
	s.generation = st->q.a->generation;
	return s;
}

static void m_names(struct stage *st, uint32_t uid, const struct say *s)
{
	rig_ask(&st->with_m.a->peer, &st->with_m.a->local, uid, s);
	rig_step(&st->with_m);
}

/* P does not know that it has such a link with M. */
static void is_another_server(uint32_t uid, uint8_t host)
{
	struct stage st;
	struct say s;

	p_connects(&st, host, uid);
	s = named(&st);
	m_names(&st, uid, &s);
	CHECK_EQ(rig_heard.kind, SAY_GONE);
	CHECK_EQ(st.with_m.a->link, NULL);
	CHECK_EQ(st.with_m.result, 0);
	is_unharmed(&st);
}

TEST(another_user_of_the_servers_host)
{
	is_another_server(RIG_OTHER, Q);
}

TEST(the_servers_user_of_another_host)
{
	is_another_server(RIG_USER, THIRD);
}

static void name_with(struct stage *st, enum proof proof)
{
	uint8_t secret[SIPHASH_BYTES] = {1, 2, 3};
	struct say s = named(st);
	struct peer m = {.role = ACROSS_ACCEPTED,
			 .local = st->with_m.a->peer,
			 .peer = st->with_m.a->local};

	memcpy(m.peer_number, p_number, sizeof(m.peer_number));
	if (proof == OLD_PROOF)
		s = rig_said[SAY_LINK];
	else if (proof == WRONG_SECRET)
		say_prove(&m, secret, &s);
	else if (proof == RIGHT_PROOF)
		say_prove(&m, st->q.a->link->theirs, &s);
	m_said = s;
	m_names(st, RIG_USER, &s);
}

TEST(who_lacks_the_secret_can_name_no_link)
{
	for (enum proof proof = NO_PROOF; proof < ITS_OWN; proof++) {
		struct stage st;

		p_connects(&st, Q, RIG_USER);
		name_with(&st, proof);
		CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
		CHECK_EQ(st.with_m.a->link, NULL);
		CHECK_EQ(st.with_m.result, -VD_REASON_HELLO);
		is_unharmed(&st);
	}
}

/* P's number is good for one proof, and without one there is none. */
TEST(nobody_names_a_link_before_asking_or_twice)
{
	struct stage st;
	struct say s;

	p_connects(&st, Q, RIG_USER);
	s = named(&st);
	s.token++;
	m_names(&st, RIG_USER, &s);
	CHECK_EQ(rig_heard.kind, SAY_GONE);
	name_with(&st, RIGHT_PROOF);
	CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
	CHECK_EQ(st.with_m.a->link, NULL);
	is_unharmed(&st);
}

/* Once: a second time, between the same two ends, P has told another number. */
TEST(the_secret_names)
{
	struct say who = say_begin(SAY_WHO);
	struct stage st;
	struct rig_end again;

	p_connects(&st, Q, RIG_USER);
	name_with(&st, RIGHT_PROOF);
	CHECK_EQ(rig_heard.kind, SAY_TAKEN);
	CHECK_EQ(st.with_m.a->link, st.p.a->link);
	rig_open(&again, ACROSS_CONNECTED, st.with_m.a->local, st.with_m.a->peer);
	rig_step(&again);
	rig_ask(&again.a->peer, &again.a->local, RIG_USER, &who);
	rig_step(&again);
	CHECK_EQ(rig_heard.kind, SAY_I_AM);
	rig_ask(&again.a->peer, &again.a->local, RIG_USER, &m_said);
	rig_step(&again);
	CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
	CHECK_EQ(again.result, -VD_REASON_HELLO);
	rig_close(&again);
	link_abort(st.q.a->link->link);
	rig_steps();
	rig_close(&st.with_m);
	rig_close(&st.p);
	rig_close(&st.q);
}

/* M is on both hosts, as the users of P and Q: P connects to it, and it to Q. */
TEST(what_is_said_in_one_meeting_proves_nothing_in_another)
{
	struct rig_end q;
	struct stage st;
	struct say s;
	uint32_t asked_by_q;

	p_connects(&st, Q, RIG_USER);
	s = rig_heard;
	rig_open(&q, ACROSS_ACCEPTED, rig_at(Q, 5432), rig_at(P, RIG_THEIRS));
	rig_step(&q);
	CHECK_EQ(rig_heard.kind, SAY_WHO);
	rig_answer(RIG_USER, &s);
	rig_step(&q);
	rig_step(&q);
	CHECK_EQ(rig_heard.kind, SAY_LINK);
	CHECK_EQ(rig_heard.token, st.q.a->link->token);
	s = rig_heard;
	asked_by_q = rig_heard_id;
	m_names(&st, RIG_USER, &s);
	CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
	CHECK_EQ(st.with_m.a->link, NULL);
	rig_heard_id = asked_by_q;
	s = taken(&st);
	rig_answer(RIG_USER, &s);
	rig_step(&q);
	CHECK_EQ(q.result, -VD_REASON_HELLO);
	rig_close(&q);
	is_unharmed(&st);
}

/* ---- hellos ---- */

/* P's device would write to whatever host M names: it writes to that of the connection. */
TEST(a_hello_of_another_host_is_refused)
{
	struct stage st;
	struct say s = say_begin(SAY_LINK);
	struct across_link *k;
	struct link_address a;
	const char *why;

	for (uint8_t host = Q; host <= THIRD; host += 2) {
		struct across_guard g;

		p_connects(&st, Q, RIG_OTHER);
		g = across_enter();
		REQUIRE(hub_create(&across_contexts[Q - 1], &k) == 0);
		REQUIRE(link_hello(k->link, s.hello) == 0);
		REQUIRE(link_hello_get(s.hello, sizeof(s.hello), &a, &why) == 0);
		memcpy(a.gid, rig_at(host, 0).addr, sizeof(a.gid));
		link_hello_put(s.hello, &a);
		s.has_hello = 1;
		s.token = k->token;
		across_leave(g);
		m_names(&st, RIG_OTHER, &s);
		if (host == Q) {
			CHECK_EQ(rig_heard.kind, SAY_TAKEN);
			REQUIRE(st.with_m.a->link != NULL);
			link_abort(st.with_m.a->link->link);
			rig_steps();
		} else {
			CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
			CHECK_EQ(st.with_m.result, -VD_REASON_HELLO);
		}
		g = across_enter();
		hub_drop(k);
		across_leave(g);
		is_unharmed(&st);
	}
}

/* ---- versions ---- */

TEST(a_server_meets_a_peer_of_an_older_version)
{
	struct stage st;
	struct say s = say_begin(SAY_I_AM);

	m_connects(&st, P);
	s.version--;
	rig_answer(RIG_USER, &s);
	rig_step(&st.with_m);
	CHECK_EQ(st.with_m.result, -VD_REASON_VERSION);
	is_unharmed(&st);
}

TEST(a_server_of_an_older_version_asks)
{
	struct name_end at_p = rig_at(P, ++rig_port), at_m = rig_at(Q, RIG_THEIRS);
	struct say s = say_begin(SAY_WHO);
	struct rig_end p;

	rig_begin();
	rig_open(&p, ACROSS_CONNECTED, at_p, at_m);
	rig_step(&p);
	s.version--;
	rig_ask(&at_m, &at_p, RIG_USER, &s);
	rig_step(&p);
	CHECK_EQ(rig_heard_status, LOCAL_REFUSED);
	CHECK_EQ(p.result, -VD_REASON_VERSION);
	rig_close(&p);
}
