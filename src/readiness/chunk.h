/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that grow by chunks, each as large as all before it, so that few pointers do. */
#ifndef VD_READINESS_CHUNK_H
#define VD_READINESS_CHUNK_H

#include <stdint.h>

/* The chunk that holds number *n, which becomes its place there; the first one has `least`, a power of
 * two. */
static inline uint32_t chunk_of(uint32_t *n, uint32_t least)
{
	uint32_t chunk;

	if (__builtin_expect(*n < least, 1))
		return 0;
	chunk = 32 - (uint32_t)__builtin_clz(*n / least);
	*n -= least << (chunk - 1);
	return chunk;
}

static inline uint32_t chunk_size(uint32_t chunk, uint32_t least)
{
	return chunk ? least << (chunk - 1) : least;
}

#endif
