/* SPDX-License-Identifier: Apache-2.0 */
/* Doorbells: arms what the peer is to ring, rings the peer's, answers the own one, and gives them back. */
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/probe.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "conn/conn.h"
#include "conn/report.h"
#include "rendezvous/farbell.h"

/* Not through libc's write: that is a cancellation point, and the bytes are published. */
static void ring(int bell)
{
	const uint64_t one = 1;
	/* EAGAIN: the counter is full, so nobody has looked for long, and it is readable. */
	kernel_write(bell, &one, sizeof(one));
}

/*
 * Sequentially consistent against bells_release: it takes the numbers, then looks here. A critical section: what a
 * handler forks would count out what it has not counted in, and a jump out of one nothing.
 */
static void bells_enter(struct sock *s)
{
	crit_enter();
	atomic_fetch_add(&s->bell_users, 1);
}

static void bells_leave(struct sock *s)
{
	atomic_fetch_sub(&s->bell_users, 1);
	crit_leave();
}

static void ring_counted(struct sock *s)
{
	int far = s->far_bell, near = s->peer_bell;
	report_add(&report_now.doorbells, 1);
	fetch_add_relaxed(&s->slot->doorbells, 1);
	PROBE1(doorbell, slot_cookie(s->slot));
	if (far >= 0)
		farbell_ring(far);
	else if (near >= 0)
		ring(near);
}

void bell_ring_peer(struct sock *s)
{
	if (peer_push(s))
		return;
	bells_enter(s);
	ring_counted(s);
	bells_leave(s);
}

/*
 * No lock is held, and another thread may have closed the connection. All is of one that is not: it is looked at
 * between the count and its end, for which a close waits before the slot is another connection's. Ring first, note
 * after: an owner that dies between rings twice, never not at all.
 */
static void answer(struct sock *s, _Atomic uint32_t *armed, _Atomic uint32_t *rung)
{
	uint32_t seq;
	bells_enter(s);
	seq = load_relaxed(armed);
	if (seq != 0 && seq != load_relaxed(rung)) {
		ring_counted(s);
		store_relaxed(rung, seq);
	}
	bells_leave(s);
}

void bell_tell_bytes(struct sock *s)
{
	uint32_t seq = load_relaxed(&s->out->rx_armed);
	if (peer_push(s))
		store_relaxed(&s->slot->tx.rung, seq);
	else
		answer(s, &s->out->rx_armed, &s->slot->tx.rung);
}

/*
 * A peer on another host has always asked, since what it has armed is known there alone. It is told of room with what
 * else there is to tell, or when that is much: until then this is not noted as a ring, so that it stays asked for.
 */
void bell_tell_room(struct sock *s)
{
	uint32_t seq = load_relaxed(&s->in->tx_armed);
	struct peer *p = peer_of(s);
	if (p && !peer_ops->room_is_due(p, s->in))
		return;
	if (peer_push(s))
		store_relaxed(&s->slot->rx.rung, seq);
	else
		answer(s, &s->in->tx_armed, &s->slot->rx.rung);
}

bool bell_is_over(struct sock *s)
{
	bells_enter(s);
	int far = s->far_bell;
	bool over = far >= 0 && farbell_is_over(far);
	bells_leave(s);
	return over;
}

void sock_ring_self(struct sock *s)
{
	bells_enter(s);
	int bell = s->bell;
	if (bell >= 0)
		ring(bell);
	bells_leave(s);
}

static uint32_t next_seq(_Atomic uint32_t *arm)
{
	uint32_t seq = fetch_add_relaxed(arm, 1) + 1;
	return seq ? seq : fetch_add_relaxed(arm, 1) + 1;
}

uint64_t sock_edge_out(struct sock *s)
{
	return (uint64_t)load_relaxed(&s->slot->tx_full) +
	       load_relaxed(&s->out->up_epoch);
}

static void arm_rx(struct sock *s)
{
	store_relaxed(&s->in->rx_armed, next_seq(&s->slot->rx_arm));
}

static void arm_tx(struct sock *s)
{
	store_relaxed(&s->out->tx_armed, next_seq(&s->slot->tx_arm));
}

/* *told: of what count of sock_edge_out the sleeper has been told, where room is but an edge. */
static void arm(struct sock *s, uint32_t interest, const uint64_t *told)
{
	struct slot *sl = s->slot;
	if (interest & EPOLLIN) {
		atomic_fetch_add_explicit(&sl->sleepers_rx, 1, memory_order_acq_rel);
		arm_rx(s);
	}
	if (interest & EPOLLOUT) {
		/* Sequentially consistent: first this count, then that of who found no room. */
		atomic_fetch_add(&sl->sleepers_tx, 1);
		if (!told || sock_edge_out(s) != *told || peer_is_far(s))
			arm_tx(s); /* between hosts it is armed for whatever the peer says */
		room_sleeps(s);
	}
	info_sleeps(s);
	/* The fence that must stay: the flags above are seen by the peer before we look at
	 * its cursors. It pairs with the exchange in the peer's lock_drop. */
	fence_full();
}

void sock_arm(struct sock *s, uint32_t interest)
{
	arm(s, interest, NULL);
}

void sock_arm_edge(struct sock *s, uint32_t interest, uint64_t told)
{
	arm(s, interest, &told);
}

void sock_lacks_room(struct sock *s)
{
	/* Sequentially consistent, both: as in arm, the other way round. */
	atomic_fetch_add(&s->slot->tx_full, 1);
	if (atomic_load(&s->slot->sleepers_tx) == 0)
		return;
	arm_tx(s);
	fence_full(); /* as in arm */
}

void bell_arm_again(struct sock *s)
{
	arm_rx(s);
	fence_full(); /* as in arm */
}

/* The bell was emptied under the eyes of those who are counted: they sleep on, or are about
 * to. True when it has been rung for them. */
static bool ring_again(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t rx = load_relaxed(&sl->sleepers_rx);
	uint32_t tx = load_relaxed(&sl->sleepers_tx);
	if (rx == 0 && tx == 0)
		return false;
	if (rx)
		arm_rx(s);
	if (tx)
		arm_tx(s);
	fence_full(); /* as in arm */
	if (!(rx && wait_hint(s, EPOLLIN)) && !(tx && wait_hint(s, EPOLLOUT)))
		return false;
	sock_ring_self(s);
	return true;
}

/* So many times in vain, and then naps of 1 ms; after more of these, of 10. */
#define AGAIN_MOST 8
#define AGAIN_LONG 64
/* A call may wait for many connections: one of them is counted, until it has not come for so long. */
#define AGAIN_OTHERS 1000

/*
 * Who has rung again for others is woken by that himself, and rings once more, until they have answered. They may
 * be stopped or dead, or wait for the processor that he takes from them, with a lower priority or SCHED_FIFO. So he
 * naps where nothing has moved since he rang for them before.
 */
static void let_others_go(struct sock *s)
{
	static _Thread_local struct {
		const struct sock *s;
		uint64_t moved;
		uint32_t times, others;
	} vain;
	uint64_t moved = load_relaxed(&s->in->consumed) + load_relaxed(&s->out->produced);

	if (vain.s && vain.s != s && ++vain.others <= AGAIN_OTHERS)
		return;
	vain.others = 0;
	if (vain.s != s || vain.moved != moved) {
		vain.s = s;
		vain.moved = moved;
		vain.times = 0;
	} else if (++vain.times > AGAIN_MOST) {
		kernel_poll(NULL, 0, vain.times > AGAIN_LONG ? 10 : 1);
	}
}

/*
 * The last to leave clears, unless somebody has armed again since. That may have been one who is not counted,
 * for a sleeper who came just then, and has armed as well, before: he is armed for anew.
 */
static void disarm(struct sock *s, _Atomic uint32_t *sleepers, _Atomic uint32_t *arm,
		   _Atomic uint32_t *armed)
{
	uint32_t seq = load_relaxed(arm);
	if (atomic_fetch_sub_explicit(sleepers, 1, memory_order_acq_rel) == 1 &&
	    atomic_compare_exchange_strong(armed, &seq, 0) && atomic_load(sleepers) > 0)
		ring_again(s);
}

void sock_disarm(struct sock *s, uint32_t interest)
{
	struct slot *sl = s->slot;
	if (interest & EPOLLIN)
		disarm(s, &sl->sleepers_rx, &sl->rx_arm, &s->in->rx_armed);
	if (interest & EPOLLOUT)
		disarm(s, &sl->sleepers_tx, &sl->tx_arm, &s->out->tx_armed);
}

/* Empties the far bell, or hears what has come from other hosts: `brief` as there. As
 * farbell_answer. */
static int answer_far(struct sock *s, int far, bool brief)
{
	if (!peer_is_far(s))
		return farbell_answer(far);
	peer_ops->answer(brief);
	return 1;
}

void sock_answer_bells(struct sock *s, bool own, bool far)
{
	uint64_t count;
	bells_enter(s);
	int far_bell = s->far_bell, bell = s->bell;
	if (far && far_bell >= 0)
		answer_far(s, far_bell, true);
	if (own && bell >= 0)
		kernel_read(bell, &count, sizeof(count));
	bells_leave(s);
	if (ring_again(s) && own) /* the caller has disarmed */
		let_others_go(s);
}

void sock_hear_bell(struct sock *s)
{
	bells_enter(s);
	int far = s->far_bell;
	int n = far >= 0 ? answer_far(s, far, false) : 0;
	bells_leave(s);
	if (n > 0)
		ring_again(s);
	/* What is left makes no edge: the own bell does. */
	if (n == FARBELL_MOST)
		sock_ring_self(s);
}

int sock_shared_bell(struct sock *s)
{
	struct peer *p = peer_of(s);

	return p ? peer_ops->shared_descriptor(p) : -1;
}

void sock_hear_shared_bell(void)
{
	peer_ops->answer(false);
}

/* ---- their descriptors ---- */

/* Looks at a count that falls within a system call of another thread. */
#define YIELDS_MOST 1000

/* Held while numbers are taken out of a sock, so that it does not become another's. */
static struct lock bells_lock FORK_DATA;
_Atomic int64_t bells_given_ns;

void bells_hold_off(void)
{
	lock_take(&bells_lock);
}

void bells_let_go(void)
{
	lock_drop(&bells_lock);
}

bool bells_are_held_off(void)
{
	return atomic_load(&bells_lock.word) != 0;
}

FORK_CODE void bells_forked(void)
{
	atomic_store(&bells_lock.word, 0);
}

struct numbers {
	int bell, peer_bell, far_bell;
};

/* Sequentially consistent: who counts himself in after this finds no number, and who did
 * before is seen by the look that follows. */
static struct numbers take_out(struct sock *s)
{
	/* First: a number that is no longer ours must not be passed over. */
	slot_show_bells(s->slot, 0, 0, 0);
	return (struct numbers){atomic_exchange(&s->bell, -1),
				atomic_exchange(&s->peer_bell, -1),
				atomic_exchange(&s->far_bell, -1)};
}

static void put_back(struct sock *s, struct numbers n)
{
	atomic_store(&s->bell, n.bell);
	atomic_store(&s->peer_bell, n.peer_bell);
	atomic_store(&s->far_bell, n.far_bell);
	slot_show_bells(s->slot, n.bell, n.peer_bell, n.far_bell);
}

static void close_numbers(struct numbers n)
{
	fds_close(n.bell);
	fds_close(n.peer_bell);
	fds_close(n.far_bell);
}

bool bells_are_there(struct sock *s)
{
	return load_relaxed(&s->bell) >= 0 || load_relaxed(&s->far_bell) >= 0;
}

void bells_close(struct sock *s)
{
	struct numbers n;
	/* Nobody gives it any now; and who counts himself in finds none. Who is in still notes that in the slot. */
	if (!bells_are_there(s) && load_relaxed(&s->peer_bell) < 0 &&
	    atomic_load(&s->bell_users) == 0)
		return;
	n = take_out(s);
	/* Ringing never waits. One that does not end is of a child of vfork that was killed amid it. */
	for (int i = 0; i < YIELDS_MOST && atomic_load(&s->bell_users) > 0; i++)
		kernel_call4(SYS_sched_yield, 0, 0, 0, 0);
	close_numbers(n);
}

static void release(struct sock *s)
{
	/* A thread that has moved something, and is about to ring for it, will find no bell:
	 * this is in its place. All that it can have moved came before FINAL. */
	bell_ring_peer(s);
	/* A child must not have the numbers while nobody there knows of them. */
	fork_hold_off();
	struct numbers n = take_out(s);
	bool slept_on = atomic_load(&s->sleepers) > 0;
	if (slept_on || atomic_load(&s->bell_users) > 0)
		put_back(s, n);
	else
		close_numbers(n);
	fork_let_go();
	/* Not every move to FINAL rings: who sleeps there is to leave. */
	if (slept_on && (atomic_load(&s->slot->sleepers_rx) > 0 ||
			 atomic_load(&s->slot->sleepers_tx) > 0))
		sock_ring_self(s);
	if (!bells_are_there(s))
		store_relaxed(&bells_given_ns, (int64_t)clock_now_ns());
}

void bells_release(struct sock *s)
{
	if (phase_of(s->slot) != SLOT_FINAL || !bells_are_there(s))
		return;
	/* A child of vfork has the memory, but descriptors of its own. */
	if (kernel_getpid() != self_pid() || !lock_try(&bells_lock))
		return;
	/* Again: it may have become another's before the lock was taken. */
	if (phase_of(s->slot) == SLOT_FINAL && bells_are_there(s) &&
	    (!sock_on_release || sock_on_release(s)))
		release(s);
	lock_drop(&bells_lock);
}
