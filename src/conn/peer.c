/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose peer is on another host: what conn does about them by itself. */
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/sections.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "rendezvous/farbell.h"
#include "rendezvous/segment.h"

/* Before a fork: so long is waited for all peers together. */
#define FORK_WAIT_MS 100
/* So long on TCP after a fork, at first; twice as long where the next one comes within ten times
 * that, up to a minute. While a child has the socket, it is asked now and then whether it still does. */
#define GROUND_MOST_MS 60000
#define GROUND_OFTEN   10
#define ASK_MS	       10
uint32_t peer_ground_ms = 100;

const struct peer_ops *peer_ops;
_Thread_local uint64_t peer_offering;
_Thread_local uint64_t peer_lending;

static bool is_on_tcp(struct sock *s)
{
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) &&
	       gate_is_kernel(gate_state(&s->slot->gate_tx));
}

/* Where the peer is on TCP again, or has shut
 * down, all that it has written to the ring is there, and that is memory like any other. */
bool peer_is_past_link(struct sock *s)
{
	if (!gate_is_kernel(gate_state(&s->slot->gate_tx)))
		return false;
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) || rx_is_down(s) ||
	       sock_has_fin(s);
}

/* ---- bells ---- */

int bell_answer_far(struct sock *s, int far, bool brief)
{
	if (!peer_is_far(s))
		return farbell_answer(far);
	peer_ops->answer(brief);
	return 1;
}

int sock_shared_bell(struct sock *s)
{
	struct peer *p = peer_of(s);

	return p ? peer_ops->shared_descriptor(p) : -1;
}

void sock_hear_shared_bell(void)
{
	peer_ops->answer(false);
}

void wait_note_kernel(struct sock *s, uint32_t events)
{
	sock_note_kernel(s, events);
	if (peer_is_far(s) && !peer_end_is_known(s))
		kernel_poll(NULL, 0, 1);
}

/* ---- fork ---- */

/* Under way in this process, or about to be. */
static _Atomic uint32_t forks FORK_DATA;

static bool is_far_and_direct(struct sock *s)
{
	return s && peer_is_far(s) && sock_is_direct(s);
}

static void change_reason(struct sock *s, uint32_t from, enum vd_reason to)
{
	if (load_relaxed(&s->slot->reason) == from)
		atomic_compare_exchange_strong(&s->slot->reason, &from, to);
}

/* Each fork costs a wait for the peers of what is up: who forks often stays on TCP for longer. */
static void ground(struct sock *s)
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
	if (atomic_load(&forks) > 0)
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

/* The memory of the segment that a connection on one host would use: forked children share it. */
static uint8_t *own_in_data(struct sock *s)
{
	return (uint8_t *)s->wire + wire_area_offset((unsigned)(s->in - s->wire->dir), 0);
}

/* What the peer has left in the ring is put where a child finds it, too. The link's memory is given
 * to another connection when the parent closes this one. */
static void share_unread(struct sock *s, int fd)
{
	struct slot *sl = s->slot;

	lock_take(&sl->rx_lock);
	if (fd_sock(fd) == s && s->wire && peer_is_past_link(s) &&
	    rx_advance(s, fd) == 0 && s->in_data == s->link_data) {
		int64_t avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
		uint8_t *to = own_in_data(s);
		struct ring_span span;

		if (avail < 0 || avail > WIRE_DIR_DATA_BYTES)
			avail = 0; /* the next receive says so */
		for (size_t done = 0; done < (size_t)avail; done += span.len) {
			ring_rx_span_within(&sl->rx, s->in_data, areas_of(s), done,
					    &span);
			memcpy(to + (span.data - s->in_data), span.data, span.len);
		}
		s->in_data = to;
	}
	lock_drop(&sl->rx_lock);
}

void peer_opens(struct sock *s)
{
	if (peer_is_far(s))
		s->in_data = s->link_data;
}

void sock_leave_links(void)
{
	uint64_t end = 0;

	atomic_fetch_add(&forks, 1);
	/* All are asked, then waited for. */
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (!is_far_and_direct(s))
			continue;
		ground(s);
		sock_bounce(s, fd);
		end = clock_coarse_ms() + FORK_WAIT_MS;
	}
	for (int fd = 0; end && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		int64_t left = (int64_t)(end - clock_coarse_ms());

		if (!is_far_and_direct(s))
			continue;
		sock_bounce_wait(s, fd, left > 0 ? (int)left : 0);
		share_unread(s, fd);
	}
}

void peer_forked_parent(void)
{
	atomic_fetch_sub(&forks, 1);
}

/* It goes on in the parent; here nobody could read what comes. */
static void lose(struct sock *s)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		if (fd_sock(fd) != s)
			continue;
		sock_sever(s, fd);
		fd_forget(fd);
	}
}

FORK_CODE void peer_forked_child(void)
{
	atomic_store(&forks, 0);
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		/* An exchange for nothing would copy the page. */
		if (!s || !peer_is_far(s) || !atomic_exchange(&s->peer, NULL))
			continue;
		/* Also one that is about to be attached: not by us, whoever may die. */
		store_relaxed(&s->elsewhere, 1);
		if (sock_is_direct(s) && !is_on_tcp(s) &&
		    !(peer_is_past_link(s) && s->in_data != s->link_data)) {
			lose(s);
			continue;
		}
		/* The parent keeps it there while this process is among the holders. */
		fds_close(atomic_exchange(&s->far_bell, -1));
	}
}

void peer_stay_down(struct sock *s)
{
	if (atomic_exchange(&s->ground_until_ms, UINT64_MAX) != UINT64_MAX)
		slot_hold_foreign(s->slot);
}

NEAR_CODE void peer_leave(struct sock *s, int fd)
{
	if (is_far_and_direct(s) && peer_is_past_link(s) && slot_is_shared(s->slot))
		sock_down(s, fd, VD_REASON_SHARED);
}
