/* SPDX-License-Identifier: Apache-2.0 */
/* The switch as the sender sees it: up to the ring, and down to TCP. It alone moves gate_tx. */
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/real.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/gate_move.h"
#include "conn/promise.h"
#include "conn/switch.h"

bool sock_one_way;

/* Whether the next epoch can begin; if so, *passed is the last one that is over. */
static bool may_go_up(struct sock *s, uint32_t *passed)
{
	*passed = load_relaxed(&s->out->down_epoch);
	/* Acquire pairs with rx_open: the peer reads TCP within bounds from there on. */
	uint32_t ready = load_acquire(&s->out->ready_epoch);
	if (ready != *passed + 1 || phase_of(s->slot) != SLOT_ATTACHED)
		return false;
	if (!peer_may_use(s))
		return false;
	if (!peer_may_go_up(s))
		return false;
	if (load_relaxed(&s->out->want_down) || load_relaxed(&s->out->closed) ||
	    load_relaxed(&s->out->rewind) != REWIND_IDLE || /* its owner has died */
	    (sock_one_way && atomic_load(&s->slot->role) != TCP_ROLE_CONNECTED))
		return false;
	return !(seen_of(s->slot) & (SEEN_SHUT_WR | SEEN_FIN | SEEN_HUP | SEEN_ERR)) &&
	       !load_relaxed(&s->in->fin);
}

bool tx_up(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t mark;
	uint32_t passed;
	if (!may_go_up(s, &passed))
		return false;
	sock_look(s, fd); /* a FIN that has come already ends it before it begins */
	lock_take(&sl->tx_lock);
	/* Nobody is inside the kernel, and whoever comes now waits for the lock. */
	bool up = fd_is(fd, s) && may_go_up(s, &passed) &&
		  gate_close(&sl->gate_tx, GATE_RING);
	if (up) {
		up = tcp_push(fd, special_of(sl) & TX_CORKED) == 0 &&
		     (!is_foreign(s) || promise_tcp_room(fd)) &&
		     tcp_written(fd, atomic_load(&sl->role), &mark) == 0;
		if (up) {
			store_relaxed(&s->out->up_at, mark);
			/* Release: the mark is there when the epoch is. */
			store_release(&s->out->up_epoch, passed + 1);
			slot_switched(sl);
			peer_is_up(s);
			/* No answer of ours will carry one: a peer that is not up yet, and has
			 * Nagle's algorithm, would wait for it with its next request. */
			tcp_ack_at_once(fd);
			PROBE3(switch_up, slot_cookie(sl), PROBE_SEND, sl->tx.produced);
		} else {
			gate_set(&sl->gate_tx, GATE_TCP);
			/* TCP's word of room may have passed meanwhile, unheard. */
			fetch_add_relaxed(&sl->tx_full, 1);
		}
	}
	lock_drop(&sl->tx_lock);
	if (up) {
		log_debug("fd %d: sends through the ring after %llu bytes on TCP", fd,
			  (unsigned long long)mark);
		bell_ring_bytes(s);
	}
	return up;
}

/* The peer has closed, and has not taken all of the ring. Under tx_lock, with all bytes pushed. */
static bool is_lost(struct sock *s)
{
	/* Against limbo_last_words, which says that it closes, and then looks at the ring. */
	fence_full();
	return load_acquire(&s->out->closed) == WIRE_CLOSED_FOR_GOOD &&
	       ring_unread(s->out) != 0;
}

/*
 * TCP answers a close that leaves bytes unread with a reset. The peer may not have seen these bytes, and a thread of its
 * may be in the kernel's receive, past us: it must not get what comes behind them. So the connection is reset from here.
 */
static void reset_lost(struct sock *s, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	int state;
	if (fd < 0 || tcp_state(fd, &state) < 0 || state == TCP_CLOSE)
		return;
	/* Its kernel has closed it, too: rx_verdict tells of that. */
	if (state == TCP_CLOSE_WAIT && !sock_has_fin(s))
		return;
	/* A reset from here drops what the peer has sent by TCP. */
	bool drops = !sock_is_quiet(s) && rx_is_queued(fd);
	if (!drops)
		kernel_connect(fd, &nobody, sizeof(nobody));
	REAL(shutdown)(fd, drops ? SHUT_WR : SHUT_RDWR);
}

/* Under tx_lock. False: bytes were taken back, and so this direction is TCP's for good: what the ring knows of them, such as
 * where it has moved, does not go back. */
static bool store_down(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t up = load_relaxed(&s->out->up_epoch);
	uint64_t end, held = tx_held_back(s);
	ring_tx_push(&sl->tx, s->out);
	if (is_lost(s))
		reset_lost(s, fd);
	if (!rewind_answer(s, fd, held, &end))
		return false;
	store_relaxed(&s->out->down_at, end);
	/* Release: mark and cursor are there when the epoch is. */
	store_release(&s->out->down_epoch, up);
	slot_switched(sl);
	PROBE3(switch_down, slot_cookie(sl), PROBE_SEND, end);
	return end == sl->tx.produced;
}

void tx_pass_over(struct sock *s)
{
	struct slot *sl = s->slot;
	bool passed = false;
	lock_take(&sl->tx_lock);
	uint32_t ready = load_acquire(&s->out->ready_epoch);
	if (gate_state(&sl->gate_tx) == GATE_TCP &&
	    ready == load_relaxed(&s->out->down_epoch) + 1) {
		store_release(&s->out->down_epoch, ready);
		passed = true;
	}
	lock_drop(&sl->tx_lock);
	if (passed)
		bell_ring_peer(s);
}

void tx_answer(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (gate_state(&sl->gate_tx) != GATE_RING || !tx_is_up(s) || !rewind_is_due(s))
		return;
	bool comes_back = load_relaxed(&s->out->want_down) == WANT_LEND;
	comes_back = store_down(s, fd) && comes_back;
	gate_set(&sl->gate_tx, comes_back ? GATE_TCP : GATE_FINAL);
	rewind_answered(s);
}

void tx_shut_missing(int fd)
{
	int state;
	if (tcp_state(fd, &state) < 0 || state == TCP_ESTABLISHED ||
	    state == TCP_CLOSE_WAIT)
		REAL(shutdown)(fd, SHUT_WR);
}

void tx_down(struct sock *s, int fd, enum gate_state to)
{
	struct slot *sl = s->slot;
	lock_take(&sl->tx_lock);
	if (gate_state(&sl->gate_tx) == GATE_RING) {
		/* Bytes must not go to a number that was closed meanwhile. */
		if (!sock_has(s, fd))
			fd = -1;
		if (tx_is_up(s)) {
			if (!store_down(s, fd))
				to = GATE_FINAL;
			peer_flush(s);
		}
		if (fd >= 0 && load_relaxed(&s->out->fin))
			tx_shut_missing(fd);
		gate_set(&sl->gate_tx, to);
	}
	/* Also for an owner that has died behind its mark. */
	if (!tx_is_up(s) && rewind_answered(s))
		to = GATE_FINAL;
	if (to == GATE_FINAL) {
		uint32_t ready = load_acquire(&s->out->ready_epoch);
		uint32_t passed = load_relaxed(&s->out->down_epoch);
		/* The peer waits in READY for a mark that will not come: tell it. */
		if (ready == passed + 1)
			store_release(&s->out->down_epoch, ready);
		gate_set(&sl->gate_tx, GATE_FINAL);
	}
	lock_drop(&sl->tx_lock);
	bell_ring_bytes(s);
	if (load_relaxed(&sl->sleepers_tx))
		sock_ring_self(s); /* they have to go on in the kernel */
}

void tx_repair(struct sock *s)
{
	gate_set(&s->slot->gate_tx, GATE_TCP);
}

void tx_final(struct slot *sl)
{
	gate_set(&sl->gate_tx, GATE_FINAL);
}
