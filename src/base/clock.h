/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks: a cheap one for waits that may be a tick of the kernel's too long, and an exact one. */
#ifndef VD_BASE_CLOCK_H
#define VD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds, monotonic, a few nanoseconds to read. Never 0, which may say "not set". */
static inline uint64_t clock_coarse_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + 1;
}

/* Nanoseconds, monotonic, 25 to read. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif
