/* SPDX-License-Identifier: Apache-2.0 */
/* One end of one ring: cursors kept in trusted memory, checked against the shared ones.
 */
#ifndef VD_RING_RING_H
#define VD_RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/wire.h"

/* Producer's view. Guarded by the connection's send lock. */
struct ring_tx {
	uint64_t produced; /* bytes written and published */
	uint64_t credit;   /* consumer's cursor as last read and checked */
	uint64_t base;	   /* position where the current area began */
	uint64_t peak;	   /* largest fill since the last move between areas */
	uint32_t area;
	uint32_t turn_seq;
	uint32_t area_limit; /* highest area that may be used */
	uint32_t rung;	     /* last value of rx_armed that was answered with a ring */
};

/* Consumer's view. Guarded by the connection's receive lock. */
struct ring_rx {
	uint64_t consumed;
	uint64_t seen; /* producer's cursor as last read and checked */
	uint64_t base;
	uint64_t turn_at; /* position of the pending move, when turn_seq is one behind */
	uint32_t area;
	uint32_t turn_area;
	uint32_t turn_seq;
	bool turn_pending;
	uint32_t rung; /* last value of tx_armed that was answered with a ring */
};

/* A run of contiguous bytes inside the ring. */
struct ring_span {
	uint8_t *data;
	size_t len;
};

void ring_tx_init(struct ring_tx *r, uint32_t area_limit);
void ring_rx_init(struct ring_rx *r);

/*
 * Free room, in bytes: 0 when full, or -EPROTO when the peer's cursor lies.
 * Reads the peer's cursor only when the known credit is less than `want`.
 */
int64_t ring_tx_room(struct ring_tx *r, struct wire_dir *d, size_t want);
/* The room as one contiguous span (the first part of it, when it wraps). */
int ring_tx_span(struct ring_tx *r, struct wire_dir *d, uint8_t *base, size_t want,
		 struct ring_span *out);
/* Publishes n bytes that were written to the last span. */
void ring_tx_commit(struct ring_tx *r, struct wire_dir *d, size_t n);
/* Moves to the next larger area. Returns false when there is none, or a move is pending.
 */
bool ring_tx_grow(struct ring_tx *r, struct wire_dir *d);

/* Bytes to take, up to the pending move or not; -EPROTO when the peer's cursor lies. */
int64_t ring_rx_avail(struct ring_rx *r, struct wire_dir *d);
/* The first contiguous run of them. */
int ring_rx_span(struct ring_rx *r, struct wire_dir *d, uint8_t *base,
		 struct ring_span *out);
/* Contiguous run that begins `skip` bytes after the cursor, without taking (for
 * MSG_PEEK). */
int ring_rx_peek(struct ring_rx *r, struct wire_dir *d, uint8_t *base, size_t skip,
		 struct ring_span *out);
/* Gives n bytes of the last span back to the producer. */
void ring_rx_commit(struct ring_rx *r, struct wire_dir *d, size_t n);

#endif
