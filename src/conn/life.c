/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a connection: last words, release, and what is found out about the peer. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/leave.h"
#include "conn/report.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "conn/trace.h"
#include "rendezvous/rendezvous.h"

/* Closed sockets that threads of this process are still inside of. */
#define LIMBO_MAX 256
static struct sock *limbo[LIMBO_MAX];
static _Atomic int limbo_used NEAR_DATA; /* looked at without the lock, too */
static struct lock limbo_lock FORK_DATA;

static bool is_busy(struct sock *s)
{
	return atomic_load(&s->sleepers) > 0 || atomic_load(&s->inside) > 0;
}

static void flush_counts(struct sock *s)
{
	if (s->tx_bytes == 0 && s->rx_bytes == 0)
		return;
	report_add(&report_now.tx_direct_bytes, s->tx_bytes);
	report_add(&report_now.rx_direct_bytes, s->rx_bytes);
	if (load_relaxed(&s->slot->across)) {
		report_add(&report_now.tx_rdma_bytes, s->tx_bytes);
		report_add(&report_now.rx_rdma_bytes, s->rx_bytes);
	}
	s->tx_bytes = s->rx_bytes = 0;
}

static uint64_t native_count(const struct sock *s, uint32_t i)
{
	/* Relaxed: a count orders nothing. */
	return load_relaxed(&s->slot->native_counts[i]);
}

/* At its end. Before, they are seen in the slot. */
static void count_native(const struct sock *s)
{
	for (uint32_t i = 0; s->is_native && i < NATIVE_COUNTS; i++)
		report_add(&report_now.native[i], native_count(s, i));
}

/* VD_REASON_NONE: a listener that was passed on, say, is no connection. */
static enum vd_reason reason_to_count(const struct sock *s)
{
	uint32_t reason = atomic_load(&s->slot->reason);

	return reason < VD_REASON_COUNT && atomic_load(&s->slot->role) != TCP_ROLE_UNKNOWN
		       ? reason
		       : VD_REASON_NONE;
}

static void count_reason(const struct sock *s)
{
	enum vd_reason reason = reason_to_count(s);

	if (reason != VD_REASON_NONE)
		report_add(&report_now.reasons[reason], 1);
}

/*
 * The mapping is replaced, not removed: a thread that lost a race against close may still
 * read a flag there, or write one. It finds the table changed before it touches a byte.
 */
void sock_drop_segment(struct sock *s)
{
	bells_close(s);
	if (!s->wire)
		return;
	s->wire = NULL;
	shown_forget(s);
	meet_empty(s->window);
}

/* What somebody who sleeps at the other end does not learn from the FIN that follows. */
static bool is_news_left(struct sock *s)
{
	/* Bytes that the peer has not taken, whoever was about to ring for them; or a mark. Relaxed,
	 * the epochs: both are this end's, written before or under the locks just dropped. */
	return ring_unread(s->out) ||
	       load_relaxed(&s->out->down_epoch) == load_relaxed(&s->out->up_epoch);
}

/* Under both locks: what the kernel cannot say for us, since its own queues are empty. */
static void last_words(struct sock *s, int fd)
{
	/* TCP answers a close that leaves bytes unread with a reset. */
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	struct slot *sl = s->slot;
	if ((seen_of(sl) & SEEN_BROKEN) || !slot_close_is_last(sl))
		return;
	tx_answer(s, fd);
	if (gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
		ring_tx_push(&sl->tx, s->out);
	/* While they are being handed over they may be somebody else's to read. */
	if (load_relaxed(&sl->rewinding))
		return;
	/* What the peer sends from now on is to meet the closed TCP socket, as it does already where
	 * that direction is TCP's: then its looks ask the kernel, which has had a reset. First: what
	 * it has sent without having seen this is seen here, or was sent at the same time. */
	atomic_exchange(&s->in->closed, 1);
	if (!gate_is_kernel(gate_state(&sl->gate_rx)) &&
	    ring_rx_avail(&sl->rx, s->in, 1) != 0)
		REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

NEAR_CODE static void release(struct sock *s)
{
	struct slot *sl = s->slot;
	bool had_memory = s->wire || s->kept_fd >= 0 || peer_is_far(s);
	/* Most connections end as they began: nobody can be amid memory or doorbells of theirs. */
	if (!had_memory && phase_of(sl) <= SLOT_MEETING) {
		earn_judge(s);
		slot_release(sl, __libc_single_threaded && !s->is_copied);
		return;
	}
	bells_hold_off();
	if (had_memory) {
		lock_take(&sl->rx_lock);
		lock_take(&sl->tx_lock);
		if (s->kept_fd >= 0)
			last_words(s, s->kept_fd);
		peer_end(s);
		sock_drop_segment(s);
		lock_drop(&sl->tx_lock);
		lock_drop(&sl->rx_lock);
		fds_close(s->kept_fd);
	}
	earn_judge(s);
	slot_release(sl, false);
	bells_let_go();
}

void limbo_forking(void)
{
	lock_take(&limbo_lock);
}

void limbo_forked_parent(void)
{
	lock_drop(&limbo_lock);
}

FORK_CODE void limbo_forked(void)
{
	lock_drop_forked(&limbo_lock);
	bells_forked();
	for (int i = 0; i < limbo_used; i++) {
		sock_drop_segment(limbo[i]);
		atomic_store(&limbo[i]->sleepers, 0);
		atomic_store(&limbo[i]->inside, 0);
	}
	limbo_used = 0;
}

void limbo_each(void (*each)(struct sock *s, void *arg), void *arg)
{
	lock_take(&limbo_lock);
	for (int i = 0; i < limbo_used; i++)
		each(limbo[i], arg);
	lock_drop(&limbo_lock);
}

static void limbo_sweep(void)
{
	int kept = 0;
	for (int i = 0; i < limbo_used; i++) {
		if (is_busy(limbo[i]))
			limbo[kept++] = limbo[i];
		else
			release(limbo[i]);
	}
	limbo_used = kept;
}

bool sock_hold(struct sock *s, int fd)
{
	/* Sequentially consistent against fd_closing: it clears the table, then looks here. */
	atomic_fetch_add(&s->sleepers, 1);
	if (atomic_load(&fd_table[fd]) == s)
		return true;
	sock_unhold(s);
	return false;
}

void sock_unhold(struct sock *s)
{
	if (atomic_fetch_sub(&s->sleepers, 1) != 1)
		return;
	if (!atomic_load(&s->closed)) {
		bells_release(s);
		return;
	}
	/* The last one out of a socket that was closed meanwhile. */
	lock_take(&limbo_lock);
	limbo_sweep();
	lock_drop(&limbo_lock);
}

/* Releases s now, or once nobody is inside. A full limbo leaks the slot to the reclaimer. */
NEAR_CODE static void release_or_defer(struct sock *s)
{
	if (!is_busy(s) && limbo_used == 0) {
		release(s);
		return;
	}
	lock_take(&limbo_lock);
	if (limbo_used == LIMBO_MAX)
		limbo_sweep();
	if (limbo_used < LIMBO_MAX)
		limbo[limbo_used++] = s;
	limbo_sweep();
	lock_drop(&limbo_lock);
}

/* Threads sleep on it: the connection ends when they have left, not now. False when there is
 * no descriptor left for that. */
static bool keep_open(struct sock *s, int fd)
{
	int copy = REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, 3);
	s->kept_fd = copy < 0 ? -1 : fds_adopt_needed(copy);
	return s->kept_fd >= 0;
}

NEAR_CODE static void close_last(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	/* Who takes ctl from here on finds the descriptor gone from the table: that was exchanged
	 * before this look, as ctl is before theirs. So with nobody there, nothing can begin. */
	bool has_begun = phase_of(sl) > SLOT_EARNING || peer_is_far(s) ||
			 atomic_load(&sl->ctl.word);
	if (has_begun && phase_of(sl) < SLOT_ATTACHING)
		meeting_stop(s);
	peer_leave(s, fd);
	/* Not by the phase alone: a child may hold an offer that its parent has given up. */
	if (sock_is_direct(s) && s->wire) {
		if (trace_is_wished())
			trace_event(s, fd, TRACE_CLOSED, VD_REASON_NONE);
		lock_take(&sl->rx_lock);
		lock_take(&sl->tx_lock);
		if (!is_busy(s) || (atomic_load(&s->sleepers) > 0 && !keep_open(s, fd)))
			last_words(s, fd);
		lock_drop(&sl->tx_lock);
		lock_drop(&sl->rx_lock);
		if (is_news_left(s))
			bell_ring_if(&s->out->rx_armed, &sl->tx.rung, bell_ring_peer, s);
	}
	flush_counts(s);
	count_native(s);
	count_reason(s);
	single_store32(&s->closed, 1, __libc_single_threaded);
	left_drop(s);
	meeting_over(s);
	release_or_defer(s);
}

static struct sock *take_entry(int fd)
{
	return single_take_pointer((void *_Atomic *)&fd_table[fd],
				   __libc_single_threaded);
}

NEAR_CODE bool fd_closing(int fd)
{
	if (fds_is_ours(fd))
		return false;
	if (!fd_sock(fd))
		return true;
	/* Of two threads that close it, one has it. */
	struct sock *s = take_entry(fd);
	if (s && single_take32(&s->fds, 1, __libc_single_threaded) == 1)
		close_last(s, fd);
	return true;
}

void fd_forget(int fd)
{
	if (!fd_sock(fd))
		return;
	/* The number was closed past us: nothing may be said on what it is now. */
	struct sock *s = take_entry(fd);
	if (s && single_take32(&s->fds, 1, __libc_single_threaded) == 1) {
		log_debug("fd %d: was closed past Viaduct", fd);
		/* Waits for a thread that is amid a step of it, too: what that leaves is not for the
		 * slot's next connection. */
		if (phase_of(s->slot) < SLOT_ATTACHING)
			meeting_stop(s);
		meeting_over(s);
		release_or_defer(s);
	}
}

/*
 * As in last_words, by looks alone: the process ends, and its other threads may hold the locks. Its
 * peer finds out by itself that bytes lie unread here, but where a FIN has been sent before, nothing
 * follows in the kernel that would make it look.
 */
static void reset_unread(struct sock *s, int fd)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	struct slot *sl = s->slot;
	if ((seen_of(sl) & (SEEN_SHUT_WR | SEEN_BROKEN)) == SEEN_SHUT_WR &&
	    gate_state(&sl->gate_rx) == GATE_RING && !load_relaxed(&sl->rewinding) &&
	    ring_unread(s->in))
		REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

FORK_CODE void sock_report(bool ends)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s)
			continue;
		/* The process ends, and closes it. A peer that believes it too early sends over
		 * TCP, which is right as well. Only who ends for sure says so to those that close
		 * it, too: the last of them speaks, and does not find it among the living. */
		if (sock_is_direct(s) && s->wire &&
		    (ends ? slot_close_is_last(s->slot) : slot_is_alone(s->slot))) {
			/* Exchanged, as in last_words: before the look at what is unread. */
			atomic_exchange(&s->in->closed, 1);
			reset_unread(s, fd);
			peer_push(s);
		}
		peer_leave(s, fd);
		earn_judge(s);
	}
	if (peer_ops)
		peer_ops->drain();
}

static bool has_lower_name(const struct sock *s, int fd)
{
	if (load_relaxed(&s->fds) < 2)
		return false;
	while (--fd >= 0)
		if (fd_sock(fd) == s)
			return true;
	return false;
}

void sock_counts(struct report_open *open)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		enum vd_reason reason = s ? reason_to_count(s) : VD_REASON_NONE;

		if (!s || has_lower_name(s, fd))
			continue;
		flush_counts(s);
		for (uint32_t i = 0; s->is_native && i < NATIVE_COUNTS; i++)
			open->native[i] += native_count(s, i);
		if (reason != VD_REASON_NONE)
			open->reasons[reason]++;
	}
}

void sock_break(struct sock *s, enum vd_reason reason)
{
	if (seen_of(s->slot) & SEEN_BROKEN)
		return;
	seen_add(s->slot, SEEN_BROKEN);
	atomic_store(&s->slot->reason, reason);
	if (trace_is_wished() && s->wire)
		trace_event(s, -1, TRACE_BROKEN, reason);
	/* A link fails with each peer that is killed: nothing is wrong here. */
	if (reason == VD_REASON_LINK)
		log_debug("connection ended with ECONNRESET: %s (%s)",
			  reason_name(reason), reason_text(reason));
	else
		log_error("connection ended with ECONNRESET: %s (%s)",
			  reason_name(reason), reason_text(reason));
	sock_ring_self(s);
}

/*
 * Whoever has the peer's end says `fin` before it shuts down: it sends by the ring, or it
 * reads the ring and has not asked for TCP, for somebody else. In the second case we may
 * receive in the kernel, which then tells a real reset past us, but shows it as a hang-up.
 */
static bool is_peer_known(struct sock *s)
{
	struct slot *sl = s->slot;
	if (gate_state(&sl->gate_rx) == GATE_RING &&
	    load_acquire(&s->in->down_epoch) != load_relaxed(&s->in->up_epoch))
		return true;
	return gate_state(&sl->gate_rx) != GATE_FINAL && !(seen_of(sl) & SEEN_HUP) &&
	       gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s) &&
	       !load_acquire(&s->out->want_down);
}

bool sock_was_reset(struct sock *s)
{
	uint32_t seen = seen_of(s->slot);
	/* With an error of its own the kernel has had a real reset, and tells itself. */
	if ((seen & SEEN_ERR) || !(seen & (SEEN_FIN | SEEN_GONE)) || sock_has_fin(s) ||
	    !is_peer_known(s))
		return false;
	return (seen & SEEN_RESET_TOLD) || ring_unread(s->out);
}

bool sock_take_reset(struct sock *s)
{
	if (!sock_was_reset(s))
		return false;
	return !(atomic_fetch_or(&s->slot->seen, SEEN_RESET_TOLD) & SEEN_RESET_TOLD);
}

/* Verdicts in a set of poll events. After shutdown for reading, POLLRDHUP is our own. */
static uint32_t verdicts(struct sock *s, int fd, uint32_t events)
{
	uint32_t seen = 0;
	int state = 0;
	if ((events & (EPOLLRDHUP | EPOLLHUP)) && !peer_end_is_known(s))
		events &= ~(uint32_t)(EPOLLRDHUP | EPOLLHUP);
	if (events & EPOLLRDHUP)
		seen |= SEEN_FIN;
	if (events & EPOLLHUP)
		seen |= SEEN_HUP;
	if (events & EPOLLERR)
		seen |= SEEN_ERR;
	if ((seen & SEEN_FIN) && (seen_of(s->slot) & SEEN_SHUT_RD) &&
	    (fd < 0 || tcp_state(fd, &state) < 0 || state == TCP_ESTABLISHED ||
	     state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2))
		seen &= ~(uint32_t)SEEN_FIN;
	return seen;
}

void sock_see(struct sock *s, int fd, uint32_t events)
{
	uint32_t seen = verdicts(s, fd, events);
	if (seen & ~seen_of(s->slot))
		seen_add(s->slot, seen);
}

void sock_note_kernel(struct sock *s, uint32_t events)
{
	sock_see(s, -1, events);
	fetch_add_relaxed(&s->edges, 1);
}

void sock_look(struct sock *s, int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLRDHUP};
	if (await_glance(&pfd, 1) > 0 && !(pfd.revents & POLLNVAL))
		sock_see(s, fd, (uint32_t)pfd.revents);
}
