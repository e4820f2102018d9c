/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection finds out from which size on it pays to redirect: its own part of that. */
#ifndef VD_REMOTE_LEARN_H
#define VD_REMOTE_LEARN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer;
struct across_context;
struct learn_host;

/* Of one connection, under the folder's lock. learn.c has the rules. */
struct across_learn {
	_Atomic bool is_on;	 /* something may be learnt yet; read without the lock */
	struct learn_host *host; /* NULL: nothing is learnt of its host */
	bool is_seen;
	uint64_t first_at; /* position at the first look */
	/* The pair of stretches that is under way; size 0: none. */
	uint32_t size;
	bool offers; /* in this stretch */
	uint32_t stretches;
	uint64_t began_at, began_ns;
	uint64_t landed, bytes; /* of the stretch with offers */
	uint64_t cost[2];	/* without and with: 1e-15 s a byte */
};

/* Of that host nothing is set or measured. Reads the files, at the first time. */
bool learn_may_begin(const uint8_t addr[16]);
/* Under the lock: c is NULL where it may not. */
void learn_begin(struct peer *a, const struct across_context *c);
/* So many bytes have come past the ring. */
void learn_landed(struct peer *a, uint32_t bytes);

/* For tests. */
extern uint64_t (*learn_clock)(void); /* nanoseconds */
extern uint64_t learn_after_bytes;
/* No process has learnt anything, but for what is in files. */
void learn_reset(void);

#endif
