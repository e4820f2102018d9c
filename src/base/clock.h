/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks: a cheap one for waits that may be a tick of the kernel's too long, and an exact one. */
#ifndef VD_BASE_CLOCK_H
#define VD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * As clock_gettime. What is waited for ends by the kernel's time, and is told to other processes in
 * it: where a library has frozen the program's (faketime), waits would never end. By clock_init it
 * is the C library's own.
 */
extern int (*clock_read)(clockid_t clock, struct timespec *t);
/* Once, at the start of a process. */
void clock_init(void);

/* Milliseconds, monotonic, a few nanoseconds to read. Never 0, which may say "not set". */
static inline uint64_t clock_coarse_ms(void)
{
	struct timespec t;

	clock_read(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + 1;
}

/* What two processes compare: each time namespace has a monotonic clock of its own. It may be set, back and forth. */
static inline uint64_t clock_shared_ms(void)
{
	struct timespec t;

	clock_read(CLOCK_REALTIME_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Nanoseconds, monotonic, 25 to read. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_read(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif
