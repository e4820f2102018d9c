/* SPDX-License-Identifier: Apache-2.0 */
/* How the two ends of a connection between hosts find each other: by their viaductds. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/reason.h"
#include "remote/crossover.h"
#include "remote/meet.h"
#include "remote/say.h"

/*
 * The connector publishes the connection. The acceptor asks who has it, which takes one
 * question; then it names a link between the two processes and its place there, with a new
 * link's hello where there is none, and is answered with the other place and hello. Both prove
 * that they are the ends of that link, by a number of each other's that is good for one proof: after
 * an answer that does not help, the acceptor begins with the first question again. An answer that is
 * late is lost: the acceptor names the same place again, which the peer may have taken note of, and the
 * connector, which has answered, answers again, as it has said nothing on the link yet. The
 * connector learns from the first note that its answer was heard. Where there can be no link, or
 * is to be none, the acceptor says so, and nobody waits for its reasons; a connector that wants none
 * refuses when it is asked.
 */

static void later(struct peer *a, uint32_t wait_ms)
{
	a->not_before_ms = clock_coarse_ms() + wait_ms;
}

/* ---- the acceptor ---- */

static void ask_who(struct peer *a)
{
	struct say s = say_begin(SAY_WHO);

	if (say_request(a, LOCAL_ASK, &s) == 0)
		a->state = ACROSS_WHO;
}

/* With its hello, and what its other end is to prove from now on. */
static int new_link(struct peer *a, struct say *s, struct across_link **out)
{
	struct across_context *c;
	int r = hub_context(&a->local, &c);

	if (r == 0)
		r = hub_has_share(a) ? hub_create(c, out) : -ENOSPC;
	if (r < 0)
		return r;
	hub_assign(*out, a);
	s->has_hello = 1;
	memcpy(s->secret, (*out)->ours, sizeof(s->secret));
	r = link_hello((*out)->link, s->hello);
	if (r < 0)
		hub_drop(*out);
	return r;
}

static int find_link(struct peer *a, struct say *s)
{
	bool making = false;
	struct across_link *k;
	int r;

	if (a->link && !hub_is_for(a->link, a))
		meet_leave_place(a);
	k = a->link ? a->link : hub_find(a, &making);
	if (!k && making)
		return -EAGAIN;
	if (!say_random(a->number, sizeof(a->number)))
		return -ENOMEM;
	r = k ? 0 : new_link(a, s, &k);
	if (r < 0)
		return r;
	if (!a->link && !hub_take_place(k, a))
		return -EAGAIN;
	s->token = k->token;
	s->place = a->place;
	s->generation = a->generation;
	memcpy(s->number, a->number, sizeof(s->number));
	if (!s->has_hello)
		say_prove(a, k->theirs, s);
	return 0;
}

/* The connector would take us for a plain peer. */
static void say_no(struct peer *a)
{
	const struct say s = say_begin(SAY_NO);

	say_request(a, LOCAL_ASK, &s);
	a->request = 0; /* whatever the answer is */
}

static void ask_link(struct peer *a)
{
	struct say s = say_begin(SAY_LINK);
	int r = a->keeps_tcp ? -EOPNOTSUPP : find_link(a, &s);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		meet_refuse(a, meet_reason(r), strerror(-r));
		say_no(a);
		return;
	}
	if (say_request(a, LOCAL_ASK, &s) == 0)
		a->state = ACROSS_ASKED;
	else if (!a->in_doubt)
		meet_leave_place(a);
	say_wipe(&s, sizeof(s));
}

static bool take_who(struct peer *a, uint32_t uid, const struct say *s)
{
	if (a->state != ACROSS_WHO || s->kind != SAY_I_AM)
		return false;
	a->uid = uid;
	memcpy(a->process, s->process, sizeof(a->process));
	memcpy(a->peer_number, s->number, sizeof(a->peer_number));
	a->state = ACROSS_KNOWN;
	return true;
}

/* The peer has no place there now; or no such link any more, so that it must be another one. Then
 * our end hears that it is the last, from its device. */
static void take_full(struct peer *a, bool is_gone)
{
	struct across_link *k = a->link;

	if (is_gone && k->up) {
		a->gone |= UINT64_C(1) << (k - across_links);
		link_probe(k->link);
	}
	meet_leave_place(a);
	if (a->state == ACROSS_ASKED)
		a->state = ACROSS_NEW;
	later(a, 100);
}

/* Who says this is of the user who was asked, and at the other end of the link: of a new one, where
 * that is who was told the secret just now. */
static bool is_the_peer(const struct peer *a, uint32_t uid, const struct say *s)
{
	return uid == a->uid && say_is_proved(a, a->link->ours, s);
}

/* The peer has taken a place. False: it does not keep to the protocol. */
static bool take_taken(struct peer *a, const struct say *s)
{
	struct across_link *k = a->link;

	if (s->kind != SAY_TAKEN || s->token != k->token || s->place >= ACROSS_PLACES ||
	    memcmp(s->process, k->process, sizeof(k->process)) != 0)
		return false;
	if (link_state(k->link) == LINK_OPEN) {
		if (!s->has_hello || !meet_connect_link(a, k, s))
			return false;
		hub_connected(k);
	}
	a->peer_place = s->place;
	a->peer_generation = (uint8_t)s->generation;
	a->has_peer = true;
	a->in_doubt = false;
	if (a->state == ACROSS_ASKED)
		a->state = ACROSS_OPEN;
	return link_state(k->link) == LINK_UP;
}

/* Whether asking again may help. */
static bool is_passing(uint32_t status)
{
	switch (status) {
	case LOCAL_RATE:
	case LOCAL_FULL:
	case LOCAL_UNREACHABLE:
	case LOCAL_NOBODY:
	case LOCAL_GONE:
	case LOCAL_SILENT:
		return true;
	default:
		return false;
	}
}

static enum vd_reason reason_of(uint32_t status)
{
	switch (status) {
	case LOCAL_RULE:
		return VD_REASON_RULE;
	case LOCAL_OK:
		return VD_REASON_VERSION; /* an answer, but in no words of ours */
	case LOCAL_REFUSED:
		return VD_REASON_PEER_ASKED; /* that process has a reason of its own */
	default:
		return VD_REASON_RELAY;
	}
}

/* Whether the peer may have answered, and the answer was lost. */
static bool is_unknown(uint32_t status)
{
	return status == LOCAL_SILENT || status == LOCAL_GONE ||
	       status == LOCAL_UNREACHABLE;
}

/* What was asked has no good answer. */
static void ask_failed(struct peer *a, const struct local_message *m)
{
	/* With no link yet nobody can write to the place. */
	if (a->link && a->state != ACROSS_WHO && a->link->up && is_unknown(m->status))
		a->in_doubt = true;
	if (!a->in_doubt || a->state == ACROSS_ENDED)
		meet_leave_place(a);
	if (a->state == ACROSS_ENDED)
		a->state = ACROSS_FREE;
	if (a->state == ACROSS_FREE)
		return;
	a->state = ACROSS_NEW;
	later(a, m->wait_ms);
	if (!is_passing(m->status))
		meet_refuse(a, reason_of(m->status), local_status_text(m->status));
}

static void take_answer(struct peer *a, const struct local_message *m,
			const struct say *s)
{
	if (a->state == ACROSS_ENDED && !a->link) {
		a->state = ACROSS_FREE;
	} else if (m->status != LOCAL_OK || !s) {
		ask_failed(a, m);
	} else if (!a->link || a->state == ACROSS_WHO) {
		if (!take_who(a, m->uid, s))
			meet_refuse(a, VD_REASON_HELLO,
				    "the peer does not say who it is");
	} else if (s->kind == SAY_FULL || s->kind == SAY_GONE) {
		take_full(a, s->kind == SAY_GONE);
	} else if (!is_the_peer(a, m->uid, s)) {
		/* The other end knows nothing of it, and loses nothing. */
		meet_leave_place(a);
		meet_refuse(a, VD_REASON_HELLO, "who answers has no part in the link");
	} else if (!take_taken(a, s)) {
		link_abort(a->link->link);
		meet_refuse(a, VD_REASON_HELLO, "the peer's answer is none");
	} else if (a->state == ACROSS_ENDED) {
		note_push(a);
		hub_settle(a);
	}
}

/* ---- both ---- */

static void take_done(const struct local_message *m, const struct say *s)
{
	struct peer *a = say_by_request(m->id);

	if (!a)
		return;
	a->request = 0;
	if (a->role == ACROSS_ACCEPTED) {
		take_answer(a, m, s);
	} else if (m->status != LOCAL_OK && a->state == ACROSS_PUBLISHED) {
		a->state = ACROSS_NEW;
		later(a, m->wait_ms ? m->wait_ms : 1000);
		if (m->status != LOCAL_RATE && m->status != LOCAL_FULL)
			meet_refuse(a, reason_of(m->status),
				    local_status_text(m->status));
	}
}

/* Questions without an answer count as failed, and nothing is published any more. */
static void line_is_new(void)
{
	const struct local_message lost = {.status = LOCAL_SILENT, .wait_ms = 1000};

	for (int i = 0; i < across_used; i++) {
		struct peer *a = &across_pool[i];

		if (a->state == ACROSS_PUBLISHED)
			a->state = ACROSS_NEW;
		if (a->request == 0)
			continue;
		a->request = 0;
		if (a->role == ACROSS_ACCEPTED && a->state != ACROSS_FREE)
			ask_failed(a, &lost);
	}
}

static void hear(void)
{
	struct local_message m;
	struct say said;
	size_t bytes;
	int r;

	while ((r = relay_hear(&m, &bytes)) != 0) {
		const struct say *s = r > 0 && say_of(&m, bytes, &said) ? &said : NULL;

		if (r < 0)
			line_is_new();
		else if (m.type == LOCAL_ASKED)
			answer_asked(&m, s);
		else if (m.type == LOCAL_DONE)
			take_done(&m, s);
		say_wipe(&m, sizeof(m));
		say_wipe(&said, sizeof(said));
	}
}

struct peer *across_take_handle(void)
{
	for (int i = 0; i < across_used; i++)
		if (across_pool[i].state == ACROSS_FREE)
			return &across_pool[i];
	if (across_used == ACROSS_CONNECTIONS)
		return NULL;
	across_pool[across_used] = (struct peer){.turn = across_pool[across_used].turn};
	return &across_pool[across_used++];
}

bool across_is_here(void)
{
	/* Racy, and good enough: one look a second. */
	return relay_is_there();
}

int across_begin(const struct name_end *local, const struct name_end *peer,
		 enum across_role role, struct peer **out)
{
	struct across_guard g;
	struct across_context *c;
	struct peer *a;
	bool keeps_tcp, learns;
	int r = 0;

	if (!local_ends_fit(local, peer))
		return -VD_REASON_REMOTE_PEER;
	keeps_tcp = crossover_keeps_tcp(peer->addr);
	learns = learn_may_begin(peer->addr);
	g = across_enter();
	a = across_take_handle();
	if (!a)
		r = -ENOSPC;
	else if (!keeps_tcp)
		r = hub_context(local, &c);
	if (r == 0) {
		a->state = ACROSS_NEW;
		a->role = role;
		a->local = *local;
		a->peer = *peer;
		a->request = 0;
		a->refused = 0;
		a->not_before_ms = 0;
		a->redirect_least = crossover_least(peer->addr);
		a->keeps_tcp = keeps_tcp;
		a->uid = 0;
		a->has_number = false;
		a->gone = 0;
		a->link = NULL;
		a->wire = NULL;
		a->owner = (struct across_owner){0};
		a->has_peer = a->said = a->heard = a->owes = a->last_sent = a->last_came =
			false;
		learn_begin(a, learns ? c : NULL);
		*out = a;
	}
	across_leave(g);
	return r < 0 ? -(int)meet_reason(r) : 1;
}

static void step(struct peer *a)
{
	if (a->request != 0 || clock_coarse_ms() < a->not_before_ms)
		return;
	if (a->state == ACROSS_NEW && a->role == ACROSS_CONNECTED)
		answer_publish(a);
	else if (a->state == ACROSS_NEW)
		ask_who(a);
	else if (a->state == ACROSS_KNOWN)
		ask_link(a);
}

static bool is_anything_said(const struct peer *but)
{
	for (int i = 0; i < across_used; i++) {
		const struct peer *a = &across_pool[i];

		if (a != but && a->state != ACROSS_FREE && !a->near.is_used &&
		    (a->request != 0 || a->state == ACROSS_PUBLISHED ||
		     a->state == ACROSS_ANSWERED))
			return true;
	}
	return false;
}

int across_step(struct peer *a)
{
	struct across_guard g = across_enter();
	int r = 0;

	hear();
	hub_poll();
	/* One that was in doubt is left for another: find_link. */
	if (!a->refused && a->link && a->link->failed && !a->in_doubt)
		meet_refuse(a, VD_REASON_LINK, "the link has failed");
	if (!a->refused)
		step(a);
	if (a->refused)
		r = a->refused;
	else if (a->state == ACROSS_OPEN)
		r = a->last_came ? -VD_REASON_PEER_ASKED : 1;
	/* What cannot be said now is said by the end of the line: nobody may call for this peer again. */
	if (r == 1 && a->role == ACROSS_CONNECTED && say_withdraw(a) &&
	    !is_anything_said(a))
		relay_is_idle();
	across_leave(g);
	return r;
}

void meet_end(struct peer *a)
{
	bool is_published = a->role == ACROSS_CONNECTED &&
			    (a->state == ACROSS_PUBLISHED || a->state == ACROSS_ANSWERED);

	if (is_published) {
		/* Answers that nobody reads would end the line one day. */
		hear();
		if (say_withdraw(a) && !is_anything_said(a))
			relay_is_idle();
	}
	/* No question about the place is under way. */
	if (a->role == ACROSS_ACCEPTED && a->in_doubt && a->state != ACROSS_ASKED)
		meet_leave_place(a);
}
