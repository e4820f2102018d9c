/* SPDX-License-Identifier: Apache-2.0 */
/* By sixteen bytes at once: programs have tens of megabytes of code, and are looked through at each start. */
#include "base/find_call.h"

#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { FIRST = 0x0f, SECOND = 0x05, AT_ONCE = 16 };

/* A bit for each place among 16 from `at` on where both stand. */
static unsigned found_among(const uint8_t *at)
{
	__m128i first = _mm_loadu_si128((const void *)at);
	__m128i second = _mm_loadu_si128((const void *)(at + 1));

	return (unsigned)_mm_movemask_epi8(
		_mm_and_si128(_mm_cmpeq_epi8(first, _mm_set1_epi8(FIRST)),
			      _mm_cmpeq_epi8(second, _mm_set1_epi8(SECOND))));
}

const void *find_call(const void *from, const void *end)
{
	const uint8_t *at = from, *last = end;

	for (; last - at > AT_ONCE; at += AT_ONCE) {
		unsigned found = found_among(at);

		if (found)
			return at + __builtin_ctz(found);
	}
	for (; last - at > 1; at++)
		if (at[0] == FIRST && at[1] == SECOND)
			return at;
	return NULL;
}
