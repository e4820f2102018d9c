/* SPDX-License-Identifier: Apache-2.0 */
/* Remote procedure calls as a process counts them, by program and procedure, and how long they took. */
#ifndef VD_BASE_CALL_COUNT_H
#define VD_BASE_CALL_COUNT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * Times fall into four buckets for each doubling, so that a bucket's end is at most a quarter above
 * any time in it. The first has all below 128 ns, the last all from 137 s on.
 */
#define CALL_FIRST_LOG 7u
#define CALL_LAST_LOG  37u
#define CALL_BUCKETS   (4u * (CALL_LAST_LOG - CALL_FIRST_LOG) + 2u)
#define CALL_ROWS      62u

enum call_side { CALL_CLIENT, CALL_SERVICE, CALL_SIDES };

/* A row is claimed once, and stays. Its key is complete from CALL_ROW_USED on. */
enum call_row_state { CALL_ROW_FREE, CALL_ROW_CLAIMED, CALL_ROW_USED };

struct call_row {
	_Atomic uint32_t state, side;
	_Atomic uint32_t program, version, procedure;
	uint32_t unused;
	_Atomic uint64_t ns; /* of all of them together */
	_Atomic uint64_t errors;
	_Atomic uint64_t buckets[CALL_BUCKETS]; /* calls, by how long they took */
	uint64_t unused_end;
};

/* What one process has counted; zeroed when it begins. Calls that found no row stand in `others`,
 * whose keys mean nothing. */
struct call_sheet {
	struct call_row rows[CALL_ROWS];
	struct call_row others[CALL_SIDES];
};

static_assert(sizeof(struct call_row) == 1024, "rows are as large as they look");
static_assert(sizeof(struct call_sheet) == 65536, "sheets begin with a page");

static inline uint32_t call_bucket(uint64_t ns)
{
	uint32_t log;

	if (ns >> CALL_FIRST_LOG == 0)
		return 0;
	if (ns >> CALL_LAST_LOG)
		return CALL_BUCKETS - 1;
	log = 63u - (uint32_t)__builtin_clzll(ns);
	return 1 + (log - CALL_FIRST_LOG) * 4 + (uint32_t)(ns >> (log - 2) & 3);
}

/* Times in the bucket are shorter; of the last one, where it begins. */
static inline uint64_t call_bucket_end(uint32_t bucket)
{
	uint32_t log = CALL_FIRST_LOG + (bucket - 1) / 4;

	if (bucket == 0)
		return 1ull << CALL_FIRST_LOG;
	if (bucket >= CALL_BUCKETS - 1)
		return 1ull << CALL_LAST_LOG;
	return (5ull + (bucket - 1) % 4) << (log - 2);
}

#endif
