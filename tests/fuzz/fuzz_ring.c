/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a ring, whose other end writes any words of the direction between the calls and during
 * them: ring/ring.c. Pages beside the words and the areas cannot be touched.
 * Not reached: what many processes' bulk makes of the front (ring_tx_place). Whether bytes are right
 * without lies is the unit tests' business. */
#include <errno.h>

#include "fuzz/rig.h"
#include "unit/ring_rig.h"

#include "fuzz/flip.h"

/* Flags of an input: the end that is looked at; and flip.h, if all of these are set, since it takes
 * long. */
enum { PRODUCES = 1, CHANGING = 0x70 };
enum { OPS_MOST = 256, ROUNDS = 4 };
enum op {
	OP_MOVE,
	OP_GLANCE,
	OP_SPECIAL,
	OP_PEER,
	OP_PEER_SPECIAL,
	OP_LIE,
	OP_LIE_NEAR,
	OPS
};

static struct rig r;
/* Bytes that the honest part of the other end has put in, and whether there was no lie yet. */
static uint64_t put_in, taken;
static bool honest;

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t seeds[][24] = {
		{0, OP_PEER, 0, 16, OP_MOVE, 0, 16, OP_GLANCE, 0, 1},
		{PRODUCES, OP_MOVE, 255, 255, OP_SPECIAL, 0, OP_MOVE, 255, 255, OP_PEER,
		 255, 127, OP_SPECIAL, 1, OP_SPECIAL, 3, OP_MOVE, 5, 5},
		{0, OP_PEER, 255, 63, OP_PEER_SPECIAL, 0, OP_PEER, 255, 63, OP_MOVE, 255,
		 127, OP_GLANCE, 9, 9, OP_SPECIAL, 0},
		{PRODUCES | CHANGING, OP_MOVE, 100, 0, OP_SPECIAL, 2, OP_LIE, 16, 1, 0, 0,
		 0, 0, 0, 0, 0, OP_MOVE, 1, 1},
		{0, OP_PEER, 100, 0, OP_LIE_NEAR, 0, 3, OP_MOVE, 255, 0, OP_SPECIAL, 1},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

/* Its first and its last byte are there. */
static void touch(const struct ring_span *span)
{
	FUZZ_CHECK(rig_inside(&r, span));
	if (span->len == 0)
		return;
	span->data[0] ^= 1;
	span->data[span->len - 1] ^= 1;
}

/* ---- what a consumer and a producer do ---- */

static void take(size_t len, bool commit)
{
	int64_t avail = ring_rx_avail(&r.rx, r.d, len);

	FUZZ_CHECK(avail == -EPROTO ||
		   (avail >= 0 && (uint64_t)avail <= WIRE_DIR_DATA_BYTES));
	for (size_t done = 0; avail > 0 && done < (size_t)avail && done < len;) {
		struct ring_span span;

		ring_rx_span(&r.rx, r.data, commit ? 0 : done, &span);
		FUZZ_CHECK(span.len > 0);
		touch(&span);
		if (span.len > len - done)
			span.len = len - done;
		if (commit) {
			ring_rx_commit(&r.rx, r.d, span.len);
			taken += span.len;
		}
		done += span.len;
	}
}

static void put(size_t len, bool hold)
{
	for (size_t done = 0; done < len;) {
		struct ring_span span;

		if (ring_tx_span(&r.tx, r.d, r.data, len - done, &span) < 0)
			return;
		touch(&span);
		if (span.len == 0)
			return;
		FUZZ_CHECK(ring_tx_glance(&r.tx, r.data, span.len) == span.data);
		if (span.len > len - done)
			span.len = len - done;
		ring_tx_commit(&r.tx, r.d, span.len, hold);
		put_in += span.len;
		done += span.len;
	}
}

static void glance(size_t len)
{
	struct ring_span span = ring_rx_glance(&r.rx, r.d, r.data);

	touch(&span);
	if (span.len > len)
		span.len = len;
	ring_rx_commit(&r.rx, r.d, span.len);
	taken += span.len;
}

static void special_take(uint8_t which, size_t rest)
{
	switch (which % 6) {
	case 0:
		ring_rx_take_held(&r.rx, r.d);
		break;
	case 1:
		ring_rx_end(&r.rx, r.rx.consumed + rest);
		break;
	case 2:
		ring_rx_reopen(&r.rx);
		break;
	case 3:
		ring_rx_roomy(&r.rx);
		break;
	case 4:
		ring_came(r.d, atomic_load(&r.d->consumed));
		break;
	default:
		ring_unread(r.d);
		ring_size_hint(r.d);
	}
}

static void rewind_some(size_t rest)
{
	struct ring_span span;
	uint64_t count;

	ring_tx_push(&r.tx, r.d);
	if (ring_tx_unread(&r.tx, r.d, &count) < 0)
		return;
	FUZZ_CHECK(count <= WIRE_DIR_DATA_BYTES);
	for (uint64_t left = count; left > 0; left -= span.len) {
		ring_tx_unread_span(&r.tx, r.data, left, &span);
		FUZZ_CHECK(span.len > 0 && span.len <= left);
		touch(&span);
	}
	ring_tx_rewind(&r.tx, r.d, r.tx.produced - rest % (count + 1));
}

static void special_put(uint8_t which, size_t rest)
{
	uint32_t from;

	switch (which % 7) {
	case 0:
		ring_tx_grow(&r.tx, r.d);
		break;
	case 1:
		ring_tx_push(&r.tx, r.d);
		break;
	case 2:
		from = ring_tx_spare(&r.tx, r.d, rest & 1);
		FUZZ_CHECK(from > 0 && from <= WIRE_AREAS);
		if (from < WIRE_AREAS)
			r.tx.area_touched = from - 1;
		break;
	case 3:
		ring_tx_place(&r.tx, r.d, put_in + rest * 1000, rest & 1);
		break;
	case 4:
		if (ring_tx_strays(&r.tx))
			ring_tx_front(&r.tx, r.d);
		break;
	case 5:
		rewind_some(rest);
		break;
	default:
		ring_tx_holds_enough(&r.tx);
		ring_tx_publish_turn(&r.tx, r.d);
	}
}

/* ---- the operations of an input ---- */

static void lie(struct fuzz_bytes *b, bool near)
{
	size_t word = fuzz_number(b, 1) % (sizeof(*r.d) / 4);
	uint8_t *at = (uint8_t *)r.d + word / 2 * 8;
	uint64_t was;

	honest = false;
	memcpy(&was, at, 8);
	was = near ? was + (uint64_t)(int8_t)fuzz_number(b, 1) : fuzz_number(b, 8);
	if (word % 2)
		memcpy(at + 4, &was, 4);
	else
		memcpy(at, &was, 8);
}

static void step(struct fuzz_bytes *b, bool produces)
{
	uint8_t op = (uint8_t)fuzz_number(b, 1) % OPS;
	bool puts = produces == (op < OP_PEER);
	size_t len;

	switch (op) {
	case OP_MOVE:
	case OP_PEER:
		len = fuzz_number(b, 2) * 8 + 1;
		if (puts)
			put(len, len & 8);
		else
			take(len, len & 16);
		break;
	case OP_GLANCE:
		if (!produces)
			glance(fuzz_number(b, 2));
		break;
	case OP_SPECIAL:
	case OP_PEER_SPECIAL:
		len = fuzz_number(b, 1);
		if (puts)
			special_put((uint8_t)len, fuzz_number(b, 1));
		else
			special_take((uint8_t)len, fuzz_number(b, 1));
		break;
	default:
		lie(b, op == OP_LIE_NEAR);
	}
}

static void run(struct fuzz_bytes b, bool produces)
{
	for (int i = 0; i < OPS_MOST && b.left > 0; i++)
		step(&b, produces);
	FUZZ_CHECK(!honest || taken <= put_in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	unsigned flags = (unsigned)fuzz_number(&b, 1);
	bool changing = (flags & CHANGING) == CHANGING;
	int rounds = changing ? ROUNDS : 1;

	if (!r.d)
		rig_open(&r, 2);
	memset(r.d, 0, sizeof(*r.d));
	ring_tx_init(&r.tx, WIRE_AREAS - 1);
	ring_rx_init(&r.rx);
	put_in = taken = 0;
	honest = !changing;
	if (changing)
		flip_begin(r.d, sizeof(*r.d), size * 77 + data[size - 1]);
	while (rounds-- > 0)
		run(b, flags & PRODUCES);
	if (changing)
		flip_end();
	return 0;
}
