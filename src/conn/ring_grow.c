/* SPDX-License-Identifier: Apache-2.0 */
/* Room for what is sent: when a ring that is full moves to a larger area. */
#include <assert.h>

#include "base/atomic.h"
#include "conn/conn.h"
#include "conn/ring_memory.h"
#include "conn/switch.h"

/* A peer that has taken nothing from a full ring for so long. */
#define STUCK_NS 1000000u
/* What a peer takes that does not read: the kernel's window at the beginning. */
#define WINDOW_BYTES 65536u

/* Of the area that the ring would grow into, also without the lock. */
static uint64_t next_bytes(struct sock *s)
{
	uint32_t area = 1, size = ring_size_hint(s->out);
	while (area < WIRE_AREAS && wire_area_bytes(area) <= size)
		area++;
	return area < WIRE_AREAS ? wire_area_bytes(area) : 0;
}

static void has_grown(struct sock *s)
{
	ring_memory_taken(wire_area_bytes(
		ring_area_within(ring_tx_area(&s->slot->tx), RING_ALL_AREAS)));
	settle_later();
}

/*
 * Programs that set the buffers at both ends mean to notice a slow reader: they get the
 * smallest area that holds no less than TCP would. Buffers that the kernel chooses grow, so
 * that one of them alone bounds nothing. TCP_NOTSENT_LOWAT does: what the peer's window has no room
 * for.
 */
bool room_may_grow(struct sock *s)
{
	uint64_t unsent = load_relaxed(&s->slot->tx_unsent);
	if (unsent && ring_size_hint(s->out) >= unsent + WINDOW_BYTES)
		return false;
	uint32_t ours = load_relaxed(&s->slot->tx_bound);
	uint32_t theirs = load_relaxed(&s->out->rx_bound);
	if (ours && theirs && ring_size_hint(s->out) >= (uint64_t)ours + theirs)
		return false;
	return peer_is_far(s) || ring_memory_is_left(next_bytes(s));
}

/*
 * The first pages of a larger area cost more than to wait for a peer that is reading. So where bytes
 * go both ways, a nonblocking send ends short in the middle area, and the program reads; and
 * who waits for room in a ring that may grow learns of it once the peer has taken nothing for
 * STUCK_NS, or when he is about to sleep. A send that could write nothing always grows.
 */
static void note_stuck(struct sock *s, uint64_t since_ns)
{
	uint64_t at = load_relaxed(&s->out->consumed);
	store_relaxed(&s->stuck_at, at);
	store_relaxed(&s->stuck_ns, since_ns);
}

static bool is_stuck(struct sock *s)
{
	uint64_t at = load_relaxed(&s->out->consumed);
	uint64_t since = load_relaxed(&s->stuck_ns);
	if (since && at == load_relaxed(&s->stuck_at))
		return clock_now_ns() - since >= STUCK_NS;
	note_stuck(s, clock_now_ns());
	return false;
}

/* As far as can be seen without the lock. */
static bool has_larger(struct sock *s)
{
	return ring_size_hint(s->out) < wire_area_bytes(s->slot->tx.area_limit) &&
	       room_may_grow(s);
}

void room_sleeps(struct sock *s)
{
	uint32_t size = ring_size_hint(s->out);
	if (ring_unread(s->out) > size - size / 4 && has_larger(s))
		note_stuck(s, 1); /* for long */
}

bool room_will_grow(struct sock *s)
{
	struct slot *sl = s->slot;
	/* The first step is made without ado. */
	if (!has_larger(s) || (ring_size_hint(s->out) > WIRE_AREA0_BYTES && !is_stuck(s)))
		return false;
	lock_take(&sl->tx_lock);
	bool grows = gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s) &&
		     ring_tx_may_grow(&sl->tx, s->out);
	lock_drop(&sl->tx_lock);
	return grows;
}

/*
 * Threads send records on one blocking connection, and expect each in one piece: a small one waits
 * for all its room before the first byte. That is a quarter of any area at most. So whoever finds
 * less has more than three quarters unread, once all is pushed. He is woken as from a full ring, at
 * a quarter of room: hint_out and ring_rx_roomy need not be told how much he wants.
 */
static_assert(ROOM_WHOLE_BYTES <= WIRE_AREA0_BYTES / 4, "a quarter is enough");

bool room_lacks(struct sock *s, size_t least)
{
	int64_t room = ring_tx_room(&s->slot->tx, s->out, least);
	return room >= 0 && (size_t)room < least;
}

bool room_grow_small(struct sock *s)
{
	struct ring_tx *tx = &s->slot->tx;
	bool grown = ring_tx_is_small(tx) && room_may_grow(s) && ring_tx_grow(tx, s->out);
	if (grown)
		settle_later();
	return grown;
}

bool room_grow(struct sock *s, size_t least)
{
	struct slot *sl = s->slot;
	lock_take(&sl->tx_lock);
	bool grown = gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s) &&
		     room_lacks(s, least) && room_may_grow(s) &&
		     ring_tx_grow(&sl->tx, s->out);
	lock_drop(&sl->tx_lock);
	if (grown)
		has_grown(s);
	return grown;
}

bool room_needs_tcp(struct sock *s)
{
	uint32_t size = ring_size_hint(s->out);
	return !peer_is_far(s) && gate_state(&s->slot->gate_tx) == GATE_RING &&
	       size >= wire_area_bytes(s->slot->tx.area_limit) &&
	       ring_unread(s->out) > size - size / 4 &&
	       load_relaxed(&s->slot->tx_bound) > size;
}

bool room_go_on(struct sock *s, int fd, bool waits)
{
	/* Who may wait gives a peer that reads the time for it: the ring is faster. */
	if (!room_needs_tcp(s) || (waits && !is_stuck(s)))
		return false;
	sock_bounce(s, fd);
	return gate_state(&s->slot->gate_tx) != GATE_RING;
}

bool room_ends_short(struct sock *s)
{
	if (!has_larger(s) || ring_unread(s->in) == 0)
		return false;
	note_stuck(s, clock_now_ns());
	return true;
}

/* Bytes of bulk messages that this process has sent, about: a thread may miss another's. */
static _Atomic uint64_t bulk_sent;

enum room_way room_find(struct sock *s, size_t bytes, bool near)
{
	struct ring_tx *tx = &s->slot->tx;
	if (peer_is_far(s))
		return ROOM_FEW;
	if (bytes < RING_BULK_BYTES) {
		if (ring_tx_strays(tx))
			ring_tx_front(tx, s->out);
		return ROOM_FEW;
	}
	uint64_t sent = load_relaxed(&bulk_sent);
	if (ring_tx_place(tx, s->out, sent, near || !room_may_grow(s)))
		has_grown(s);
	s->past.area = ring_tx_area(tx);
	return s->past.is_on && !near ? ROOM_PAST : ROOM_BULK;
}

void room_used(struct sock *s, const uint8_t *to, size_t bytes, uint64_t ticks)
{
	struct ring_tx *tx = &s->slot->tx;
	uint32_t end = (uint32_t)(to + bytes - s->out_data);
	bool is_new = end > tx->touched;
	if (is_new)
		tx->touched = end;
	uint64_t sent = load_relaxed(&bulk_sent);
	store_relaxed(&bulk_sent, sent + bytes);
	tx->bulk += bytes;
	/* A new page costs more than the copy. */
	if (ticks && !is_new)
		past_note(&s->past, bytes, ticks);
}
