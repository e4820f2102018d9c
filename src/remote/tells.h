/* SPDX-License-Identifier: Apache-2.0 */
/* What the immediate of a write says that is a connection's next bytes. */
#ifndef VD_REMOTE_TELLS_H
#define VD_REMOTE_TELLS_H

#include "rdma/link.h"

/*
 * The flags of an immediate: 0 comes with a note. A write that is the stream's next bytes needs none:
 * TELLS_BYTES, and how many bytes have been consumed since that was told last. Their low bits are the
 * other flags, the high ones lie in the id, above the place.
 */
#define TELLS_BYTES	 1u
#define TELLS_PLACE_BITS 3
#define TELLS_LOW_BITS	 (LINK_FLAG_BITS - 1)
#define TELLS_CONSUMED_MAX                                                               \
	((1u << (TELLS_LOW_BITS + LINK_ID_BITS - TELLS_PLACE_BITS)) - 1)
static inline uint32_t tells_immediate(uint32_t place, uint32_t generation,
				       uint32_t consumed)
{
	return link_immediate(place | consumed >> TELLS_LOW_BITS << TELLS_PLACE_BITS,
			      generation, TELLS_BYTES | consumed << 1);
}

static inline uint32_t tells_place(uint32_t immediate)
{
	return link_immediate_id(immediate) & ((1u << TELLS_PLACE_BITS) - 1);
}

static inline uint32_t tells_consumed(uint32_t immediate)
{
	return link_immediate_id(immediate) >> TELLS_PLACE_BITS << TELLS_LOW_BITS |
	       link_immediate_flags(immediate) >> 1;
}

#endif
