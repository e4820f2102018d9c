/* SPDX-License-Identifier: Apache-2.0 */
/* The times of many operations, counted in classes, and their percentiles. */
#ifndef VD_MEASURE_LATENCY_H
#define VD_MEASURE_LATENCY_H

#include <stdint.h>

/* Each power of two of nanoseconds has 128 classes, so a time is known to less than 1 %. */
enum { LATENCY_STEPS = 128, LATENCY_BITS_MAX = 40, LATENCY_CLASSES = 35 * LATENCY_STEPS };

/* All 0 at the start. */
struct latencies {
	uint64_t count, of[LATENCY_CLASSES];
};

/* A time of more than 18 minutes counts as 18 minutes. */
void latencies_add(struct latencies *l, uint64_t ns);
/* The time in nanoseconds that this share of all, 0 to 1, did not exceed; 0 of none. */
double latencies_at(const struct latencies *l, double share);

#endif
