/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, and the stream as a function of its key and offset. */
#include <string.h>

#include "integrity.h"

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t rnd(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	return mix(*state);
}

bool chance(uint64_t *state, unsigned one_in)
{
	return rnd(state) % one_in == 0;
}

uint64_t seed_of(unsigned what, unsigned index, unsigned side)
{
	uint64_t x = mix(opt.seed ^ mix(round_now));
	return mix(x ^ ((uint64_t)what << 40) ^ ((uint64_t)side << 32) ^ index);
}

static uint64_t word_at(uint64_t key, uint64_t off)
{
	return mix(key ^ (off >> 3));
}

static uint8_t byte_at(uint64_t key, uint64_t off)
{
	return (uint8_t)(word_at(key, off) >> (8 * (off & 7)));
}

void stream_fill(uint64_t key, uint64_t off, uint8_t *buf, size_t len)
{
	size_t i = 0;
	for (; i < len && (off + i) & 7; i++)
		buf[i] = byte_at(key, off + i);
	for (; i + 8 <= len; i += 8) {
		uint64_t w = word_at(key, off + i);
		memcpy(buf + i, &w, 8);
	}
	for (; i < len; i++)
		buf[i] = byte_at(key, off + i);
}

static ssize_t check_bytes(uint64_t key, uint64_t off, const uint8_t *buf, size_t from,
			   size_t to)
{
	for (size_t i = from; i < to; i++)
		if (buf[i] != byte_at(key, off + i))
			return (ssize_t)i;
	return -1;
}

ssize_t stream_check(uint64_t key, uint64_t off, const uint8_t *buf, size_t len)
{
	size_t i = 0;
	for (; i < len && (off + i) & 7; i++)
		if (buf[i] != byte_at(key, off + i))
			return (ssize_t)i;
	for (; i + 8 <= len; i += 8) {
		uint64_t w;
		memcpy(&w, buf + i, 8);
		if (w != word_at(key, off + i))
			return check_bytes(key, off, buf, i, i + 8);
	}
	return check_bytes(key, off, buf, i, len);
}
