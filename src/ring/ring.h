/* SPDX-License-Identifier: Apache-2.0 */
/* One end of one ring: cursors kept in trusted memory, checked against the shared ones. */
#ifndef VD_RING_RING_H
#define VD_RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/mechanism.h"
#include "ring/wire.h"

/* A message of so much counts as bulk. */
#define RING_BULK_BYTES (8u << 10)

/* Producer's view. Guarded by the connection's send lock, but for `rung`. */
struct ring_tx {
	uint64_t produced; /* bytes written; published, but for those held */
	uint64_t pushed;   /* bytes published */
	uint64_t credit;   /* consumer's cursor as last read and checked */
	/* Where area number turn_seq began, and which it is; those before beside it, as
	 * unread bytes can lie in three: number n at index n % WIRE_TURNS. */
	uint64_t base[WIRE_TURNS];
	uint32_t area[WIRE_TURNS];
	/* Where bulk goes. Bytes of it: since a calm time, at the last look whether it is calm,
	 * and when `span` was found, with everybody's at that time. */
	uint64_t bulk, bulk_rest, bulk_mark, all_mark;
	uint64_t look_at;    /* position of the next look for the front */
	uint32_t span;	     /* of a larger area, to go through before the front; 0 all */
	uint32_t turn_seq;   /* the last store of a move */
	uint32_t area_limit; /* highest area that may be used */
	uint32_t area_touched; /* highest area that holds memory */
	uint32_t touched;      /* bytes from the areas' beginning that bulk has been in */
	uint32_t calm;	       /* looks in a row that found the ring nearly empty */
	uint32_t times;	       /* arrivals noted */
	_Atomic uint32_t rung; /* last value of rx_armed that was answered with a ring */
};

/* Bits of ring_rx.held: why there is more to a receive than the producer's published cursor. */
enum ring_held {
	RING_PUBLISHED = 0, /* there is not */
	RING_HELD = 1,	    /* `seen` runs ahead of it, over bytes held back */
	RING_ENDED = 2,	    /* the mark down was seen: nothing behind `seen` is ours */
	RING_OVER = 4,	    /* the end was told: nothing can come behind it */
	RING_SHOWN = 8,	    /* a peek has shown some bytes, which lie elsewhere too */
	RING_RESENT = 16,   /* the mark answers a request for unread bytes over TCP */
};

/* Consumer's view. Guarded by the connection's receive lock, but for `rung`. */
struct ring_rx {
	uint64_t consumed;
	uint64_t seen; /* producer's cursor as last read and checked */
	uint64_t told; /* the program has been told of bytes before it: promise.h */
	uint64_t base; /* position where the current area began */
	/* Moves noted and not yet passed, as in struct wire_dir. */
	uint64_t turn_at[WIRE_TURNS];
	uint32_t area;
	uint32_t turn_area[WIRE_TURNS];
	uint32_t turn_seq;     /* moves noted */
	uint32_t turn_passed;  /* moves passed */
	uint8_t held;	       /* bits of enum ring_held */
	_Atomic uint32_t rung; /* last value of tx_armed that was answered with a ring */
};

/* A run of contiguous bytes inside the ring. */
struct ring_span {
	uint8_t *data;
	size_t len;
};

/* Published bytes that the consumer has not taken: for hints, from either side. */
static inline uint64_t ring_unread(struct wire_dir *d)
{
	/* Acquire, both: a verdict about the end of a stream may go by it. */
	uint64_t taken = load_acquire(&d->consumed);
	uint64_t produced = load_acquire(&d->produced);
	/* The consumer may be ahead, by bytes that were held back for too long. */
	return (int64_t)(produced - taken) > 0 ? produced - taken : 0;
}

/* Size of the area that the producer writes to, as far as the shared words tell. */
static inline uint32_t ring_size_hint(struct wire_dir *d)
{
	uint32_t seq = load_relaxed(&d->turn_seq);
	uint32_t area = load_relaxed(&d->turn_area[seq % WIRE_TURNS]);
	return wire_area_bytes(seq && area < WIRE_AREAS ? area : 0);
}

/* Where a direction's area begins in its data. */
static inline size_t ring_area_offset(uint32_t area)
{
	return (size_t)(wire_area_offset(0, area) - wire_area_offset(0, 0));
}

/* From the beginning of an area of that size. As it was read, once: its parts may lie where somebody
 * who has turned hostile can write. */
static inline size_t ring_offset(uint64_t from_base, uint32_t size)
{
	size_t offset = (size_t)from_base & (size - 1);
	__asm__("" : "+r"(offset));
	return offset;
}

/* The consumer has come to `at`, which is not after `produced`, as far as is known. */
static inline bool ring_tx_reached(const struct ring_tx *r, uint64_t at)
{
	return r->produced - r->credit <= r->produced - at;
}

static inline uint64_t ring_tx_base(const struct ring_tx *r)
{
	return r->base[r->turn_seq % WIRE_TURNS];
}

/* Read once: it may lie where somebody who has turned hostile can write. */
static inline uint32_t ring_tx_area(const struct ring_tx *r)
{
	return __atomic_load_n(&r->area[r->turn_seq % WIRE_TURNS], __ATOMIC_RELAXED);
}

static inline uint32_t ring_rx_area(const struct ring_rx *r)
{
	return __atomic_load_n(&r->area, __ATOMIC_RELAXED);
}

/* No larger one than the memory has. */
static inline uint32_t ring_area_within(uint32_t area, uint32_t most)
{
	return area < most ? area : most;
}

/* Free room of an area without a look at the consumer's cursor. */
static inline uint64_t ring_tx_room_of(const struct ring_tx *r, uint32_t area)
{
	if (LACKS(WINDOW) && r->produced != r->credit)
		return 0;
	/* Bytes before base lie in another area and take no room here. */
	uint64_t base = ring_tx_base(r);
	uint64_t from = ring_tx_reached(r, base) ? r->credit : base;
	return wire_area_bytes(area) - (r->produced - from);
}

static inline uint64_t ring_tx_room_known(const struct ring_tx *r)
{
	return ring_tx_room_of(r, ring_tx_area(r));
}

/*
 * `data` below is the start of the direction's areas in the mapped segment. `most` is the largest area
 * that is there: whatever the rest of the state says, a span ends before the end of that.
 */
#define RING_ALL_AREAS (WIRE_AREAS - 1)

void ring_tx_init(struct ring_tx *r, uint32_t area_limit);
void ring_rx_init(struct ring_rx *r);

/*
 * Free room in bytes: 0 when full, -EPROTO when the peer's cursor lies.
 * Reads the peer's cursor only when the room known of is less than `want`.
 */
int64_t ring_tx_room(struct ring_tx *r, struct wire_dir *d, size_t want);
/* Bytes that are unread, where these may be `least`: 0 else, without a look at the consumer's cursor. */
uint64_t ring_tx_ahead(struct ring_tx *r, struct wire_dir *d, uint64_t least);
/* The first contiguous part of that room; len 0 when full. Returns 0 or -EPROTO. */
int ring_tx_span_within(struct ring_tx *r, struct wire_dir *d, uint8_t *data,
			uint32_t most, size_t want, struct ring_span *out);
static inline int ring_tx_span(struct ring_tx *r, struct wire_dir *d, uint8_t *data,
			       size_t want, struct ring_span *out)
{
	return ring_tx_span_within(r, d, data, RING_ALL_AREAS, want, out);
}
/* Publishes the last move once more: an owner that died before it is made up for. */
void ring_tx_publish_turn(const struct ring_tx *r, struct wire_dir *d);
/* Publishes what is held, and repairs a shared cursor that a dead owner left behind. */
static inline void ring_tx_push(struct ring_tx *r, struct wire_dir *d)
{
	if (__builtin_expect(load_relaxed(&d->turn_seq) != r->turn_seq, 0))
		ring_tx_publish_turn(r, d);
	r->pushed = r->produced;
	/* Release: the bytes are to be seen by whoever sees the cursor. */
	store_release(&d->produced, r->produced);
	if (load_relaxed(&d->held_since_ms))
		store_relaxed(&d->held_since_ms, 0);
}
void ring_tx_note_time(struct ring_tx *r, struct wire_dir *d);
/* Before bytes are published, from r->produced on. */
static inline void ring_tx_time(struct ring_tx *r, struct wire_dir *d)
{
	if (__builtin_expect(load_relaxed(&d->want_times) != 0, 0))
		ring_tx_note_time(r, d);
}
void ring_tx_commit_slow(struct ring_tx *r, struct wire_dir *d, size_t n, bool hold);
/* Takes n bytes that were written to the last span, and publishes all unless they are held. */
static inline void ring_tx_commit(struct ring_tx *r, struct wire_dir *d, size_t n,
				  bool hold)
{
	ring_tx_time(r, d);
	if (hold || ring_tx_area(r) > 0) {
		ring_tx_commit_slow(r, d, n, hold);
		return;
	}
	r->produced += n;
	ring_tx_push(r, d);
}
/* In a larger area, and so far on that it should begin at the front again. */
static inline bool ring_tx_strays(const struct ring_tx *r)
{
	return __builtin_expect(ring_tx_area(r) > 0, 0) &&
	       (int64_t)(r->produced - r->look_at) >= 0;
}
/*
 * Before bytes are written by a producer that strays: goes to the front once all has been taken.
 * Looks at the consumer's cursor.
 */
void ring_tx_front(struct ring_tx *r, struct wire_dir *d);
/*
 * Before a bulk message: finds the place for it. `all` counts the bytes of all bulk messages of
 * this process; `near` where the consumer shares our processor, as far as is known. True when it has
 * moved to a larger area.
 */
bool ring_tx_place(struct ring_tx *r, struct wire_dir *d, uint64_t all, bool near);
/* None of these for a ring whose bytes are carried to another host. */

/* `len` free bytes in a row, when that needs no look at the consumer's cursor; else NULL. `area`: as
 * ring_tx_area has said, or a smaller one. */
static inline uint8_t *ring_tx_glance_in(const struct ring_tx *r, uint8_t *data,
					 uint32_t area, size_t len)
{
	uint32_t size = wire_area_bytes(area);
	size_t offset = ring_offset(r->produced - ring_tx_base(r), size);
	if (len > ring_tx_room_of(r, area) || len > size - offset)
		return NULL;
	return data + ring_area_offset(area) + offset;
}
static inline uint8_t *ring_tx_glance(const struct ring_tx *r, uint8_t *data, size_t len)
{
	return ring_tx_glance_in(r, data, ring_tx_area(r), len);
}
/* True when so much is held that TCP would have sent a full segment. */
bool ring_tx_holds_enough(const struct ring_tx *r);
/* There is a larger area, and it is not read any more. */
bool ring_tx_may_grow(struct ring_tx *r, struct wire_dir *d);
/* Moves there, if so. */
bool ring_tx_grow(struct ring_tx *r, struct wire_dir *d);
/* Bytes published that the consumer has neither taken nor kept. 0, or -EPROTO when its cursor
 * lies. */
int ring_tx_unread(struct ring_tx *r, struct wire_dir *d, uint64_t *count);
/* The contiguous run that begins with the last `left` of them. */
void ring_tx_unread_span_within(const struct ring_tx *r, uint8_t *data, uint32_t most,
				uint64_t left, struct ring_span *out);
static inline void ring_tx_unread_span(const struct ring_tx *r, uint8_t *data,
				       uint64_t left, struct ring_span *out)
{
	ring_tx_unread_span_within(r, data, RING_ALL_AREAS, left, out);
}
/* They went another way: the ring ends before them. */
void ring_tx_rewind(struct ring_tx *r, struct wire_dir *d, uint64_t end);
/*
 * The first area of those that hold memory and no bytes, and no more will have any until the
 * ring moves there again; WIRE_AREAS when there is none. With `still`, because nothing has been
 * sent for a while, a ring that is empty goes back to the smallest area first.
 */
uint32_t ring_tx_spare(struct ring_tx *r, struct wire_dir *d, bool still);
/* True in the smallest area, which is left without much ado. */
bool ring_tx_is_small(const struct ring_tx *r);

/*
 * Bytes to take; -EPROTO when the peer's cursor lies. Reads the peer's cursor only when
 * fewer than `want` bytes are known of.
 */
int64_t ring_rx_avail(struct ring_rx *r, struct wire_dir *d, size_t want);
/* From now on bytes that the producer holds back count too (it is gone, or was too slow). */
int ring_rx_take_held(struct ring_rx *r, struct wire_dir *d);
/* The contiguous run that begins `skip` bytes after the cursor, of the bytes known of. */
void ring_rx_span_within(const struct ring_rx *r, uint8_t *data, uint32_t most,
			 size_t skip, struct ring_span *out);
static inline void ring_rx_span(const struct ring_rx *r, uint8_t *data, size_t skip,
				struct ring_span *out)
{
	ring_rx_span_within(r, data, RING_ALL_AREAS, skip, out);
}
void ring_rx_pass_turns(struct ring_rx *r);
/* The ring ends at `end`, if that has been seen: nothing behind it is looked at any more. */
static inline void ring_rx_end(struct ring_rx *r, uint64_t end)
{
	if (end - r->consumed > r->seen - r->consumed)
		return;
	r->seen = end;
	r->held = (uint8_t)((r->held & ~RING_HELD) | RING_ENDED);
}
/* The producer goes on there, and all before it that was told of has been read. */
static inline void ring_rx_reopen(struct ring_rx *r)
{
	r->held &= (uint8_t) ~(RING_ENDED | RING_SHOWN | RING_RESENT);
	r->told = r->consumed;
}
/* Passes over n bytes of one span, which stay the producer's not to overwrite. */
static inline void ring_rx_skip(struct ring_rx *r, size_t n)
{
	r->consumed += n;
	if (__builtin_expect(r->turn_seq != r->turn_passed, 0))
		ring_rx_pass_turns(r);
}
/* Passes over n bytes that were to come next, and never were in the ring: they would have lain in
 * a row. Nothing else may be known of. */
static inline void ring_rx_bypass(struct ring_rx *r, size_t n)
{
	r->seen += n;
	ring_rx_skip(r, n);
}
/* Gives n bytes of one span back to the producer: its licence to overwrite them. */
static inline void ring_rx_commit(struct ring_rx *r, struct wire_dir *d, size_t n)
{
	ring_rx_skip(r, n);
	/* Release: our loads of the bytes come before the licence to overwrite them. */
	store_release(&d->consumed, r->consumed);
}
/* When the byte at `taken`, an unread one, came, as the producer says; 0 when there is none, or that
 * is not known. */
uint64_t ring_came(struct wire_dir *d, uint64_t taken);
/* The producer sends nothing more: when it said so first. */
void ring_note_end(struct wire_dir *d);
bool ring_rx_roomy_slow(const struct ring_rx *r);
/* True when a sleeping producer has room enough to be woken for. */
static inline bool ring_rx_roomy(const struct ring_rx *r)
{
	uint32_t size = wire_area_bytes(r->area);
	if (__builtin_expect(r->turn_seq != r->turn_passed, 0))
		return ring_rx_roomy_slow(r);
	return size - (r->seen - r->consumed) >= size / 4;
}
/*
 * All that is known after a look at the producer's cursor, as far as it lies in a row. `area`: as
 * ring_rx_area has said, or a smaller one.
 * Len 0: there is nothing, or it takes the calls above to say what there is.
 */
static inline struct ring_span ring_rx_glance_in(struct ring_rx *r, struct wire_dir *d,
						 uint8_t *data, uint32_t area)
{
	/* Acquire, both: as in ring_rx_avail. */
	uint64_t now = load_acquire(&d->produced);
	uint32_t turn = load_acquire(&d->turn_seq);
	uint32_t size = wire_area_bytes(area);
	uint64_t len = now - r->consumed;
	if (turn != r->turn_seq || turn != r->turn_passed || r->held || len > size ||
	    len < r->seen - r->consumed)
		return (struct ring_span){0};
	r->seen = now;
	size_t offset = ring_offset(r->consumed - r->base, size);
	if (len > size - offset)
		len = size - offset;
	return (struct ring_span){data + ring_area_offset(area) + offset, (size_t)len};
}
static inline struct ring_span ring_rx_glance(struct ring_rx *r, struct wire_dir *d,
					      uint8_t *data)
{
	return ring_rx_glance_in(r, d, data, ring_rx_area(r));
}

#endif
