/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the ring: one direction in memory with guard pages, and a known stream. */
#ifndef VD_TESTS_UNIT_RING_RIG_H
#define VD_TESTS_UNIT_RING_RIG_H

#include <sys/mman.h>

#include "ring/ring.h"
#include "support/stretch.h"

#define RIG_FN	 __attribute__((unused)) static
#define RIG_PAGE 4096u

struct rig {
	struct wire_dir *d;
	uint8_t *data;
	struct ring_tx tx;
	struct ring_rx rx;
};

RIG_FN void *rig_map(size_t bytes)
{
	size_t size = (bytes + RIG_PAGE - 1) / RIG_PAGE * RIG_PAGE;
	uint8_t *map = mmap(NULL, size + 2 * RIG_PAGE, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(map != MAP_FAILED);
	REQUIRE(mprotect(map + RIG_PAGE, size, PROT_READ | PROT_WRITE) == 0);
	return map + RIG_PAGE;
}

RIG_FN void rig_open(struct rig *r, uint32_t area_limit)
{
	r->d = rig_map(sizeof(*r->d));
	r->data = rig_map(WIRE_DIR_DATA_BYTES);
	ring_tx_init(&r->tx, area_limit);
	ring_rx_init(&r->rx);
}

RIG_FN void rig_close(struct rig *r)
{
	munmap((uint8_t *)r->d - RIG_PAGE, 3 * RIG_PAGE);
	munmap(r->data - RIG_PAGE, WIRE_DIR_DATA_BYTES + 2 * RIG_PAGE);
}

/* The byte of the stream at a position: a byte lost, moved or repeated is seen. */
RIG_FN uint8_t rig_byte(uint64_t at)
{
	return (uint8_t)(at * 131 + (at >> 8) * 17 + (at >> 16) * 29 + (at >> 24));
}

RIG_FN void rig_fill(uint8_t *to, size_t len, uint64_t at)
{
	for (size_t i = 0, n; i < len; i += n) {
		const uint8_t *from = stretch(rig_byte(at + i), at + i, len - i, &n);
		memcpy(to + i, from, n);
	}
}

/* Position of the first wrong byte, or len. */
RIG_FN size_t rig_wrong(const uint8_t *from, size_t len, uint64_t at)
{
	size_t i = 0;
	for (size_t n; i < len; i += n) {
		const uint8_t *want = stretch(rig_byte(at + i), at + i, len - i, &n);
		if (memcmp(from + i, want, n) != 0)
			break;
	}
	while (i < len && from[i] == rig_byte(at + i))
		i++;
	return i;
}

RIG_FN bool rig_inside(const struct rig *r, const struct ring_span *span)
{
	uint64_t offset = (uint64_t)(span->data - r->data);
	return span->len == 0 || (offset < WIRE_DIR_DATA_BYTES &&
				  span->len <= WIRE_DIR_DATA_BYTES - offset);
}

RIG_FN uint64_t rig_random(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dull >> 16;
}

/* Writes up to len bytes that continue the stream at `at`. Returns the count, or -1. */
RIG_FN int64_t rig_put(struct rig *r, size_t len, uint64_t at, bool hold)
{
	size_t done = 0;
	while (done < len) {
		struct ring_span span;
		if (ring_tx_span(&r->tx, r->d, r->data, len - done, &span) < 0)
			return -1;
		REQUIRE(rig_inside(r, &span));
		if (span.len == 0)
			break;
		REQUIRE(ring_tx_glance(&r->tx, r->data, span.len) == span.data);
		if (span.len > len - done)
			span.len = len - done;
		rig_fill(span.data, span.len, at + done);
		ring_tx_commit(&r->tx, r->d, span.len, hold);
		done += span.len;
	}
	return (int64_t)done;
}

/* Looks at up to len bytes from `skip` on, which are at `at` of the stream. Or -1. */
RIG_FN int64_t rig_look(struct rig *r, size_t skip, size_t len, uint64_t at)
{
	size_t done = 0;
	int64_t avail = ring_rx_avail(&r->rx, r->d, skip + len);
	if (avail < 0)
		return -1;
	while (done < len && skip + done < (size_t)avail) {
		struct ring_span span;
		ring_rx_span(&r->rx, r->data, skip + done, &span);
		REQUIRE(rig_inside(r, &span));
		REQUIRE(span.len > 0);
		if (span.len > len - done)
			span.len = len - done;
		REQUIRE(rig_wrong(span.data, span.len, at + done) == span.len);
		done += span.len;
	}
	return (int64_t)done;
}

/* The same, and takes them: span by span, and each in two parts. */
RIG_FN int64_t rig_take(struct rig *r, size_t len, uint64_t at)
{
	size_t done = 0;
	struct ring_span glance = {0};
	if (at % 2)
		glance = ring_rx_glance(&r->rx, r->d, r->data);
	int64_t avail = ring_rx_avail(&r->rx, r->d, len);
	if (avail < 0)
		return -1;
	REQUIRE(glance.len <= (size_t)avail);
	if (glance.len > len)
		glance.len = len;
	REQUIRE(rig_wrong(glance.data, glance.len, at) == glance.len);
	while (done < len && done < (size_t)avail) {
		struct ring_span span;
		ring_rx_span(&r->rx, r->data, 0, &span);
		REQUIRE(rig_inside(r, &span));
		REQUIRE(span.len > 0);
		if (span.len > len - done)
			span.len = len - done;
		REQUIRE(rig_wrong(span.data, span.len, at + done) == span.len);
		if (span.len > 1)
			ring_rx_commit(&r->rx, r->d, span.len / 2);
		ring_rx_commit(&r->rx, r->d, span.len - span.len / 2);
		done += span.len;
	}
	return (int64_t)done;
}

/* What is spare loses its bytes. True when there was some. */
RIG_FN bool rig_spare(struct rig *r, bool still)
{
	uint32_t from = ring_tx_spare(&r->tx, r->d, still);
	if (from >= WIRE_AREAS)
		return false;
	REQUIRE(from > 0 && from <= r->tx.area_touched);
	for (uint32_t area = from; area <= r->tx.area_touched; area++)
		memset(r->data + ring_area_offset(area), 0x5a, wire_area_bytes(area));
	r->tx.area_touched = from - 1;
	return true;
}

#endif
