/* SPDX-License-Identifier: Apache-2.0 */
/* Copies whose speed does not depend on where the two places lie within their pages. */
#ifndef VD_BASE_COPY_H
#define VD_BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * From some length on (2,112 bytes on AMD's processors, more on others), the C library's memcpy is one
 * instruction, `rep movsb`. Some processors take that byte by byte where `to` is 1 to 31 bytes behind
 * `from`, counted within a page: 16 KiB take 8 us then, and 0.2 us elsewhere (Zen 3, glibc 2.36). A
 * large block of malloc begins 16 bytes behind a page, and what arrives in a ring often at one. In
 * pieces that are shorter than that length the copy takes as long as anywhere.
 */
#define COPY_PAGE_BYTES	 4096u
#define COPY_PIECE_BYTES 2048u
#define COPY_SLOW_BYTES	 32u

/* Whether a copy is to be made in pieces of at most COPY_PIECE_BYTES. */
static inline bool copy_needs_pieces(const void *to, const void *from, size_t len)
{
	size_t ahead = ((uintptr_t)to - (uintptr_t)from) % COPY_PAGE_BYTES;
	return len > COPY_PIECE_BYTES && ahead - 1 < COPY_SLOW_BYTES - 1;
}

/* How much of it one memcpy is to take. */
static inline size_t copy_piece(const void *to, const void *from, size_t len)
{
	return copy_needs_pieces(to, from, len) ? COPY_PIECE_BYTES : len;
}

/* As memcpy. */
static inline void copy_bytes(void *to, const void *from, size_t len)
{
	uint8_t *out = to;
	const uint8_t *in = from;

	for (size_t at = 0, n; at < len; at += n) {
		n = copy_piece(out + at, in + at, len - at);
		memcpy(out + at, in + at, n);
	}
}

#endif
