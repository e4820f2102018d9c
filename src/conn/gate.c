/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of one operation: by which way it goes, and its count while it is in the kernel. */
#include <errno.h>

#include "base/atomic.h"
#include "base/sections.h"
#include "base/uncontended.h"
#include "conn/conn.h"
#include "conn/heed.h"
#include "conn/kernel_call.h"
#include "conn/loan.h"
#include "conn/report.h"
#include "conn/switch.h"

/* Counts a thread into the kernel; false when the gate is not GATE_TCP. */
static inline bool gate_enter(_Atomic uint32_t *gate, bool alone)
{
	uint32_t now = load_relaxed(gate);
	do {
		if (now >> GATE_STATE_SHIFT != GATE_TCP)
			return false;
		/* Acquire pairs with the release of whoever moved the gate back to TCP. */
	} while (!single_exchange32(gate, &now, now + 1, alone));
	return true;
}

/*
 * The same, and counts it for this process: a close waits for its own threads. 1 inside, in a critical section
 * that COUNTED ends; 0 the gate is not GATE_TCP, -1 the descriptor was closed meanwhile: nothing is counted.
 * What begins without others may end amid some: each step asks anew.
 */
static inline int enter_kernel(struct sock *s, int fd, _Atomic uint32_t *gate)
{
	bool no_threads = __libc_single_threaded;
	int entered = -1;
	crit_enter();
	/* Sequentially consistent against fd_closing: it clears the table, then looks here. */
	single_add32(&s->inside, 1, no_threads);
	if (atomic_load(&fd_table[fd]) == s)
		entered = gate_enter(gate, no_threads && !s->is_copied) ? 1 : 0;
	if (entered != 1) {
		single_add32(&s->inside, -1u, __libc_single_threaded);
		crit_leave();
	}
	return entered;
}

/*
 * The same where there is no other thread, and no other process: nearly all operations of a connection
 * that ends early. False: nothing is counted, and enter_kernel is to be asked.
 */
static inline bool enter_alone(struct sock *s, int fd, _Atomic uint32_t *gate)
{
	uint32_t now;
	crit_enter();
	now = load_relaxed(gate);
	/* A handler may have closed it, or moved the gate. */
	if (__builtin_expect(now >> GATE_STATE_SHIFT == GATE_TCP &&
				     load_relaxed(&fd_table[fd]) == s,
			     1)) {
		single_add32(&s->inside, 1, true);
		store_relaxed(gate, now + 1);
		return true;
	}
	crit_leave();
	return false;
}

static inline bool is_alone(struct sock *s)
{
	return __libc_single_threaded && !load_relaxed(&s->is_copied);
}

static inline void leave_kernel(struct sock *s, _Atomic uint32_t *gate)
{
	bool no_threads = __libc_single_threaded;
	/* Release: the kernel call is over before anybody can see the count at 0. */
	single_add32(gate, -1u, no_threads && !s->is_copied);
	single_add32(&s->inside, -1u, no_threads);
}

/* The upgrade is earned, and the next look for the peer is not due: as far as meeting_step would go. */
static inline bool meeting_waits(struct slot *sl)
{
	uint32_t phase = load_relaxed(&sl->phase), ops = load_relaxed(&sl->ops) + 1;
	if (phase < SLOT_EARNING || phase >= SLOT_ATTACHING || ops == 1 ||
	    ops >= load_relaxed(&sl->next_try))
		return false;
	store_relaxed(&sl->ops, ops);
	return true;
}

/* TCP's for good. */
static enum sock_way settled(struct sock *s, int fd, bool sends)
{
	int saved = errno;
	if (!load_relaxed(&s->slot->settled[sends]))
		settled_begin(s, fd, sends);
	if (__builtin_expect(load_relaxed(&s->slot->tells), 0))
		meeting_tell(s, fd);
	errno = saved;
	return SOCK_PLAIN;
}

/* ---- a send ---- */

/* Not earned yet, or on the way up, or down. True when the ring is to be used, or there is something to tell that the
 * kernel does not know. Not inline: its caller's page is for what all run through. */
static __attribute__((noinline)) bool tx_step(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int saved = errno;
	bool up;
	if (slot_is_lent(sl))
		loan_look(s, fd);
	if (phase_of(sl) < SLOT_ATTACHED)
		meeting_step(s, fd, true);
	else
		sock_service(s, fd);
	up = phase_of(sl) == SLOT_ATTACHED && tx_up(s, fd);
	errno = saved;
	return up || (seen_of(sl) & SEEN_BROKEN) || kept_error(s);
}

static __attribute__((noinline)) enum sock_way tx_enter_any(struct sock *s, int fd,
							    bool counted)
{
	struct slot *sl = s->slot;
	int entered;
	if (gate_state(&sl->gate_tx) == GATE_FINAL && phase_of(sl) == SLOT_FINAL)
		return kept_error(s) ? SOCK_DIRECT : settled(s, fd, true);
	if (!counted && tx_step(s, fd))
		return SOCK_DIRECT;
	entered = enter_kernel(s, fd, &sl->gate_tx);
	if (entered != 0)
		return entered > 0 ? SOCK_COUNTED : SOCK_PLAIN;
	return gate_state(&sl->gate_tx) == GATE_FINAL ? settled(s, fd, true)
						      : SOCK_DIRECT;
}

NEAR_MOVE static __attribute__((noinline)) enum sock_way tx_enter_counted(struct sock *s,
									  int fd)
{
	return enter_kernel(s, fd, &s->slot->gate_tx) == 1 ? SOCK_COUNTED
							   : tx_enter_any(s, fd, true);
}

NEAR_MOVE enum sock_way tx_enter_slow(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!earn_goes_on(sl, true) && !meeting_waits(sl))
		return load_relaxed(&s->is_plain) ? SOCK_PLAIN
						  : tx_enter_any(s, fd, false);
	return is_alone(s) && enter_alone(s, fd, &sl->gate_tx) ? SOCK_COUNTED
							       : tx_enter_counted(s, fd);
}

static inline void tx_left(struct sock *s, ssize_t result)
{
	leave_kernel(s, &s->slot->gate_tx);
	if (result > 0) {
		report_tcp(true, (uint64_t)result);
		if (result >> EARN_UNIT_SHIFT)
			earn_bytes(s, (size_t)result);
	}
}

NEAR_MOVE void tx_leave(struct sock *s, ssize_t result)
{
	tx_left(s, result);
}

NEAR_MOVE void counted_tx_over(void *arg)
{
	const struct counted *c = arg;
	if (__builtin_expect(c->forks == sock_forks, 1))
		tx_left(c->s, c->result);
}

/* ---- a receive ---- */

/* Not earned yet, or on the way up, or down. True when it is broken, which the kernel does not know.
 * Not inline: its caller's page is for what all run through. */
static __attribute__((noinline)) bool rx_step(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int saved = errno;
	if (slot_is_lent(sl))
		loan_look(s, fd);
	if (phase_of(sl) < SLOT_ATTACHED)
		meeting_step(s, fd, false);
	else /* before a sleep in the kernel, where no bell is heard */
		sock_service(s, fd);
	if (phase_of(sl) == SLOT_ATTACHED)
		rx_open(s, fd);
	errno = saved;
	return seen_of(sl) & SEEN_BROKEN;
}

static __attribute__((noinline)) enum sock_way rx_enter_any(struct sock *s, int fd,
							    bool counted)
{
	struct slot *sl = s->slot;
	int entered;
	if (gate_state(&sl->gate_rx) == GATE_FINAL)
		return s->left ? SOCK_DIRECT : settled(s, fd, false);
	if (!counted && rx_step(s, fd))
		return SOCK_DIRECT;
	entered = enter_kernel(s, fd, &sl->gate_rx);
	if (entered != 0)
		return entered > 0 ? SOCK_COUNTED : SOCK_PLAIN;
	return gate_state(&sl->gate_rx) == GATE_FINAL ? settled(s, fd, false)
						      : SOCK_DIRECT;
}

NEAR_MOVE static __attribute__((noinline)) enum sock_way rx_enter_counted(struct sock *s,
									  int fd)
{
	return enter_kernel(s, fd, &s->slot->gate_rx) == 1 ? SOCK_COUNTED
							   : rx_enter_any(s, fd, true);
}

NEAR_MOVE enum sock_way rx_enter_slow(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!earn_goes_on(sl, false) && !meeting_waits(sl))
		return load_relaxed(&s->is_plain) ? SOCK_PLAIN
						  : rx_enter_any(s, fd, false);
	return is_alone(s) && enter_alone(s, fd, &sl->gate_rx) ? SOCK_COUNTED
							       : rx_enter_counted(s, fd);
}

static inline void rx_left(struct sock *s, ssize_t result)
{
	leave_kernel(s, &s->slot->gate_rx);
	if (result <= 0) {
		store_relaxed(&s->look_due, 1);
		if (!heed_is_known(s))
			heed_spin(s, result);
	} else {
		store_relaxed(&s->vain, 0);
		report_tcp(false, (uint64_t)result);
		if (result >> EARN_UNIT_SHIFT)
			earn_bytes(s, (size_t)result);
	}
}

NEAR_MOVE void rx_leave(struct sock *s, ssize_t result)
{
	rx_left(s, result);
}

NEAR_MOVE void counted_rx_over(void *arg)
{
	const struct counted *c = arg;
	if (__builtin_expect(c->forks == sock_forks, 1))
		rx_left(c->s, c->result);
}

/* ---- a poll ---- */

bool sock_poll_enter(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t now = load_relaxed(&sl->gate_rx);
	bool no_threads = __libc_single_threaded;
	single_add32(&s->inside, 1, no_threads); /* as in enter_kernel */
	do {
		if (atomic_load(&fd_table[fd]) != s ||
		    !gate_is_kernel((enum gate_state)(now >> GATE_STATE_SHIFT))) {
			single_add32(&s->inside, -1u, __libc_single_threaded);
			return false;
		}
	} while (!single_exchange32(&sl->gate_rx, &now, now + 1,
				    no_threads && !s->is_copied));
	if (!sock_is_direct(s))
		return true;
	sock_poll_leave(s);
	return false;
}

void sock_poll_leave(struct sock *s)
{
	leave_kernel(s, &s->slot->gate_rx);
}
