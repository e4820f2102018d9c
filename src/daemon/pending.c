/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of this host's processes, on their way to another host and back. */
#include <string.h>

#include "daemon/daemon.h"

/* On the wire a question is its slot and the lower bits of the turn. */
#define SLOT_BITS 10
static_assert(RELAY_PENDING == 1 << SLOT_BITS, "ids on the wire");

static uint32_t wire_id(const struct relay *r, const struct relay_pending *p)
{
	return (uint32_t)(p - r->pending) | p->turn << SLOT_BITS;
}

static void release(struct relay *r, struct relay_pending *p)
{
	struct relay_client *c = client_of(r, p->client);
	struct relay_link *l = link_of(r, p->link);

	p->used = false;
	p->turn++;
	r->pending_now--;
	if (c)
		c->pending--;
	if (l)
		l->waiting--;
}

static void finish(struct relay *r, struct relay_pending *p, enum local_status status,
		   uint32_t wait_ms, const struct wire_answer *answer)
{
	struct relay_ref client = p->client;
	const struct relay_link *link = &r->link[p->link.index];
	uint32_t id = p->id;
	bool is_probe = p->is_probe;

	release(r, p);
	if (is_probe)
		client_probed(r, client, id, status, wait_ms, link);
	else
		client_done(r, client, id, status, wait_ms, answer);
}

/* A link that ends by this has taken its questions with it. */
static void pass_on(struct relay *r, struct relay_link *l, struct relay_pending *p)
{
	const struct relay_client *c = client_of(r, p->client);
	uint8_t plain[WIRE_PLAIN_MAX];
	struct wire_question q = {.id = wire_id(r, p),
				  .uid = c ? c->owner.uid : 0,
				  .asker = p->local,
				  .holder = p->peer,
				  .hello = p->hello,
				  .hello_bytes = p->hello_bytes};

	p->sent = true;
	link_send(r, l, plain, wire_put_question(plain, &q));
}

/* A free slot, where neither the process nor its user has too many already. */
static struct relay_pending *slot(struct relay *r, const struct relay_client *c)
{
	struct share share = {.uid = c->owner.uid};
	struct relay_pending *free_slot = NULL;

	for (int i = 0; i < RELAY_PENDING; i++) {
		struct relay_pending *p = &r->pending[i];

		if (!p->used)
			free_slot = free_slot ? free_slot : p;
		else
			share_count(&share, r->client[p->client.index].owner.uid);
	}
	return share_is_left(&share, RELAY_PENDING_UID, RELAY_PENDING) &&
			       c->pending < RELAY_PENDING_CLIENT
		       ? free_slot
		       : NULL;
}

void pending_add(struct relay *r, struct relay_ref client, const struct local_message *m,
		 size_t hello_bytes)
{
	struct relay_client *c = client_of(r, client);
	struct relay_pending *p = slot(r, c);
	enum local_status status = LOCAL_FULL;
	struct relay_link *l = NULL;
	uint32_t wait_ms = RELAY_RETRY_MS;
	bool is_probe = m->type == LOCAL_PROBE;

	if (p)
		status = link_for(r, &m->local, &m->peer, is_probe, &l, &wait_ms);
	if (status != LOCAL_OK && is_probe)
		client_probed(r, client, m->id, status, wait_ms, l);
	else if (status != LOCAL_OK)
		client_done(r, client, m->id, status, wait_ms, NULL);
	if (status != LOCAL_OK)
		return;
	p->used = true;
	p->sent = false;
	p->is_probe = is_probe;
	p->client = client;
	p->link = link_ref(r, l);
	p->id = m->id;
	p->deadline_ms = r->now_ms + RELAY_ASK_MS;
	p->local = m->local;
	p->peer = m->peer;
	p->hello_bytes = (uint16_t)hello_bytes;
	memcpy(p->hello, m->hello, hello_bytes);
	c->pending++;
	l->waiting++;
	r->pending_now++;
	if (l->state == LINK_READY)
		pass_on(r, l, p);
}

static bool is_on(const struct relay_pending *p, struct relay_ref link)
{
	return p->used && p->link.index == link.index && p->link.turn == link.turn;
}

void pending_link_up(struct relay *r, struct relay_link *l)
{
	struct relay_ref ref = link_ref(r, l);

	for (int i = 0; i < RELAY_PENDING; i++)
		if (is_on(&r->pending[i], ref) && !r->pending[i].sent && link_of(r, ref))
			pass_on(r, l, &r->pending[i]);
}

void pending_answer(struct relay *r, struct relay_link *l, const struct wire_answer *a)
{
	struct relay_pending *p = &r->pending[a->id % RELAY_PENDING];
	enum local_status status = (enum local_status)a->status;

	/* Who asked may have gone meanwhile. */
	if (!is_on(p, link_ref(r, l)) || !p->sent || wire_id(r, p) != a->id)
		return;
	/* Nobody can hold port 0: that is what a daemon says that is well. */
	if (p->is_probe && status == LOCAL_NOBODY)
		status = LOCAL_OK;
	finish(r, p, status,
	       a->status == LOCAL_RATE || a->status == LOCAL_FULL ? RELAY_RETRY_MS : 0,
	       a);
}

void pending_link_down(struct relay *r, struct relay_ref link, enum local_status status,
		       uint32_t wait_ms)
{
	for (int i = 0; i < RELAY_PENDING; i++)
		if (is_on(&r->pending[i], link))
			finish(r, &r->pending[i], status, wait_ms, NULL);
}

void pending_client_gone(struct relay *r, uint32_t client)
{
	for (int i = 0; i < RELAY_PENDING; i++)
		if (r->pending[i].used && r->pending[i].client.index == client)
			release(r, &r->pending[i]);
}

void pending_tick(struct relay *r)
{
	for (int i = 0; r->pending_now && i < RELAY_PENDING; i++) {
		struct relay_pending *p = &r->pending[i];
		struct relay_link *l;

		if (!p->used || r->now_ms < p->deadline_ms)
			continue;
		l = link_of(r, p->link);
		/* The other daemon answers sooner than that, if at all. */
		if (l)
			link_end(r, l, LOCAL_SILENT);
		else
			finish(r, p, LOCAL_SILENT, 0, NULL);
	}
}
