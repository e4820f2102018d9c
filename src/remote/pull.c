/* SPDX-License-Identifier: Apache-2.0 */
/* The peer has no credit: what it has to say, and its bytes, are read. */
#include <string.h>

#include "remote/parts.h"

void pull_ask(struct across_link *k)
{
	k->pull.asks_came++;
	k->pull.must_look = true;
}

void pull_came(struct across_link *k)
{
	k->pull.vain = 0;
	if (!k->pull.waits)
		return;
	k->pull.waits = false;
	k->pull.must_look = true;
}

static int post_answer(struct across_link *k)
{
	/* The one before is complete: so is the look that came after it. */
	struct told_answer *answer =
		(struct told_answer *)(void *)(k->staging + ACROSS_ANSWER_AT);
	const struct link_write w = {
		.from = answer,
		.bytes = sizeof(*answer),
		.at = ACROSS_ANSWER_AT,
		.memory = sizeof(*answer) > link_inline_max(k->link) ? &k->memory : NULL};

	atomic_init(&answer->looks, k->pull.asks_came);
	for (int i = 0; i < ACROSS_PLACES; i++)
		atomic_init(&answer->heard[i], k->pull.heard[i]);
	return link_post(k->link, &w);
}

/* The order is what the peer goes by: outbox.c. */
void pull_begin(struct across_link *k)
{
	const struct link_read words = {.to = ACROSS_HEARD_AT,
					.from = ACROSS_TOLD_AT,
					.bytes = ACROSS_TOLD_BYTES};

	if (!k->pull.must_look || k->pull.state != PULL_IDLE || !k->up || k->failed ||
	    !link_room(k->link, 3))
		return; /* a grant, the answer, the read: or none */
	/* Without an ask it need not be, and each one takes a place among what the peer polls. */
	if (k->pull.answered != k->pull.asks_came && link_grant(k->link) < 0)
		return;
	k->pull.answered = k->pull.asks_came;
	if (post_answer(k) < 0 || link_read(k->link, &words) < 0)
		return;
	k->pull.must_look = false;
	k->pull.state = PULL_WORDS;
}

static bool is_sound(const struct told *t)
{
	if (t->pieces > TOLD_PIECES)
		return false;
	for (uint32_t i = 0; i < t->pieces; i++)
		if (t->piece[i].bytes == 0 || t->piece[i].at > ACROSS_PLACE_BYTES ||
		    t->piece[i].bytes > ACROSS_PLACE_BYTES - t->piece[i].at)
			return false;
	return true;
}

/* It is to be carried out. *again: it is too soon for that. */
static bool is_due(struct across_link *k, uint32_t place, const struct told *t,
		   bool *again)
{
	const struct peer *a = k->at[place];

	if (!a || t->check == 0 || t->number == k->pull.heard[place])
		return false;
	if (t->check != aside_check(t)) {
		*again = true; /* amid its change */
		return false;
	}
	if (a == &across_lost) {
		k->pull.heard[place] = t->number;
		*again = true; /* to say so */
		return false;
	}
	if (t->generation != a->generation)
		return false;
	/* Its first note may be among those that are still to come. */
	if ((int32_t)(t->sent - (uint32_t)k->immediates_came) > 0) {
		*again = true;
		return false;
	}
	if (!a->heard || a->last_came)
		return false;
	if (is_sound(t))
		return true;
	hub_wrong(k, "it tells of bytes that cannot be there");
	return false;
}

/* The connection for which a place's words are due, which may have ended; NULL: then. */
static struct peer *heir(const struct across_link *k, uint32_t place)
{
	struct peer *a = k->at[place];

	return (k->pull.due & 1u << place) && a && a != &across_lost && !a->last_came &&
			       a->generation == k->pull.told[place].generation
		       ? a
		       : NULL;
}

static uint64_t position_of(const struct told *t, uint32_t piece)
{
	uint64_t at = t->from;

	for (uint32_t i = 0; i < piece; i++)
		at += t->piece[i].bytes;
	return at;
}

/* Of a piece, the bytes that have been read before. */
static uint32_t known(const struct peer *a, const struct told *t, uint32_t piece)
{
	uint64_t at = position_of(t, piece);

	if (!cursor_is_ahead(a->pulled, at))
		return 0;
	return a->pulled - at < t->piece[piece].bytes ? (uint32_t)(a->pulled - at)
						      : t->piece[piece].bytes;
}

/* What of the next piece is not here yet; false: there are no more. */
static bool next_piece(struct across_link *k, struct link_read *out)
{
	struct across_pull *p = &k->pull;

	for (; p->place < ACROSS_PLACES; p->place++, p->piece = 0) {
		const struct peer *a = heir(k, p->place);
		const struct told *t = &p->told[p->place];

		for (; a && p->piece < t->pieces; p->piece++) {
			const struct told_piece *piece = &t->piece[p->piece];
			uint32_t skip = known(a, t, p->piece);

			if (skip == piece->bytes)
				continue;
			*out = (struct link_read){.to = place_offset(p->place) +
							piece->at + skip,
						  .bytes = piece->bytes - skip,
						  .flags = LINK_OFFERED,
						  .from = t->base + piece->at + skip,
						  .key = t->key};
			return true;
		}
	}
	return false;
}

/* The words of one place hold now. */
static void carry_out(struct across_link *k, uint32_t place)
{
	const struct told *t = &k->pull.told[place];
	uint64_t end = position_of(t, t->pieces);
	struct peer *a = heir(k, place);

	k->pull.heard[place] = t->number;
	if (!a)
		return;
	if (t->pieces && cursor_is_ahead(end, a->pulled))
		a->pulled = end;
	if (!note_take_words(a, &t->words)) {
		hub_wrong(k, "a ring that is larger than its memory");
		return;
	}
	/* A note may have brought it before, and another offer after it. */
	if (t->verdict.number)
		redirect_take_verdict(a, &t->verdict);
}

static void finish(struct across_link *k)
{
	k->pull.state = PULL_IDLE;
	for (uint32_t i = 0; i < ACROSS_PLACES && !k->failed; i++)
		if (k->pull.due & 1u << i)
			carry_out(k, i);
	/* To say so, and for what was told meanwhile; or only to say so. */
	if (!k->pull.waits || !link_room(k->link, 1) || post_answer(k) < 0)
		k->pull.must_look = true;
}

void pull_go_on(struct across_link *k)
{
	struct link_read r;

	if (k->pull.state != PULL_BYTES)
		return;
	for (; next_piece(k, &r); k->pull.piece++) {
		if (link_read(k->link, &r) < 0)
			return;
		k->pull.reads = true;
	}
	if (!k->pull.reads)
		finish(k);
}

/*
 * What was read is not ready, or was new: whether to look again at once. A peer could keep us looking for
 * ever so, with a check that never fits, or with something new each time. One that keeps to the protocol is amid
 * a change, and asks for a look after it, since this look has answered all that it has asked for
 * (outbox.c); or it has sent what is still to come.
 */
static bool looks_on(struct across_pull *p)
{
	if (++p->vain >= PULL_VAIN_MOST) {
		p->vain = 0;
		p->waits = true;
	}
	return !p->waits;
}

static void take_words(struct across_link *k)
{
	bool again = false;

	memcpy(k->pull.told, k->window + ACROSS_HEARD_AT, sizeof(k->pull.told));
	k->pull.due = k->pull.place = k->pull.piece = 0;
	k->pull.reads = false;
	for (uint32_t i = 0; i < ACROSS_PLACES; i++)
		if (is_due(k, i, &k->pull.told[i], &again))
			k->pull.due |= 1u << i;
	if (!again && !k->pull.due)
		k->pull.vain = 0;
	else if (looks_on(&k->pull) && again)
		k->pull.must_look = true;
	k->pull.state = k->pull.due ? PULL_BYTES : PULL_IDLE;
	pull_go_on(k);
}

void pull_take(struct across_link *k)
{
	if (k->pull.state == PULL_WORDS) {
		take_words(k);
		return;
	}
	/* Perhaps not the last of them. */
	k->pull.reads = false;
	pull_go_on(k);
}
