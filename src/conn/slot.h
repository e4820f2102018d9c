/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one TCP socket, in memory shared by all processes that inherit the socket.
 */
#ifndef VD_CONN_SLOT_H
#define VD_CONN_SLOT_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/native_count.h"
#include "base/reason.h"
#include "ring/ring.h"

#define SLOT_HOLDERS 6

/*
 * Where a connection stands. Moves forward only, and only under `ctl`; FINAL can be
 * reached from everywhere.
 */
enum slot_phase {
	SLOT_IDLE = 0,	/* socket() done, neither connected nor accepted */
	SLOT_EARNING,	/* connected; counts operations until it deserves an upgrade */
	SLOT_MEETING,	/* name published, or being looked for */
	SLOT_OFFERED,	/* acceptor: segment sent, waiting for the connector to attach */
	SLOT_ATTACHING, /* both ends map it; this end tells its epoll instances */
	SLOT_ATTACHED,	/* both ends map the segment; each direction switches by its gate
			*/
	SLOT_LEAVING,	/* attached, going down for good; a direction may still be in the
			  ring */
	SLOT_FINAL,	/* kernel TCP for good; operations are not even counted */
};

/* Nothing is written yet but to the first lines of the slot. */
static inline bool phase_is_early(uint32_t phase)
{
	return phase <= SLOT_EARNING;
}

/*
 * A gate decides, for one direction, between the kernel and the ring: state in the upper
 * byte, the number of threads that are inside a kernel call of this direction below it.
 * Leaving GATE_TCP needs the count to be 0 in the same atomic step.
 */
#define GATE_STATE_SHIFT 24
#define GATE_COUNT_MASK	 ((1u << GATE_STATE_SHIFT) - 1)
enum gate_state {
	GATE_TCP = 0,	/* kernel calls, counted */
	GATE_READY = 1, /* receive only: opened, TCP is read up to the mark, without
			   blocking */
	GATE_RING = 2,	/* the ring */
	GATE_FINAL = 3, /* kernel calls, not counted, for good */
};

static inline uint32_t gate_word(enum gate_state state)
{
	return (uint32_t)state << GATE_STATE_SHIFT;
}

static inline enum gate_state gate_state(_Atomic uint32_t *gate)
{
	/* Acquire: what the thread that moved the gate wrote before is to be seen. */
	return (enum gate_state)(load_acquire(gate) >> GATE_STATE_SHIFT);
}

#define SLOT_RECORDS 256

/* Bits of slot.seen: verdicts of the kernel about the TCP socket, sticky. */
enum slot_seen {
	SEEN_FIN = 1,	   /* the peer's FIN has arrived (POLLRDHUP) */
	SEEN_HUP = 2,	   /* both directions ended (POLLHUP) */
	SEEN_ERR = 4,	   /* an error waits in SO_ERROR (POLLERR) */
	SEEN_SHUT_WR = 8,  /* we shut down for writing */
	SEEN_SHUT_RD = 16, /* we shut down for reading */
	SEEN_GONE =
		32, /* the peer's socket has no owner, its FIN is held up: peer_alive.c */
	SEEN_RESET_TOLD = 64, /* the survivor's verdict, ECONNRESET, has been reported */
	SEEN_BROKEN =
		128, /* the segment lied or was bypassed: ECONNRESET on everything */
	SEEN_DISSOLVED = 256, /* we have connected to AF_UNSPEC */
	SEEN_FIN_SAID = 512,  /* `fin` has been read in the segment, and may be told */
	/* The peer is another user's, or on another host: what it writes may change at any moment,
	 * also back. */
	SEEN_FOREIGN = 1024,
	SEEN_LINGERS = 2048, /* an exec that has begun has set SO_LINGER */
	/* Not sticky: the error that a call has left for the next one, which here the kernel would
	 * keep in its socket. As a number, from this bit on. */
	SEEN_KEPT_SHIFT = 16,
	SEEN_VERDICTS = (1 << SEEN_KEPT_SHIFT) - 1,
};

/* Bits of slot.tx_special: what most sends need not think of. */
enum slot_special {
	TX_CORKED = 1, /* TCP_CORK as last set through us */
	TX_TIMED = 2,  /* each send notes when it was made: info.c */
	TX_ASKED = 4,  /* TCP_INFO was asked for: so it stays */
};

/* Bits of slot.ever: what has happened some time. */
enum slot_ever {
	/* 1 << TIMEOUT_RX, _TX: it was TIMEOUT_AT_ONCE. */
	EVER_WAITED = 4, /* a wait for it has come by here, or it spins: heed.h */
	EVER_RECEIVED =
		8, /* it came in a message, and its sender may have it still: received.h */
};

/* Whether options that make a connection the kernel's are set: options.c. */
enum slot_options {
	OPTIONS_UNKNOWN = 0, /* the kernel is to be asked */
	OPTIONS_PLAIN =
		1, /* none is, by this process or one that it has the socket from */
	OPTIONS_KERNEL = 2, /* one is that cannot be asked for */
};

/* Whether the peer may send our unread bytes over TCP. */
enum slot_rewinding {
	REWINDING_NOT = 0,
	REWINDING_ASKED = 1,
	REWINDING_KEPT =
		2, /* all but those that a thread in exec has put by for its image */
	REWINDING_OURS =
		3, /* asked, but not for anybody else: what stays unread is lost */
};

/* No pid is so large. */
#define HOLDER_CLOSES (1 << 29)

/*
 * A connection that ends before it meets its peer writes to the first three lines alone, and to the
 * second in most calls. What follows stays zero until then: see slot_alloc.
 */
struct slot {
	/* These outlive the use: a slow thread may look at them, or count a fork in and out,
	 * while another takes the slot. */
	_Atomic uint32_t next_free; /* free list: index of the next one plus 1 */
	_Atomic uint32_t generation;
	_Atomic uint32_t used;	  /* the generation, while in use; else 0 */
	_Atomic uint32_t forking; /* forks whose child has not yet claimed its hold */
	_Atomic uint64_t
		cookie; /* SO_COOKIE; 0 while the slot is free or not yet asked for */
	/* Pids of the processes that have the socket; negative: it is closed where that one has
	 * come to another image by exec; with HOLDER_CLOSES, that one is closing it. */
	_Atomic int32_t holders[SLOT_HOLDERS];
	_Atomic uint32_t crowded; /* processes that found no place there: crowd.h */
	/* Somebody who has the socket does not share the slot, and what he sets is not known here. Low half:
	 * another table has a copy of this slot, since a process has left (leave.c), and the slot's mark counts.
	 * High half: it was lent to images so often since it was last found to be back (loan.c). */
	_Atomic uint32_t left;
	/* Its generation in the table that this process has left, as long as others there may have
	 * the socket; else 0. */
	_Atomic uint32_t former;
	/* For those who look on, with relaxed order: see table.h. */
	_Atomic int32_t fd; /* the number that the socket got first */

	alignas(64) _Atomic uint32_t phase; /* enum slot_phase */
	_Atomic uint32_t reason;
	_Atomic uint32_t role;	   /* enum tcp_role */
	_Atomic uint32_t nonblock; /* O_NONBLOCK as last set through us */
	_Atomic uint64_t earned;   /* until enough: upgrade_policy.h */
	_Atomic uint64_t earn_due; /* up to there it is not; 0: not asked yet */
	_Atomic uint32_t options;  /* enum slot_options */
	_Atomic uint32_t
		record; /* where upgrade_policy.c keeps what it learns of its like, plus 1 */
	_Atomic uint32_t ops;	   /* operations since, until attached */
	_Atomic uint32_t next_try; /* value of ops at the next look for the peer */
	_Atomic uint32_t seen;	   /* enum slot_seen */
	struct lock ctl;
	_Atomic uint32_t gate_rx, gate_tx;

	/* How long a receive, or a send, waits at most: ns, or a TIMEOUT_ of timeout.h. */
	alignas(64) _Atomic int64_t timeout_ns[2];
	_Atomic uint32_t ever;	     /* enum slot_ever */
	_Atomic uint32_t inq;	     /* TCP_INQ: receives tell what is left */
	_Atomic uint32_t tx_special; /* enum slot_special */
	_Atomic uint32_t tx_unsent;  /* TCP_NOTSENT_LOWAT, when it is set */
	_Atomic uint32_t tx_bound;   /* SO_SNDBUF, when the program set it */
	/* 1: a connection of the native library, which counts what its calls have done. */
	_Atomic uint32_t native;
	/* For those who look on. */
	_Atomic uint32_t switches; /* times that a direction went up or down */
	_Atomic uint32_t doorbells, sleeps, redirects;
	_Atomic uint32_t across; /* 1: the ring's other end is on another host */
	_Atomic uint32_t
		left_tick; /* wire_tick() when it left the ring for good: info.c */

	alignas(64) _Atomic uint64_t native_counts[NATIVE_COUNTS];
	/* Low bits of rx.consumed when the connection was handed over; since when, and how many naps had been
	 * made then: see sock_note_still. */
	_Atomic uint32_t still_at, still_ms, still_naps;
	_Atomic uint32_t rx_lowat; /* SO_RCVLOWAT as last set through us, or 0 */

	alignas(64) _Atomic uint32_t
		sleepers_rx; /* threads that sleep until there is something to read */
	struct lock rx_lock;
	uint32_t rx_epoch;	    /* times this direction was opened */
	_Atomic uint32_t rx_marked; /* READY: the mark is known, TCP bytes are to come */
	bool rx_taken_known;	    /* rx_taken is right */
	_Atomic uint32_t rewinding; /* enum slot_rewinding */
	uint64_t rx_taken;	 /* READY: TCP bytes taken since the connection began */
	_Atomic uint32_t rx_arm; /* last arming sequence */
	_Atomic uint32_t rx_lowat_less; /* unread before the mark down: lowat_divide */
	uint64_t rx_messages; /* receives that took bytes from the ring; under rx_lock */
	struct ring_rx rx;
	_Atomic uint32_t nudges; /* by SO_RCVLOWAT: each wakes as bytes do */
	_Atomic uint32_t shuts;	 /* calls of shutdown, and dissolutions: each wakes all */
	/* Lent: so many steps on TCP before the next look whether it is back, and so many after it was lent. */
	_Atomic uint16_t lent_steps, lent_least;
	_Atomic int32_t bells[3]; /* numbers of ours, to be passed over; 0 for none */
	/* 1: accepted, and FINAL before it was attached; its connector is to be told why. */
	_Atomic uint32_t tells;
	/* TCP_INFO, see info.c: what had come at a question, and wire_tick() then. */
	_Atomic uint32_t asked_tick;
	_Atomic uint64_t asked_at;

	alignas(64) _Atomic uint32_t sleepers_tx;
	struct lock tx_lock;
	_Atomic uint32_t tx_arm;
	_Atomic uint32_t tx_full; /* no room was found, or a bound was set */
	struct ring_tx tx;
	_Atomic uint32_t tx_looked; /* wire_tick() of the last look at the kernel */
	uint32_t tx_unchecked; /* sends since the kernel was last asked for a hang-up */
	uint64_t tx_messages;  /* sends that put bytes into the ring; under tx_lock */
	/* What had been received, and sent, over TCP when calls were counted no more, plus 1: settled.c. */
	_Atomic uint64_t settled[2];
};

/*
 * All of the table's memory is shared by forks. A slot is private to its table for ever; its
 * index is stable, so that private data can be kept in arrays beside it.
 *
 * The table is mapped once, before the first thread, and inherited by every fork.
 * slot_alloc returns a zeroed slot held by this process, or NULL when the table is full. In a critical
 * section, where a handler might fork or use a socket.
 */
/* `sheets`: so many processes may count remote procedure calls. */
int slot_table_init(uint32_t count, uint32_t sheets);
/* table_forking, for the table that there is. */
void slot_table_forking(void);
struct slot *slot_alloc(void);
/* The same as slot_release, where no other process has the table, and there is no other thread: else
 * false. In a critical section. */
bool slot_release_ours(struct slot *sl);
/* This process no longer holds the slot; frees it when nobody else does. alone: nobody else does,
 * and no other thread can be forking. */
void slot_release(struct slot *sl, bool alone);
/* Adds this process (a forked child) to the holders. */
void slot_hold(struct slot *sl);
/* The same in another pid namespace, where pids name others: never upgraded, never freed. */
void slot_hold_foreign(struct slot *sl);
/* This process is about to call exec, which closes the socket; or exec has failed. */
void slot_ends_by_exec(struct slot *sl, bool ends);
uint32_t slot_index(const struct slot *sl);
/* SLOT_RECORDS of them: upgrade_policy.c's. */
_Atomic uint8_t *slot_records(void);
/* What upgrade_policy.c has measured, in ns of one end's processor time: a turn on TCP, and an upgrade up to
 * its attached segment. 0 for unknown. */
struct earn_costs {
	_Atomic uint32_t turn_ns, upgrade_ns;
};
struct earn_costs *slot_costs(void);
/* Of connections that the family has passed on, PASSED_ENTRIES; and the one to be written next. */
struct passed_entry *slot_passed(void);
struct passed_entry *slot_passed_next(void);
uint32_t slot_count(void);
struct slot *slot_at(uint32_t index);
/* A fork has been accounted for: by its child, or because it failed. */
void slot_forked(struct slot *sl);
/* A cheap look: do other processes hold the socket, as far as is known? */
bool slot_is_shared(struct slot *sl);
/* Other holders that do not count. */
enum slot_but {
	BUT_NOBODY,
	/* such as close it, and images that do not know its ring: none speaks at its end */
	BUT_CLOSING,
	BUT_LEAVING, /* and such as are about to close it by an exec, which may fail */
};
/* True when no other living process holds the socket. */
bool slot_is_held_alone(struct slot *sl, enum slot_but but);
static inline bool slot_is_alone(struct slot *sl)
{
	return slot_is_held_alone(sl, BUT_NOBODY);
}
/* This process closes it, and uses it no more. True when no other living process holds it, but such
 * as close it, too: of several that do so together, the last one. Under both locks. */
bool slot_close_is_last(struct slot *sl);
/* This process is about to do so, or does not after all. */
void slot_closing(struct slot *sl, bool closes);
/* Somebody whom nobody counts gets the socket, or it is changed for good: to be said to those who
 * have it by the table that this process has left. */
void slot_pass_on_slow(struct slot *sl);
static inline void slot_pass_on(struct slot *sl)
{
	if (__builtin_expect(load_relaxed(&sl->former) != 0, 0))
		slot_pass_on_slow(sl);
}

/*
 * This process leaves its table: docs/processes.md, "Processes that change their rights". The new
 * table, NULL without memory; then each slot that it has is copied, then the new table takes the
 * place of the old. False: all is as it was. The words of threads are kept for a socket that the
 * thread is inside of, or asleep on: a handler of it may do this.
 */
struct slot_table;
struct slot_table *slot_leave_begin(void);
void slot_leave_copy(struct slot_table *to, struct slot *sl, bool inside, bool asleep);
bool slot_leave_end(struct slot_table *to);
/* The same amid threads: see table_part. Sockets that others have, too, are marked, here and there. */
bool slot_part(bool closes);
/* Whether other processes may have the table; and that there is one whose pid is another here. */
bool slot_table_has_others(void);
/* See table_has_others_since. True also where some of the family count elsewhere. */
bool slot_table_has_others_since(uint32_t fork, bool forking);
void slot_table_uncounted(void);
/* A child waits on an epoll instance of its parent's; how often one of the family has said so. */
void slot_table_note_wait(void);
uint32_t slot_table_waits(void);
/* Images that do not know the slot may have the socket: both directions are TCP's, and stay there. */
#define SLOT_LENT_SHIFT 16
static inline bool slot_is_lent(const struct slot *sl)
{
	return __builtin_expect(load_relaxed(&sl->left) >> SLOT_LENT_SHIFT != 0, 0);
}
/* This process has left the table, and did not have the socket alone. */
bool slot_is_left(struct slot *sl);

#endif
