/* SPDX-License-Identifier: Apache-2.0 */
/* The viaductds of some hosts, played in one process on the fake interconnect: they bring what an
 * honest end says to the other one, and what the test says as somebody else, under a user id. */
#ifndef VD_TESTS_UNIT_DAEMON_RIG_H
#define VD_TESTS_UNIT_DAEMON_RIG_H

#include <endian.h>

#include "base/reason.h"
#include "rdma/hello.h"
#include "remote/say.h"
#include "support/fake.h"
#include "unit/test.h"

enum {
	RIG_Q = 1,	   /* a server */
	RIG_P = 2,	   /* its client */
	RIG_HOSTS = 3,	   /* 10.0.0.1 to 10.0.0.3: each has a context of its own */
	RIG_USER = 1000,   /* of honest ends */
	RIG_OTHER = 1001,  /* who is another user */
	RIG_THEIRS = 6666, /* the port of an end that the test plays */
	RIG_MAILS = 16,
	RIG_STILL = 4, /* steps */
};

struct rig_mail {
	struct local_message m;
	size_t bytes;
};

static struct fake_world *rig_world;
static uint64_t rig_seed = 3;
static uint16_t rig_port = 1000; /* P's last one */
/* Time that passes ends when nothing more can happen but by clocks. */
static bool rig_is_brief;
static struct rig_mail rig_mail[RIG_MAILS];
static unsigned rig_first, rig_next;
/* What was said last by an honest end: of each kind; and to an end that the test plays. */
static struct say rig_said[SAY_GONE + 1], rig_heard;
static uint32_t rig_heard_id, rig_heard_status, rig_heard_count;
/* Changes what an honest end is told. */
static void (*rig_tamper)(struct say *s);
/* An honest end's next answer of this kind comes too late: who has asked is told so. */
static uint32_t rig_late;

static inline struct name_end rig_at(uint8_t host, uint16_t port)
{
	return (struct name_end){.addr = {[10] = 0xff, 0xff, 10, 0, 0, host},
				 .port = htobe16(port)};
}

static inline bool rig_is_theirs(const struct name_end *e)
{
	return e->port == htobe16(RIG_THEIRS);
}

static inline void rig_post(struct local_message m, uint32_t uid, const struct say *s)
{
	struct rig_mail *to = &rig_mail[rig_next++ % RIG_MAILS];

	REQUIRE(rig_next - rig_first <= RIG_MAILS);
	m.uid = uid;
	if (s)
		memcpy(m.hello, s, sizeof(*s));
	*to = (struct rig_mail){m, s ? sizeof(*s) : 0};
}

/* From one honest end to the other. */
static inline void rig_pass(struct local_message m, struct say *s)
{
	if (s && s->kind <= SAY_GONE)
		rig_said[s->kind] = *s;
	if (s && rig_tamper)
		rig_tamper(s);
	rig_post(m, RIG_USER, s);
}

/* ---- the test's own end ---- */

/* It asks the connection's honest end. Its ids are even, those of across are odd. */
static inline void rig_ask(const struct name_end *from, const struct name_end *to,
			   uint32_t uid, const struct say *s)
{
	static uint32_t id;
	struct local_message m = {.type = LOCAL_ASKED, .local = *to, .peer = *from};

	m.id = id += 2;
	rig_post(m, uid, s);
}

/* It answers what it was asked last. */
static inline void rig_answer(uint32_t uid, const struct say *s)
{
	struct local_message m = {.type = LOCAL_DONE, .id = rig_heard_id};

	rig_post(m, uid, s);
}

static inline void rig_hear(const struct local_message *m, const struct say *s)
{
	rig_heard = s ? *s : (struct say){0};
	rig_heard_id = m->id;
	rig_heard_status = m->status;
	rig_heard_count++;
}

/* ---- in the place of remote/ask_daemon.c ---- */

bool relay_is_there(void)
{
	return true;
}

void relay_forked(void)
{
}

bool relay_withdraw(const struct name_end *local, const struct name_end *peer)
{
	(void)local;
	(void)peer;
	return false;
}

void relay_is_idle(void)
{
}

int relay_say(struct local_message *m, size_t bytes)
{
	struct say said, *s = bytes == sizeof(said) ? &said : NULL;
	struct local_message to = {.id = m->id, .status = m->status};

	if (s)
		memcpy(s, m->hello, sizeof(*s));
	if (m->type == LOCAL_ASK && rig_is_theirs(&m->peer)) {
		rig_hear(m, s);
	} else if (m->type == LOCAL_ASK) {
		to.type = LOCAL_ASKED;
		to.local = m->peer;
		to.peer = m->local;
		rig_pass(to, s);
	} else if (m->type == LOCAL_ANSWER && m->id % 2 == 0) {
		rig_hear(m, s);
	} else if (m->type == LOCAL_ANSWER) {
		to.type = LOCAL_DONE;
		if (s && s->kind == rig_late) {
			to.status = LOCAL_SILENT;
			s = NULL;
			rig_late = 0;
		}
		rig_pass(to, s);
	}
	return 0;
}

int relay_hear(struct local_message *m, size_t *bytes)
{
	const struct rig_mail *from = &rig_mail[rig_first % RIG_MAILS];

	if (rig_first == rig_next)
		return 0;
	rig_first++;
	*m = from->m;
	*bytes = from->bytes;
	return 1;
}

/* ---- the hosts ---- */

static inline void rig_begin(void)
{
	const struct link_limits limits = {.links = ACROSS_LINKS + ACROSS_BULKS,
					   .credits = ACROSS_CREDITS,
					   .sends = ACROSS_SENDS,
					   .watch_ms = 50};

	if (rig_world)
		return;
	rig_world = fake_world_create(rig_seed);
	for (int i = 0; i < RIG_HOSTS; i++) {
		struct across_context *c = &across_contexts[i];

		REQUIRE(fake_open(rig_world, &limits, &c->context) == 0);
		REQUIRE(link_arm(c->context) == 0);
		c->local = rig_at((uint8_t)(i + 1), 0);
	}
	FDS_SETTLED();
}

/* Under the lock. */
static inline void rig_pass_time(unsigned steps)
{
	for (unsigned still = 0; steps > 0 && still < RIG_STILL; steps--) {
		fake_step(rig_world);
		hub_poll();
		still = rig_is_brief && fake_is_still(rig_world) ? still + 1 : 0;
	}
}

static inline void rig_steps(void)
{
	struct across_guard g = across_enter();

	rig_pass_time(200);
	across_leave(g);
}

/* ---- honest ends ---- */

struct rig_end {
	struct peer *a;
	struct wire *wire;
	int result; /* of its last step */
	bool lost;
};

static inline void rig_ring(void *owner)
{
	(void)owner;
}

static inline void rig_lose(void *owner)
{
	((struct rig_end *)owner)->lost = true;
}

static inline void rig_open(struct rig_end *e, enum across_role role,
			    struct name_end local, struct name_end peer)
{
	*e = (struct rig_end){0};
	REQUIRE(across_begin(&local, &peer, role, &e->a) == 1);
}

/* Once it has met its peer it is attached. */
static inline void rig_step(struct rig_end *e)
{
	enum wire_direction out =
		e->a->role == ACROSS_CONNECTED ? WIRE_FROM_CONNECTOR : WIRE_FROM_ACCEPTOR;
	const struct across_owner owner = {
		.owner = e, .ring = rig_ring, .lost = rig_lose};

	if (e->result != 0)
		return;
	e->a->not_before_ms = 0; /* time passes */
	e->result = across_step(e->a);
	if (e->result == 1) {
		e->wire = aligned_alloc(4096, WIRE_HEADER_BYTES);
		memset(e->wire, 0, WIRE_HEADER_BYTES);
		across_attach(e->a, e->wire, out, &owner);
	}
	rig_steps();
}

/* The two ends of a connection, as far as they come. */
static inline void rig_meet(struct rig_end *connected, struct rig_end *accepted)
{
	for (int i = 0; i < 10 && (!connected->result || !accepted->result); i++) {
		rig_step(connected);
		rig_step(accepted);
	}
}

/* P connects to Q. */
static inline void rig_join(struct rig_end *p, struct rig_end *q)
{
	struct name_end at_q = rig_at(RIG_Q, 5432), at_p = rig_at(RIG_P, ++rig_port);

	rig_begin();
	rig_open(p, ACROSS_CONNECTED, at_p, at_q);
	rig_open(q, ACROSS_ACCEPTED, at_q, at_p);
	rig_meet(p, q);
	REQUIRE(p->result == 1 && q->result == 1);
}

static inline int rig_places(const struct across_link *k)
{
	int count = 0;

	for (int i = 0; i < ACROSS_PLACES; i++)
		count += k->at[i] != NULL;
	return count;
}

static inline int rig_links(void)
{
	int count = 0;

	for (int i = 0; i < ACROSS_LINKS; i++)
		count += across_links[i].link != NULL;
	return count;
}

static inline void rig_close(struct rig_end *e)
{
	across_end(e->a);
	rig_steps();
	free(e->wire);
	e->wire = NULL;
}

static inline void rig_put(struct rig_end *e, const char *text)
{
	struct wire_dir *out = e->a->out;
	struct ring_span span;
	struct ring_tx tx;

	ring_tx_init(&tx, 1);
	ring_tx_span(&tx, out, across_out_data(e->a), strlen(text), &span);
	memcpy(span.data, text, strlen(text));
	ring_tx_commit(&tx, out, strlen(text), false);
	across_push(e->a);
	rig_steps();
}

static inline bool rig_has(const struct rig_end *e, const char *text)
{
	return e->a->in->produced == strlen(text) &&
	       memcmp(across_in_data(e->a), text, strlen(text)) == 0;
}

#endif
