/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose peer is on another host: when they may use the ring, and the reason that is told. */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/sections.h"
#include "conn/conn.h"

/* So long on TCP after a fork, at first; twice as long where the next one comes within ten times
 * that, up to a minute. While a child has the socket, it is asked now and then whether it still does. */
#define GROUND_MOST_MS 60000
#define GROUND_OFTEN   10
#define ASK_MS	       10
uint32_t peer_ground_ms = 100;

const struct peer_ops *peer_ops;
_Thread_local uint64_t peer_offering;
_Thread_local uint64_t peer_lending;

_Atomic uint32_t peer_forks FORK_DATA;

static void change_reason(struct sock *s, uint32_t from, enum vd_reason to)
{
	if (load_relaxed(&s->slot->reason) == from)
		atomic_compare_exchange_strong(&s->slot->reason, &from, to);
}

void peer_ground(struct sock *s)
{
	uint64_t now = clock_coarse_ms();
	uint64_t last = atomic_exchange(&s->forked_ms, now);
	uint32_t ms = load_relaxed(&s->ground_ms);

	if (ms && now - last < GROUND_OFTEN * (uint64_t)ms)
		ms = ms < GROUND_MOST_MS / 2 ? 2 * ms : GROUND_MOST_MS;
	else
		ms = ms / 2 > peer_ground_ms ? ms / 2 : peer_ground_ms;
	store_relaxed(&s->ground_ms, ms);
	store_relaxed(&s->ground_until_ms, now + ms);
	change_reason(s, VD_REASON_NONE, VD_REASON_SHARED);
}

bool peer_may_rise(struct sock *s)
{
	uint64_t until = load_relaxed(&s->ground_until_ms);
	uint64_t now;

	/* Sequentially consistent against sock_leave_links: it counts, then takes our lock to go
	 * down; and a fork that is not counted any more has counted its child. */
	if (atomic_load(&peer_forks) > 0)
		return false;
	if (until == 0 && !slot_is_shared(s->slot))
		return true;
	now = clock_coarse_ms();
	if (now < until)
		return false;
	/* To ask whether the others still live costs system calls. */
	if (slot_is_shared(s->slot) && !slot_is_alone(s->slot)) {
		store_relaxed(&s->ground_until_ms, now + ASK_MS);
		return false;
	}
	return true;
}

void peer_is_down(struct sock *s)
{
	if (peer_is_far(s))
		change_reason(s, VD_REASON_NONE, VD_REASON_PEER_ASKED);
}

void peer_is_up(struct sock *s)
{
	if (!peer_is_far(s))
		return;
	change_reason(s, VD_REASON_SHARED, VD_REASON_NONE);
	change_reason(s, VD_REASON_PEER_ASKED, VD_REASON_NONE);
	/* Asked for good just now, by another thread. */
	if (phase_of(s->slot) != SLOT_ATTACHED)
		change_reason(s, VD_REASON_NONE, VD_REASON_PEER_ASKED);
}

void peer_opens(struct sock *s)
{
	if (peer_is_far(s))
		s->in_data = s->link_data;
}

void peer_stay_down(struct sock *s)
{
	if (atomic_exchange(&s->ground_until_ms, UINT64_MAX) != UINT64_MAX)
		slot_hold_foreign(s->slot);
}
