/* SPDX-License-Identifier: Apache-2.0 */
/* Without credit: what we have to say, and where our bytes lie, for the peer to read. */
#include <string.h>

#include "base/atomic.h"
#include "remote/parts.h"

/* The check is over whole words of it. */
static_assert(sizeof(struct told) % sizeof(uint64_t) == 0, "words of a check");

uint64_t aside_check(const struct told *t)
{
	uint64_t word[sizeof(*t) / sizeof(uint64_t)], sum = 0xcbf29ce484222325;

	memcpy(word, t, sizeof(*t));
	for (size_t i = 1; i < sizeof(word) / sizeof(word[0]); i++) {
		sum = (sum ^ word[i]) * 0x100000001b3;
		sum ^= sum >> 29;
	}
	return sum;
}

static struct told *place_of(const struct peer *a)
{
	return (struct told *)(void *)(a->link->window + ACROSS_TOLD_AT) + a->peer_place;
}

static struct told_answer *answer_to(const struct across_link *k)
{
	return (struct told_answer *)(void *)(k->window + ACROSS_ANSWER_AT);
}

static bool is_heard(const struct peer *a)
{
	return load_acquire(&answer_to(a->link)->heard[a->peer_place]) == a->told.number;
}

/* The peer has all of it: notes may go on from there. */
static void settle(struct peer *a)
{
	uint64_t consumed = a->sent.consumed, produced = a->sent.produced;

	a->sent = a->told.words;
	/* By a verdict more may have been said meanwhile. */
	if (cursor_is_ahead(consumed, a->sent.consumed))
		a->sent.consumed = consumed;
	if (cursor_is_ahead(produced, a->sent.produced))
		a->sent.produced = produced;
	if (a->told.verdict.number == a->offer.verdict.number)
		a->offer.verdict.number = 0;
	a->told.number = 0;
	place_of(a)->check = 0;
}

bool aside_is_due(struct peer *a)
{
	if (a->told.number && is_heard(a))
		settle(a);
	return a->told.number || (a->said && link_credit(a->link->link) == 0);
}

static void begin(const struct peer *a, struct told *t)
{
	*t = (struct told){
		.sent = (uint32_t)link_immediates(a->link->link),
		.generation = a->peer_generation,
		.key = a->link->memory.peer_key,
		.base = (uintptr_t)across_out_data((struct peer *)a),
		.words = a->sent,
	};
}

/* The peer has taken the bytes before that position. */
static void trim(struct told *t, uint64_t taken)
{
	uint32_t n = 0;

	for (; n < t->pieces && cursor_is_ahead(taken, t->from); n++) {
		struct told_piece *p = &t->piece[n];
		uint64_t bytes = taken - t->from;

		if (bytes < p->bytes) {
			p->at += (uint32_t)bytes;
			p->bytes -= (uint32_t)bytes;
			t->from = taken;
			break;
		}
		t->from += p->bytes;
	}
	t->pieces -= n;
	memmove(t->piece, t->piece + n, t->pieces * sizeof(t->piece[0]));
}

static bool add_piece(struct told *t, uint32_t at, uint32_t bytes)
{
	struct told_piece *last = t->pieces ? &t->piece[t->pieces - 1] : NULL;

	if (last && last->at + last->bytes == at)
		last->bytes += bytes;
	else if (t->pieces < TOLD_PIECES)
		t->piece[t->pieces++] = (struct told_piece){at, bytes};
	else
		return false;
	return true;
}

/* False: not all are among them. */
static bool add_bytes(struct peer *a, struct told *t)
{
	struct ring_span span;

	if (!a->wire)
		return true;
	if (!redirect_may_push(a))
		return false;
	while (note_next_bytes(a, &span) > 0) {
		if (!t->pieces)
			t->from = a->reader.consumed;
		if (!add_piece(t, (uint32_t)(span.data - across_out_data(a)),
			       (uint32_t)span.len))
			return false;
		ring_rx_skip(&a->reader, span.len);
	}
	return true;
}

/*
 * Sees to it that the peer looks after this. It says how many asks it has heard before each look: is
 * one not among them, a look is to come. Else there is credit: all that was sent up to the ask
 * was granted before that look. That grant must have been polled: fabric.h.
 */
static bool is_looked_at(struct across_link *k)
{
	struct note n = {.kind = NOTE_LOOK};

	if (load_acquire(&answer_to(k)->looks) != k->asked)
		return true;
	return link_granted(k->link) >= k->asked_at &&
	       note_post(k, &n, offsetof(struct note, words), 0) == 0;
}

static void publish(struct peer *a, struct told *t)
{
	if (++a->link->told == 0)
		a->link->told = 1;
	t->number = a->link->told;
	t->verdict = a->offer.verdict;
	t->check = aside_check(t);
	a->told = *t;
	memcpy(place_of(a), t, sizeof(*t));
	/* Before the look at what the peer has heard. */
	fence_full();
	a->unasked = true;
}

/* Bytes that were written before are in the peer's memory, which depends on the devices alone. */
static bool may_begin(const struct peer *a)
{
	return link_completed(a->link->link) >= a->bare_at;
}

void aside_push(struct peer *a)
{
	uint64_t start = a->reader.consumed;
	struct note_words w;
	struct told t = a->told;
	bool all;

	if (!t.number) {
		if (!may_begin(a)) {
			a->owes = a->untold = true;
			return;
		}
		begin(a, &t);
		a->unasked = false;
	}
	trim(&t, a->came.consumed);
	note_look(a, &w);
	all = add_bytes(a, &t);
	if (a->wire)
		note_limit(&w, a->reader.consumed, all, &t.words);
	if (a->reader.consumed != start || note_is_news(a, &w, &t.words) ||
	    (a->offer.verdict.number && t.verdict.number != a->offer.verdict.number)) {
		t.words = w;
		publish(a, &t);
	}
	if (a->unasked)
		a->unasked = !is_looked_at(a->link);
	a->untold = a->unasked || !all;
	a->owes = a->owes || a->untold || a->told.number || a->state == ACROSS_ENDED;
	if (a->owes)
		link_want_credit(a->link->link);
}
