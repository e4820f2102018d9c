/* SPDX-License-Identifier: Apache-2.0 */
/* For known streams of bytes: what lies from a position on, as memory to copy from and to compare with. */
#ifndef VD_TESTS_SUPPORT_STRETCH_H
#define VD_TESTS_SUPPORT_STRETCH_H

#include <stddef.h>
#include <stdint.h>

/* Each byte of such a stream is 131 more than the one before it, but for those at multiples of this. */
#define STRETCH 256u

static uint8_t stretch_line[2 * STRETCH];

__attribute__((constructor, unused)) static void stretch_make(void)
{
	for (unsigned i = 0; i < sizeof(stretch_line); i++)
		stretch_line[i] = (uint8_t)(i * 131);
}

/* The stream from `at` on, whose byte there is `first`: *n bytes of it, at most len. 43 times 131 is 1. */
__attribute__((unused)) static const uint8_t *stretch(uint8_t first, uint64_t at,
						      size_t len, size_t *n)
{
	size_t left = STRETCH - (size_t)(at % STRETCH);
	*n = left < len ? left : len;
	return stretch_line + (uint8_t)(first * 43);
}

#endif
