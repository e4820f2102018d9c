/* SPDX-License-Identifier: Apache-2.0 */
/* What peeks have shown of a ring whose memory somebody else can write to. */
#include "base/atomic.h"
#include "conn/shown.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <sys/mman.h>

#include "base/pageable.h"
#include "base/space.h"

/* All that an honest peer's ring can hold, and a power of two. Pages come as they are needed. */
#define SHOWN_BYTES (8u << 20)
static_assert(SHOWN_BYTES >= WIRE_DIR_DATA_BYTES, "a peek shows all that there is");
/* So much stays when all of it has been read. */
#define STAYS_BYTES (64u << 10)

/*
 * Shared by forks, so that a child reads what its parent has peeked at. Ring positions from `base`
 * to `end` have been copied; those before the cursor have been read. An owner that dies amid a copy
 * has not moved `end`.
 */
struct shown {
	uint64_t base, end;
	alignas(4096) uint8_t data[SHOWN_BYTES];
};

static size_t place_of(const struct shown *m, uint64_t at)
{
	return (size_t)(at - m->base) & (SHOWN_BYTES - 1);
}

static void give_pages_back(struct shown *m)
{
	if (m->end - m->base > STAYS_BYTES)
		madvise(m->data, SHOWN_BYTES, MADV_REMOVE);
	m->base = m->end = 0;
}

/* A process that others may have been forked from before cannot share what it maps now. */
static bool may_map(struct sock *s)
{
	return (!s->is_copied || slot_is_alone(s->slot)) &&
	       space_is_left(sizeof(struct shown));
}

static struct shown *map(void *at)
{
	int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
	void *p = pageable_map(at, sizeof(struct shown), at ? flags | MAP_FIXED : flags,
			       -1);

	return p != MAP_FAILED ? p : NULL;
}

/* Relaxed: nothing is written there before all threads can see it. */
static struct shown *memory_of(const struct sock *s)
{
	return load_relaxed(&s->shown);
}

/* One thread peeks, another forks: the memory of the first one counts. */
static void begin(struct sock *s)
{
	struct shown *none = NULL, *m = map(NULL);

	if (m && !atomic_compare_exchange_strong(&s->shown, &none, m))
		pageable_unmap(m, sizeof(*m));
}

/* Other processes keep what was there. */
static void replace(struct sock *s)
{
	struct shown *m = memory_of(s);

	if (m && !map(m))
		store_relaxed(&s->shown, NULL);
}

size_t shown_bytes(const struct sock *s)
{
	const struct ring_rx *rx = &s->slot->rx;

	if (!(rx->held & RING_SHOWN) || (int64_t)(memory_of(s)->end - rx->consumed) <= 0)
		return 0;
	return (size_t)(memory_of(s)->end - rx->consumed);
}

int shown_keep(struct sock *s, size_t n)
{
	struct ring_rx *rx = &s->slot->rx;

	if (!memory_of(s) && may_map(s))
		begin(s);
	struct shown *m = memory_of(s);
	if (!m)
		return -ENOMEM;
	if (shown_bytes(s) == 0) {
		give_pages_back(m);
		m->base = m->end = rx->consumed;
	}
	/* More than that only a peer that lies can have sent: it comes later. */
	if (n > SHOWN_BYTES)
		n = SHOWN_BYTES;
	while ((int64_t)(rx->consumed + n - m->end) > 0) {
		size_t at = place_of(m, m->end);
		struct ring_span span;

		ring_rx_span_within(rx, s->in_data, areas_of(s),
				    (size_t)(m->end - rx->consumed), &span);
		if (span.len > rx->consumed + n - m->end)
			span.len = (size_t)(rx->consumed + n - m->end);
		if (span.len > SHOWN_BYTES - at)
			span.len = SHOWN_BYTES - at;
		memcpy(m->data + at, span.data, span.len);
		fence_compiler();
		m->end += span.len;
	}
	rx->held |= RING_SHOWN;
	if ((int64_t)(m->end - rx->told) > 0)
		rx->told = m->end;
	return 0;
}

bool shown_are(const struct sock *s, const uint8_t *bytes, size_t n)
{
	const struct shown *m = memory_of(s);

	for (size_t i = 0; i < n; i++)
		if (m->data[place_of(m, s->slot->rx.consumed + i)] != bytes[i])
			return false;
	return true;
}

void shown_passed(struct sock *s)
{
	if (shown_bytes(s) > 0)
		return;
	s->slot->rx.held &= (uint8_t)~RING_SHOWN;
	give_pages_back(memory_of(s));
}

void shown_span(const struct sock *s, size_t skip, struct ring_span *span)
{
	size_t shown = shown_bytes(s), at;

	if (skip >= shown)
		return;
	at = place_of(memory_of(s), s->slot->rx.consumed + skip);
	if (span->len > shown - skip)
		span->len = shown - skip;
	if (span->len > SHOWN_BYTES - at)
		span->len = SHOWN_BYTES - at;
	span->data = memory_of(s)->data + at;
}

void shown_begin(struct sock *s)
{
	replace(s);
}

void shown_forget(struct sock *s)
{
	/* Also where it is empty: a process that leaves its family may be about to lose its trust. */
	replace(s);
}

void shown_forking(struct sock *s)
{
	uint32_t seen = load_relaxed(&s->slot->seen);

	if (!memory_of(s) && (seen & SEEN_FOREIGN) && may_map(s))
		begin(s);
}
