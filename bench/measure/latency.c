/* SPDX-License-Identifier: Apache-2.0 */
/* Times are counted by their eight leading bits: constant memory, whatever their number. */
#include "measure/latency.h"

static const uint64_t longest = (UINT64_C(1) << LATENCY_BITS_MAX) - 1;

static unsigned shift_of(uint64_t ns)
{
	return ns < 2 * LATENCY_STEPS ? 0 : 56u - (unsigned)__builtin_clzll(ns);
}

void latencies_add(struct latencies *l, uint64_t ns)
{
	unsigned shift = shift_of(ns = ns < longest ? ns : longest);

	l->of[shift * LATENCY_STEPS + (ns >> shift)]++;
	l->count++;
}

/* The middle of a class. */
static double time_of(unsigned class)
{
	unsigned shift = class < 2 * LATENCY_STEPS ? 0 : class / LATENCY_STEPS - 1;
	uint64_t steps = class - shift * LATENCY_STEPS;

	return (double)(steps << shift) + (double)((UINT64_C(1) << shift) - 1) / 2;
}

double latencies_at(const struct latencies *l, double share)
{
	double wanted = share * (double)l->count;
	uint64_t below = 0;

	for (unsigned class = 0; class < LATENCY_CLASSES && l->count; class ++) {
		below += l->of[class];
		if (l->of[class] && (double)below >= wanted)
			return time_of(class);
	}
	return 0;
}
