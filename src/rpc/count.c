/* SPDX-License-Identifier: Apache-2.0 */
/* Counts calls by program and procedure, in memory that this process shows to `viaduct stat`. */
#include "rpc/count.h"

#include <sched.h>
#include <time.h>

#include "base/atomic.h"
#include "base/uncontended.h"
#include "rpc/engine.h"

/* After so long the two clocks have been compared well enough, for good. */
#define COMPARED_NS 10000000u
/* Ticks between two readings of one clock; more when the thread was put aside amid them. */
#define NEAR_TICKS  4000u
#define NEAR_TRIES  16
#define CLAIM_TRIES 1000
/* Nanoseconds of a tick are multiplied with this. */
#define SCALE_SHIFT 32

struct moment {
	uint64_t ticks, ns;
};

static struct moment first;
/* What a tick is worth; 0: not known for good. */
static _Atomic uint64_t scale;

/* Both clocks at one moment. */
static struct moment both_clocks(void)
{
	uint64_t before, after;
	struct timespec t;

	for (int i = 0; i < NEAR_TRIES; i++) {
		before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC, &t);
		after = __rdtsc();
		if (after - before < NEAR_TICKS)
			break;
	}
	return (struct moment){before + (after - before) / 2,
			       (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec};
}

void count_init(void)
{
	first = both_clocks();
}

static uint64_t compare_clocks(void)
{
	struct moment now = both_clocks();
	uint64_t ticks = now.ticks - first.ticks, ns = now.ns - first.ns, found;

	if ((int64_t)ticks <= 0 || (int64_t)ns < 0)
		return 0;
	found = (uint64_t)(((unsigned __int128)ns << SCALE_SHIFT) / ticks);
	/* Relaxed: the word stands alone, and all threads find about the same. */
	if (ns >= COMPARED_NS)
		store_relaxed(&scale, found);
	return found;
}

/* A call has taken no longer than the time since the first moment: even the first one is measured
 * well. */
static uint64_t ns_since(uint64_t began)
{
	int64_t ticks = (int64_t)(__rdtsc() - began);
	uint64_t worth = load_relaxed(&scale);

	if (!worth)
		worth = compare_clocks();
	/* Another processor's clock may be a little behind. */
	if (ticks < 0)
		return 0;
	return (uint64_t)((unsigned __int128)ticks * worth >> SCALE_SHIFT);
}

static bool is_of(const struct call_row *row, const struct count_key *key)
{
	/* Relaxed: the row's state, loaded by acquire, has shown that they are there. */
	return load_relaxed(&row->procedure) == key->procedure &&
	       load_relaxed(&row->program) == key->program &&
	       load_relaxed(&row->version) == key->version &&
	       load_relaxed(&row->side) == key->side;
}

static bool claim(struct call_row *row, const struct count_key *key)
{
	uint32_t expect = CALL_ROW_FREE;

	if (!atomic_compare_exchange_strong(&row->state, &expect, CALL_ROW_CLAIMED))
		return false;
	store_relaxed(&row->side, key->side);
	store_relaxed(&row->program, key->program);
	store_relaxed(&row->version, key->version);
	store_relaxed(&row->procedure, key->procedure);
	/* Release: who finds it in use finds its key. */
	store_release(&row->state, CALL_ROW_USED);
	return true;
}

/* Another thread is about to use it. But a handler may have come into the midst of that, in this very
 * thread. */
static uint32_t state_of(struct call_row *row)
{
	uint32_t state = load_acquire(&row->state);

	for (int i = 0; state == CALL_ROW_CLAIMED && i < CLAIM_TRIES; i++) {
		sched_yield();
		state = load_acquire(&row->state);
	}
	return state;
}

/* Rows never go: a search ends at the first that is free. */
static struct call_row *row_of(struct call_sheet *sheet, const struct count_key *key,
			       bool takes_row)
{
	uint32_t at =
		(key->program * 31 + key->version * 7 + key->procedure * 2 + key->side) %
		CALL_ROWS;

	for (uint32_t i = 0; i < CALL_ROWS; i++, at = at + 1 < CALL_ROWS ? at + 1 : 0) {
		struct call_row *row = &sheet->rows[at];
		uint32_t state = state_of(row);

		if (state == CALL_ROW_FREE) {
			if (!takes_row)
				break;
			if (claim(row, key))
				return row;
			state = state_of(row);
		}
		if (state == CALL_ROW_USED && is_of(row, key))
			return row;
	}
	return &sheet->others[key->side];
}

void count_end(const struct count_key *key, uint64_t began, bool failed, bool takes_row)
{
	struct call_sheet *sheet = engine->call_sheet();
	uint64_t ns = ns_since(began);
	struct call_row *row;

	if (!sheet)
		return;
	row = row_of(sheet, key, takes_row);
	single_add64(&row->ns, ns, __libc_single_threaded);
	single_add64(&row->buckets[call_bucket(ns)], 1, __libc_single_threaded);
	if (failed)
		single_add64(&row->errors, 1, __libc_single_threaded);
}
