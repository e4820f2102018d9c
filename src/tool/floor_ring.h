/* SPDX-License-Identifier: Apache-2.0 */
/* A raw byte ring in shared memory, without sockets and without Viaduct: what the machine can do.
 */
#ifndef VD_TOOL_FLOOR_RING_H
#define VD_TOOL_FLOOR_RING_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/atomic.h"

/* As the engine: its middle area, its largest one for messages that it takes for bulk, and its
 * pieces. */
enum {
	RING_BYTES = 256 << 10,
	WIDE_BYTES = 4 << 20,
	BULK_BYTES = 8 << 10,
	CHUNK_BYTES = 16 << 10
};

struct ring {
	alignas(128) _Atomic uint64_t produced;
	alignas(128) _Atomic uint64_t consumed;
	alignas(128) uint8_t data[WIDE_BYTES];
};

/* One end's private knowledge of a ring. */
struct cursor {
	struct ring *ring;
	size_t bytes;	/* of its data that are used */
	uint64_t at;	/* own position */
	uint64_t other; /* the other's position, when it was last needed */
};

static inline struct cursor ring_open(struct ring *ring, size_t message_bytes)
{
	return (struct cursor){.ring = ring,
			       .bytes = message_bytes < BULK_BYTES ? RING_BYTES
								   : WIDE_BYTES};
}

/* Writes a piece of it, up to len; 0 when there is no room for the piece. */
static inline size_t ring_give(struct cursor *c, const uint8_t *buf, size_t len)
{
	size_t n = len < CHUNK_BYTES ? len : CHUNK_BYTES;
	size_t offset = c->at % c->bytes;
	if (n > c->bytes - offset)
		n = c->bytes - offset;
	/* Acquire: the reader is through with the bytes that we overwrite. */
	if (c->at + n - c->other > c->bytes)
		c->other = load_acquire(&c->ring->consumed);
	if (c->at + n - c->other > c->bytes)
		return 0;
	memcpy(c->ring->data + offset, buf, n);
	c->at += n;
	/* Release: the bytes are there before the count that covers them. */
	store_release(&c->ring->produced, c->at);
	return n;
}

/* Takes what is there, up to len; 0 when nothing is. */
static inline size_t ring_take(struct cursor *c, uint8_t *buf, size_t len)
{
	size_t offset = c->at % c->bytes, n;
	if (c->other == c->at)
		c->other = load_acquire(&c->ring->produced);
	n = (size_t)(c->other - c->at);
	if (n > len)
		n = len;
	if (n > CHUNK_BYTES)
		n = CHUNK_BYTES;
	if (n > c->bytes - offset)
		n = c->bytes - offset;
	if (n == 0)
		return 0;
	memcpy(buf, c->ring->data + offset, n);
	c->at += n;
	/* Release: our reads are over before the writer may overwrite. */
	store_release(&c->ring->consumed, c->at);
	return n;
}

#endif
