/* SPDX-License-Identifier: Apache-2.0 */
/* Control of a connection: serving the peer, going down, shutting down, queue lengths. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/promise.h"
#include "conn/report.h"
#include "conn/switch.h"
#include "conn/trace.h"

void control_leave_if_done(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t leaving = SLOT_LEAVING;
	if (phase_of(sl) != SLOT_LEAVING || gate_state(&sl->gate_rx) != GATE_FINAL ||
	    gate_state(&sl->gate_tx) != GATE_FINAL)
		return;
	if (!atomic_compare_exchange_strong(&sl->phase, &leaving, SLOT_FINAL))
		return;
	info_left(s);
	if (sock_on_final)
		sock_on_final(s);
	bells_release(s);
	peer_end(s);
}

static void obey(struct sock *s, int fd, uint32_t want);

void sock_service(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!sock_is_direct(s) || peer_is_parents(s))
		return;
	peer_look(s);
	if (peer_is_far(s))
		rx_take_back(s);
	uint32_t want = load_acquire(&s->out->want_down);
	if (want == WANT_BOUNCE) {
		peer_is_down(s);
		if (gate_state(&sl->gate_tx) == GATE_RING)
			tx_down(s, fd, GATE_TCP);
		else if (peer_is_far(s) && wait_attention(s))
			tx_pass_over(s);
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
	while (want == WANT_NOTHING || want == WANT_BOUNCE)
		if (atomic_compare_exchange_weak(&s->in->want_down, &want, WANT_FINAL))
			return true;
	return false;
}

/* The first steps of every way down. 1: go on, and the peer is to be rung; 0: go on. */
static int begin_down(struct sock *s, int fd, enum vd_reason reason,
		      bool (*ask)(struct sock *s, int fd))
{
	struct slot *sl = s->slot;
	uint32_t phase = SLOT_ATTACHED;
	slot_pass_on(sl);
	if (phase_of(sl) < SLOT_ATTACHED) {
		meeting_refuse(s, reason);
		return -1;
	}
	if (peer_is_parents(s)) {
		peer_stay_down(s);
		return -1;
	}
	if (atomic_compare_exchange_strong(&sl->phase, &phase, SLOT_LEAVING)) {
		atomic_store(&sl->reason, reason);
		report_add(&report_now.downgraded, 1);
		PROBE4(downgrade, fd, slot_cookie(sl), reason, reason_name(reason));
		if (trace_is_wished() && s->wire)
			trace_event(s, fd, TRACE_LEFT, reason);
		log_debug("fd %d: goes back to TCP: %s (%s)", fd, reason_name(reason),
			  reason_text(reason));
	} else if (phase != SLOT_LEAVING) {
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
		want == WANT_YIELD && !rx_is_down(s) ? rewind_ask : ask_down);
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
	sock_refuse(s, fd, VD_REASON_PROTOCOL);
	errno = saved;
	if (!sock_is_direct(s) || peer_is_parents(s))
		return;
	lock_take(&sl->rx_lock);
	rx_final(sl);
	lock_drop(&sl->rx_lock);
	sock_ring_self(s); /* who sleeps for the ring is to go on in the kernel */
	control_leave_if_done(s);
	errno = saved;
}

void sock_hand_over(struct sock *s, int fd, enum vd_reason reason)
{
	go_down(s, fd, reason, rewind_ask);
}

void sock_ask_over(struct sock *s, int fd)
{
	if (phase_of(s->slot) == SLOT_ATTACHED && !peer_is_parents(s) &&
	    rewind_ask(s, fd))
		bell_ring_peer(s);
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

/* Bytes published or held back, as far as they can be seen. Under rx_lock. */
static ssize_t left_in_ring(struct sock *s)
{
	struct slot *sl = s->slot;
	int64_t avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
	if (avail == 0 && ring_rx_take_held(&sl->rx, s->in) > 0)
		avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
	return avail > 0 ? (ssize_t)avail : 0;
}

/* Bytes that only a ring read can get, once the peer writes no more to the ring; or -1. */
static ssize_t stranded(struct sock *s, int fd, bool late)
{
	struct slot *sl = s->slot;
	ssize_t n = -1;
	lock_take(&sl->rx_lock);
	/* The end first: whoever made it had made his mark before. */
	peer_look(s);
	bool gone = seen_of(sl) & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_BROKEN);
	if (late)
		rewind_is_last(s, true);
	gone |= sock_has_fin(s);
	rx_advance(s, fd);
	enum gate_state state = gate_state(&sl->gate_rx);
	if (state == GATE_READY && !rx_is_up(s))
		n = gone ? 0 : -1;
	else if (state == GATE_READY || state == GATE_RING)
		n = gone || late || rx_is_down(s) ? left_in_ring(s) : -1;
	/* Nobody would hear of bytes that are on their way from another host. */
	if (late && n <= 0 && !gone && peer_is_far(s) && !rx_is_down(s) &&
	    !gate_is_kernel(gate_state(&sl->gate_rx)))
		n = 1;
	if (late && n > 0)
		rewind_is_last(s, false);
	lock_drop(&sl->rx_lock);
	return n;
}

void sock_sever(struct sock *s, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	uint32_t reason = atomic_load(&s->slot->reason);
	const char *format =
		"fd %d: %s with bytes unread in the ring: the new holder gets an error";
	/* A child that is forked need not be one. */
	if (reason == VD_REASON_SHARED)
		log_debug(format, fd, reason_name(reason));
	else
		log_error(format, fd, reason_name(reason));
	if (slot_is_alone(s->slot)) {
		kernel_connect(fd, &nobody, sizeof(nobody));
		return;
	}
	/* Others still read the ring: only this process loses the connection, to a socket
	 * that is not connected. */
	int dead = REAL(socket)(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (dead < 0 || REAL(dup2)(dead, fd) < 0)
		kernel_close(fd);
	if (dead >= 0)
		kernel_close(dead);
}

static void ask_bounce(struct sock *s, int fd, enum vd_reason reason)
{
	(void)reason;
	sock_bounce(s, fd);
}

/* `ask` is the way down. Each time: another reader may have withdrawn the request. */
static ssize_t down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms,
			 void (*ask)(struct sock *s, int fd, enum vd_reason reason))
{
	struct slot *sl = s->slot;
	struct timespec start, now;
	clock_read(CLOCK_MONOTONIC, &start);
	for (;;) {
		struct pollfd pfd[3] = {{.fd = fd, .events = POLLRDHUP},
					{.fd = s->bell, .events = POLLIN},
					{.fd = s->far_bell, .events = POLLIN}};
		ask(s, fd, reason);
		sock_service(s, fd);
		if (!sock_is_direct(s) || gate_is_kernel(gate_state(&sl->gate_rx)))
			return 0;
		ssize_t n = stranded(s, fd, false);
		if (n >= 0)
			return n;
		/* Its peer may be in this very thread, which then does nothing else meanwhile. */
		sock_serve_peers();
		sock_service(s, fd);
		if (gate_is_kernel(gate_state(&sl->gate_rx)))
			return 0;
		clock_read(CLOCK_MONOTONIC, &now);
		int64_t left = timeout_ms - (now.tv_sec - start.tv_sec) * 1000 -
			       (now.tv_nsec - start.tv_nsec) / 1000000;
		if (left <= 0) {
			/* With nothing unread the request stands: what the peer may be about to
			 * write to the ring it will send again. */
			n = stranded(s, fd, true);
			return n > 0 ? n : -ETIMEDOUT;
		}
		struct timespec rest = {left / 1000, left % 1000 * 1000000};
		sock_arm(s, EPOLLIN);
		n = 0;
		/* Not wait_hint: bytes in the ring are not what is waited for. */
		if (stranded(s, fd, false) < 0 &&
		    !gate_is_kernel(gate_state(&sl->gate_rx)))
			n = await_poll(pfd, pfd[2].fd < 0 ? 2 : 3, &rest, NULL);
		sock_disarm(s, EPOLLIN);
		if (n > 0 && (pfd[1].revents || pfd[2].revents))
			sock_answer_bells(s, pfd[1].revents, pfd[2].revents);
		if (n > 0 && pfd[0].revents)
			sock_note_kernel(s, (uint32_t)pfd[0].revents);
	}
}

static void unhold(void *arg)
{
	sock_unhold(arg);
}

static ssize_t held_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms,
			 void (*ask)(struct sock *s, int fd, enum vd_reason reason))
{
	struct _pthread_cleanup_buffer cleanup;
	crit_enter(); /* no handler jumps away between the hold and the note of it */
	bool held = sock_hold(s, fd);
	if (held)
		_pthread_cleanup_push(&cleanup, unhold, s);
	crit_leave();
	if (!held)
		return 0; /* closed by another thread */
	ssize_t n = down_wait(s, fd, reason, timeout_ms, ask);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return n;
}

ssize_t sock_down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms)
{
	return held_wait(s, fd, reason, timeout_ms, sock_hand_over);
}

ssize_t sock_bounce_wait(struct sock *s, int fd, int timeout_ms)
{
	return held_wait(s, fd, VD_REASON_NONE, timeout_ms, ask_bounce);
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

int sock_shutdown(struct sock *s, int fd, int how)
{
	struct slot *sl = s->slot;
	int r;
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	/* Before the look at the phase: who attaches meanwhile sees one or the other. And
	 * before the kernel's: its POLLRDHUP is then known to be our own doing. */
	seen_add(sl, (how != SHUT_RD ? SEEN_SHUT_WR : 0) |
			     (how != SHUT_WR ? SEEN_SHUT_RD : 0));
	if (!sock_is_direct(s))
		return shut_early(s, fd, how);
	if (how == SHUT_RD) {
		r = REAL(shutdown)(fd, how) < 0 ? -errno : 0;
	} else {
		/* One section: a sibling must not go up between `fin` and the kernel's FIN. */
		lock_take(&sl->tx_lock);
		tx_answer(s, fd);
		if (gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
			ring_tx_push(&sl->tx, s->out);
		/* In every state: a FIN without it is a full close, or a death. */
		store_release(&s->out->fin, 1);
		if (trace_is_wished())
			trace_event(s, fd, TRACE_FIN, VD_REASON_NONE);
		r = REAL(shutdown)(fd, how) < 0 ? -errno : 0;
		lock_drop(&sl->tx_lock);
		bell_ring_if(&s->out->rx_armed, &sl->tx.rung, bell_ring_peer, s);
	}
	/* The kernel wakes whoever waits, whatever has come of it. */
	fetch_add_relaxed(&s->slot->shuts, 1);
	sock_ring_self(s);
	return r;
}

int sock_inq(struct sock *s, int fd, int *bytes)
{
	struct slot *sl = s->slot;
	if (s->left) {
		*bytes = 0;
		if (REAL(ioctl)(fd, FIONREAD, bytes) < 0)
			return -errno;
		*bytes += (int)left_bytes(s);
		return 0;
	}
	if (!sock_is_direct(s) || gate_is_kernel(gate_state(&sl->gate_rx)))
		return SOCK_KERNEL;
	lock_take(&sl->rx_lock);
	int64_t count = rx_queued(s, fd);
	lock_drop(&sl->rx_lock);
	if (count < 0)
		return (int)count;
	*bytes = (int)count;
	return 0;
}

/* Under rx_lock. 1, 0 or -errno. */
static int is_ring_read(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int r = rx_advance(s, fd);
	if (r < 0)
		return r;
	if (ring_rx_avail(&sl->rx, s->in, SIZE_MAX) == 0)
		return 1;
	sl->rx.told = sl->rx.seen; /* what has been spoken of stays unread */
	return 0;
}

int sock_at_mark(struct sock *s, int fd, int *at_mark)
{
	int r = 1;
	if (!s->left && !sock_is_direct(s))
		return SOCK_KERNEL;
	/* The kernel's word first: bytes that come after it are behind the mark, or it is not there. */
	if (REAL(ioctl)(fd, SIOCATMARK, at_mark) < 0)
		return -errno;
	if (s->left) {
		r = left_bytes(s) == 0;
	} else if (*at_mark && !gate_is_kernel(gate_state(&s->slot->gate_rx))) {
		lock_take(&s->slot->rx_lock);
		r = is_ring_read(s, fd);
		lock_drop(&s->slot->rx_lock);
	}
	*at_mark = *at_mark && r != 0; /* broken: the next receive says so */
	return 0;
}

void sock_lowat_set(struct sock *s, int fd)
{
	int bytes = 0, own = 0, lowat = 1;
	socklen_t len = sizeof(lowat);
	/* Past the peer's end there is always enough. */
	bool ended =
		sock_is_direct(s) && ((seen_of(s->slot) & SEEN_FIN) || sock_has_fin(s));
	if (!ended && (sock_inq(s, fd, &bytes) != 0 || bytes == 0 ||
		       REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) < 0 ||
		       bytes < lowat))
		return;
	/* With enough in its own queue, the kernel has told already. */
	if (!ended && REAL(ioctl)(fd, FIONREAD, &own) == 0 && own >= lowat)
		return;
	fetch_add_relaxed(&s->slot->nudges, 1);
	sock_ring_self(s);
}

int sock_inq_hint(struct sock *s, int fd)
{
	int queued = 0;
	/* First: with the end known all bytes before it are. */
	bool end = (seen_of(s->slot) & SEEN_FIN) ||
		   (gate_state(&s->slot->gate_rx) == GATE_RING && sock_has_fin(s));
	if (sock_is_quiet(s) && !is_foreign(s))
		queued = (int)ring_unread(s->in);
	else if (sock_inq(s, fd, &queued) == SOCK_KERNEL)
		REAL(ioctl)(fd, FIONREAD, &queued);
	return queued + end;
}
