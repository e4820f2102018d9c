/* SPDX-License-Identifier: Apache-2.0 */
/* How each direction moves from TCP to the ring, and back: docs/switch.md. */
#ifndef VD_CONN_SWITCH_H
#define VD_CONN_SWITCH_H

#include "conn/conn.h"

/*
 * A gate has one owner: switch_rx.c moves gate_rx, and switch_tx.c gate_tx (gate_move.h). All others ask
 * them to, or only look; gate.c counts the threads inside.
 */

/* ---- switch_rx.c ---- */

/* GATE_TCP to GATE_READY when nobody is inside. */
void rx_open(struct sock *s, int fd);
/* A bounce that stands because we might not open has done its work, if we may. */
void rx_take_back(struct sock *s);
/* READY to RING, RING to TCP, as far as the marks allow. Under rx_lock. 0 or -ECONNRESET. */
int rx_advance(struct sock *s, int fd);
/* READY to TCP: urgent data is next. Whoever has sent that never takes up the ring. As above. */
int rx_leave_urgent(struct sock *s, int fd);
/* The way down has begun: a direction that is on TCP stays there. Takes rx_lock. */
void rx_stay_down(struct sock *s);
/* To FINAL, from where it is, and without a mark: nobody reads the ring from now on. */
void rx_final(struct slot *sl);
/* Another image of this process had it there. */
void rx_carried(struct slot *sl, enum gate_state at);
/* The sender has announced, for our present epoch, that it has taken up, or left, the ring. */
static inline bool rx_is_up(struct sock *s)
{
	return load_acquire(&s->in->up_epoch) == s->slot->rx_epoch;
}
static inline bool rx_is_down(struct sock *s)
{
	/* Acquire: down_at, and the last cursor, were stored before. */
	return load_acquire(&s->in->down_epoch) == s->slot->rx_epoch;
}

/* ---- switch_tx.c ---- */

/* GATE_TCP to GATE_RING when the peer is ready and nobody is inside. True when it is up. */
bool tx_up(struct sock *s, int fd);
/* A sibling may have died between its `fin` and the kernel's shutdown, and this makes up for it. One that was made is
 * not made again: that would be an event for whoever waits. */
void tx_shut_missing(int fd);
/* RING to TCP or FINAL. `to` FINAL also tells a peer that waits in READY. Takes tx_lock. */
void tx_down(struct sock *s, int fd, enum gate_state to);
/* The epoch that the peer has opened is over, without a byte. */
void tx_pass_over(struct sock *s);
/* Under tx_lock, before the last words: leaves the ring now if the peer has asked for its
 * unread bytes. */
void tx_answer(struct sock *s, int fd);
/* Under tx_lock, where the gate says RING and tx_is_up does not: its owner died on the way. */
void tx_repair(struct sock *s);
/* To FINAL, from where it is, and without a mark. */
void tx_final(struct slot *sl);
/* Our own words, one store each: whatever a dead owner left undone shows here: the gate may say
 * RING, and the owner have died on the way up or down. Under tx_lock. */
static inline bool tx_is_up(struct sock *s)
{
	return load_relaxed(&s->out->up_epoch) == load_relaxed(&s->out->down_epoch) + 1;
}

/* ---- rx_tcp.c: what TCP has for a receiver ---- */

/*
 * Counts what has been taken of TCP, while the kernel's counts can be believed: once the
 * connection is closed nobody can tell whether they hold a FIN. Under rx_lock. False: they cannot.
 */
bool rx_count_taken(struct sock *s, int fd);
/* In READY with the mark seen: TCP bytes still to come before it; -errno. Under rx_lock. */
int64_t rx_tcp_left(struct sock *s, int fd);
/*
 * In READY with the mark seen, and nothing queued: the bytes before the mark have been taken, the last ones past us. So
 * does a thread whose call began when another file had the number: nobody has counted it in. Under rx_lock.
 */
bool rx_is_taken_past_us(struct sock *s, int fd);
/* Of what TCP has queued, how much lies before a mark that has not been passed. */
int rx_bounded(struct sock *s, int fd, int queued);
/* TCP has something. Where it has nothing, a look for more would take the error that waits. */
bool rx_is_queued(int fd);
/* An errno is no error of the connection: recvmmsg leaves what ends a further message to
 * the next call, also the kernel's own sign for a call that begins anew (512 and on). */
static inline bool rx_is_left_behind(long n)
{
	return n <= -512 || n == -EINTR || n == -EFAULT || n == -EINVAL || n == -EMSGSIZE;
}
struct iov_cursor;
/* At most cap bytes, without blocking. */
ssize_t rx_read_kernel(struct sock *s, int fd, struct iov_cursor *to, size_t cap,
		       int flags);
/*
 * The ring was left again before its first byte was reached: behind its bytes come those that
 * TCP has queued behind the `skip` that were peeked at before.
 */
ssize_t rx_peek_third(int fd, struct iov_cursor *to, int flags, size_t skip);
bool rx_tcp_has_more(struct sock *s, int fd);
/* The same, and it belongs to a receive that has taken some. */
bool rx_goes_on(struct sock *s, int fd);
/* Urgent data comes next: TCP ends a receive before it. */
bool rx_is_at_mark(int fd);
/* A peek has seen n bytes, all of the ring, or of TCP, or of both. True: TCP has an urgent
 * byte next, and the peek ends before it. */
bool rx_peek_ends_at_mark(struct wait *w, ssize_t n);

/* ---- rx_end.c: under rx_lock, but for rx_is_tcp_over ---- */

/* A receive that has taken some ends here; what the kernel has to say of it stays unsaid. */
bool rx_is_tcp_over(struct sock *s, int fd);
/* READY with an empty queue: 0 look again, -ENODATA the end, -EAGAIN, -errno. */
ssize_t rx_tcp_end(struct sock *s, int fd, bool up);
/* RING and empty: 1 at the end, which is known, 0 we have shut it for reading, -EAGAIN,
 * -EINPROGRESS there is more, -ECONNRESET it lies. */
int rx_ring_end(struct sock *s);
/* EOF or the error that the reader of an empty ring gets: 0, -errno, or as above. */
ssize_t rx_verdict(struct sock *s, int fd);

/* ---- resend.c ---- */

/*
 * A receiver that hands the connection over asks for its unread bytes over TCP; the request
 * stands until it is answered or somebody takes from the ring. False: asked before.
 */
bool rewind_ask(struct sock *s, int fd);
/* The same, and the direction comes back when the connection is no longer lent. On TCP already: says that nothing
 * is opened. True: the peer is to be rung. */
bool rewind_lend(struct sock *s);
/* The same where nobody else is known to get the connection. */
bool rewind_ask_own(struct sock *s, int fd);
/* The same, and the peer may do so, too: our own direction is not down yet. */
bool rewind_ask_yielding(struct sock *s, int fd);
/*
 * Under rx_lock, with slot.rewinding set, before bytes are taken from the ring: withdraws
 * the request, or learns that it was answered; then the gate has moved. 0 or -ECONNRESET.
 */
int rewind_settle(struct sock *s, int fd);
/* Under rx_lock: asks anew for what a receive that has withdrawn it has left. False: it does not. */
bool rewind_again(struct sock *s);
/* Before a shutdown that leaves neither direction open: what is asked for stays in the ring. */
void rewind_is_shut(struct sock *s, int fd);
/*
 * A new image is to get what is unread by other means: under rx_lock, the number of bytes in
 * the ring that are its own, and 0 when TCP has them. What the peer still adds it will send
 * over TCP, or reset the connection. -errno: nothing is settled.
 */
int64_t rewind_keep(struct sock *s, int fd);
/* There is no new image. Without locks. */
void rewind_unkeep(struct sock *s, int fd);
/* The last holder leaves without an answer. Said before the last look at the ring, and
 * taken back when that finds something. */
void rewind_is_last(struct sock *s, bool last);
/* The last holder closes it while a request stands, for somebody whom nobody counts: a
 * sender that refuses it from now on resets the connection, and the mark of one that
 * has refused it is here. Without locks. */
void rewind_closing(struct sock *s);
/* The sender's part, under tx_lock and up: a request, or an answer that an owner's death cut. */
bool rewind_is_due(struct sock *s);
/* Under tx_lock: bytes that a cork holds back, as long as it does. */
uint64_t tx_held_back(struct sock *s);
/*
 * Before the mark down, which is to stand at *end: behind the ring's bytes, or before the
 * unread ones when TCP has taken all of them. False: the connection was broken off, and no
 * mark is to be made. The last `held` bytes nobody is to see yet.
 */
bool rewind_answer(struct sock *s, int fd, uint64_t held, uint64_t *end);
/* After the mark. True: bytes were taken back, and the direction is TCP's for good. */
bool rewind_answered(struct sock *s);

#endif
