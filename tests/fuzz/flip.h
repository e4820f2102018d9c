/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that changes words of somebody's memory while he looks. */
#ifndef VD_TESTS_FUZZ_FLIP_H
#define VD_TESTS_FUZZ_FLIP_H

#include <stdint.h>

/* From here on it does; the first change has been made. What it changes is random, from the
 * seed, but when it does so is not: what breaks may not break again at once. Under libFuzzer it does
 * nothing, mostly: see flip.c. */
void flip_begin(void *memory, size_t bytes, uint64_t seed);
/* It has stopped. */
void flip_end(void);

#endif
