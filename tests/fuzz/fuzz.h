/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: libFuzzer's entry, and good inputs to begin with. */
#ifndef VD_TESTS_FUZZ_FUZZ_H
#define VD_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_MAX 16384

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Writes good input number n, if there is one; returns its length, or 0. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX]);

/* libFuzzer likes inputs that take long, as they seldom reach the same twice. */
#ifndef FUZZ_SELDOM
#define FUZZ_SELDOM 1
#endif

/* What takes much longer than the rest is done with one input of so many: FUZZ_SELDOM in the
 * environment says of how many, or how this file was compiled. The first one has its turn. */
static inline int fuzz_is_turn(unsigned *turn)
{
	static unsigned long every;

	if (!every) {
		const char *wish = getenv("FUZZ_SELDOM");

		every = wish ? strtoul(wish, NULL, 10) : 0;
		every = every ? every : FUZZ_SELDOM;
	}
	return (*turn)++ % every == 0;
}

/* Always on, unlike assert. */
#define FUZZ_CHECK(cond)                                                                 \
	((cond) ? (void)0                                                                \
		: (fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #cond),     \
		   abort()))

/* An input that is taken apart from its beginning; past its end come zeros. */
struct fuzz_bytes {
	const uint8_t *at;
	size_t left;
};

static inline void fuzz_take(struct fuzz_bytes *b, void *to, size_t size)
{
	size_t n = size < b->left ? size : b->left;

	memset(to, 0, size);
	if (n)
		memcpy(to, b->at, n);
	b->at += n;
	b->left -= n;
}

static inline uint64_t fuzz_number(struct fuzz_bytes *b, unsigned bytes)
{
	uint64_t n = 0;

	fuzz_take(b, &n, bytes);
	return n;
}

#endif
