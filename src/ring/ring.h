/* SPDX-License-Identifier: Apache-2.0 */
/* One end of one ring: cursors kept in trusted memory, checked against the shared ones. */
#ifndef VD_RING_RING_H
#define VD_RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/wire.h"

/* Producer's view. Guarded by the connection's send lock, but for `rung`. */
struct ring_tx {
	uint64_t produced; /* bytes written; published, but for those held */
	uint64_t pushed;   /* bytes published */
	uint64_t credit;   /* consumer's cursor as last read and checked */
	/* Where area number turn_seq began, and which it is; the one before beside it. */
	uint64_t base[2];
	uint32_t area[2];
	uint32_t turn_seq;     /* the last store of a move */
	uint32_t area_limit;   /* highest area that may be used */
	uint32_t calm;	       /* looks in a row that found the ring nearly empty */
	_Atomic uint32_t rung; /* last value of rx_armed that was answered with a ring */
};

/* Consumer's view. Guarded by the connection's receive lock, but for `rung`. */
struct ring_rx {
	uint64_t consumed;
	uint64_t seen;	     /* producer's cursor as last read and checked */
	uint64_t base;	     /* position where the current area began */
	uint64_t turn_at[2]; /* moves noted and not yet passed, as in struct wire_dir */
	uint32_t area;
	uint32_t turn_area[2];
	uint32_t turn_seq;     /* moves noted */
	uint32_t turn_passed;  /* moves passed */
	bool held;	       /* `seen` runs ahead of the producer's published cursor */
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
	uint64_t taken = atomic_load_explicit(&d->consumed, memory_order_acquire);
	uint64_t produced = atomic_load_explicit(&d->produced, memory_order_acquire);
	/* The consumer may be ahead, by bytes that were held back for too long. */
	return (int64_t)(produced - taken) > 0 ? produced - taken : 0;
}

/* Size of the area that the producer writes to, as far as the shared words tell. */
static inline uint32_t ring_size_hint(struct wire_dir *d)
{
	uint32_t seq = atomic_load_explicit(&d->turn_seq, memory_order_relaxed);
	uint32_t area =
		atomic_load_explicit(&d->turn_area[seq % 2], memory_order_relaxed);
	return wire_area_bytes(seq && area < WIRE_AREAS ? area : 0);
}

/* `data` below is the start of the direction's areas in the mapped segment. */

void ring_tx_init(struct ring_tx *r, uint32_t area_limit);
void ring_rx_init(struct ring_rx *r);

/*
 * Free room in bytes: 0 when full, -EPROTO when the peer's cursor lies.
 * Reads the peer's cursor only when the room known of is less than `want`.
 */
int64_t ring_tx_room(struct ring_tx *r, struct wire_dir *d, size_t want);
/* The first contiguous part of that room; len 0 when full. Returns 0 or -EPROTO. */
int ring_tx_span(struct ring_tx *r, struct wire_dir *d, uint8_t *data, size_t want,
		 struct ring_span *out);
/* Takes n bytes that were written to the last span, and publishes all unless they are held. */
void ring_tx_commit(struct ring_tx *r, struct wire_dir *d, size_t n, bool hold);
/* Publishes what is held, and repairs a shared cursor that a dead owner left behind. */
void ring_tx_push(struct ring_tx *r, struct wire_dir *d);
/* True when so much is held that TCP would have sent a full segment. */
bool ring_tx_holds_enough(const struct ring_tx *r);
/* Moves to the next larger area. False when there is none, or it may still be read. */
bool ring_tx_grow(struct ring_tx *r, struct wire_dir *d);
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
void ring_rx_span(const struct ring_rx *r, uint8_t *data, size_t skip,
		  struct ring_span *out);
/* Gives n bytes of one span back to the producer: its licence to overwrite them. */
void ring_rx_commit(struct ring_rx *r, struct wire_dir *d, size_t n);
/* True when a sleeping producer has room enough to be woken for. */
bool ring_rx_roomy(const struct ring_rx *r);

#endif
