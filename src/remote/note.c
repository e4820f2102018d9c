/* SPDX-License-Identifier: Apache-2.0 */
/* What an end writes in a connection's memory, told to the other end and carried out there. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "remote/parts.h"

/* Room that was given back is told of once it is so much, and with everything else. */
#define CREDIT_PART 4

static uint32_t load(_Atomic uint32_t *word)
{
	return load_acquire(word);
}

static uint64_t load64(_Atomic uint64_t *word)
{
	return load_acquire(word);
}

/* Of cursors that were heard of by two ways. */
static uint64_t later(uint64_t a, uint64_t b)
{
	return cursor_is_ahead(a, b) ? a : b;
}

/* ---- telling ---- */

/* As across_out_data. */
static uint8_t *staging_of(const struct peer *a)
{
	return a->link->staging + place_offset(a->place);
}

/* An immediate, or 0 for none. False: no room. */
static bool write_bytes(struct peer *a, const struct ring_span *span, uint32_t immediate)
{
	struct across_link *k = a->link;
	struct link_write w = {
		.from = span->data,
		.bytes = (uint32_t)span->len,
		.flags = immediate ? LINK_IMMEDIATE : 0,
		.at = place_offset(a->peer_place) +
		      (uint64_t)(span->data - staging_of(a)),
		.memory = span->len > link_inline_max(k->link) ? &k->memory : NULL,
		.immediate = immediate,
	};

	if (link_post(k->link, &w) < 0)
		return false;
	ring_rx_skip(&a->reader, span->len);
	a->bare_at = immediate ? 0 : link_posted(k->link);
	return true;
}

/* The words that the reader goes by are written by every process that shares this connection. */
void note_span(const struct peer *a, size_t skip, struct ring_span *out)
{
	ring_rx_span_within(&a->reader, staging_of(a), ACROSS_AREA_LIMIT, skip, out);
}

size_t note_next_bytes(struct peer *a, struct ring_span *out)
{
	int64_t n = ring_rx_avail(&a->reader, a->out, SIZE_MAX);

	/* Those that are held back, too: the peer takes them by itself when they are due. */
	if (n >= 0 && ring_rx_take_held(&a->reader, a->out) > 0)
		n = ring_rx_avail(&a->reader, a->out, SIZE_MAX);
	if (n <= 0)
		return 0;
	note_span(a, 0, out);
	return (size_t)n;
}

/* Bytes that the peer does not have, but for *last of them, which one write can take. False: not
 * all found room. */
static bool push_bytes(struct peer *a, struct ring_span *last)
{
	*last = (struct ring_span){0};
	if (!redirect_may_push(a))
		return false;
	for (;;) {
		struct ring_span span;
		size_t n = note_next_bytes(a, &span);

		if (n == 0)
			return true;
		if (span.len > link_write_max(a->link->link))
			span.len = link_write_max(a->link->link);
		if (span.len == n) {
			*last = span;
			return true;
		}
		if (!write_bytes(a, &span, 0))
			return false;
	}
}

/*
 * Our words as of one moment, as whoever looks at them in order may find them: an epoch before
 * the place that belongs to it, the end before the cursor. What cannot be told yet, because
 * bytes before it have not been written, stays as it was told last.
 */
void note_look(const struct peer *a, struct note_words *w)
{
	struct wire_dir *out = a->out, *in = a->in;
	uint64_t since;

	*w = a->sent;
	if (!a->wire)
		return;
	memset(w, 0, sizeof(*w));
	w->closed = load(&in->closed);
	w->want_down = load(&in->want_down);
	w->ready_epoch = load(&in->ready_epoch);
	w->rx_bound = load(&in->rx_bound);
	w->consumed = load64(&in->consumed);
	w->fin = load(&out->fin);
	w->down_epoch = load(&out->down_epoch);
	w->down_at = load64(&out->down_at);
	w->up_epoch = load(&out->up_epoch);
	w->up_at = load64(&out->up_at);
	since = load64(&out->held_since_ms);
	w->held_at = load64(&out->held_at);
	w->held_ms = since ? (uint32_t)(clock_shared_ms() - since) + 1 : 0;
	w->produced = load64(&out->produced);
	w->turn_seq = load(&out->turn_seq);
	for (uint32_t i = 0; i < WIRE_TURNS; i++) {
		w->turn_at[i] = load64(&out->turn_at[i]);
		w->turn_area[i] =
			ring_area_within(load(&out->turn_area[i]), ACROSS_AREA_LIMIT);
	}
}

void note_limit(struct note_words *w, uint64_t end, bool all,
		const struct note_words *before)
{
	if (!all) {
		/* It comes after the bytes. */
		w->fin = before->fin;
		w->down_epoch = before->down_epoch;
		w->down_at = before->down_at;
	}
	/* Those that came after the look are told next time. */
	if (cursor_is_ahead(w->produced, end))
		w->produced = end;
	if (w->held_ms && cursor_is_ahead(w->held_at, end)) {
		w->held_at = before->held_at;
		w->held_ms = before->held_ms;
	}
}

static void gather(struct peer *a, struct note_words *w, struct ring_span *last)
{
	bool all;

	note_look(a, w);
	all = !a->wire || push_bytes(a, last);
	if (!all)
		a->owes = a->untold = true;
	note_limit(w, a->wire ? a->reader.consumed + last->len : w->produced, all,
		   &a->sent);
}

static bool is_much(uint64_t consumed, uint64_t told, struct wire_dir *in)
{
	return consumed - told >= ring_size_hint(in) / CREDIT_PART;
}

static bool is_long(const struct note_words *now, const struct note_words *before)
{
	const size_t from = offsetof(struct note_words, up_at);

	return memcmp((const char *)now + from, (const char *)before + from,
		      sizeof(*now) - from) != 0;
}

bool note_is_news(const struct peer *a, const struct note_words *now,
		  const struct note_words *before)
{
	return is_long(now, before) || now->produced != before->produced ||
	       (a->wire && is_much(now->consumed, before->consumed, a->in));
}

int note_post(struct across_link *k, struct note *n, size_t bytes, uint32_t flags)
{
	size_t place = k->notes_sent % ACROSS_NOTES * ACROSS_NOTE_BYTES;
	struct link_write write = {
		.from = n,
		.bytes = (uint32_t)bytes,
		.flags = LINK_IMMEDIATE | flags,
		.at = place,
		.immediate = link_immediate(n->place, n->generation, 0),
	};
	int r;

	n->number = (uint32_t)k->notes_sent;
	if (link_credit(k->link) == 1 || n->kind == NOTE_LOOK)
		n->kind |= NOTE_ASK;
	if (write.bytes > link_inline_max(k->link)) {
		write.from = k->staging + place;
		write.memory = &k->memory;
		/* With a full queue the note that lay there may be under way: then there is
		 * no room either. */
		if (link_posted(k->link) - link_completed(k->link) < ACROSS_SENDS)
			memcpy(k->staging + place, n, write.bytes);
	}
	r = link_post(k->link, &write);
	if (r < 0)
		return r;
	k->notes_sent++;
	if (n->kind & NOTE_ASK) {
		k->asked++;
		k->asked_at = link_immediates(k->link);
	}
	return 0;
}

static int post_note(struct peer *a, enum note_kind kind, const struct note_words *w)
{
	size_t bytes = kind == NOTE_SHORT ? NOTE_SHORT_BYTES : sizeof(struct note);
	struct note note = {.kind = (uint8_t)kind,
			    .generation = a->peer_generation,
			    .place = (uint8_t)a->peer_place,
			    .words = *w};

	return note_post(a->link, &note, bytes,
			 kind == NOTE_LAST || !a->said ? LINK_SIGNAL : 0u);
}

/* The peer can reckon from what it knows what a write of these bytes alone says. */
static bool tell_themselves(const struct peer *a, const struct note_words *w,
			    const struct ring_span *last)
{
	return last->len > 0 && a->sent.produced == a->reader.consumed &&
	       w->produced == a->reader.consumed + last->len &&
	       link_credit(a->link->link) > 1;
}

static void push_telling(struct peer *a, uint64_t consumed, const struct ring_span *last)
{
	consumed -= a->sent.consumed;
	if (consumed > TELLS_CONSUMED_MAX)
		consumed = TELLS_CONSUMED_MAX;
	if (!write_bytes(a, last,
			 tells_immediate(a->peer_place, a->peer_generation,
					 (uint32_t)consumed))) {
		a->owes = a->untold = true;
		return;
	}
	a->sent.produced = a->reader.consumed;
	a->sent.consumed += consumed;
}

/* Nothing but the stream's bytes may be due to the peer, and they may go. */
static bool may_be_plain(const struct peer *a)
{
	const struct across_link *k = a->link;

	return a->state == ACROSS_OPEN && a->wire && a->said && !a->last_sent &&
	       a->has_peer && k && k->up && !k->failed && !k->bulk_due &&
	       !a->told.number && !a->offer.verdict.number &&
	       a->grant.state == GRANT_NONE &&
	       (a->offer.state != OFFER_OPEN || a->offer.said) &&
	       link_credit(k->link) > 1;
}

/* All words but the cursors are as the peer has them. In the order of note_look: a place belongs to the epoch that is
 * stored behind it, so it is as the peer has it where the epoch is. */
static bool words_are_told(const struct peer *a)
{
	const struct note_words *w = &a->sent;
	struct wire_dir *out = a->out, *in = a->in;

	return load(&in->closed) == w->closed && load(&in->want_down) == w->want_down &&
	       load(&in->ready_epoch) == w->ready_epoch &&
	       load(&in->rx_bound) == w->rx_bound && load(&out->fin) == w->fin &&
	       load(&out->down_epoch) == w->down_epoch &&
	       load(&out->up_epoch) == w->up_epoch && !w->held_ms &&
	       load64(&out->held_since_ms) == 0 && load64(&out->held_at) == w->held_at;
}

/*
 * What nearly every push is: the stream has gone on, in one piece, and nothing else is to be told. It comes to what
 * the rest of push would do. False: nothing was done.
 */
static bool push_plainly(struct peer *a)
{
	struct ring_rx *r = &a->reader;
	struct ring_span span;
	uint64_t consumed;

	if (!may_be_plain(a) || !words_are_told(a) || a->sent.produced != r->consumed)
		return false;
	consumed = load64(&a->in->consumed);
	/* The moves of the ring are looked at behind the cursor, which belongs to the last of them. */
	span = ring_rx_glance_in(r, a->out, staging_of(a),
				 ring_area_within(ring_rx_area(r), ACROSS_AREA_LIMIT));
	if (span.len == 0 || r->seen != r->consumed + span.len ||
	    r->turn_seq != a->sent.turn_seq || span.len > link_write_max(a->link->link))
		return false;
	a->owes = a->untold = false;
	push_telling(a, consumed, &span);
	return true;
}

static void push(struct peer *a)
{
	struct across_link *k = a->link;
	struct note_words w = {0};
	struct ring_span last = {0};
	enum note_kind kind = NOTE_SHORT;
	bool ended = a->state == ACROSS_ENDED;

	if (push_plainly(a))
		return;
	a->owes = a->untold = true;
	if (!k || k->failed || !k->up || !a->has_peer || a->last_sent)
		return;
	a->owes = a->untold = !redirect_push(a);
	if (redirect_comes_first(a))
		return;
	if (aside_is_due(a)) {
		aside_push(a);
		return;
	}
	gather(a, &w, &last);
	if (ended && !a->owes)
		kind = NOTE_LAST;
	else if (!a->said || is_long(&w, &a->sent))
		kind = NOTE_LONG;
	else if (!note_is_news(a, &w, &a->sent))
		return;
	if (kind == NOTE_SHORT && tell_themselves(a, &w, &last)) {
		push_telling(a, w.consumed, &last);
		return;
	}
	/* The bytes before the words, which tell of them. */
	if ((last.len > 0 && !write_bytes(a, &last, 0)) || post_note(a, kind, &w) < 0) {
		a->owes = a->untold = true;
		return;
	}
	a->sent = w;
	a->bare_at = 0;
	if (!a->said)
		a->first_at = link_posted(k->link);
	a->said = true;
	if (kind == NOTE_LAST) {
		a->last_sent = true;
		a->last_at = link_posted(k->link);
	}
}

void note_push(struct peer *a)
{
	push(a);
	/* Relaxed: whoever reads an older one looks here for himself. */
	store_relaxed(&a->consumed_told, a->sent.consumed);
}

/* Of several that give room back, the last sees what all have. */
bool across_room_is_due(const struct peer *a, struct wire_dir *in)
{
	return is_much(load64(&in->consumed), load_relaxed(&a->consumed_told), in);
}

/* ---- carrying out ---- */

static void store(_Atomic uint32_t *word, uint32_t value)
{
	if (load_relaxed(word) != value)
		store_release(word, value);
}

static void store64(_Atomic uint64_t *word, uint64_t value)
{
	if (load_relaxed(word) != value)
		store_release(word, value);
}

static void apply_held(struct peer *a)
{
	struct wire_dir *in = a->in;
	const struct note_words *w = &a->came;
	uint64_t now = clock_shared_ms();

	store64(&in->held_at, w->held_at);
	if (!w->held_ms)
		store64(&in->held_since_ms, 0);
	else
		store64(&in->held_since_ms,
			now > w->held_ms ? now - (w->held_ms - 1) : 1);
}

/* Before bytes are published. */
static void note_arrival(struct peer *a)
{
	struct wire_dir *in = a->in;
	uint64_t produced = load64(&in->produced);

	if (a->came.produced == produced)
		return;
	store(&in->sent_tick, wire_tick()); /* as if it were this host's */
	if (load(&in->want_times)) {
		a->arrivals.produced = produced;
		ring_tx_note_time(&a->arrivals, in);
	}
}

/* Each as its owner would: what belongs to an epoch or a cursor before it. */
static void apply(struct peer *a)
{
	struct wire_dir *in = a->in, *out = a->out;
	const struct note_words *w = &a->came;

	note_arrival(a);
	for (uint32_t i = 0; i < WIRE_TURNS; i++) {
		store64(&in->turn_at[i], w->turn_at[i]);
		store(&in->turn_area[i], w->turn_area[i]);
	}
	store(&in->turn_seq, w->turn_seq);
	store64(&in->up_at, w->up_at);
	store(&in->up_epoch, w->up_epoch);
	apply_held(a);
	store64(&in->produced, w->produced);
	store64(&in->down_at, w->down_at);
	store(&in->down_epoch, w->down_epoch);
	store(&in->fin, w->fin);

	store64(&out->consumed, w->consumed);
	store(&out->rx_bound, w->rx_bound);
	store(&out->ready_epoch, w->ready_epoch);
	/* What asks for more is for two ends on one host. */
	store(&out->want_down, w->want_down <= WANT_BOUNCE ? w->want_down : WANT_FINAL);
	store(&out->closed, w->closed);
}

/* The same, where nothing else is new. */
static void apply_cursors(struct peer *a)
{
	note_arrival(a);
	store64(&a->in->produced, a->came.produced);
	store64(&a->out->consumed, a->came.consumed);
}

/* As the peer would ring: for whoever has armed before the look that follows these stores.
 * Of an end that has let go nobody waits any more, whatever was armed when it did. */
static void wake(struct peer *a)
{
	uint32_t rx, tx;

	if (!a->owner.ring)
		return;
	fence_full();
	rx = load_relaxed(&a->in->rx_armed);
	tx = load_relaxed(&a->out->tx_armed);
	if ((rx && rx != a->rung_rx) || (tx && tx != a->rung_tx))
		a->owner.ring(a->owner.owner);
	a->rung_rx = rx;
	a->rung_tx = tx;
}

void note_apply_all(struct peer *a)
{
	apply(a);
	wake(a);
}

static bool are_words(const struct note_words *w)
{
	for (int i = 0; i < WIRE_TURNS; i++)
		if (w->turn_area[i] > ACROSS_AREA_LIMIT)
			return false;
	return true;
}

bool note_take_words(struct peer *a, const struct note_words *words)
{
	struct note_words w = *words;

	if (!are_words(words))
		return false;
	w.produced = later(w.produced, a->came.produced);
	w.consumed = later(w.consumed, a->came.consumed);
	a->came = w;
	if (a->wire)
		note_apply_all(a);
	return true;
}

bool note_take(struct peer *a, const struct note *n)
{
	uint64_t produced = a->came.produced;

	if (n->kind != NOTE_SHORT) {
		if (!are_words(&n->words))
			return false;
		a->came = n->words;
	} else {
		a->came.produced = n->words.produced;
		a->came.consumed = n->words.consumed;
	}
	a->came.produced = later(a->came.produced, produced);
	a->heard = true;
	a->last_came = n->kind == NOTE_LAST;
	if (a->state == ACROSS_ANSWERED)
		a->state = ACROSS_OPEN;
	if (a->wire)
		note_apply_all(a);
	return true;
}

void note_take_bytes(struct peer *a, uint32_t bytes, uint32_t consumed)
{
	a->came.produced += bytes;
	a->came.consumed += consumed;
	if (!a->wire)
		return;
	/* All other words are there, as of the last note; but bytes that are held back are so from each time on. */
	if (a->came.held_ms)
		apply(a);
	else
		apply_cursors(a);
	wake(a);
}
