/* SPDX-License-Identifier: Apache-2.0 */
/* Which areas a ring's memory has: what the table of sockets says of it is not believed. */
#ifndef VD_CONN_AREA_H
#define VD_CONN_AREA_H

#include "base/atomic.h"
#include "conn/peer.h"
#include "ring/ring.h"

/* The largest area of the memory that the ring lies in, and what the slot says of it bounded by that:
 * a place on a link has fewer. */
static inline uint32_t areas_of(const struct sock *s)
{
	return load_relaxed(&s->peer) ? PEER_AREA_LIMIT : RING_ALL_AREAS;
}

static inline uint32_t area_of(const struct sock *s, uint32_t area)
{
	return __builtin_expect(area > PEER_AREA_LIMIT, 0)
		       ? ring_area_within(area, areas_of(s))
		       : area;
}

#endif
