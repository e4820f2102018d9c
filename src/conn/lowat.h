/* SPDX-License-Identifier: Apache-2.0 */
/* SO_RCVLOWAT, set while bytes are unread in the ring. */
#ifndef VD_CONN_LOWAT_H
#define VD_CONN_LOWAT_H

#include "base/atomic.h"
#include "conn/sock.h"

struct iov_cursor;

/* So many have to be there. 1 where that is not asked for. */
uint64_t lowat_least(struct sock *s);
/* Sets it, and asks for it, as the program has it: other threads may divide it meanwhile. 0 or -errno. */
int lowat_put(struct sock *s, int fd, const void *value, socklen_t len);
int lowat_ask(struct sock *s, int fd, void *value, socklen_t *len);
/* It was set: where enough is there for it, that is an edge. */
void lowat_set(struct sock *s, int fd);
/*
 * The peer is to send those bytes once more. As long as they are too few, and no mark is there, nothing is ready: what
 * comes then stands beside them, or behind them on TCP with the mark, and either rings.
 */
bool lowat_lacks_slow(struct sock *s);
static inline bool lowat_lacks(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->slot->phase) == SLOT_LEAVING, 0) &&
	       lowat_lacks_slow(s);
}
/* The direction is down, and the ring has bytes before the mark down. The kernel's own mark is less by these. */
static inline bool lowat_is_less(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->slot->phase) == SLOT_LEAVING, 0) &&
	       load_relaxed(&s->slot->rx_lowat_less);
}
/* They are fewer than are asked for: it is the kernel that tells when there are enough, and that wakes. */
static inline bool lowat_is_divided(struct sock *s)
{
	return lowat_is_less(s) && load_relaxed(&s->slot->rx_lowat_less) < lowat_least(s);
}
/* It is asked for, on the way to TCP. */
static inline bool lowat_is_asked(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->slot->phase) == SLOT_LEAVING, 0) &&
	       load_relaxed(&s->slot->rx_lowat) > 1;
}
/* In READY the kernel has only what comes before the ring: with the ring's bytes there are enough. */
bool lowat_is_there_slow(struct sock *s, int fd);
static inline bool lowat_is_there(struct sock *s, int fd)
{
	return lowat_is_asked(s) && lowat_is_there_slow(s, fd);
}
/* Under rx_lock: makes it so, or ends it. */
void lowat_divide(struct sock *s, int fd);
/* An image before this one has set it. */
void lowat_carried(struct sock *s, int fd);
/* Under rx_lock: a receive that waits leaves what is there to be sent once more. */
bool lowat_leaves(struct sock *s, int fd, const struct iov_cursor *to, int flags);
/* Under rx_lock, after a receive: what it has left is to be sent once more all the same. True: the peer is to be rung. */
bool lowat_asks_slow(struct sock *s, int fd);
static inline bool lowat_asks(struct sock *s, int fd)
{
	return __builtin_expect(load_relaxed(&s->slot->phase) == SLOT_LEAVING, 0) &&
	       lowat_asks_slow(s, fd);
}

#endif
