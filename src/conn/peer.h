/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection asks of its other end, where that is not memory of this host. */
#ifndef VD_CONN_PEER_H
#define VD_CONN_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "conn/sock.h"
#include "ring/wire.h"

/*
 * On one host both ends map the same words: what an end stores, the other sees. So a local peer has no
 * operations, and `sock.peer` is NULL: that test is all that the fast path pays for the others.
 *
 * Between hosts (src/remote) the words are copied. `peer_ops` are the operations for that. None of them
 * sets errno or is a point of cancellation. They may be called under the stream's locks, and take one
 * lock of their own inside. Unless it says otherwise, an operation waits for nothing but that lock.
 *
 * `struct peer` belongs to whoever implements the operations. It is made by `begin`, and stays readable
 * memory for ever; it is good until `end`.
 */
struct peer;
struct wait;
struct source;
struct meet_segment;

struct peer_ops {
	/* ---- meeting ---- */

	/* The peer may be on another host. 1: s->peer is a meeting; 0: not there; -enum vd_reason. Opens a
	 * device at the first one, and reads files. */
	int (*begin)(struct sock *s, int fd);
	/*
	 * 1: both ends have met, and *seg is this end's memory; 0: not yet; -enum vd_reason. The peer may
	 * turn out to be on this host, in another network namespace. Then s->peer is NULL after it, and the
	 * acceptor's result is 2: *seg is offered, and not taken yet.
	 */
	int (*step)(struct sock *s, int fd, struct meet_segment *seg);
	/* Directions and rings are set up: the peer's words are carried out from now on. */
	void (*attach)(struct sock *s, enum wire_direction out);
	/* Our last words are said. At any time, also where there is no peer. Waits for the device where
	 * its queue is full, 3 s at most. */
	void (*end)(struct sock *s);

	/* ---- attached ---- */

	/* Carries out what has come, before a look at the memory, unless another thread is at it. True: some
	 * of it past the ring, to where a thread of ours waits for it. */
	bool (*look)(struct peer *p);
	/* The same for all connections; when it returns that has been done. */
	void (*catch_up)(void);
	/* The same for a thread that was woken by a descriptor, which will be readable again for what comes.
	 * `brief` costs less, and may leave it readable: not for a thread that waits for edges. */
	void (*answer)(bool brief);
	/* Tells the peer what is new of ours: bytes, words, and that a bell would be rung. Waits for the
	 * device as `end` does. */
	void (*push)(struct peer *p);
	/* So much room of `in`, the direction that we receive, has been given back that the peer is to be told of that
	 * alone, by `push`. Reads some words. */
	bool (*room_is_due)(const struct peer *p, struct wire_dir *in);
	/* Pushes, and waits until all of it is in the peer's memory. 0; -EPIPE: the link has failed;
	 * -ETIMEDOUT: the peer has taken nothing for 3 s. */
	int (*flush)(struct peer *p);
	/* Bytes may go this way: the peer hears of us before it hears that the link has failed. */
	bool (*may_use)(struct peer *p);
	/* No word of the peer's is to come any more. */
	bool (*is_over)(struct peer *p);
	/* Whether the end of TCP is that of the stream: false while the peer's words may be to come. */
	bool (*end_is_known)(struct sock *s);
	/* The descriptor that several connections wake by: it stays open. Or -1. */
	int (*shared_descriptor)(struct peer *p);

	/* ---- past the ring ---- */

	/* A blocking receive is about to sleep, with room for more: the peer may write there, where that
	 * pays. Takes rx_lock. Until `redirected` the memory is the peer's. */
	void (*offer)(struct wait *w);
	/* Under rx_lock, before anything is taken from the ring: how many bytes have come there. With `over`
	 * nothing more will. */
	size_t (*redirected)(struct wait *w, bool over);
	/* This thread's offer ends, without its bytes: they will come again by the ring. */
	void (*take_back)(void);
	/* The peer has made such an offer. Reads one word; before so many bytes that they may be worth it, looks for
	 * what has come, too, since who sends may not have looked for long. */
	bool (*takes)(const struct peer *p, size_t bytes);
	/* Nothing is pushed until `release`, or until something is flushed. */
	void (*hold)(struct peer *p);
	/* Under tx_lock, between these two: so many bytes are on their way past the ring from where they are,
	 * or 0. Before the call returns, `await`. */
	ssize_t (*lend)(struct sock *s, struct source *src);
	/* Pushes; true: to where the peer has offered. Waits for the device as `end` does. */
	bool (*release)(struct peer *p);
	/* Waits until it is known what has become of bytes that went past the ring, and the device has let
	 * go of them; or until a signal handler has run, before which it has; or until the time of the call is over, or
	 * the peer has said nothing for some seconds. `handlers`: those that had run before `lend`, by
	 * crit_handlers. */
	void (*await)(struct peer *p, struct wait *w, uint32_t handlers);

	/* ---- the process ---- */

	/* Before the process ends: waits until the peers have all that was pushed, some seconds at most. */
	void (*drain)(void);
	/* Around a fork. The child has no link: its handles are dead. */
	void (*forking)(void);
	void (*forked_parent)(void);
	void (*forked_child)(void);
};

/* NULL: all peers are on this host. Set once, before there are connections. */
extern const struct peer_ops *peer_ops;

/* The largest area of a ring that is copied to another host. */
#define PEER_AREA_LIMIT 1u

/* This thread has offered memory, or lent some, and not ended that: an operation's number, else 0. */
extern _Thread_local uint64_t peer_offering
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern _Thread_local uint64_t peer_lending
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* NULL: the peer is on this host. */
static inline struct peer *peer_of(struct sock *s)
{
	return load_relaxed(&s->peer);
}

static inline bool peer_is_far(struct sock *s)
{
	return __builtin_expect(peer_of(s) != NULL, 0);
}

/* The link is a parent's of this process: nobody here can look at the rings. */
static inline bool peer_is_parents(struct sock *s)
{
	/* Relaxed: set before this process has threads. */
	return load_relaxed(&s->elsewhere);
}

/* Each as the operation of its name; on one host there is nothing to do. */
static inline bool peer_look(struct sock *s)
{
	struct peer *p = peer_of(s);

	return __builtin_expect(p != NULL, 0) && peer_ops->look(p);
}

/* The same for a question that is no receive and no send: what has come counts for it, too. */
static inline void peer_hear(struct sock *s)
{
	if (!peer_is_parents(s))
		peer_look(s);
}

static inline void peer_catch_up(struct sock *s)
{
	if (peer_is_far(s))
		peer_ops->catch_up();
}

/* False: the peer is on this host. */
static inline bool peer_push(struct sock *s)
{
	struct peer *p = peer_of(s);

	if (p)
		peer_ops->push(p);
	return p != NULL;
}

static inline bool peer_takes(struct sock *s, size_t bytes)
{
	struct peer *p = peer_of(s);

	return __builtin_expect(p != NULL, 0) && peer_ops->takes(p, bytes);
}

static inline bool peer_may_use(struct sock *s)
{
	struct peer *p = peer_of(s);

	return !p || peer_ops->may_use(p);
}

static inline bool peer_end_is_known(struct sock *s)
{
	return !peer_is_far(s) || peer_ops->end_is_known(s);
}

static inline bool peer_is_over(struct sock *s)
{
	struct peer *p = peer_of(s);

	return p && peer_ops->is_over(p);
}

static inline void peer_end(struct sock *s)
{
	if (peer_is_far(s))
		peer_ops->end(s);
}

/* verdict.c: nothing is to come by the link any more, nor to go. */
bool peer_is_past_link(struct sock *s);

/* ---- peer.c: what conn does about such connections by itself ---- */

/* Under the direction's lock: false while a fork is under way, or somebody else has the socket. */
bool peer_may_rise(struct sock *s);
static inline bool peer_may_go_up(struct sock *s)
{
	if (slot_is_lent(s->slot))
		return false;
	return peer_is_far(s) ? peer_may_rise(s) : !peer_is_parents(s);
}
/* So long on TCP after the first fork; for tests. */
extern uint32_t peer_ground_ms;
/* Under rx_lock: this end opens a direction, which fills the link's memory again. */
void peer_opens(struct sock *s);
/* Why it is on TCP for a while, or that it no longer is. */
void peer_is_down(struct sock *s);
void peer_is_up(struct sock *s);
/* In a forked child that passes the socket on to somebody who is not counted. */
void peer_stay_down(struct sock *s);
/* The process forks: each time costs a wait for the peers of what is up, so who forks often stays on TCP
 * for longer. */
void peer_ground(struct sock *s);
/* Forks that are under way in this process, or about to be. */
extern _Atomic uint32_t peer_forks;

/* ---- peer_fork.c ---- */

void peer_forked_parent(void);
/* In a forked child: what has not gone back to TCP is lost there. */
void peer_forked_child(void);

#endif
