/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that come by here, and ends that are waited for past us. */
#include "conn/heed.h"

#include <errno.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "conn/conn.h"
#include "conn/lowat.h"

/* So many looks in vain, each so soon after the last, with no bytes in between, are a spin. */
#define SPINS	   8
#define SPIN_TICKS 300000

/* For any connection of this process. Relaxed: a hint. */
static _Atomic bool any_wait;

void heed_wait_slow(struct sock *s)
{
	atomic_fetch_or(&s->slot->ever, EVER_WAITED);
	store_relaxed(&any_wait, true);
}

/* Relaxed, all: threads that look at the same time count as one, or begin anew. */
void heed_spin(struct sock *s, ssize_t result)
{
	uint64_t now = __rdtsc(), before = load_relaxed(&s->vain_at);
	uint32_t spins = now - before < SPIN_TICKS ? load_relaxed(&s->vain) + 1 : 1;
	bool in_vain = result == -EAGAIN || (result == -1 && errno == EAGAIN);
	store_relaxed(&s->vain_at, now);
	store_relaxed(&s->vain, in_vain && spins < SPINS ? spins : 0);
	if (in_vain && spins == SPINS)
		atomic_fetch_or(&s->slot->ever, EVER_WAITED);
}

bool heed_leaves_slow(struct sock *s, int fd, uint32_t interest)
{
	struct slot *sl = s->slot;
	if (load_relaxed(&any_wait))
		return false;
	/* What is unread comes by TCP as well. Each time: a receive has withdrawn that. */
	sock_hand_over(s, fd, VD_REASON_RAW);
	if (interest == EPOLLOUT)
		return gate_is_kernel(gate_state(&sl->gate_tx));
	return gate_is_kernel(gate_state(&sl->gate_rx)) ||
	       (ring_unread(s->in) > 0 && !lowat_lacks(s));
}
