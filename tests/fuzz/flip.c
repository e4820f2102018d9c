/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that changes words of somebody's memory while he looks. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz/flip.h"
#include "fuzz/fuzz.h"

/* Between one thread, which asks, and the one that flips, which goes from WANTED to FLIPPING and
 * from STOP to IDLE; all other steps are the first one's. */
enum { IDLE, WANTED, FLIPPING, STOP };
static _Atomic uint32_t step;
static _Atomic uint32_t *words;
static size_t count;
static uint64_t state;
static bool is_on;

static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(((state >> 32) * below) >> 32);
}

static void flip(void)
{
	_Atomic uint32_t *w = &words[next((uint32_t)count)];
	uint32_t was = atomic_load_explicit(w, memory_order_relaxed);

	switch (next(8)) {
	case 0:
		was = 0;
		break;
	case 1:
		was = UINT32_MAX;
		break;
	case 2:
		was = atomic_load_explicit(&words[next((uint32_t)count)],
					   memory_order_relaxed);
		break;
	case 3:
		was ^= 1u << next(32);
		break;
	case 4:
		was = next(16);
		break;
	default:
		was += next(9) - 4;
	}
	atomic_store_explicit(w, was, memory_order_relaxed);
}

static void *run(void *arg)
{
	(void)arg;
	for (;;) {
		uint32_t seen = atomic_load(&step);

		switch (seen) {
		case IDLE:
			syscall(SYS_futex, &step, FUTEX_WAIT, IDLE, NULL, NULL, 0);
			break;
		case WANTED:
			flip();
			atomic_compare_exchange_strong(&step, &seen, FLIPPING);
			break;
		case FLIPPING:
			flip();
			break;
		default:
			atomic_store(&step, IDLE);
		}
	}
	return NULL;
}

void flip_begin(void *memory, size_t bytes, uint64_t seed)
{
	static pthread_t thread;
	static unsigned turn;

	is_on = fuzz_is_turn(&turn);
	if (!is_on)
		return;
	words = memory;
	count = bytes / sizeof(*words);
	state = seed;
	FUZZ_CHECK(count > 0 && atomic_load(&step) == IDLE);
	if (!thread)
		FUZZ_CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	atomic_store(&step, WANTED);
	syscall(SYS_futex, &step, FUTEX_WAKE, 1, NULL, NULL, 0);
	while (atomic_load(&step) == WANTED)
		sched_yield();
}

void flip_end(void)
{
	if (!is_on)
		return;
	atomic_store(&step, STOP);
	while (atomic_load(&step) != IDLE)
		sched_yield();
}
