/* SPDX-License-Identifier: Apache-2.0 */
/* Token buckets: refilled by the clock, forgotten when full. */
#include <string.h>

#include "daemon/bucket.h"
#include "daemon/share.h"

#define BUCKET_TOKEN 1000 /* thousandths */

static uint64_t bucket_full(const struct buckets *b)
{
	return (uint64_t)b->per_second * BUCKET_BURST_SECS * 1000;
}

static void bucket_refill(const struct buckets *b, struct bucket *one, uint64_t now_ms)
{
	uint64_t full = bucket_full(b), past = now_ms - one->at_ms;

	if (past >= BUCKET_BURST_SECS * 1000)
		one->thousandths = full;
	else
		one->thousandths += past * b->per_second;
	if (one->thousandths > full)
		one->thousandths = full;
	one->at_ms = now_ms;
}

static bool bucket_spend(const struct buckets *b, struct bucket *one, uint64_t now_ms)
{
	bucket_refill(b, one, now_ms);
	if (one->thousandths < BUCKET_TOKEN)
		return false;
	one->thousandths -= BUCKET_TOKEN;
	return true;
}

/* A full bucket says nothing that a new one would not say: it may be another's. */
static struct bucket *bucket_of(struct buckets *b, const uint8_t *key, int from,
				uint64_t now_ms)
{
	struct bucket *place = NULL;

	for (int i = from; i < BUCKET_SLOTS; i++) {
		struct bucket *one = &b->slot[i];

		if (one->used && !memcmp(one->key, key, BUCKET_KEY_BYTES))
			return one;
		if (!place && one->used)
			bucket_refill(b, one, now_ms);
		if (!place && (!one->used || one->thousandths == bucket_full(b)))
			place = one;
	}
	if (!place) {
		place = &b->others;
		if (place->used)
			return place;
	}
	place->used = true;
	memcpy(place->key, key, BUCKET_KEY_BYTES);
	place->thousandths = bucket_full(b);
	place->at_ms = now_ms;
	return place;
}

bool bucket_take(struct buckets *b, const uint8_t key[BUCKET_KEY_BYTES], uint64_t now_ms)
{
	return bucket_spend(b, bucket_of(b, key, 0, now_ms), now_ms);
}

static struct bucket *bucket_of_uid(struct buckets *b, uint32_t uid, uint64_t now_ms)
{
	uint8_t key[BUCKET_KEY_BYTES] = {0};

	memcpy(key, &uid, sizeof(uid));
	return bucket_of(b, key, uid < SHARE_SUB_UID ? 0 : BUCKET_SLOTS / 4, now_ms);
}

bool bucket_take_uid(struct buckets *b, uint32_t uid, uint64_t now_ms)
{
	return bucket_spend(b, bucket_of_uid(b, uid, now_ms), now_ms);
}

bool bucket_has_uid(struct buckets *b, uint32_t uid, uint64_t now_ms)
{
	struct bucket *one = bucket_of_uid(b, uid, now_ms);

	bucket_refill(b, one, now_ms);
	return one->thousandths >= BUCKET_TOKEN;
}

bool bucket_take_address(struct buckets *b, const uint8_t addr[16], uint64_t now_ms)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	uint8_t key[BUCKET_KEY_BYTES];

	memcpy(key, addr, sizeof(key));
	if (memcmp(addr, v4, sizeof(v4)) != 0)
		memset(key + 8, 0, 8);
	return bucket_take(b, key, now_ms);
}
