/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from another host by viaductd, before there is a link, or where there is one: struct
 * say, in each state of a meeting, from whoever the daemons vouch for: remote/meet.c, say.c.
 * Two honest ends have a connection beforehand: it loses nothing, and nobody
 * writes to it. Not reached: lines to viaductd that break (ask_daemon.c), devices that fail, measured crossovers,
 * links that time out. */
#include "fuzz/hosts.h"

enum { Q = 1, P = 2, THIRD = 3 };
enum { STEPS_MOST = 24, CHANGES_MOST = 12 };
static const char bytes[] = "these are Q's";

/* An input: the seed of the interconnect; then steps. */
enum step {
	STEP,	 /* Q's end does what it does now and then */
	ANSWER,	 /* the stranger answers what it was asked last, or asks: a say follows */
	REFUSE,	 /* the stranger's daemon answers with a status */
	REOPEN,	 /* Q's end ends, and another begins: its role, the stranger's host */
	DAMAGED, /* two honest ends meet, and each thing that they say is changed */
	STEPS
};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t seeds[][40] = {
		{1, REOPEN, 1, P, STEP, ANSWER, 0, SAY_I_AM, 0, STEP, STEP, ANSWER, 0,
		 SAY_TAKEN, 0, STEP},
		{2, REOPEN, 0, P, STEP, ANSWER, 0, SAY_WHO, 0, STEP, ANSWER, 0, SAY_LINK,
		 0, STEP, STEP},
		{3, REOPEN, 1,	    THIRD, STEP,     ANSWER, 1,	  SAY_I_AM,
		 1, 8,	    1,	    STEP,  STEP,     ANSWER, 1,	  SAY_FULL,
		 0, STEP,   ANSWER, 0,	   SAY_GONE, 0,	     STEP},
		{4, DAMAGED, 3, 4, 1, 40, 3, 60, 255, DAMAGED, 0},
		{5,	 REOPEN,	1,    P,      STEP, REFUSE, LOCAL_SILENT, STEP,
		 REFUSE, LOCAL_REFUSED, STEP, REOPEN, 0,    THIRD,  STEP,	  ANSWER,
		 0,	 SAY_NO,	0,    STEP},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

static struct fuzz_bytes input;
static struct rig_end p, q; /* honest */
static struct rig_end end;  /* Q's end of what the stranger wants */
static bool is_open;
static uint16_t port;
static struct name_end theirs;

static uint8_t next(void)
{
	return (uint8_t)fuzz_number(&input, 1);
}

static void change(struct say *s)
{
	for (unsigned n = next() % CHANGES_MOST; n > 0; n--) {
		size_t at = next() % sizeof(*s);

		((uint8_t *)s)[at] = (uint8_t)(((uint8_t *)s)[at] + next());
	}
}

static void join(struct rig_end *connected, struct rig_end *accepted, uint8_t host)
{
	struct name_end at_q = rig_at(Q, 5432), at_p = rig_at(host, ++port);

	rig_open(connected, ACROSS_CONNECTED, at_p, at_q);
	rig_open(accepted, ACROSS_ACCEPTED, at_q, at_p);
	rig_meet(connected, accepted);
}

/* ---- the stranger ---- */

/* All that could be right of what it says; it knows P's process, the token and the place. */
static struct say say_something(enum say_kind kind)
{
	struct say s = say_begin(kind);
	const struct across_link *k = q.a->link;

	s.token = rig_heard.token ? rig_heard.token : k ? k->token : 1;
	s.place = p.a->place;
	s.generation = p.a->generation;
	if (rig_heard.has_hello || kind == SAY_LINK) {
		const struct link_address a = {.fabric = FABRIC_FAKE,
					       .mtu = 3,
					       .qpn = 77,
					       .window_bytes = ACROSS_WINDOW_BYTES,
					       .credits = ACROSS_CREDITS,
					       .nonce = 5};

		s.has_hello = 1;
		link_hello_put(s.hello, &a);
	}
	return s;
}

static void answer(void)
{
	uint32_t uid = next() % 2 ? RIG_OTHER : RIG_USER;
	struct say s = say_something((enum say_kind)(next() % 12));

	change(&s);
	if (is_open && end.a->role == ACROSS_ACCEPTED)
		rig_answer(uid, &s);
	else
		rig_ask(&theirs, &end.a->local, uid, &s);
}

static void refuse(void)
{
	struct local_message m = {
		.type = LOCAL_DONE, .id = rig_heard_id, .status = next()};

	rig_post(m, RIG_USER, NULL);
}

static void reopen(void)
{
	enum across_role role = next() % 2 ? ACROSS_ACCEPTED : ACROSS_CONNECTED;

	if (is_open)
		rig_close(&end);
	theirs = rig_at((uint8_t)(P + next() % 2), RIG_THEIRS);
	rig_open(&end, role, rig_at(Q, ++port), theirs);
	is_open = true;
}

static void meet_damaged(void)
{
	struct rig_end a, b;

	rig_tamper = change;
	join(&a, &b, P);
	rig_tamper = NULL;
	/* If both believe that they have met, a place that was damaged has the bytes, or nothing. */
	if (a.result == 1 && b.result == 1) {
		rig_put(&b, bytes);
		FUZZ_CHECK(a.a->in->produced == 0 || rig_has(&a, bytes));
	}
	rig_close(&a);
	rig_close(&b);
}

static void step(void)
{
	switch (next() % STEPS) {
	case STEP:
		if (is_open && end.result == 0)
			rig_step(&end);
		break;
	case ANSWER:
		if (is_open && rig_next - rig_first < RIG_MAILS)
			answer();
		break;
	case REFUSE:
		if (rig_next - rig_first < RIG_MAILS)
			refuse();
		break;
	case REOPEN:
		reopen();
		break;
	default:
		if (rig_first == rig_next)
			meet_damaged();
	}
}

/* The two have their link and their place. A stranger whom the daemons take for P, and who does not
 * answer, can keep a place of it from being used, and no more. */
static void check_honest(const struct across_link *link)
{
	FUZZ_CHECK(!p.lost && !q.lost && q.a->link == link && link->link);
	FUZZ_CHECK(link->at[q.a->place] == q.a && p.a->in->produced == 0);
	rig_put(&q, bytes);
	FUZZ_CHECK(rig_has(&p, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct across_link *link;
	bool damaged = false;

	input = (struct fuzz_bytes){data, size};
	port = 1000;
	is_open = false;
	rig_heard = (struct say){0};
	hosts_begin(next());
	join(&p, &q, P);
	FUZZ_CHECK(p.result == 1 && q.result == 1);
	link = q.a->link;
	for (int i = 0; i < STEPS_MOST && input.left > 0; i++) {
		damaged = damaged || *input.at % STEPS == DAMAGED;
		step();
	}
	if (is_open)
		rig_close(&end);
	/* Damage of what honest ends say can take their link, too. */
	if (!damaged)
		check_honest(link);
	rig_close(&p);
	rig_close(&q);
	hosts_end();
	return 0;
}
