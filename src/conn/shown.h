/* SPDX-License-Identifier: Apache-2.0 */
/* What peeks have shown of a ring whose memory somebody else can write to. */
#ifndef VD_CONN_SHOWN_H
#define VD_CONN_SHOWN_H

#include "conn/area.h"
#include "conn/sock.h"
#include "ring/ring.h"

/*
 * TCP gives the bytes that a peek has shown. A peer of another user, or on another host, could
 * change them in the ring between the two calls. So a peek copies them first, to memory that only
 * the processes with this socket have, and they are read from there. All of this is under rx_lock,
 * where nothing else is said.
 */

/* Before a peek shows n bytes, which are known of: 0, or -ENOMEM. */
int shown_keep(struct sock *s, size_t n);
/* How many of the bytes that come next have been shown. */
size_t shown_bytes(const struct sock *s);
/* Whether the first n of them are these. */
bool shown_are(const struct sock *s, const uint8_t *bytes, size_t n);
/* Some have been taken from the ring. */
void shown_passed(struct sock *s);
/* Puts a span of the ring's where its bytes are to be read. */
void shown_span(const struct sock *s, size_t skip, struct ring_span *span);
/* The connection begins: a process that had the last one may have its memory still. Not under the
 * lock: nobody else can have it. */
void shown_begin(struct sock *s);
/* It has ended, as far as this process is concerned. */
void shown_forget(struct sock *s);
/* Before a fork, without a lock: both processes are to find the same memory. */
void shown_forking(struct sock *s);

/* As ring_rx_span, of s->in_data. */
static inline void shown_or_ring_span(const struct sock *s, size_t skip,
				      struct ring_span *out)
{
	ring_rx_span_within(&s->slot->rx, s->in_data, areas_of(s), skip, out);
	if (s->slot->rx.held & RING_SHOWN)
		shown_span(s, skip, out);
}

#endif
