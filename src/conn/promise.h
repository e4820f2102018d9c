/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness that has been told stays true, whatever the peer writes afterwards. */
#ifndef VD_CONN_PROMISE_H
#define VD_CONN_PROMISE_H

#include <stdbool.h>

#include "conn/conn.h"

/*
 * A program reads with a blocking descriptor what poll has told it of. With TCP no peer can take
 * that back. A peer of another user could, because it can write all words of the segment at any
 * moment. So before readiness is told, the cursor that it goes by is taken over into memory of this
 * end, where the next call finds it. A cursor that then goes back is a lie, and ends the
 * connection. A peer of the same user, who might stop us anyway, is believed.
 */

static inline bool is_foreign(struct sock *s)
{
	return seen_of(s->slot) & SEEN_FOREIGN;
}

/* There are bytes in the ring, and they will be there. Takes rx_lock. */
bool promise_bytes(struct sock *s);
/* There is room in the ring, and it will be there; it may have been moved to a larger area for
 * that. Takes tx_lock. */
bool promise_room(struct sock *s);
/* Room of the ring's that is told is TCP's when the peer has us go back there: it has some. */
bool promise_tcp_room(int fd);
/* So many shown bytes may come over TCP instead: what TCP's window surely holds. */
#define PROMISE_SHOWN_MOST 16384u
/*
 * Under rx_lock, where the direction goes back to TCP: what has been told of is there, or has been
 * read. Waits for it to arrive. False: the peer takes it back.
 */
bool promise_holds(struct sock *s, int fd);

#endif
