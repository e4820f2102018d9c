/* SPDX-License-Identifier: Apache-2.0 */
/* What nearly every receive and send is: one piece of the ring. For rx.c and tx.c, and for quick.c. */
#ifndef VD_CONN_QUICK_MOVE_H
#define VD_CONN_QUICK_MOVE_H

#include "base/mechanism.h"
#include "base/sigsafe.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "conn/trace.h"

/* Large copies give room back in pieces, so that both ends copy at the same time. */
#define CHUNK_BYTES 16384u
/* Sends through the ring between two looks at the TCP connection. */
#define LOOK_INTERVAL 256u

#define QUICK_INLINE static inline __attribute__((always_inline))

typedef int quick_copy_fn(void *to, const void *from, size_t len);

/* How quick.c and the others differ: known where these functions become part of another. */
struct quick_way {
	size_t rx_most; /* bytes received at once */
	quick_copy_fn *copy;
	bool traces;
	/* Only asked for in a larger area. */
	uint8_t *(*tx_larger)(struct sock *s, size_t len);
};

static __attribute__((noinline, unused)) struct ring_span quick_rx_larger(struct sock *s)
{
	struct ring_rx *rx = &s->slot->rx;

	return ring_rx_glance_in(rx, s->in, s->in_data, area_of(s, ring_rx_area(rx)));
}

/* Under rx_lock: there is nothing to look at before bytes are taken from the ring. */
QUICK_INLINE bool quick_may_take(struct slot *sl)
{
	return gate_state(&sl->gate_rx) == GATE_RING && !(seen_of(sl) & SEEN_BROKEN) &&
	       !load_relaxed(&sl->rewinding);
}

/*
 * Takes one piece, of which there is enough or all is taken. 0 when it is not so, or there is nothing.
 * *roomy: a sleeping producer is to be woken.
 */
QUICK_INLINE size_t quick_take(struct sock *s, void *to, size_t room,
			       const struct quick_way way, bool *roomy)
{
	struct slot *sl = s->slot;
	struct ring_span span = __builtin_expect(ring_rx_area(&sl->rx) == 0, 1)
					? ring_rx_glance_in(&sl->rx, s->in, s->in_data, 0)
					: quick_rx_larger(s);
	size_t n = span.len < room ? span.len : room;

	if (n > way.rx_most ||
	    (n < room && (sl->rx.consumed + n != sl->rx.seen || rx_is_down(s) ||
			  load_relaxed(&s->in->held_since_ms) != 0)))
		n = 0;
	if (n > 0 && (LACKS(RECEIVE_COPY) ? mechanism_ends(to, span.data, n)
					  : way.copy(to, span.data, n)) < 0)
		n = 0;
	if (n > 0) {
		if (way.traces && trace_is_wished())
			trace_bytes(s, TRACE_IN, sl->rx.consumed, span.data, n);
		ring_rx_commit(&sl->rx, s->in, n);
		s->rx_bytes += n;
		sl->rx_messages++;
		*roomy = ring_rx_roomy(&sl->rx);
	}
	return n;
}

/* Something that a send has to look at before it writes to the ring. */
QUICK_INLINE bool quick_attention(struct sock *s)
{
	return load_relaxed(&s->look_due) | load_relaxed(&s->out->want_down) |
	       load_relaxed(&s->out->closed) | load_relaxed(&s->in->fin) |
	       (seen_of(s->slot) & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_WR |
				    SEEN_BROKEN | SEEN_GONE | ~SEEN_VERDICTS));
}

/* Under tx_lock: nothing is to be looked at before a small piece is sent. */
QUICK_INLINE bool quick_may_put(struct sock *s, struct slot *sl, int fd)
{
	return fd_is(fd, s) && gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s) &&
	       !quick_attention(s) && sl->tx_unchecked + 1 < LOOK_INTERVAL &&
	       !(special_of(sl) & TX_CORKED);
}

/* Sends it, where there is room for it: else 0. */
QUICK_INLINE size_t quick_put(struct sock *s, const void *from, size_t len,
			      const struct quick_way way)
{
	struct slot *sl = s->slot;
	uint8_t *to = ring_tx_area(&sl->tx) == 0
			      ? ring_tx_glance_in(&sl->tx, s->out_data, 0, len)
			      : way.tx_larger(s, len);

	if (!to || way.copy(to, from, len) != 0)
		return 0;
	if (way.traces && trace_is_wished())
		trace_sent(s, len);
	ring_tx_commit(&sl->tx, s->out, len, false);
	s->tx_bytes += len;
	sl->tx_unchecked++;
	sl->tx_messages++;
	if (__builtin_expect(special_of(sl) != 0, 0))
		info_sent(s);
	if (load_relaxed(&s->rush))
		store_relaxed(&s->rush, 0);
	return len;
}

/*
 * After bytes were published, and a fence: who has looked at the ring since, for the last
 * time, asked before that; and the program may never call us again.
 */
QUICK_INLINE bool quick_is_asked_late(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->out->want_down) >= WANT_REWIND, 0);
}
void tx_answer_late(struct sock *s, int fd);

#endif
