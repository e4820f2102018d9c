/* SPDX-License-Identifier: Apache-2.0 */
/* Counts calls, and how long they took, where `viaduct stat` sees it. */
#ifndef VD_RPC_COUNT_H
#define VD_RPC_COUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>

#include "base/call_count.h"

struct count_key {
	enum call_side side;
	uint32_t program, version, procedure;
};

/* Once, before the first call: from then on the processor's clock is measured. */
void count_init(void);

/* When a call begins. */
static inline uint64_t count_begin(void)
{
	return __rdtsc();
}

/* A call that began then has ended. `takes_row`: it may have a row of its own; else it is counted
 * there only if there is one. */
void count_end(const struct count_key *key, uint64_t began, bool failed, bool takes_row);

#endif
