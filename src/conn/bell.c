/* SPDX-License-Identifier: Apache-2.0 */
/* Doorbells: arms what the peer is to ring, rings the peer's, and answers the own one. */
#include <sys/epoll.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/probe.h"
#include "conn/conn.h"
#include "conn/report.h"
#include "rendezvous/farbell.h"

/* Not through libc's write: that is a cancellation point, and the bytes are published. */
static void ring(int bell)
{
	const uint64_t one = 1;
	/* EAGAIN: the counter is full, so nobody has looked for long, and it is readable. */
	kernel_write(bell, &one, sizeof(one));
}

/* Sequentially consistent against bells_release: it takes the numbers, then looks here. */
static void bells_enter(struct sock *s)
{
	atomic_fetch_add(&s->bell_users, 1);
}

static void bells_leave(struct sock *s)
{
	atomic_fetch_sub(&s->bell_users, 1);
}

void bell_ring_peer(struct sock *s)
{
	if (peer_push(s))
		return;
	bells_enter(s);
	int far = s->far_bell, near = s->peer_bell;
	report_add(&report_now.doorbells, 1);
	fetch_add_relaxed(&s->slot->doorbells, 1);
	PROBE1(doorbell, slot_cookie(s->slot));
	if (far >= 0)
		farbell_ring(far);
	else if (near >= 0)
		ring(near);
	bells_leave(s);
}

void sock_ring_self(struct sock *s)
{
	bells_enter(s);
	int bell = s->bell;
	if (bell >= 0)
		ring(bell);
	bells_leave(s);
}

static uint32_t next_seq(_Atomic uint32_t *arm)
{
	uint32_t seq = fetch_add_relaxed(arm, 1) + 1;
	return seq ? seq : fetch_add_relaxed(arm, 1) + 1;
}

void sock_arm(struct sock *s, uint32_t interest)
{
	struct slot *sl = s->slot;
	if (interest & EPOLLIN) {
		atomic_fetch_add_explicit(&sl->sleepers_rx, 1, memory_order_acq_rel);
		store_relaxed(&s->in->rx_armed, next_seq(&sl->rx_arm));
	}
	if (interest & EPOLLOUT) {
		atomic_fetch_add_explicit(&sl->sleepers_tx, 1, memory_order_acq_rel);
		store_relaxed(&s->out->tx_armed, next_seq(&sl->tx_arm));
		room_sleeps(s);
	}
	info_sleeps(s);
	/* The fence that must stay: the flags above are seen by the peer before we look at
	 * its cursors. It pairs with the exchange in the peer's lock_drop. */
	fence_full();
}

static void disarm(_Atomic uint32_t *sleepers, _Atomic uint32_t *arm,
		   _Atomic uint32_t *armed)
{
	uint32_t seq = load_relaxed(arm);
	/* The last to leave clears, unless somebody has armed again since. */
	if (atomic_fetch_sub_explicit(sleepers, 1, memory_order_acq_rel) == 1)
		atomic_compare_exchange_strong_explicit(
			armed, &seq, 0, memory_order_relaxed, memory_order_relaxed);
}

void sock_disarm(struct sock *s, uint32_t interest)
{
	struct slot *sl = s->slot;
	if (interest & EPOLLIN)
		disarm(&sl->sleepers_rx, &sl->rx_arm, &s->in->rx_armed);
	if (interest & EPOLLOUT)
		disarm(&sl->sleepers_tx, &sl->tx_arm, &s->out->tx_armed);
}

/* The bell was emptied under the eyes of those who are counted: they sleep on, or are about
 * to. */
static void ring_again(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t rx = load_relaxed(&sl->sleepers_rx);
	uint32_t tx = load_relaxed(&sl->sleepers_tx);
	if (rx == 0 && tx == 0)
		return;
	if (rx)
		store_relaxed(&s->in->rx_armed, next_seq(&sl->rx_arm));
	if (tx)
		store_relaxed(&s->out->tx_armed, next_seq(&sl->tx_arm));
	fence_full(); /* as in sock_arm */
	if ((rx && wait_hint(s, EPOLLIN)) || (tx && wait_hint(s, EPOLLOUT)))
		sock_ring_self(s);
}

void sock_answer_bells(struct sock *s, bool own, bool far)
{
	uint64_t count;
	bells_enter(s);
	int far_bell = s->far_bell, bell = s->bell;
	if (far && far_bell >= 0)
		bell_answer_far(s, far_bell, true);
	if (own && bell >= 0)
		kernel_read(bell, &count, sizeof(count));
	bells_leave(s);
	ring_again(s); /* the caller has disarmed */
}

void sock_hear_bell(struct sock *s)
{
	bells_enter(s);
	int far = s->far_bell;
	int n = far >= 0 ? bell_answer_far(s, far, false) : 0;
	bells_leave(s);
	if (n > 0)
		ring_again(s);
	/* What is left makes no edge: the own bell does. */
	if (n == FARBELL_MOST)
		sock_ring_self(s);
}
