/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own floor, and what whoever measures needs: a clock, a pace, a processor. */
#ifndef VD_TOOL_FLOOR_H
#define VD_TOOL_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum floor_kind { FLOOR_LINE, FLOOR_RTT, FLOOR_STREAM };
/*
 * Runs for time_ns with one process on each of the two processors. Writes operations a
 * second (round trips or messages); returns 0 or -errno. Blocks until it is over.
 */
int floor_run(enum floor_kind kind, size_t size_bytes, uint64_t time_ns,
	      const int cpus[2], double *rate);
void floor_pin(int cpu);
/* A child on that processor, that ends with its parent. As fork. */
pid_t floor_fork(int cpu);

static inline uint64_t floor_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Ends a loop on time without reading the clock at each turn, which would cost 30 ns. */
struct floor_pace {
	uint64_t start_ns, end_ns, last_ns;
	uint32_t batch, left;
};

static inline void floor_pace_start(struct floor_pace *p, uint64_t time_ns)
{
	p->start_ns = p->last_ns = floor_now_ns();
	p->end_ns = p->start_ns + time_ns;
	p->batch = p->left = 1;
}

bool floor_pace_look(struct floor_pace *p);

static inline bool floor_pace_more(struct floor_pace *p)
{
	return --p->left ? true : floor_pace_look(p);
}

#endif
