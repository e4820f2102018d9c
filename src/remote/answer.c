/* SPDX-License-Identifier: Apache-2.0 */
/* The connector's part of how two ends between hosts meet: it is asked, and answers. The protocol is in
 * meet.c. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "remote/meet.h"
#include "remote/say.h"

void answer_publish(struct peer *a)
{
	if (say_request(a, LOCAL_PUBLISH, NULL) == 0)
		a->state = ACROSS_PUBLISHED;
}

/* From the hello that the peer has sent, with ours in `out`. */
static int join_link(struct peer *a, const struct say *s, struct say *out,
		     struct across_link **link)
{
	struct across_context *c;
	struct across_link *k;
	int r = hub_context(&a->local, &c);

	if (r == 0)
		r = hub_has_share(a) ? hub_create(c, &k) : -ENOSPC;
	if (r < 0)
		return r;
	k->token = s->token;
	hub_assign(k, a);
	if (!meet_connect_link(a, k, s) || link_hello(k->link, out->hello) < 0) {
		hub_drop(k);
		return -EPROTO;
	}
	out->has_hello = 1;
	memcpy(out->secret, k->ours, sizeof(out->secret));
	*link = k;
	return 0;
}

/* The link that the peer names: found, or made from its hello. 0, -EAGAIN: it is not here any
 * more, a new one will be; or -errno. */
static int take_link(struct peer *a, const struct say *s, struct say *out,
		     struct across_link **link)
{
	struct across_link *k = a->link ? a->link : hub_find_token(a, s->token);

	*link = k;
	if (k && !say_is_proved(a, k->ours, s)) {
		log_debug("who names a link has no part in it");
		return -EPROTO;
	}
	if (k)
		return 0;
	return s->has_hello ? join_link(a, s, out, link) : -EAGAIN;
}

/* What it says is about the number that it was told. */
static bool use_number(struct peer *a, const struct say *s)
{
	bool had = a->has_number;

	a->has_number = false;
	memcpy(a->peer_number, s->number, sizeof(a->peer_number));
	return had;
}

/* This end has answered, and is asked again: its answer was lost, and the peer has written nothing. The
 * link is the same, or a new one that the peer has given up. False: another one has to be asked for. */
static bool begin_again(struct peer *a, const struct say *s)
{
	struct across_link *k = a->link;

	if (k->failed || (k->token != s->token && (k->up || !s->has_hello)))
		return false;
	if (k->token != s->token) {
		meet_leave_place(a);
		a->state = ACROSS_PUBLISHED;
	}
	return true;
}

static void asked_link(struct peer *a, uint32_t id, const struct say *s)
{
	struct say out = say_begin(SAY_TAKEN);
	struct across_link *k;
	int r = use_number(a, s) && s->place < ACROSS_PLACES ? 0 : -EPROTO;

	if (r == 0 && a->state == ACROSS_ANSWERED && !begin_again(a, s)) {
		out.kind = SAY_FULL;
		say_answer(id, LOCAL_OK, &out);
		return;
	}
	if (r == 0)
		r = take_link(a, s, &out, &k);
	if (r < 0 && r != -EAGAIN) {
		if (a->state == ACROSS_PUBLISHED)
			meet_refuse(a, meet_reason(r),
				    "there is no link with the other host");
		say_answer(id, LOCAL_REFUSED, NULL);
		return;
	}
	if (r < 0 || (!a->link && !hub_take_place(k, a))) {
		out.kind = r < 0 ? SAY_GONE : SAY_FULL;
		say_answer(id, LOCAL_OK, &out);
		return;
	}
	out.token = k->token;
	out.place = a->place;
	out.generation = a->generation;
	say_prove(a, k->theirs, &out);
	a->peer_place = s->place;
	a->peer_generation = (uint8_t)s->generation;
	a->has_peer = true;
	a->state = ACROSS_ANSWERED;
	say_answer(id, LOCAL_OK, &out);
	say_wipe(&out, sizeof(out));
}

/* Who holds this end, with a number that a proof is to be about. */
static void asked_who(struct peer *a, uint32_t id)
{
	struct say out = say_begin(SAY_I_AM);

	a->has_number = say_random(a->number, sizeof(a->number));
	memcpy(out.number, a->number, sizeof(out.number));
	if (a->has_number)
		say_answer(id, LOCAL_OK, &out);
	else
		say_answer(id, LOCAL_REFUSED, NULL);
}

/* The acceptor has no link for it. */
static void asked_for_none(struct peer *a, uint32_t id)
{
	const struct say out = say_begin(SAY_I_AM);

	meet_refuse(a, VD_REASON_PEER_ASKED, "the other end has no link for it");
	say_answer(id, LOCAL_OK, &out);
}

/* Whether it may be asked: by anybody; or, once it has answered, by whom it has answered. */
static bool may_be_asked(const struct peer *a, const struct local_message *m,
			 const struct say *s)
{
	return a->state == ACROSS_PUBLISHED ||
	       (s && !a->said && a->uid == m->uid &&
		memcmp(a->process, s->process, sizeof(a->process)) == 0);
}

/* Else one that has answered. */
static struct peer *published(const struct name_end *local, const struct name_end *peer)
{
	struct peer *answered = NULL;

	for (int i = 0; i < across_used; i++) {
		struct peer *a = &across_pool[i];

		if ((a->state != ACROSS_PUBLISHED && a->state != ACROSS_ANSWERED) ||
		    !name_end_equal(&a->local, local) || !name_end_equal(&a->peer, peer))
			continue;
		if (a->state == ACROSS_PUBLISHED)
			return a;
		answered = a;
	}
	return answered;
}

void answer_asked(const struct local_message *m, const struct say *s)
{
	struct peer *a = published(&m->local, &m->peer);

	if (a && !may_be_asked(a, m, s))
		a = NULL;
	if (a && a->keeps_tcp)
		meet_refuse(a, VD_REASON_SLOWER, "RDMA is slower than TCP");
	else if (a && !s)
		meet_refuse(a, VD_REASON_VERSION, "the peer is of another version");
	if (!a || !s || a->keeps_tcp) {
		say_answer(m->id, LOCAL_REFUSED, NULL);
		return;
	}
	a->uid = m->uid;
	memcpy(a->process, s->process, sizeof(a->process));
	if (s->kind == SAY_WHO)
		asked_who(a, m->id);
	else if (s->kind == SAY_LINK)
		asked_link(a, m->id, s);
	else if (s->kind == SAY_NO)
		asked_for_none(a, m->id);
	else
		say_answer(m->id, LOCAL_REFUSED, NULL);
}
