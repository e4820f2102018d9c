/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests a user or a host may make: a token bucket each, in a bounded table. */
#ifndef VD_DAEMON_BUCKET_H
#define VD_DAEMON_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BUCKET_SLOTS	  256
#define BUCKET_KEY_BYTES  16
#define BUCKET_BURST_SECS 4 /* what may come at once, in seconds of the rate */

struct bucket {
	bool used;
	uint8_t key[BUCKET_KEY_BYTES];
	uint64_t thousandths; /* of a token */
	uint64_t at_ms;
};

/* Zero, but for the rate. */
struct buckets {
	uint32_t per_second;
	struct bucket others; /* of those for whom there is no place in the table */
	struct bucket slot[BUCKET_SLOTS];
};

/* True where one more is allowed at that time, which never goes back. */
bool bucket_take(struct buckets *b, const uint8_t key[BUCKET_KEY_BYTES], uint64_t now_ms);
/* Subordinate user ids (share.h) find a place in three quarters of the table. */
bool bucket_take_uid(struct buckets *b, uint32_t uid, uint64_t now_ms);
/* Whether one more would be allowed, and is not taken. */
bool bucket_has_uid(struct buckets *b, uint32_t uid, uint64_t now_ms);
/* An IPv6 network of 64 bits counts as one: whoever has one address has all. */
bool bucket_take_address(struct buckets *b, const uint8_t addr[16], uint64_t now_ms);

#endif
