/* SPDX-License-Identifier: Apache-2.0 */
/* The switch as the receiver sees it: opening, the mark, the way back. It alone moves gate_rx. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/gate_move.h"
#include "conn/lowat.h"
#include "conn/promise.h"
#include "conn/switch.h"

void rx_take_back(struct sock *s)
{
	uint32_t bounce = WANT_BOUNCE;
	bool taken;
	if (load_relaxed(&s->in->want_down) != WANT_BOUNCE)
		return;
	lock_take(&s->slot->rx_lock);
	taken = gate_state(&s->slot->gate_rx) == GATE_TCP && peer_may_go_up(s) &&
		atomic_compare_exchange_strong(&s->in->want_down, &bounce, WANT_NOTHING);
	lock_drop(&s->slot->rx_lock);
	if (taken)
		bell_ring_peer(s);
}

void rx_open(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (load_relaxed(&s->out->want_down))
		return; /* the peer leaves, or bounces: serve that first */
	if (peer_is_over(s))
		return;
	/* `up` of an epoch comes only after our `ready`, so both being old means: all passed. */
	lock_take(&sl->rx_lock);
	uint32_t epoch = load_relaxed(&s->in->ready_epoch);
	/* Not by a number that was closed meanwhile: what is counted would be
	 * another's; or the number, and the sock, may be another connection's by now,
	 * which has no ring yet. Behind a FIN, the peer's or our own, there is no ring
	 * to come, but maybe an error to tell: also one of bytes that lie unread yet.
	 * Who sleeps in the kernel hears neither of it nor of a peer that asks for
	 * them. */
	if (fd_is(fd, s) && phase_of(sl) == SLOT_ATTACHED &&
	    gate_state(&sl->gate_rx) == GATE_TCP && peer_may_go_up(s) &&
	    ((!(seen_of(sl) & SEEN_FIN) &&
	      (!load_relaxed(&s->out->fin) || ring_unread(s->out))) ||
	     sock_was_reset(s)) &&
	    !rx_is_at_mark(fd)) {
		/* Epoch before gate before announcement: a death between is repaired by
		 * rx_advance, which announces again. */
		sl->rx_epoch = epoch + 1;
		sl->rx_taken_known = false;
		peer_opens(s);
		store_relaxed(&sl->rx_marked, 0);
		if (!gate_close(&sl->gate_rx, GATE_READY))
			;
		else if (rx_count_taken(s, fd) ||
			 sock_was_reset(s)) /* nobody else takes from now on */
			store_release(&s->in->ready_epoch, sl->rx_epoch);
		else
			gate_set(&sl->gate_rx, GATE_TCP);
	}
	lock_drop(&sl->rx_lock);
	peer_push(s);
}

/* Who armed before the move waits for the other side's readiness: he is to look again. */
static void move_gate(struct sock *s, enum gate_state to)
{
	struct slot *sl = s->slot;
	if (to == GATE_RING) {
		slot_switched(sl);
		peer_is_up(s);
		PROBE3(switch_up, slot_cookie(sl), PROBE_RECEIVE, sl->rx.consumed);
	} else if (gate_state(&sl->gate_rx) == GATE_RING) {
		slot_switched(sl);
		PROBE3(switch_down, slot_cookie(sl), PROBE_RECEIVE, sl->rx.consumed);
	}
	gate_set(&sl->gate_rx, to);
	if (load_acquire(&sl->sleepers_rx))
		sock_ring_self(s);
}

static int break_corrupt(struct sock *s)
{
	sock_break(s, VD_REASON_CORRUPT);
	return -ECONNRESET;
}

/* The direction goes back to the kernel: the last byte before the mark has been read. 0, or
 * -ECONNRESET where the mark lies. */
static int to_kernel(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	bool final = phase_of(sl) != SLOT_ATTACHED;
	uint32_t bounce = WANT_BOUNCE, lend = WANT_LEND;
	if (!promise_holds(s, fd))
		return break_corrupt(s);
	lowat_divide(s, fd);
	ring_rx_reopen(&sl->rx);
	/* Carried out: nothing is unread any more. */
	if (!final &&
	    atomic_compare_exchange_strong(&s->in->want_down, &lend, WANT_BOUNCE))
		atomic_store(&sl->rewinding, REWINDING_NOT);
	/* What a bounce asked for has been done; another request may just have been made. While
	 * we may not open again it stands, so that the peer does not open either: TCP's bytes
	 * cost more then. */
	if (!final && peer_may_go_up(s))
		atomic_compare_exchange_strong(&s->in->want_down, &bounce, WANT_NOTHING);
	move_gate(s, final ? GATE_FINAL : GATE_TCP);
	if (peer_is_far(s))
		bell_ring_peer(s);
	return 0;
}

int rx_leave_urgent(struct sock *s, int fd)
{
	return to_kernel(s, fd);
}

/* With the mark down seen: where it is. Once the ring has been ended there, that stands. */
static uint64_t down_at(struct sock *s)
{
	return s->slot->rx.held & RING_ENDED ? s->slot->rx.seen
					     : load_relaxed(&s->in->down_at);
}

/* What is published behind the mark has been sent again, or is about to be taken back: see
 * rewind_answered. */
static void end_ring(struct sock *s, int fd, uint64_t end)
{
	struct slot *sl = s->slot;
	ring_rx_end(&sl->rx, end);
	lowat_divide(s, fd);
	if (load_relaxed(&sl->rewinding))
		sl->rx.held |= RING_RESENT;
}

/*
 * It leaves, but the mark will never come: TCP has ended both ways, and what the peer had to say
 * was there before. Nothing of that lies unread, and no verdict is ours to tell.
 */
static __attribute__((noinline)) bool is_over_slow(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int state;
	return (seen_of(sl) & SEEN_HUP) && !kept_error(s) && !sock_was_reset(s) &&
	       tcp_state(fd, &state) == 0 && state == TCP_CLOSE && !rx_is_queued(fd) &&
	       ring_rx_take_held(&sl->rx, s->in) >= 0 &&
	       ring_rx_avail(&sl->rx, s->in, 1) == 0;
}

static inline bool is_over(struct sock *s, int fd)
{
	return __builtin_expect(phase_of(s->slot) == SLOT_LEAVING, 0) &&
	       is_over_slow(s, fd);
}

static int advance_ready(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (load_relaxed(&s->in->ready_epoch) != sl->rx_epoch)
		store_release(&s->in->ready_epoch, sl->rx_epoch);
	/* Down before up: both orders of store are then told apart. */
	bool down = rx_is_down(s);
	if (!rx_is_up(s)) /* passed over: the sender will never go up */
		return down || is_over(s, fd) ? to_kernel(s, fd) : 0;
	/* Left again without a byte of the ring for us: all that is to come is the kernel's. */
	uint64_t end = down_at(s);
	if (down && end == sl->rx.consumed)
		return to_kernel(s, fd);
	if (down)
		end_ring(s, fd, end);
	int64_t left = rx_tcp_left(s, fd);
	if (left == -EPROTO)
		return break_corrupt(s);
	if (left == 0)
		move_gate(s, GATE_RING);
	else /* from now on it is TCP that has to move, and TCP that wakes */
		store_relaxed(&sl->rx_marked, 1);
	return 0;
}

static int advance_ring(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!rx_is_down(s)) { /* and a mark that was seen does not go */
		if (sl->rx.held & RING_ENDED)
			return break_corrupt(s);
		return is_over(s, fd) ? to_kernel(s, fd) : 0;
	}
	uint64_t end = down_at(s);
	if (sl->rx.consumed == end)
		return to_kernel(s, fd);
	/* All that is there counts for SO_RCVLOWAT. */
	size_t want = load_relaxed(&sl->rx_lowat) > 1 ? SIZE_MAX : 1;
	if (ring_rx_avail(&sl->rx, s->in, want) <= 0)
		return break_corrupt(s);
	end_ring(s, fd, end);
	return 0;
}

int rx_advance(struct sock *s, int fd)
{
	int r = 0;
	if (seen_of(s->slot) & SEEN_BROKEN)
		return -ECONNRESET;
	if (gate_state(&s->slot->gate_rx) == GATE_READY)
		r = advance_ready(s, fd);
	if (r == 0 && gate_state(&s->slot->gate_rx) == GATE_RING)
		r = advance_ring(s, fd);
	return r;
}

void rx_stay_down(struct sock *s)
{
	struct slot *sl = s->slot;
	lock_take(&sl->rx_lock);
	if (gate_state(&sl->gate_rx) == GATE_TCP)
		gate_set(&sl->gate_rx, GATE_FINAL);
	lock_drop(&sl->rx_lock);
}

void rx_final(struct slot *sl)
{
	gate_set(&sl->gate_rx, GATE_FINAL);
}

void rx_carried(struct slot *sl, enum gate_state at)
{
	gate_set(&sl->gate_rx, at);
}

bool sock_is_quiet(struct sock *s)
{
	return gate_state(&s->slot->gate_rx) == GATE_RING && !rx_is_down(s) &&
	       !load_relaxed(&s->slot->rewinding);
}

void sock_check_bypass(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int queued = 0;
	peer_catch_up(s);
	lock_take(&sl->rx_lock);
	/* The number may be another's by now. The bytes of a rewind arrive before its mark can be seen. */
	if (sock_has(s, fd) && gate_state(&sl->gate_rx) == GATE_RING &&
	    rx_advance(s, fd) == 0 && !load_relaxed(&sl->rewinding) &&
	    gate_state(&sl->gate_rx) == GATE_RING &&
	    REAL(ioctl)(fd, FIONREAD, &queued) == 0 && queued > 0 && !rx_is_down(s)) {
		log_error("fd %d: %d bytes came over TCP past the mark", fd, queued);
		sock_break(s, VD_REASON_BYPASS);
	}
	lock_drop(&sl->rx_lock);
}
