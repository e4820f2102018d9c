/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stream layer share with each other and with nobody else. */
#ifndef VD_CONN_CONN_H
#define VD_CONN_CONN_H

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/uncontended.h"
#include "conn/kernel_call.h"
#include "conn/peer.h"
#include "conn/timeout.h"
#include "conn/upgrade_policy.h"
#include "rendezvous/rendezvous.h"
#include "ring/iov.h"

/* ---- gates ---- */

static inline bool gate_is_kernel(enum gate_state state)
{
	return state == GATE_TCP || state == GATE_FINAL;
}

static inline uint32_t phase_of(struct slot *sl)
{
	/* Acquire: the segment was stored before the phase said ATTACHED. */
	return load_acquire(&sl->phase);
}

/* Counted for those who look on. */
static inline void slot_switched(struct slot *sl)
{
	fetch_add_relaxed(&sl->switches, 1);
}

static inline void slot_show_bells(struct slot *sl, int a, int b, int c)
{
	store_relaxed(&sl->bells[0], a < 0 ? 0 : a);
	store_relaxed(&sl->bells[1], b < 0 ? 0 : b);
	store_relaxed(&sl->bells[2], c < 0 ? 0 : c);
}

/* Nothing has been done for it but what is in the first lines of slot and sock. */
static inline bool sock_is_short(struct sock *s)
{
	struct slot *sl = s->slot;
	return phase_is_early(phase_of(sl)) && !load_relaxed(&sl->ops) && !s->wire &&
	       !load_relaxed(&s->is_copied) && !s->is_native;
}

/* SO_COOKIE, by which probes name a connection. */
static inline uint64_t slot_cookie(struct slot *sl)
{
	return load_relaxed(&sl->cookie);
}

static inline uint32_t seen_of(struct slot *sl)
{
	return load_acquire(&sl->seen);
}

static inline void seen_add(struct slot *sl, uint32_t bits)
{
	atomic_fetch_or_explicit(&sl->seen, bits, memory_order_acq_rel);
}

/* A call has left an error; and takes it: 0 where there is none. */
static inline bool kept_error(struct sock *s)
{
	return __builtin_expect(seen_of(s->slot) > SEEN_VERDICTS, 0);
}

static inline int kept_take(struct sock *s)
{
	if (!kept_error(s))
		return 0;
	return (int)(atomic_fetch_and(&s->slot->seen, SEEN_VERDICTS) >> SEEN_KEPT_SHIFT);
}

/* The same where the kernel has one error only: that of a connection which has been reset since goes before it, and it
 * is lost. 0, too, where that is so. */
int sock_take_kept(struct sock *s, int fd);

/* The segment lied or was bypassed: ECONNRESET for everybody who uses the connection. */
void sock_break(struct sock *s, enum vd_reason reason);

/*
 * Before bytes go over TCP behind a mark: the mark is in the peer's memory then. The end of TCP
 * needs no such wait, because it is not believed without its words. Under the stream's locks.
 */
static inline void peer_flush(struct sock *s)
{
	if (peer_is_far(s) && peer_ops->flush(peer_of(s)) == -ETIMEDOUT)
		sock_break(s, VD_REASON_LINK);
}

/* As the operation; on one host there is nothing to do. */
static inline void peer_offer(struct sock *s, struct wait *w)
{
	if (peer_is_far(s))
		peer_ops->offer(w);
}

/* ---- fd_words.c ---- */

extern struct lock forking_lock; /* of who enters the table, and of a fork */
void fd_table_set(int fd, struct sock *s);

/* ---- fdtab.c ---- */

/* No fork of this process copies its memory in between: a socket that appears, or is attached, does
 * so for a child as a whole or not at all. Waits for a fork under way. */
void fork_hold_off(void);
void fork_let_go(void);

/* ---- meeting.c ---- */

/*
 * With ctl. A close takes the last number away, and then waits for whoever holds ctl: who has taken it, and
 * finds a number there, has the connection until ctl is dropped. One that comes later may have taken it of a
 * slot that has been emptied since, for the next connection, here or in another process.
 */
static inline bool ctl_is_kept(struct sock *s)
{
	return atomic_load(&s->fds) != 0 && lock_is_mine(&s->slot->ctl);
}
/* False: the connection was closed meanwhile, and ctl is not taken. */
bool ctl_take(struct sock *s);

/* One operation on a connection that is not attached: earn, publish, look, attach. */
void meeting_step(struct sock *s, int fd, bool sends);
/* The program closes or refuses: gives up names and offers. */
void meeting_stop(struct sock *s);
/* The peer has found us, or never will. */
void meeting_over(struct sock *s);
/* One operation on a connection that was never attached and is TCP's for good, while its connector is to be
 * told why. */
void meeting_tell(struct sock *s, int fd);
/* FINAL with a reason, from a phase before ATTACHED. */
void meeting_refuse(struct sock *s, enum vd_reason reason);

/* ---- info.c: what TCP_INFO tells ---- */

static inline uint32_t special_of(struct slot *sl)
{
	return load_relaxed(&sl->tx_special);
}

/* Before the directions can leave TCP. */
void info_begin(struct sock *s);
/* Under tx_lock, after a send with TX_TIMED. */
static inline void info_sent(struct sock *s)
{
	store_relaxed(&s->out->sent_tick, wire_tick());
}
/* Under tx_lock, every LOOK_INTERVAL sends: whether they are so rare that a note of the time
 * costs nothing. */
void info_look(struct sock *s);
void info_sleeps_slow(struct sock *s);
/* A thread is about to sleep for it. */
static inline void info_sleeps(struct sock *s)
{
	if (!(special_of(s->slot) & TX_TIMED))
		info_sleeps_slow(s);
}
/* The connection is the kernel's for good. */
void info_left(struct sock *s);

/* ---- settled.c ---- */

/* This direction is TCP's for good: from here on its calls are not counted, and the kernel's counts are. */
void settled_begin(struct sock *s, int fd, bool sends);
/* Adds what they say since then, or since the last time. By who has the connection alone. */
void settled_count(struct sock *s, int fd);

/* ---- acked.c ---- */

/* Bytes in the ring that TCP would not yet have sent. */
uint64_t acked_not(struct sock *s, int fd);

/* ---- options.c ---- */

/* Why options that were inherited, or set past us, make the connection the kernel's. */
enum vd_reason options_reason(struct sock *s, int fd);
/* A connection begins here: options that were inherited from the listener, or set past us. */
void options_learn(struct sock *s, int fd);

/* ---- tx_rest.c ---- */

/*
 * A send on fd that began here, and the gate is the kernel's: 1 go on, 0 the call is over with what is
 * done, SOCK_KERNEL when it can begin anew there, -errno. Adds to *done.
 */
struct source;
struct wait;
ssize_t tx_go_on_in_kernel(struct sock *s, int fd, struct wait *w, struct source *src,
			   int flags, ssize_t *done);

/* ---- ring_grow.c ---- */

/* The program's buffer sizes allow a larger area. */
bool room_may_grow(struct sock *s);
/* How a send is copied: bulk through the caches, or past them, or neither. */
enum room_way { ROOM_FEW, ROOM_BULK, ROOM_PAST };
/* Under tx_lock, before so many bytes are written: finds their place in the ring. */
enum room_way room_find(struct sock *s, size_t bytes, bool near);
/* After a piece of bulk, copied there in so many ticks, or 0 when these tell nothing. */
void room_used(struct sock *s, const uint8_t *to, size_t bytes, uint64_t ticks);
/* A blocking send of so few goes in one piece, or waits. */
#define ROOM_WHOLE_BYTES 4096u
/* Under tx_lock: for so many, as the peer's cursor says. Where that lies, no. */
bool room_lacks(struct sock *s, size_t least);
/* Under tx_lock: the first step is small, so that idle connections stay small. */
bool room_grow_small(struct sock *s);
/* Before EAGAIN or a sleep: a larger area may take what this one lacks room for. */
bool room_grow(struct sock *s, size_t least);
/* Whether a nonblocking send that has written a part, and then found the ring full, is over: the program
 * is to look at it before it sleeps. */
bool room_ends_short(struct sock *s);
/* A send would find a larger area: the peer takes nothing, or somebody is about to sleep. */
bool room_will_grow(struct sock *s);
/* TCP would take more than the largest area; it gets the rest. True: enter again. */
bool room_needs_tcp(struct sock *s);
bool room_go_on(struct sock *s, int fd, bool waits);
void room_sleeps(struct sock *s);

/* ---- left.c ---- */

/* rx_recv of a socket that has such bytes. */
ssize_t left_recv(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags);
/* Before the socket is forgotten. */
void left_drop(struct sock *s);

/* ---- control.c ---- */

/* Both directions are the kernel's: that is for good, and the layers above hear of it. */
void control_leave_if_done(struct sock *s);

/* ---- wait.c ---- */

static inline bool sock_is_nonblocking(struct sock *s, int flags)
{
	return (flags & MSG_DONTWAIT) || load_relaxed(&s->slot->nonblock);
}

/* A hint that holds while there is nothing (a peer that lies, an error queue) is not worth a
 * processor: after some looks in vain each is preceded by a nap. */
#define VAIN_ROUNDS 3

/*
 * One blocking call: deadline and hold on the descriptors, across its sleeps. Whether it may block,
 * and how long, is asked when it begins, and not again: what other threads set meanwhile is for
 * later calls.
 */
struct wait {
	struct sock *s;
	int fd;
	uint32_t interest; /* EPOLLIN or EPOLLOUT */
	bool held;
	struct _pthread_cleanup_buffer leaving; /* while held */
	uint32_t forks;				/* sock_forks when that began */
	bool spun;				/* in vain, just before */
	uint32_t rounds;     /* looks in vain that the hint had promised something for */
	uint32_t generation; /* of the slot, when the call began */
	uint32_t handlers, interruptions; /* crit_handlers() and so on, then */
	bool some;			  /* it has moved bytes, or is to sleep once */
	struct iovec room;		  /* where the next bytes are to go */
	struct iov_cursor *at;		  /* in the program's array; or NULL */
	struct iovec *kept, last; /* what it leads through once the call has slept */
	size_t kept_bytes;	  /* of memory; 0: it is `last` */
	int64_t timeout_ns;	  /* as in the slot, when the call began */
	int64_t deadline_ns;	  /* by that; 0 before the first sleep */
};

static inline struct wait wait_start(struct sock *s, int fd, uint32_t interest)
{
	return (struct wait){.s = s,
			     .fd = fd,
			     .interest = interest,
			     .handlers = crit_handlers(),
			     .interruptions = crit_interruptions(),
			     .generation = load_relaxed(&s->slot->generation)};
}

/* wait_begin of a connection that goes down, or has: who else got the descriptor may have set these things past us. */
int wait_begin_leaving(struct wait *w, int flags);

/* The call begins: how long it may block. Returns the flags, with MSG_DONTWAIT if it may not. */
static inline int wait_begin(struct wait *w, int flags)
{
	if (__builtin_expect(phase_of(w->s->slot) >= SLOT_LEAVING, 0))
		return wait_begin_leaving(w, flags);
	w->timeout_ns =
		timeout_ns(w->s, w->interest == EPOLLIN ? TIMEOUT_RX : TIMEOUT_TX);
	return sock_is_nonblocking(w->s, flags) || w->timeout_ns == TIMEOUT_AT_ONCE
		       ? flags | MSG_DONTWAIT
		       : flags;
}

/* The kernel would not judge by what the call began with: it may only be asked, not slept in. */
static inline bool wait_is_our_own(const struct wait *w, int flags)
{
	enum timeout_of which = w->interest == EPOLLIN ? TIMEOUT_RX : TIMEOUT_TX;
	return !(flags & MSG_DONTWAIT) &&
	       (w->timeout_ns != TIMEOUT_NEVER || sock_is_nonblocking(w->s, 0) ||
		timeout_ns(w->s, which) != TIMEOUT_NEVER);
}

/* What is open of a connection whose descriptor was closed in our sleep; false when nothing is. */
bool wait_finds(struct wait *w);
/* Under a lock: the descriptor still is the connection that it was when the call began. */
static inline bool wait_is_open(struct wait *w)
{
	return (sock_has(w->s, w->fd) || wait_finds(w)) &&
	       load_relaxed(&w->s->slot->generation) == w->generation;
}

/* ---- vector.c ---- */

/*
 * The kernel reads an array when the call begins: what other threads make of it afterwards is nothing to that. Here it
 * is copied before the call first lets others go on, in a critical section; w->at leads through the copy from then on.
 * Where there is no memory it leads through the program's.
 */
void wait_keep_vector(struct wait *w);
void wait_drop_vector(struct wait *w);

/* ---- interrupt.c ---- */

/* 0, -EINTR, or SOCK_KERNEL: the call begins anew. By the handlers that have run since it began. */
int wait_interruption(const struct wait *w);
/* The same after -EINTR from the kernel. */
int wait_after_signal(const struct wait *w);
/* ppoll, or one that a stop ends, where that ends the call. A count or -errno. */
struct pollfd;
int wait_in_kernel(struct wait *w, struct pollfd *fds, unsigned long n, int64_t ns);

/* ---- wait.c, on ---- */

/* Spins, then sleeps. 0: look again; -EAGAIN: the time is over; -EBADF; as wait_interruption. */
int wait_for(struct wait *w);
/* Its time is over. */
bool wait_is_late(struct wait *w);
/* Sleeps for some milliseconds, for the rare wait for more than there is. As wait_for. */
int wait_nap(struct wait *w);
/* Whoever closes the connection leaves it open until wait_finish, and w->at has a copy. False: it is closed. */
bool wait_hold(struct wait *w);
/* Ends the hold, which also ends when the thread is cancelled or a handler jumps away. */
void wait_finish(struct wait *w);
/* hint.c, in memory only: may there be something to do? */
bool wait_hint(struct sock *s, uint32_t interest);
/* Memory words that need a look by sock_service. */
bool wait_attention(struct sock *s);
/* As sock_down_wait, by another way down, which is asked for again and again. */
ssize_t sock_way_down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms,
			   void (*ask)(struct sock *s, int fd, enum vd_reason reason));
/* The peer closes: all that there will be in memory is there, and what comes is TCP's to tell. */
static inline bool wait_is_over(struct sock *s)
{
	/* Relaxed: who goes to sleep for it looks at memory once more. */
	return load_relaxed(&s->out->closed);
}
/* Spins for `interest` as long as that pays. True when wait_hint holds. */
bool wait_spin(struct sock *s, uint32_t interest);
/* tcp(7): the ceiling on the time for which output is corked. */
#define HELD_CEILING_MS 200
static inline bool wait_held_is_over(struct wire_dir *d)
{
	uint64_t since = load_acquire(&d->held_since_ms);
	/* Over, too, where the clock has been set back. */
	return since && clock_shared_ms() - since >= HELD_CEILING_MS;
}
/* Bytes that the peer has held back for as long as TCP would. */
bool wait_held_due(struct sock *s);
int rx_take_held(struct sock *s);
/* Under rx_lock: those are there for receives now. 1: some are new; 0, -EPROTO. */
static inline int rx_take_due(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->in->held_since_ms) != 0, 0)
		       ? rx_take_held(s)
		       : 0;
}

static inline bool bell_is_asked(_Atomic uint32_t *armed, _Atomic uint32_t *rung)
{
	uint32_t seq = load_relaxed(armed);
	return __builtin_expect(seq != 0 && seq != load_relaxed(rung), 0);
}

/* ---- bell.c ---- */

void bell_ring_peer(struct sock *s);
/* The peer has asked to be rung for bytes, or for room, and there are some. */
void bell_tell_bytes(struct sock *s);
void bell_tell_room(struct sock *s);
static inline void bell_ring_bytes(struct sock *s)
{
	if (bell_is_asked(&s->out->rx_armed, &s->slot->tx.rung))
		bell_tell_bytes(s);
}
static inline void bell_ring_room(struct sock *s)
{
	if (bell_is_asked(&s->in->tx_armed, &s->slot->rx.rung))
		bell_tell_room(s);
}
/* For those that are counted as asleep for bytes: the peer rings for the next. Look afterwards. */
void bell_arm_again(struct sock *s);
/* The peer is in another network namespace, and its bell has been closed by its last process. */
bool bell_is_over(struct sock *s);

/*
 * A connection that is kernel TCP for good gives its doorbells back now, unless a thread of
 * this process may still use one: then the last to leave does. Cheap where there is nothing
 * to do; no lock of the stream's may be held.
 */
void bells_release(struct sock *s);
/* It has some. */
bool bells_are_there(struct sock *s);
/* When a connection last gave its own back: CLOCK_MONOTONIC, in ns. */
extern _Atomic int64_t bells_given_ns;
/* Around what makes the memory of a closed socket another's. */
void bells_hold_off(void);
void bells_let_go(void);
/* Somebody is between these two, or gives some back. */
bool bells_are_held_off(void);
/* Closes the doorbells of a socket that is gone; under the above. */
void bells_close(struct sock *s);
/* In a forked child. */
void bells_forked(void);

/* ---- ring_trim.c ---- */

/* A ring of this process has moved to a larger area. */
void settle_later(void);

/* ---- limbo.c ---- */

/* Lets go of the segment; its window stays mapped. */
void sock_drop_segment(struct sock *s);

/* ---- reader.c ---- */

/* Of a direct one that is handed over: notes how far it has been read, for who waits for its reader. */
void sock_note_still(struct sock *s);
/* Somebody reads it, who had come to `taken` when the wait began, or may begin to: it is to be waited on. */
bool sock_is_being_read(struct sock *s, enum vd_reason reason, uint64_t taken);
void sock_nap_beside_reader(void);

/* ---- verdict.c ---- */

/* The peer closed, or died, with bytes of ours unread: TCP would have sent a reset. */
bool sock_was_reset(struct sock *s);
/* That error is reported once: true for the one caller who is to do it. */
bool sock_take_reset(struct sock *s);
/* Notes what poll events, asked for behind sock_mark, say about the end of the connection. False: the number may have been
 * another file's meanwhile. */
bool sock_see(struct sock *s, int fd, uint64_t mark, uint32_t events);

#endif
