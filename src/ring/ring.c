/* SPDX-License-Identifier: Apache-2.0 */
/* Ring cursors: credit, moves between data areas, and the checks that keep a liar harmless. */
/* Some of it is for conn/quick.h. */
#define GENERAL_REGS_ONLY
#include "base/general_regs.h"

#include "base/atomic.h"
#include "ring/ring.h"

#include <errno.h>
#include <x86intrin.h>

/* How often a producer in a large area asks whether a smaller, hotter one would do. */
#define REST_INTERVAL_BYTES WIRE_AREA1_BYTES
/* TCP sends a full segment even while corked; on loopback that is so much. */
#define HELD_MOST_BYTES 65483u
#define REST_CALM_LOOKS 4

/*
 * Lines that were read on another processor lie in its cache, from where they come back two to
 * four times slower than from the cache that all share: so bulk goes through more bytes than
 * the caches of two processors hold before it comes to a line again. Where many connections do
 * that together, each of them needs no larger area. On one processor it is the other way round:
 * the fewer bytes, the better.
 */
#define WIDE_BYTES (5u << 19)
#define HOT_BYTES  (32u << 10)
/* A share that is worth the largest area, and one that is not any more. */
#define WIDE_FROM_BYTES (768u << 10)
#define WIDE_TO_BYTES	(680u << 10)
/* New pages cost as much time as a wide span saves in so many bytes. */
#define WIDE_AFTER_BYTES (32u << 20)
#define NO_SPAN		 (1ull << 62)
/* So many bytes tell a connection's share. */
#define SHARE_BYTES (8u << 20)

void ring_tx_init(struct ring_tx *r, uint32_t area_limit)
{
	*r = (struct ring_tx){.area_limit = area_limit < WIRE_AREAS ? area_limit
								    : WIRE_AREAS - 1};
}

void ring_rx_init(struct ring_rx *r)
{
	*r = (struct ring_rx){0};
}

static int tx_refresh(struct ring_tx *r, struct wire_dir *d)
{
	/* Acquire: the consumer's loads of the bytes happened before it gave them back. */
	uint64_t now = load_acquire(&d->consumed);
	if (r->produced - now > r->produced - r->credit)
		return -EPROTO;
	r->credit = now;
	return 0;
}

int64_t ring_tx_room(struct ring_tx *r, struct wire_dir *d, size_t want)
{
	uint64_t room = ring_tx_room_known(r);
	if (room < want) {
		if (tx_refresh(r, d) < 0)
			return -EPROTO;
		room = ring_tx_room_known(r);
	}
	return (int64_t)room;
}

uint64_t ring_tx_ahead(struct ring_tx *r, struct wire_dir *d, uint64_t least)
{
	if (r->produced - r->credit < least || tx_refresh(r, d) < 0)
		return 0;
	return r->produced - r->credit;
}

int ring_tx_span_within(struct ring_tx *r, struct wire_dir *d, uint8_t *data,
			uint32_t most, size_t want, struct ring_span *out)
{
	int64_t room = ring_tx_room(r, d, want);
	if (room < 0)
		return -EPROTO;
	uint32_t area = ring_area_within(ring_tx_area(r), most);
	uint32_t size = wire_area_bytes(area);
	size_t offset = ring_offset(r->produced - ring_tx_base(r), size);
	size_t len = size - offset;
	if (len > (size_t)room)
		len = (size_t)room;
	out->data = data + ring_area_offset(area) + offset;
	out->len = len;
	return 0;
}

void ring_tx_publish_turn(const struct ring_tx *r, struct wire_dir *d)
{
	uint32_t i = r->turn_seq % WIRE_TURNS;
	/* Relaxed: the release of turn_seq publishes both, and `produced` comes after it. */
	store_relaxed(&d->turn_at[i], ring_tx_base(r));
	store_relaxed(&d->turn_area[i], ring_tx_area(r));
	store_release(&d->turn_seq, r->turn_seq);
}

/* The memory of larger areas has to be earned anew. */
static void tx_end_bulk(struct ring_tx *r)
{
	r->bulk = r->bulk_rest = r->bulk_mark = 0;
	r->span = 0;
}

static bool is_wide(const struct ring_tx *r)
{
	return r->span > WIRE_AREA1_BYTES;
}

static void tx_look_later(struct ring_tx *r, uint32_t area)
{
	uint64_t span = r->span;
	/* Of the largest area no page is touched before the ring needs it, or it is known to pay. */
	if (span == 0)
		span = area > 1 ? WIRE_AREA1_BYTES : NO_SPAN;
	r->look_at = r->produced + span;
}

static void tx_turn(struct ring_tx *r, struct wire_dir *d, uint32_t area)
{
	uint32_t i = (r->turn_seq + 1) % WIRE_TURNS;
	r->base[i] = r->produced;
	r->area[i] = area;
	if (r->area_touched < area)
		r->area_touched = area;
	r->calm = 0;
	tx_look_later(r, area);
	/* One store makes the move; the compiler must not make it earlier. */
	fence_compiler();
	r->turn_seq++;
	ring_tx_publish_turn(r, d);
}

/*
 * The shared words have room: the move whose place this one takes has been heard of. It has
 * not where the consumer has come to its very place and may not have looked since.
 */
static bool tx_may_turn(const struct ring_tx *r)
{
	uint64_t oldest = r->base[(r->turn_seq + 1) % WIRE_TURNS];
	return r->turn_seq < WIRE_TURNS || r->produced - r->credit < r->produced - oldest;
}

bool ring_tx_may_grow(struct ring_tx *r, struct wire_dir *d)
{
	uint32_t next = ring_tx_area(r) + 1, before = (r->turn_seq - 1) % WIRE_TURNS;
	if (ring_tx_area(r) >= r->area_limit)
		return false;
	if (!(ring_tx_reached(r, ring_tx_base(r)) && tx_may_turn(r)) &&
	    tx_refresh(r, d) < 0)
		return false;
	/* Bytes may lie in one area before this, when it is not the one to come. */
	if (!ring_tx_reached(r, ring_tx_base(r)) &&
	    (!ring_tx_reached(r, r->base[before]) || r->area[before] == next))
		return false;
	return tx_may_turn(r);
}

bool ring_tx_grow(struct ring_tx *r, struct wire_dir *d)
{
	if (!ring_tx_may_grow(r, d))
		return false;
	tx_turn(r, d, ring_tx_area(r) + 1);
	return true;
}

/* A ring that stays nearly empty goes back to an area that fits the cache. */
static void tx_rest(struct ring_tx *r, struct wire_dir *d)
{
	bool is_bulk = r->bulk - r->bulk_rest >= REST_INTERVAL_BYTES / 2;
	r->bulk_rest = r->bulk;
	if (is_bulk && is_wide(r))
		return;
	if (!is_bulk)
		tx_end_bulk(r);
	if (tx_refresh(r, d) < 0 || !ring_tx_reached(r, ring_tx_base(r)) ||
	    !tx_may_turn(r))
		return;
	uint64_t fill = r->produced - r->credit;
	if (fill > wire_area_bytes(ring_tx_area(r) - 1) / 4) {
		r->calm = 0;
		return;
	}
	if (++r->calm < (ring_tx_area(r) == 1 ? REST_CALM_LOOKS : 1))
		return;
	tx_end_bulk(r);
	tx_turn(r, d, ring_tx_area(r) - 1);
}

void ring_tx_front(struct ring_tx *r, struct wire_dir *d)
{
	uint32_t calm = r->calm;

	r->look_at = r->produced + HOT_BYTES;
	if (tx_refresh(r, d) < 0 || r->credit != r->produced ||
	    r->pushed != r->produced || !tx_may_turn(r))
		return;
	tx_turn(r, d, ring_tx_area(r));
	r->calm = calm;
}

static void find_span(struct ring_tx *r, uint64_t all, bool near)
{
	uint64_t ours = r->bulk - r->bulk_mark, sum = all - r->all_mark;
	uint64_t part = sum > ours ? (uint64_t)WIDE_BYTES * ours / sum : WIDE_BYTES;

	if (near)
		r->span = HOT_BYTES;
	else if (part > (is_wide(r) ? WIDE_TO_BYTES : WIDE_FROM_BYTES))
		r->span = (uint32_t)part;
	else
		r->span = WIRE_AREA1_BYTES;
	tx_look_later(r, ring_tx_area(r));
	r->bulk_mark = r->bulk;
	r->all_mark = all;
}

bool ring_tx_place(struct ring_tx *r, struct wire_dir *d, uint64_t all, bool near)
{
	if (r->bulk == 0)
		r->all_mark = all;
	if (r->bulk - r->bulk_mark >= SHARE_BYTES || (near && r->span == 0))
		find_span(r, all, near);
	if (!near && r->bulk >= WIDE_AFTER_BYTES && is_wide(r) &&
	    ring_tx_area(r) < r->area_limit)
		return ring_tx_grow(r, d);
	if (ring_tx_strays(r))
		ring_tx_front(r, d);
	return false;
}

uint32_t ring_tx_spare(struct ring_tx *r, struct wire_dir *d, bool still)
{
	if (r->area_touched == 0 || tx_refresh(r, d) < 0)
		return WIRE_AREAS;
	if (still && ring_tx_area(r) > 0 && r->credit == r->produced &&
	    r->pushed == r->produced && tx_may_turn(r)) {
		tx_end_bulk(r);
		tx_turn(r, d, 0);
	}
	/* The consumer has come to where the present area begins: it is done with the others. */
	if (!ring_tx_reached(r, ring_tx_base(r)) || ring_tx_area(r) >= r->area_touched)
		return WIRE_AREAS;
	return ring_tx_area(r) + 1;
}

/*
 * The oldest entry may go once the consumer has come to the next. While all are of unread
 * bytes the newest stands for what comes after it too.
 */
void ring_tx_note_time(struct ring_tx *r, struct wire_dir *d)
{
	uint32_t wanted = load_relaxed(&d->want_times);
	if (wanted & WIRE_SENT)
		store_relaxed(&d->sent_tick, wire_tick());
	if (!(wanted & WIRE_ARRIVALS))
		return;
	uint32_t i = r->times % WIRE_TIMES;
	uint64_t next = load_relaxed(&d->time_from[(i + 1) % WIRE_TIMES]);

	if (r->times >= WIRE_TIMES && !ring_tx_reached(r, next) &&
	    (tx_refresh(r, d) < 0 || !ring_tx_reached(r, next)))
		return;
	store_relaxed(&d->time_from[i], r->produced);
	store_relaxed(&d->time_at[i], __rdtsc());
	r->times++;
}

uint64_t ring_came(struct wire_dir *d, uint64_t taken)
{
	uint64_t produced = load_acquire(&d->produced);
	uint64_t best = UINT64_MAX, at = 0;

	if ((int64_t)(produced - taken) <= 0)
		return 0;
	/* The last entry that does not begin after the first unread byte. */
	for (uint32_t i = 0; i < WIRE_TIMES; i++) {
		uint64_t t = load_relaxed(&d->time_at[i]);
		uint64_t from = load_relaxed(&d->time_from[i]);

		if (t && taken - from <= best && (int64_t)(taken - from) >= 0) {
			best = taken - from;
			at = t;
		}
	}
	return at;
}

void ring_note_end(struct wire_dir *d)
{
	if (!load_relaxed(&d->ended_at))
		store_relaxed(&d->ended_at, __rdtsc());
}

bool ring_tx_holds_enough(const struct ring_tx *r)
{
	return r->produced - r->pushed >= wire_area_bytes(ring_tx_area(r)) / 2 ||
	       r->produced - r->pushed >= HELD_MOST_BYTES;
}

void ring_tx_commit_slow(struct ring_tx *r, struct wire_dir *d, size_t n, bool hold)
{
	uint64_t before = r->produced;
	r->produced += n;
	if (__builtin_expect(hold, 0)) {
		/* Release, as for the cursor itself: the consumer may go by it in the end. */
		store_release(&d->held_at, r->produced);
		return;
	}
	ring_tx_push(r, d);
	if (ring_tx_area(r) > 0 && (before ^ r->produced) >= REST_INTERVAL_BYTES)
		tx_rest(r, d);
}

int ring_tx_unread(struct ring_tx *r, struct wire_dir *d, uint64_t *count)
{
	if (tx_refresh(r, d) < 0)
		return -EPROTO;
	/* Relaxed: it was stored before the request that has just been read. */
	uint64_t kept = load_relaxed(&d->kept);
	*count = r->produced - r->credit;
	/* An old one, and a lie, lie outside. */
	if (kept && r->produced - kept < *count)
		*count = r->produced - kept;
	return 0;
}

void ring_tx_unread_span_within(const struct ring_tx *r, uint8_t *data, uint32_t most,
				uint64_t left, struct ring_span *out)
{
	/* All distances are from `produced`, backwards. */
	uint64_t at = left, end = 0;
	uint32_t n = r->turn_seq;
	/* ring_tx_grow sees to it that no more than two lie behind unread bytes. */
	for (int i = 0; i < 2 && at > r->produced - r->base[n % WIRE_TURNS]; i++)
		end = r->produced - r->base[n-- % WIRE_TURNS];
	uint32_t area = ring_area_within(
		__atomic_load_n(&r->area[n % WIRE_TURNS], __ATOMIC_RELAXED), most);
	uint32_t size = wire_area_bytes(area);
	size_t offset = ring_offset(r->produced - r->base[n % WIRE_TURNS] - at, size);
	out->data = data + ring_area_offset(area) + offset;
	out->len = at - end < size - offset ? at - end : size - offset;
}

void ring_tx_rewind(struct ring_tx *r, struct wire_dir *d, uint64_t end)
{
	r->produced = r->pushed = end;
	store_release(&d->produced, end);
}

bool ring_tx_is_small(const struct ring_tx *r)
{
	return ring_tx_area(r) == 0;
}

/* There are no more than that (rx_note_turn), whatever a process says that shares the state. */
static uint32_t rx_pending(const struct ring_rx *r)
{
	uint32_t n = r->turn_seq - r->turn_passed;

	return n < WIRE_TURNS ? n : WIRE_TURNS;
}

/* Where the last area known of begins, and which it is. */
static uint64_t rx_last(const struct ring_rx *r, uint32_t *area)
{
	*area = rx_pending(r) ? r->turn_area[r->turn_seq % WIRE_TURNS] : r->area;
	return rx_pending(r) ? r->turn_at[r->turn_seq % WIRE_TURNS] : r->consumed;
}

static int rx_note_turn(struct ring_rx *r, struct wire_dir *d)
{
	uint32_t last, i = (r->turn_seq + 1) % WIRE_TURNS;
	uint64_t from = rx_last(r, &last);
	uint64_t at = load_relaxed(&d->turn_at[i]);
	uint32_t area = load_relaxed(&d->turn_area[i]);
	/* The producer takes no place of a move that we may not have heard of; and it goes to the
	 * front of an area once we have taken all of it. */
	if (rx_pending(r) == WIRE_TURNS || area >= WIRE_AREAS ||
	    (area == last && at != r->consumed) || at - from > wire_area_bytes(last))
		return -EPROTO;
	r->turn_at[i] = at;
	r->turn_area[i] = area;
	r->turn_seq++;
	return 0;
}

void ring_rx_pass_turns(struct ring_rx *r)
{
	for (int n = 0; n < WIRE_TURNS && rx_pending(r); n++) {
		uint32_t i = (r->turn_passed + 1) % WIRE_TURNS;
		if (r->consumed != r->turn_at[i])
			break;
		r->base = r->turn_at[i];
		r->area = r->turn_area[i];
		r->turn_passed++;
	}
}

static int rx_refresh_to(struct ring_rx *r, struct wire_dir *d, uint64_t now)
{
	/* Acquire pairs with the release of turn_seq in tx_turn. */
	uint32_t area, seq = load_acquire(&d->turn_seq);
	if (seq - r->turn_seq > WIRE_TURNS)
		return -EPROTO;
	while (seq != r->turn_seq)
		if (rx_note_turn(r, d) < 0)
			return -EPROTO;
	uint64_t from = rx_last(r, &area);
	if (now - r->consumed < r->seen - r->consumed)
		return -EPROTO; /* went backwards */
	/* In the last area, or still before it. */
	if (now - r->consumed > from - r->consumed + wire_area_bytes(area))
		return -EPROTO;
	r->seen = now;
	ring_rx_pass_turns(r);
	return 0;
}

static int rx_refresh(struct ring_rx *r, struct wire_dir *d)
{
	/* Acquire pairs with the release in ring_tx_push. */
	uint64_t now = load_acquire(&d->produced);
	if (r->held & (RING_HELD | RING_ENDED | RING_OVER)) {
		if ((r->held & (RING_ENDED | RING_OVER)) || (int64_t)(now - r->seen) <= 0)
			return 0; /* we are ahead of it: nothing new */
		r->held &= (uint8_t)~RING_HELD;
	}
	return rx_refresh_to(r, d, now);
}

int ring_rx_take_held(struct ring_rx *r, struct wire_dir *d)
{
	if (rx_refresh(r, d) < 0)
		return -EPROTO;
	if (r->held & (RING_ENDED | RING_OVER))
		return 0;
	/* Acquire pairs with the release in ring_tx_commit. */
	uint64_t now = load_acquire(&d->held_at);
	if ((int64_t)(now - r->seen) <= 0)
		return 0; /* an old mark: all of it has been published since */
	if (rx_refresh_to(r, d, now) < 0)
		return -EPROTO;
	r->held |= RING_HELD;
	return 1;
}

int64_t ring_rx_avail(struct ring_rx *r, struct wire_dir *d, size_t want)
{
	if (r->seen - r->consumed < want && rx_refresh(r, d) < 0)
		return -EPROTO;
	return (int64_t)(r->seen - r->consumed);
}

void ring_rx_span_within(const struct ring_rx *r, uint8_t *data, uint32_t most,
			 size_t skip, struct ring_span *out)
{
	uint64_t at = r->consumed + skip;
	uint64_t end = r->seen - r->consumed; /* relative to the cursor, like all below */
	uint64_t base = r->base;
	uint32_t area = ring_rx_area(r);
	for (uint32_t n = r->turn_passed + 1; n - r->turn_passed <= rx_pending(r); n++) {
		uint64_t turn = r->turn_at[n % WIRE_TURNS] - r->consumed;
		if (skip < turn) {
			end = end < turn ? end : turn;
			break;
		}
		base = r->turn_at[n % WIRE_TURNS];
		area = __atomic_load_n(&r->turn_area[n % WIRE_TURNS], __ATOMIC_RELAXED);
	}
	area = ring_area_within(area, most);
	uint32_t size = wire_area_bytes(area);
	size_t offset = ring_offset(at - base, size);
	size_t len = (size_t)(end - skip);
	if (len > size - offset)
		len = size - offset;
	out->data = data + ring_area_offset(area) + offset;
	out->len = len;
}

bool ring_rx_roomy_slow(const struct ring_rx *r)
{
	uint32_t area, size;
	uint64_t from = rx_last(r, &area);
	size = wire_area_bytes(area);
	if (r->seen - r->consumed < from - r->consumed)
		return true; /* nothing in the last area yet, as far as we know */
	return size - (r->seen - from) >= size / 4;
}
