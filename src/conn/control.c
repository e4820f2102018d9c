/* SPDX-License-Identifier: Apache-2.0 */
/* Control of a connection: serving the peer, going down, shutting down. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/real.h"
#include "base/self.h"
#include "conn/conn.h"
#include "conn/lowat.h"
#include "conn/report.h"
#include "conn/switch.h"
#include "conn/trace.h"

static bool has_left(struct slot *sl)
{
	return phase_of(sl) == SLOT_LEAVING && gate_state(&sl->gate_rx) == GATE_FINAL &&
	       gate_state(&sl->gate_tx) == GATE_FINAL;
}

static void leave(struct sock *s)
{
	uint32_t leaving = SLOT_LEAVING;
	if (!atomic_compare_exchange_strong(&s->slot->phase, &leaving, SLOT_FINAL))
		return;
	info_left(s);
	if (sock_on_final)
		sock_on_final(s);
	bells_release(s);
	peer_end(s);
}

/*
 * Another thread may close the connection meanwhile, and then the next one has the sock. So the gates are looked
 * at once more while it is held. Where no number is left, whoever has closed the last one does the rest.
 */
void control_leave_if_done(struct sock *s)
{
	if (!has_left(s->slot))
		return;
	crit_enter(); /* no handler jumps away with the hold */
	/* Sequentially consistent against a close: it takes the last number away, then looks here. */
	atomic_fetch_add(&s->sleepers, 1);
	if (atomic_load(&s->fds) != 0 && has_left(s->slot))
		leave(s);
	sock_unhold(s);
	crit_leave();
}

static void obey(struct sock *s, int fd, uint32_t want);

void sock_service(struct sock *s, int fd)
{
	if (sock_is_direct(s))
		peer_hear(s);
	sock_serve(s, fd);
}

void sock_serve(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!sock_is_direct(s) || peer_is_parents(s))
		return;
	if (peer_is_far(s))
		rx_take_back(s);
	uint32_t want = load_acquire(&s->out->want_down);
	if (want == WANT_BOUNCE || want == WANT_LEND) {
		peer_is_down(s);
		if (gate_state(&sl->gate_tx) == GATE_RING)
			tx_down(s, fd, GATE_TCP);
		else if ((peer_is_far(s) || want == WANT_LEND) && wait_attention(s))
			tx_pass_over(s);
		/* What was unread has gone over TCP. */
		if (want == WANT_LEND && gate_state(&sl->gate_tx) == GATE_FINAL)
			obey(s, fd, WANT_REWIND);
	} else if (want != WANT_NOTHING && gate_state(&sl->gate_tx) != GATE_FINAL) {
		obey(s, fd, want);
	}
	/* The peer has opened an epoch that we shall never begin: it is told each time. */
	if (gate_state(&sl->gate_tx) == GATE_FINAL &&
	    load_acquire(&s->out->ready_epoch) != load_relaxed(&s->out->down_epoch))
		tx_down(s, fd, GATE_FINAL);
	if (gate_state(&sl->gate_rx) == GATE_READY ||
	    (gate_state(&sl->gate_rx) == GATE_RING && wait_attention(s))) {
		lock_take(&sl->rx_lock);
		rx_advance(s, fd);
		lock_drop(&sl->rx_lock);
	}
	control_leave_if_done(s);
}

/* A request for the unread bytes as well, once made, is left standing. */
static bool ask_down(struct sock *s, int fd)
{
	(void)fd;
	uint32_t want = atomic_load(&s->in->want_down);
	while (want == WANT_NOTHING || want == WANT_BOUNCE || want == WANT_LEND)
		if (atomic_compare_exchange_weak(&s->in->want_down, &want,
						 want == WANT_LEND ? WANT_REWIND
								   : WANT_FINAL))
			return true;
	return false;
}

/* One that was never upgraded, as its registrations cannot be taken over, has nothing to go back
 * from; but a shutdown of before is to be known, as in make_attached. */
static bool begins_to_leave(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t phase = SLOT_ATTACHED;
	if (atomic_compare_exchange_strong(&sl->phase, &phase, SLOT_LEAVING)) {
		report_add(&report_now.downgraded, 1);
		return true;
	}
	phase = SLOT_ATTACHING;
	if (!atomic_compare_exchange_strong(&sl->phase, &phase, SLOT_LEAVING))
		return false;
	if (seen_of(sl) & SEEN_SHUT_WR)
		store_release(&s->out->fin, 1);
	return true;
}

/* The first steps of every way down. 1: go on, and the peer is to be rung; 0: go on. */
static int begin_down(struct sock *s, int fd, enum vd_reason reason,
		      bool (*ask)(struct sock *s, int fd))
{
	struct slot *sl = s->slot;
	slot_pass_on(sl);
	if (phase_of(sl) < SLOT_ATTACHING)
		meeting_refuse(s, reason);
	/* Once there is a segment the other end is told, too. */
	if (phase_of(sl) < SLOT_ATTACHING || phase_of(sl) == SLOT_FINAL)
		return -1;
	if (peer_is_parents(s)) {
		peer_stay_down(s);
		return -1;
	}
	if (begins_to_leave(s)) {
		atomic_store(&sl->reason, reason);
		PROBE4(downgrade, fd, slot_cookie(sl), reason, reason_name(reason));
		if (trace_is_wished() && s->wire)
			trace_event(s, fd, TRACE_LEFT, reason);
		log_debug("fd %d: goes back to TCP: %s (%s)", fd, reason_name(reason),
			  reason_text(reason));
	} else if (phase_of(sl) != SLOT_LEAVING) {
		return -1;
	}
	/* Also when on its way already: whoever began may have died before the rest. */
	return ask(s, fd);
}

static void go_down(struct sock *s, int fd, enum vd_reason reason,
		    bool (*ask)(struct sock *s, int fd))
{
	struct slot *sl = s->slot;
	int news = begin_down(s, fd, reason, ask);
	if (news < 0)
		return;
	if (gate_state(&sl->gate_tx) != GATE_FINAL)
		tx_down(s, fd, GATE_FINAL);
	rx_stay_down(s);
	if (news)
		bell_ring_peer(s);
	control_leave_if_done(s);
}

/* The peer asks for TCP. One that yields can send our unread bytes as well: then nobody need
 * read before both ends are done. */
static void obey(struct sock *s, int fd, uint32_t want)
{
	go_down(s, fd, VD_REASON_PEER_ASKED,
		want == WANT_YIELD && !rx_is_down(s) ? rewind_ask_own : ask_down);
}

void sock_yield(struct sock *s, int fd, enum vd_reason reason)
{
	if (begin_down(s, fd, reason, rewind_ask_yielding) > 0)
		bell_ring_peer(s);
	sock_service(s, fd);
}

void sock_down(struct sock *s, int fd, enum vd_reason reason)
{
	go_down(s, fd, reason, ask_down);
}

void sock_dissolving(struct sock *s, bool begins)
{
	if (begins && sock_is_direct(s))
		seen_add(s->slot, SEEN_DISSOLVED);
	else
		atomic_fetch_and(&s->slot->seen, ~(uint32_t)SEEN_DISSOLVED);
}

void sock_dissolve(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int saved = errno;
	/* The kernel wakes whoever waits, as at a shutdown. */
	fetch_add_relaxed(&sl->shuts, 1);
	sock_refuse(s, fd, VD_REASON_PROTOCOL);
	errno = saved;
	if (!sock_is_direct(s) || peer_is_parents(s))
		return;
	lock_take(&sl->rx_lock);
	rx_final(sl);
	lowat_divide(s, fd);
	lock_drop(&sl->rx_lock);
	sock_ring_self(s); /* who sleeps for the ring is to go on in the kernel */
	control_leave_if_done(s);
	errno = saved;
}

/* For the program itself, which can do less from now on, or has set what asks for TCP, or for somebody who gets the
 * connection. */
static bool (*asker(enum vd_reason reason))(struct sock *s, int fd)
{
	bool own = reason == VD_REASON_FD_LIMIT || reason == VD_REASON_SECCOMP ||
		   reason == VD_REASON_OPTION || reason == VD_REASON_RAW;
	return own ? rewind_ask_own : rewind_ask;
}

void sock_hand_over(struct sock *s, int fd, enum vd_reason reason)
{
	if (sock_is_direct(s))
		sock_note_still(s);
	go_down(s, fd, reason, asker(reason));
}

void sock_ask_over(struct sock *s, int fd, enum vd_reason reason)
{
	if (phase_of(s->slot) == SLOT_ATTACHED && !peer_is_parents(s) &&
	    asker(reason)(s, fd))
		bell_ring_peer(s);
}

static bool each(bool (*is_meant)(struct sock *s, int fd),
		 void (*step)(struct sock *s, int fd, enum vd_reason reason),
		 enum vd_reason reason)
{
	/* In a child of vfork, which does not release what its parent's threads close meanwhile. */
	bool some = false, is_borrowed = kernel_getpid() != self_pid();
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (is_borrowed && !(s && is_meant(s, fd)))
			continue;
		s = sock_hold_at(fd);
		if (!s)
			continue;
		if (is_meant(s, fd)) {
			step(s, fd, reason);
			some = true;
		}
		sock_let_go(s);
	}
	return some;
}

bool sock_hand_over_each(bool (*is_meant)(struct sock *s, int fd), enum vd_reason reason)
{
	each(is_meant, sock_ask_over, reason);
	return each(is_meant, sock_hand_over, reason);
}

void sock_bounce(struct sock *s, int fd)
{
	uint32_t nothing = WANT_NOTHING;
	/* On TCP nobody would know any more that what the dead have not read was lost. */
	if (phase_of(s->slot) != SLOT_ATTACHED || sock_was_reset(s))
		return;
	log_debug("fd %d: bounces", fd);
	/* Over no request that stands; and under the lock, so that the gate, whose move takes it
	 * back, does not move before. Around a fork a peer on another host is asked before it has
	 * begun, too: it passes that epoch over, and opens none. */
	lock_take(&s->slot->rx_lock);
	if (gate_state(&s->slot->gate_rx) == GATE_RING || !peer_may_go_up(s))
		atomic_compare_exchange_strong(&s->in->want_down, &nothing, WANT_BOUNCE);
	lock_drop(&s->slot->rx_lock);
	if (gate_state(&s->slot->gate_tx) == GATE_RING)
		report_add(&report_now.downgraded, 1);
	tx_down(s, fd, GATE_TCP);
	bell_ring_peer(s);
}

void sock_refuse(struct sock *s, int fd, enum vd_reason reason)
{
	sock_down(s, fd, reason);
}

/* Of what is no connection. The kernel notes it even where it says that there is none; what listens,
 * or is about to be one, it ends, and then has forgotten. */
static int shut_early(struct sock *s, int fd, int how)
{
	int state;
	slot_pass_on(s->slot);
	if (REAL(shutdown)(fd, how) < 0)
		return -errno;
	if (tcp_state(fd, &state) == 0 && state == TCP_CLOSE)
		atomic_fetch_and(&s->slot->seen,
				 ~(uint32_t)(SEEN_SHUT_RD | SEEN_SHUT_WR));
	return 0;
}

/* The peer has gone with bytes of ours unread, which TCP would have told by a reset. */
static bool is_reset(struct sock *s, int fd)
{
	if (!sock_is_direct(s) ||
	    (!(seen_of(s->slot) & SEEN_RESET_TOLD) && !ring_unread(s->out)))
		return false;
	if (!(seen_of(s->slot) & (SEEN_FIN | SEEN_GONE)))
		sock_look(s, fd);
	return sock_was_reset(s);
}

/* Where the kernel receives, its own end, which is to follow, would be taken for a reset that it has told. */
static void keep_reset(struct sock *s, int fd)
{
	rx_open(s, fd);
	if (sock_take_reset(s))
		sock_keep_error(s, ECONNRESET);
}

int sock_shutdown(struct sock *s, int fd, int how)
{
	struct slot *sl = s->slot;
	int r;
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	bool reset = is_reset(s, fd);
	if (reset && how != SHUT_RD && gate_state(&sl->gate_rx) != GATE_RING)
		keep_reset(s, fd);
	/* Before the look at the phase: who attaches meanwhile sees one or the other. And
	 * before the kernel's: its POLLRDHUP is then known to be our own doing. */
	seen_add(sl, (how != SHUT_RD ? SEEN_SHUT_WR : 0) |
			     (how != SHUT_WR ? SEEN_SHUT_RD : 0));
	if (!sock_is_direct(s))
		return shut_early(s, fd, how);
	rewind_is_shut(s, fd);
	if (how == SHUT_RD) {
		r = REAL(shutdown)(fd, how) < 0 ? -errno : 0;
	} else {
		/* One section: a sibling must not go up between `fin` and the kernel's FIN. */
		lock_take(&sl->tx_lock);
		tx_answer(s, fd);
		if (gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
			ring_tx_push(&sl->tx, s->out);
		/* In every state: a FIN without it is a full close, or a death. */
		ring_note_end(s->out);
		store_release(&s->out->fin, 1);
		if (trace_is_wished())
			trace_event(s, fd, TRACE_FIN, VD_REASON_NONE);
		r = REAL(shutdown)(fd, how) < 0 ? -errno : 0;
		lock_drop(&sl->tx_lock);
		bell_ring_bytes(s);
	}
	/* The kernel wakes whoever waits, whatever has come of it. */
	fetch_add_relaxed(&s->slot->shuts, 1);
	sock_ring_self(s);
	return r == 0 && reset ? -ENOTCONN : r;
}
