/* SPDX-License-Identifier: Apache-2.0 */
/* Whether there is something to do for a connection: looks that change nothing and never block. */
#include <sys/epoll.h>

#include "base/atomic.h"
#include "conn/conn.h"
#include "conn/lowat.h"
#include "conn/switch.h"

bool sock_is_held(struct sock *s)
{
	if (__builtin_expect(load_acquire(&s->in->held_since_ms) == 0, 1))
		return false;
	uint64_t held = load_acquire(&s->in->held_at);
	/* Those that are taken stay held for the sender, who may push none ever. */
	return (int64_t)(held - load_relaxed(&s->in->consumed)) > 0;
}

bool wait_held_due(struct sock *s)
{
	if (!sock_is_held(s))
		return false;
	/* TCP sends them with the FIN. Who was killed has not pushed them. */
	bool ended = seen_of(s->slot) & (SEEN_FIN | SEEN_HUP | SEEN_ERR);
	return ended || wait_held_is_over(s->in);
}

/* Past these there is always enough. */
#define ENDS (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_RD | SEEN_BROKEN)

uint64_t lowat_least(struct sock *s)
{
	uint32_t lowat = load_relaxed(&s->slot->rx_lowat);
	if (__builtin_expect(lowat <= 1, 1) ||
	    gate_state(&s->slot->gate_rx) != GATE_RING || (seen_of(s->slot) & ENDS) ||
	    sock_has_fin(s))
		return 1;
	return lowat;
}

/* With what the peer has held back for long enough. */
static uint64_t unread_due(struct sock *s)
{
	uint64_t n = ring_unread(s->in), held = load_acquire(&s->in->held_at);
	uint64_t all = held - load_relaxed(&s->in->consumed);
	return wait_held_due(s) && (int64_t)(all - n) > 0 ? all : n;
}

bool lowat_lacks_slow(struct sock *s)
{
	uint64_t least = lowat_least(s);
	return __builtin_expect(least > 1, 0) &&
	       (lowat_is_divided(s) || (unread_due(s) < least && !rx_is_down(s)));
}

/* A bounce may stand for long, and after it has been carried out nothing more is to be done. */
static bool is_carried_out(struct sock *s, uint32_t want)
{
	return (want == WANT_BOUNCE || want == WANT_LEND) &&
	       gate_state(&s->slot->gate_tx) == GATE_TCP &&
	       load_relaxed(&s->out->ready_epoch) == load_relaxed(&s->out->down_epoch);
}

static inline bool is_wanted_down(struct sock *s)
{
	uint32_t want = load_relaxed(&s->out->want_down);
	return want && gate_state(&s->slot->gate_tx) != GATE_FINAL &&
	       !is_carried_out(s, want) && !peer_is_parents(s);
}

static inline bool is_down(struct sock *s)
{
	return gate_state(&s->slot->gate_rx) == GATE_RING &&
	       load_relaxed(&s->in->down_epoch) == load_relaxed(&s->in->up_epoch);
}

bool wait_attention(struct sock *s)
{
	return is_wanted_down(s) || is_down(s);
}

static bool hint_in(struct sock *s)
{
	struct slot *sl = s->slot;
	if (seen_of(sl) & (SEEN_FIN | SEEN_SHUT_RD))
		return true;
	switch (gate_state(&sl->gate_rx)) {
	case GATE_READY: /* once the mark is known, TCP wakes by itself */
		return !load_relaxed(&sl->rx_marked) &&
		       load_relaxed(&s->in->up_epoch) ==
			       load_relaxed(&s->in->ready_epoch);
	case GATE_RING:
		return ((ring_unread(s->in) || wait_held_due(s)) && !lowat_lacks(s)) ||
		       load_relaxed(&s->in->fin);
	default:
		return true;
	}
}

static bool hint_out(struct sock *s)
{
	struct slot *sl = s->slot;
	/* Racy reads of the producer's own record: a hint, checked under the lock. */
	uint64_t fill = ring_unread(s->out);
	uint32_t size = ring_size_hint(s->out);
	return gate_state(&sl->gate_tx) != GATE_RING || fill <= size - size / 4 ||
	       (seen_of(sl) & (SEEN_FIN | SEEN_SHUT_WR | SEEN_GONE)) ||
	       load_relaxed(&s->in->fin);
}

bool wait_hint(struct sock *s, uint32_t interest)
{
	if (peer_look(s) || is_wanted_down(s) || (is_down(s) && !lowat_is_divided(s)) ||
	    (seen_of(s->slot) & (SEEN_HUP | SEEN_ERR | SEEN_BROKEN)))
		return true;
	return ((interest & EPOLLIN) && hint_in(s)) ||
	       ((interest & EPOLLOUT) && hint_out(s));
}
