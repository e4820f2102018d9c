/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 with 128 bits, as in the authors' reference code. */
#include <endian.h>
#include <string.h>

#include "base/siphash.h"

/* Rounds after each word of the message, and before each half of the result. */
enum { WORD_ROUNDS = 2, END_ROUNDS = 4 };

static uint64_t load(const uint8_t *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	return le64toh(word);
}

static void store(uint8_t *to, uint64_t word)
{
	word = htole64(word);
	memcpy(to, &word, sizeof(word));
}

static uint64_t rotate(uint64_t word, unsigned by)
{
	return word << by | word >> (64 - by);
}

static void mix(uint64_t v[4], int rounds)
{
	while (rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void take(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	mix(v, WORD_ROUNDS);
	v[0] ^= word;
}

/* The last bytes, and how many there are in all. */
static uint64_t last_word(const uint8_t *from, size_t bytes)
{
	uint8_t word[8] = {[7] = (uint8_t)bytes};

	memcpy(word, from, bytes % 8);
	return load(word);
}

void siphash(const uint8_t key[SIPHASH_BYTES], const void *data, size_t bytes,
	     uint8_t out[SIPHASH_BYTES])
{
	const uint64_t k0 = load(key), k1 = load(key + 8);
	const uint8_t *at = data, *end = at + bytes / 8 * 8;
	uint64_t v[4] = {
		k0 ^ UINT64_C(0x736f6d6570736575),
		k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
		k0 ^ UINT64_C(0x6c7967656e657261),
		k1 ^ UINT64_C(0x7465646279746573),
	};

	for (; at < end; at += 8)
		take(v, load(at));
	take(v, last_word(at, bytes));
	v[2] ^= 0xee;
	mix(v, END_ROUNDS);
	store(out, v[0] ^ v[1] ^ v[2] ^ v[3]);
	v[1] ^= 0xdd;
	mix(v, END_ROUNDS);
	store(out + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}
