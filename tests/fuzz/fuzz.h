/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: libFuzzer's entry, and good inputs to begin with. */
#ifndef VD_TESTS_FUZZ_FUZZ_H
#define VD_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FUZZ_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Writes good input number n, if there is one; returns its length, or 0. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX]);

/* Always on, unlike assert. */
#define FUZZ_CHECK(cond)                                                                 \
	((cond) ? (void)0                                                                \
		: (fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #cond),     \
		   abort()))

#endif
