/* SPDX-License-Identifier: Apache-2.0 */
/* A short look before "nothing there", for programs whose reads never block and whose threads sleep
 * elsewhere, as those in Go: a sleep there costs the scheduler's work, a doorbell and a wake-up. */
#include <sys/epoll.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "conn/brief.h"
#include "conn/conn.h"
#include "conn/peer_hint.h"
#include "settings/config.h"

/* Go takes the processor from a thread that is in a call for longer than 20 us. */
#define BRIEF_NS 15000
/* Pauses of 25 ns between two looks at more than the cursor. */
#define BRIEF_TURNS 16
/* After a look in vain the next one waits for so many reads that find nothing, and for twice as many
 * each further time. */
#define BRIEF_SKIP 4u
#define BRIEF_MOST 8u
/* A look that has begun so long ago has been left without its end. */
#define BRIEF_TICKS 3000000u

/* The tick at which a thread of this process has begun one, or 0: there is one at most. */
static _Atomic uint64_t begun;

/* A read of one byte watches for the end, and a peer that has not been sent anything since the last look
 * has no answer to give. */
static bool is_expected(struct sock *s, size_t room)
{
	/* Relaxed and without the lock: a guess. */
	uint16_t sent =
		(uint16_t)__atomic_load_n(&s->slot->tx.produced, __ATOMIC_RELAXED);

	if (room < 2 || sent == load_relaxed(&s->brief_sent))
		return false;
	store_relaxed(&s->brief_sent, sent);
	return true;
}

/* By where the peer is, and by what came of the looks before. */
static bool may_pay(struct sock *s)
{
	uint32_t skip = load_relaxed(&s->brief_skip);
	const struct config *config = config_get();

	if (config->spin_ns == 0 || config->spin_fixed)
		return config->spin_ns != 0;
	if (wait_is_in_the_way(s, load_relaxed(&s->in->tx_cpu)))
		return false;
	if (skip == 0)
		return true;
	store_relaxed(&s->brief_skip, (uint16_t)(skip - 1));
	return false;
}

static void learn(struct sock *s, bool found)
{
	uint32_t failed = load_relaxed(&s->brief_failed);

	if (found) {
		store_relaxed(&s->brief_failed, (uint8_t)(failed / 2));
		return;
	}
	store_relaxed(&s->brief_skip, (uint16_t)(BRIEF_SKIP << failed));
	if (failed < BRIEF_MOST)
		store_relaxed(&s->brief_failed, (uint8_t)(failed + 1));
}

/* What concerns others, too, stays with the rules that hold for them. */
static bool is_simple(struct sock *s)
{
	return gate_state(&s->slot->gate_rx) == GATE_RING && !peer_is_far(s) &&
	       !load_relaxed(&s->is_copied) && !s->left && seen_of(s->slot) == 0 &&
	       sock_is_nonblocking(s, 0) && !wait_is_over(s);
}

static bool begin(uint64_t now)
{
	uint64_t was = load_relaxed(&begun);

	return (was == 0 || now - was > BRIEF_TICKS) &&
	       atomic_compare_exchange_strong(&begun, &was, now);
}

/* True when there is something to do for the read. */
static bool spin(struct sock *s)
{
	uint32_t handlers = crit_handlers(), most = config_get()->spin_ns;
	uint64_t end = clock_now_ns() + (most < BRIEF_NS ? most : BRIEF_NS);

	do {
		for (unsigned i = 0; i < BRIEF_TURNS; i++) {
			if (ring_unread(s->in))
				return true;
			__builtin_ia32_pause();
		}
		if (wait_hint(s, EPOLLIN))
			return true;
	} while (clock_now_ns() < end && !wait_is_over(s) && crit_handlers() == handlers);
	return false;
}

/*
 * While this thread looks, the peer need not wake others for what it will find: as if it had read
 * before they woke. Whoever arms counts himself in before, so that brief_end sees him.
 */
static bool look_alone(struct sock *s)
{
	bool found;

	store_relaxed(&s->in->rx_armed, 0);
	found = spin(s);
	store_relaxed(&begun, 0);
	learn(s, found);
	if (!found)
		brief_end(s);
	return found;
}

bool brief_look(struct sock *s, size_t room)
{
	if (!is_simple(s))
		return false;
	wait_tell_cpu(s);
	if (ring_unread(s->in) || !is_expected(s, room) || !may_pay(s) ||
	    !begin(__rdtsc()))
		return false;
	return look_alone(s);
}

void brief_end(struct sock *s)
{
	struct slot *sl = s->slot;

	fence_full(); /* who is not counted yet arms after our store, and by himself */
	if (load_relaxed(&sl->sleepers_rx) == 0)
		return;
	bell_arm_again(s);
	if (ring_unread(s->in))
		sock_ring_self(s);
}
