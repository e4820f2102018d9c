/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of other hosts, on their way to one of this host's processes and back. */
#include <string.h>

#include "daemon/daemon.h"

#define SLOT_BITS 10
static_assert(RELAY_ASKED == 1 << SLOT_BITS, "ids of the questions");

static uint32_t local_id(const struct relay *r, const struct relay_asked *a)
{
	return (uint32_t)(a - r->asked) | a->turn << SLOT_BITS;
}

static void answer(struct relay *r, struct relay_ref link, const struct wire_answer *a)
{
	struct relay_link *l = link_of(r, link);
	uint8_t plain[WIRE_PLAIN_MAX];

	if (l)
		link_send(r, l, plain, wire_put_answer(plain, a));
}

static void answer_no(struct relay *r, struct relay_ref link, uint32_t id,
		      enum local_status status)
{
	struct wire_answer a = {.id = id, .status = (uint8_t)status};

	answer(r, link, &a);
}

static void release(struct relay *r, struct relay_asked *a)
{
	struct relay_link *l = link_of(r, a->link);

	a->used = false;
	a->turn++;
	r->asked_now--;
	if (l)
		l->waiting--;
}

/* A free slot, where neither the holder nor its user has too many already. */
static struct relay_asked *slot(struct relay *r, const struct relay_client *holder)
{
	struct share share = {.uid = holder->owner.uid};
	struct relay_asked *free_slot = NULL;

	for (int i = 0; i < RELAY_ASKED; i++) {
		struct relay_asked *a = &r->asked[i];

		if (!a->used)
			free_slot = free_slot ? free_slot : a;
		else
			share_count(&share, r->client[a->client.index].owner.uid);
	}
	return share_is_left(&share, RELAY_ASKED_UID, RELAY_ASKED) &&
			       holder->asked < RELAY_ASKED_CLIENT
		       ? free_slot
		       : NULL;
}

/* The publication, if what it says is still true. */
static struct relay_publication *holder_of(struct relay *r, const struct wire_question *q)
{
	struct relay_publication *p = publish_find(r, &q->holder, &q->asker);
	uint64_t cookie = 0;

	if (!p)
		return NULL;
	if (owner_check(&r->client[p->client].owner, &p->local, &p->peer, &cookie) ==
		    LOCAL_OK &&
	    cookie == p->cookie)
		return p;
	publish_remove(r, p);
	return NULL;
}

static enum local_status judge(struct relay *r, struct relay_link *l,
			       const struct wire_question *q,
			       struct relay_publication **found)
{
	if (!bucket_take_address(&r->by_peer, l->other.addr, r->now_ms))
		return LOCAL_RATE;
	if (!settings_speaks_for(&r->settings, l->other.addr, &q->asker))
		return LOCAL_FOREIGN;
	if (!local_ends_fit(&q->holder, &q->asker))
		return LOCAL_NOBODY;
	*found = holder_of(r, q);
	if (!*found)
		return LOCAL_NOBODY;
	return l->waiting < RELAY_ASKED_LINK ? LOCAL_OK : LOCAL_FULL;
}

static void say_foreign(struct relay *r, struct relay_link *l,
			const struct wire_question *q)
{
	char peer[LOCAL_END_TEXT_BYTES], end[LOCAL_END_TEXT_BYTES];

	notice(r, "peer %s asks for %s, which is not its address: refused",
	       local_end_text(&l->other, peer), local_end_text(&q->asker, end));
}

void asked_question(struct relay *r, struct relay_link *l, const struct wire_question *q)
{
	struct relay_publication *p = NULL;
	enum local_status status = judge(r, l, q, &p);
	struct relay_ref link = link_ref(r, l);
	struct relay_asked *a = NULL;

	if (status == LOCAL_FOREIGN)
		say_foreign(r, l, q);
	if (status == LOCAL_OK)
		a = slot(r, &r->client[p->client]);
	if (status == LOCAL_OK && !a)
		status = LOCAL_FULL;
	if (status != LOCAL_OK) {
		answer_no(r, link, q->id, status);
		return;
	}
	a->used = true;
	a->client = (struct relay_ref){p->client, r->client[p->client].turn};
	a->link = link;
	a->id = q->id;
	a->local = p->local;
	a->peer = p->peer;
	a->deadline_ms = r->now_ms + RELAY_ANSWER_MS;
	l->waiting++;
	r->asked_now++;
	/* A process that is found gone here has its question answered by that. */
	client_asked(r, a->client, local_id(r, a), p, q);
}

bool asked_answer(struct relay *r, struct relay_ref client, const struct local_message *m,
		  size_t hello_bytes)
{
	struct relay_asked *a = &r->asked[m->id % RELAY_ASKED];
	struct relay_publication *p;
	struct wire_answer out = {
		.status = m->status, .hello = m->hello, .hello_bytes = hello_bytes};
	struct relay_ref link = a->link;

	if (!a->used || a->client.index != client.index ||
	    a->client.turn != client.turn || local_id(r, a) != m->id)
		return false;
	out.id = a->id;
	p = publish_find(r, &a->local, &a->peer);
	if (m->status == LOCAL_OK) {
		out.uid = r->client[client.index].owner.uid;
		if (!p || p->client != client.index) {
			/* Withdrawn since, or another's: nobody stands for it. */
			out = (struct wire_answer){.id = a->id, .status = LOCAL_GONE};
		} else if (hello_bytes == 0) {
			out.hello = p->hello;
			out.hello_bytes = p->hello_bytes;
		}
	}
	release(r, a);
	answer(r, link, &out);
	return true;
}

void asked_client_gone(struct relay *r, uint32_t client)
{
	for (int i = 0; i < RELAY_ASKED; i++) {
		struct relay_asked *a = &r->asked[i];
		struct relay_ref link = a->link;
		uint32_t id = a->id;

		if (!a->used || a->client.index != client)
			continue;
		release(r, a);
		answer_no(r, link, id, LOCAL_GONE);
	}
}

void asked_link_gone(struct relay *r, struct relay_ref link)
{
	for (int i = 0; i < RELAY_ASKED; i++)
		if (r->asked[i].used && r->asked[i].link.index == link.index &&
		    r->asked[i].link.turn == link.turn)
			release(r, &r->asked[i]);
}

void asked_tick(struct relay *r)
{
	for (int i = 0; r->asked_now && i < RELAY_ASKED; i++) {
		struct relay_asked *a = &r->asked[i];
		struct relay_ref link = a->link;
		uint32_t id = a->id;

		if (!a->used || r->now_ms < a->deadline_ms)
			continue;
		release(r, a);
		answer_no(r, link, id, LOCAL_SILENT);
	}
}
