/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that go from the sender's ring to where the receiver's program wants them. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/sections.h"
#include "conn/peer.h"
#include "remote/parts.h"

/*
 * docs/rdma.md, "Redirection", has the rules. The receiver alone says what has become of an offer,
 * after the device has let go of the memory; until then the sender keeps the bytes in its ring.
 */
static _Thread_local struct peer *offered __attribute__((tls_model("initial-exec")));
static uint64_t last_id;

/* ---- the receiver ---- */

uint32_t across_redirect_least(const struct peer *a)
{
	/* Relaxed: a choice that is right either way. */
	return load_relaxed(&a->redirect_least);
}

static bool may_offer(const struct peer *a)
{
	const struct across_link *k = a->link;

	return k && k->up && !k->failed && a->wire && a->state == ACROSS_OPEN &&
	       a->said && a->heard && !a->last_came && a->offer.state == OFFER_NONE &&
	       a->offer.verdict.number == 0;
}

static bool offer(struct peer *a, const struct across_room *room)
{
	struct across_offer *o = &a->offer;
	uint32_t number = o->number + 1 ? o->number + 1 : 1;

	if (!may_offer(a) || !bulk_is_up(a->link))
		return false;
	if (cache_allow(a->link, room->start, room->bytes, LINK_MAY_WRITE, &o->memory) <
	    0)
		return false;
	o->state = OFFER_OPEN;
	o->id = ++last_id;
	o->position = room->position;
	o->number = number;
	o->bytes = room->bytes;
	o->least = room->least;
	o->turn = room->turn;
	o->landed = 0;
	o->said = false;
	peer_offering = o->id;
	offered = a;
	note_push(a);
	return true;
}

bool across_offer(struct peer *a, const struct across_room *room)
{
	struct across_guard g = across_enter();
	bool is_open = offer(a, room);

	across_leave(g);
	return is_open;
}

static void is_due(struct peer *a, enum offer_state state)
{
	a->offer.state = state;
	store_release(&a->offer.due, 1);
	if (a->owner.ring)
		a->owner.ring(a->owner.owner);
}

bool across_offer_is_due(const struct peer *a)
{
	return load_acquire(&a->offer.due);
}

bool redirect_landed(struct peer *a, uint32_t number, uint32_t bytes)
{
	struct across_offer *o = &a->offer;

	if (o->state != OFFER_OPEN || (o->number & 0xff) != number)
		return true; /* withdrawn: the verdict says that it did not come */
	if (bytes > o->bytes || bytes == 0)
		return false;
	o->landed = bytes;
	is_due(a, OFFER_LANDED);
	return true;
}

void redirect_break(const struct across_link *k)
{
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (k->at[i] && k->at[i]->offer.state == OFFER_OPEN)
			is_due(k->at[i], OFFER_BROKEN);
}

static void count(struct peer *a, bool out, uint32_t bytes)
{
	if (a->owner.redirected)
		a->owner.redirected(a->owner.owner, out, bytes);
}

/* The stream goes on behind what has landed. */
static void pass(struct peer *a, uint64_t end)
{
	/* The cursor of what is taken first: nobody finds these bytes in the ring. */
	store_release(&a->in->consumed, end);
	if (cursor_is_ahead(end, a->came.produced))
		a->came.produced = end;
	note_apply_all(a);
}

static uint32_t end_offer(struct peer *a, bool take)
{
	struct across_offer *o = &a->offer;
	uint32_t landed = 0;

	if (o->state == OFFER_NONE)
		return 0;
	link_unregister(a->link->link, &o->memory);
	/* All that has ever arrived there is known from here on. */
	if (take && o->state == OFFER_OPEN)
		hub_poll();
	if (take && o->state == OFFER_LANDED)
		landed = o->landed;
	o->state = OFFER_NONE;
	store_relaxed(&o->due, 0);
	if (landed) {
		pass(a, o->position + landed);
		count(a, false, landed);
		learn_landed(a, landed);
	}
	if (o->said)
		o->verdict = (struct note_verdict){o->position + landed, o->number};
	note_push(a);
	return landed;
}

static bool is_mine(void)
{
	return offered && offered->offer.id == peer_offering &&
	       offered->offer.state != OFFER_NONE;
}

uint32_t across_offer_end(bool take)
{
	struct across_guard g = across_enter();
	uint32_t landed = is_mine() ? end_offer(offered, take) : 0;

	peer_offering = 0;
	offered = NULL;
	across_leave(g);
	return landed;
}

bool across_offer_stands(void)
{
	struct across_guard g = across_enter();
	bool stands = is_mine() && offered->offer.state == OFFER_OPEN;

	across_leave(g);
	return stands;
}

FORK_CODE void redirect_forked(void)
{
	if (offered == NULL && peer_offering == 0)
		return;
	offered = NULL;
	peer_offering = 0;
}

void redirect_end(struct peer *a)
{
	end_offer(a, false);
	zerocopy_end(a);
}

/* ---- both ---- */

static struct note note_for(const struct peer *a, enum note_kind kind)
{
	return (struct note){.kind = (uint8_t)kind,
			     .generation = a->peer_generation,
			     .place = (uint8_t)a->peer_place};
}

static bool say_verdict(struct peer *a)
{
	struct note n = note_for(a, NOTE_VERDICT);

	n.verdict = a->offer.verdict;
	if (note_post(a->link, &n, offsetof(struct note, verdict) + sizeof(n.verdict),
		      0) < 0)
		return false;
	if (cursor_is_ahead(n.verdict.position, a->sent.consumed))
		a->sent.consumed = n.verdict.position;
	a->offer.verdict.number = 0;
	return true;
}

static bool say_offer(struct peer *a)
{
	struct across_offer *o = &a->offer;
	struct note n = note_for(a, NOTE_OFFER);

	n.offer = (struct note_offer){.position = o->position,
				      .address = o->memory.start,
				      .number = o->number,
				      .key = o->memory.peer_key,
				      .bytes = o->bytes,
				      .least = o->least,
				      .turn = o->turn};
	o->said = note_post(a->link, &n, offsetof(struct note, offer) + sizeof(n.offer),
			    0) == 0;
	return o->said;
}

bool redirect_comes_first(const struct peer *a)
{
	return a->link->bulk_due & 1u << BULK_GONE;
}

bool redirect_push(struct peer *a)
{
	if (a->link->bulk_due)
		bulk_push(a->link);
	if (redirect_comes_first(a))
		return false;
	if (a->offer.verdict.number && !say_verdict(a))
		return false;
	return a->offer.state != OFFER_OPEN || a->offer.said || say_offer(a);
}

/* ---- the sender ---- */

/* The next bytes, as far as they lie in a row, or nothing. */
static struct ring_span next_bytes(struct peer *a)
{
	const struct note_offer *o = &a->grant.offer;
	struct ring_span span = {0};

	if (a->reader.consumed != o->position || a->reader.turn_passed != o->turn)
		return span;
	note_span(a, 0, &span);
	if (span.len > o->bytes)
		span.len = o->bytes;
	if (span.len > link_write_max(a->link->link))
		span.len = link_write_max(a->link->link);
	return span;
}

static void set_grant(struct peer *a, enum grant_state state)
{
	a->grant.state = state;
	store_relaxed(&a->grant.is_open, state == GRANT_OPEN);
}

bool redirect_write(struct peer *a, const void *from, uint32_t bytes,
		    const struct link_memory *memory, uint32_t flags)
{
	const struct note_offer *o = &a->grant.offer;
	const struct link_write w = {
		.from = from,
		.bytes = bytes,
		.flags = LINK_OFFERED | LINK_IMMEDIATE | flags,
		.memory = memory,
		.at = o->address,
		.key = o->key,
		.immediate = link_immediate(a->peer_place, a->peer_generation, o->number),
	};

	if (!bulk_is_up(a->link) || link_post(a->link->bulk->link, &w) < 0)
		return false;
	a->grant.bytes = bytes;
	set_grant(a, GRANT_USED);
	return true;
}

static bool write_there(struct peer *a)
{
	struct ring_span span = next_bytes(a);

	return span.len > 0 && span.len >= a->grant.offer.least &&
	       redirect_write(a, span.data, (uint32_t)span.len, &a->link->memory, 0);
}

bool redirect_may_push(struct peer *a)
{
	struct across_grant *g = &a->grant;

	if (g->state != GRANT_OPEN || ring_rx_avail(&a->reader, a->out, SIZE_MAX) <= 0)
		return g->state != GRANT_USED;
	if (g->is_held)
		return false;
	if (g->is_ready && write_there(a))
		return false;
	set_grant(a, GRANT_NONE);
	return true;
}

static bool is_granted(const struct peer *a)
{
	return load_relaxed(&a->grant.is_open);
}

bool across_takes(const struct peer *a, size_t bytes)
{
	if (bytes >= ACROSS_TAKES_LOOK && !is_granted(a))
		across_progress();
	return is_granted(a);
}

void across_hold(struct peer *a)
{
	struct across_guard g = across_enter();

	a->grant.is_held = a->grant.state == GRANT_OPEN;
	across_leave(g);
}

bool across_release(struct peer *a)
{
	struct across_guard g = across_enter();
	bool used;

	a->grant.is_ready = a->grant.is_held;
	a->grant.is_held = false;
	note_push(a);
	a->grant.is_ready = false;
	used = a->grant.state == GRANT_USED;
	across_leave(g);
	/* What the push owes is told as ever. */
	if (!used)
		across_push(a);
	return used;
}

bool across_awaits(struct peer *a)
{
	struct across_guard g = across_enter();
	struct across_link *k;
	bool waits;
	int fd = -1;

	across_answer_locked(true);
	k = a->link;
	waits = (a->grant.state == GRANT_USED && k && k->link && !k->failed) ||
		!zerocopy_is_read(a);
	if (waits)
		fd = link_fd(k->context->context);
	across_leave(g);
	if (waits)
		across_nap(fd);
	return waits;
}

static bool take_offer(struct peer *a, const struct note_offer *o)
{
	/* The one before has had its verdict. */
	if (a->grant.state == GRANT_USED || o->number == 0 || o->bytes == 0)
		return false;
	a->grant.offer = *o;
	set_grant(a, GRANT_OPEN);
	return true;
}

bool redirect_take_verdict(struct peer *a, const struct note_verdict *v)
{
	struct across_grant *g = &a->grant;
	uint64_t from = g->offer.position;

	if (v->number != g->offer.number)
		return false;
	if (v->number == g->judged.number)
		return v->position == g->judged.position;
	if (v->position != from &&
	    (g->state != GRANT_USED || v->position != from + g->bytes))
		return false;
	/* All before it has been read; the peer reckons with our knowing that. */
	if (cursor_is_ahead(v->position, a->came.consumed))
		a->came.consumed = v->position;
	if (v->position != from) {
		zerocopy_landed(a);
		ring_rx_skip(&a->reader, g->bytes);
		a->sent.produced = v->position;
		count(a, true, g->bytes);
	} else if (g->state == GRANT_USED) {
		/* Nothing of it may arrive late, where the same memory is offered again: the peer
		 * hears of that before it hears more of the stream. */
		bulk_give_up(a->link);
		zerocopy_end(a);
	}
	g->judged = *v;
	set_grant(a, GRANT_NONE);
	if (a->wire)
		note_apply_all(a);
	note_push(a);
	return true;
}

bool redirect_take(struct peer *a, const struct note *n)
{
	if (!a->heard)
		return false;
	return n->kind == NOTE_OFFER ? take_offer(a, &n->offer)
				     : redirect_take_verdict(a, &n->verdict);
}
