/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 with 128 bits: a keyed proof of a short message, without a library for it. */
#ifndef VD_BASE_SIPHASH_H
#define VD_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum { SIPHASH_BYTES = 16 };

/*
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF", with the reference code's 128-bit
 * output. Nobody who does not have the key can tell the result from random bytes, however many
 * results for other data he has seen. The key must be random and stay secret: with it in hand,
 * messages can be found that give a wanted result, so this is no hash without a key.
 */
void siphash(const uint8_t key[SIPHASH_BYTES], const void *data, size_t bytes,
	     uint8_t out[SIPHASH_BYTES]);

#endif
