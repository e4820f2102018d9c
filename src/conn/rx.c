/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: what a receive takes from TCP and from the ring. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/mechanism.h"
#include "base/real.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/heed.h"
#include "conn/lowat.h"
#include "conn/promise.h"
#include "conn/quick_move.h"
#include "conn/report.h"
#include "conn/rx_give.h"
#include "conn/rx_rest.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "conn/trace.h"
#include "ring/iov.h"

/* Looks again within one try, each after the last has found a change; honest peers need a
 * handful. */
#define ROUNDS_MOST 100000

/* GATE_READY: takes TCP bytes that surely lie before the mark. */
static ssize_t take_tcp(struct sock *s, int fd, struct iov_cursor *to, int flags)
{
	int queued = 0;
	if (REAL(ioctl)(fd, FIONREAD, &queued) < 0)
		return -errno;
	/* The queue was read before the mark is looked at: without a mark, all that was
	 * queued then was sent before any mark. */
	peer_catch_up(s);
	bool up = rx_is_up(s);
	int64_t left = up ? rx_tcp_left(s, fd) : queued;
	if (left < 0)
		return left;
	if (up && left == 0)
		return 0;
	if (queued > left)
		queued = (int)left;
	/* The kernel counts nothing behind it, and passes it in its own receive. */
	if (queued == 0 && !up && rx_is_at_mark(fd))
		return rx_leave_urgent(s, fd);
	if (queued == 0 && up && rx_is_taken_past_us(s, fd))
		return 0;
	if (queued == 0)
		return rx_tcp_end(s, fd, up);
	/* An owner that dies around the kernel's call leaves the count to be made anew. */
	bool known = s->slot->rx_taken_known;
	if (!(flags & MSG_PEEK))
		s->slot->rx_taken_known = false;
	ssize_t n = rx_read_kernel(s, fd, to, (size_t)queued, flags);
	if (!(flags & MSG_PEEK) && n > 0)
		s->slot->rx_taken += (uint64_t)n;
	s->slot->rx_taken_known = known;
	return n;
}

static ssize_t break_corrupt(struct sock *s)
{
	sock_break(s, VD_REASON_CORRUPT);
	return -ECONNRESET;
}

/* Before a peek shows so much, of what there is. */
static int keep_shown(struct sock *s, size_t end, size_t avail)
{
	return shown_keep(s, end < avail ? end : avail);
}

/* GATE_RING: copies what is there. 0 when empty. */
static ssize_t take_ring(struct sock *s, struct iov_cursor *to, int flags)
{
	struct slot *sl = s->slot;
	size_t done = 0;
	ssize_t n = 0;
	if (rx_take_due(s) < 0)
		return break_corrupt(s);
	while (!iov_at_end(to)) {
		struct ring_span span;
		int64_t avail = ring_rx_avail(
			&sl->rx, s->in, (flags & MSG_PEEK ? done : 0) + iov_room(to));
		if (avail < 0) {
			sock_break(s, VD_REASON_CORRUPT);
			return done ? (ssize_t)done : -ECONNRESET;
		}
		if ((size_t)avail <= (flags & MSG_PEEK ? done : 0))
			break;
		if ((flags & MSG_PEEK) && is_foreign(s)) {
			n = keep_shown(s, done + iov_room(to), (size_t)avail);
			if (n < 0)
				break;
		}
		shown_or_ring_span(s, flags & MSG_PEEK ? done : 0, &span);
		if (span.len > CHUNK_BYTES)
			span.len = CHUNK_BYTES;
		n = iov_fill(to, span.data, span.len, flags & MSG_TRUNC);
		if (n < 0)
			break;
		if (!(flags & MSG_PEEK)) {
			if (trace_is_wished())
				trace_bytes(s, TRACE_IN, sl->rx.consumed, span.data,
					    (size_t)n);
			ring_rx_commit(&sl->rx, s->in, (size_t)n);
			if (sl->rx.held & RING_SHOWN)
				shown_passed(s);
		}
		done += (size_t)n;
	}
	if (!(flags & MSG_PEEK)) {
		s->rx_bytes += done;
		sl->rx_messages += done > 0;
	}
	return done > 0 || n >= 0 ? (ssize_t)done : n;
}

/*
 * GATE_RING with nothing in the ring: 1 look again, 0 at the end, -EAGAIN, -errno. `amid`:
 * the call has taken some, so that an error must wait for the next one: 0 for that, too. `looked`: what has come
 * was looked for just now.
 */
static ssize_t ring_is_empty(struct sock *s, int fd, bool amid, bool looked)
{
	struct slot *sl = s->slot;
	if (!looked)
		peer_look(s);
	if (peer_is_far(s) && ring_rx_avail(&sl->rx, s->in, 1) > 0)
		return 1;
	/* A dead owner may have left the shared cursor one store behind. */
	store_release(&s->in->consumed, sl->rx.consumed);
	ssize_t n = rx_take_due(s);
	if (n != 0)
		return n < 0 ? break_corrupt(s) : 1;
	n = rx_advance(s, fd);
	if (n < 0)
		return n;
	if (gate_state(&sl->gate_rx) != GATE_RING)
		return 1;
	n = amid ? rx_ring_end(s) : rx_verdict(s, fd);
	if (amid && n == 1)
		return 0;
	return n == -EINPROGRESS ? 1 : n;
}

/* GATE_READY with nothing queued, amid a call: as ring_is_empty. */
static ssize_t tcp_is_over(struct sock *s, int fd)
{
	bool over = rx_is_tcp_over(s, fd);
	if (rx_goes_on(s, fd) || (rx_is_up(s) && rx_tcp_left(s, fd) == 0))
		return 1;
	return over ? 0 : -EAGAIN;
}

/* The same at its begin, where take_tcp has said n. */
static ssize_t tcp_is_empty(struct sock *s, ssize_t n)
{
	if (n == -EPROTO) {
		sock_break(s, VD_REASON_CORRUPT);
		return -ECONNRESET;
	}
	if (n == -ENODATA || (n == -EAGAIN && (seen_of(s->slot) & SEEN_SHUT_RD)))
		return 0;
	return n == 0 ? 1 : n;
}

/* What has been peeked at in the ring is all that the sender leaves there. What it sends again is
 * behind the mark, whoever asked for it. */
static bool ring_is_over(struct sock *s, ssize_t done)
{
	return rx_is_down(s) &&
	       s->slot->rx.consumed + (uint64_t)done == load_relaxed(&s->in->down_at);
}

/* A peek that has seen all on its side of the boundary goes on behind it. */
static ssize_t peek_over(struct sock *s, int fd, struct iov_cursor *to, int flags,
			 enum gate_state side, ssize_t done)
{
	ssize_t n = 0;
	if (iov_at_end(to))
		return 0;
	if (side == GATE_READY && rx_is_up(s) && rx_tcp_left(s, fd) == done) {
		n = take_ring(s, to, flags);
		if (n >= 0 && !iov_at_end(to) && ring_is_over(s, n))
			n += rx_peek_third(fd, to, flags, (size_t)done);
	} else if (side == GATE_RING && ring_is_over(s, done) && !rx_is_at_mark(fd) &&
		   rx_is_queued(fd)) {
		n = rx_read_kernel(s, fd, to, INT_MAX, flags);
	}
	return n > 0 ? n : 0;
}

/* Somebody who hands the connection over wants what is in the ring sent over TCP. */
static inline bool is_asked_back(struct sock *s)
{
	return __builtin_expect(load_relaxed(&s->slot->rewinding), 0);
}

/*
 * One try, under rx_lock: all that is there, over the boundary between TCP and ring if need
 * be, since programs take a short count for an empty queue. A count, 0 at the end, -EAGAIN,
 * -errno, SOCK_KERNEL.
 */
static ssize_t take(struct sock *s, int fd, struct iov_cursor *to, int flags, bool amid,
		    bool looked)
{
	struct slot *sl = s->slot;
	ssize_t done = 0, n = 1;
	if (seen_of(sl) & SEEN_BROKEN)
		return -ECONNRESET; /* nothing more of it can be believed */
	for (int rounds = 0; n > 0 && !iov_at_end(to); rounds++) {
		if (rounds > ROUNDS_MOST) {
			sock_break(s, VD_REASON_BYPASS);
			return -ECONNRESET;
		}
		enum gate_state state = gate_state(&sl->gate_rx);
		ssize_t got = 0;
		if (gate_is_kernel(state))
			return done > 0 ? done : SOCK_KERNEL;
		bool asked_back = state == GATE_RING && is_asked_back(s);
		if ((asked_back || (sl->rx.held & RING_ENDED)) && done == 0 && !amid &&
		    lowat_leaves(s, fd, to, flags))
			return -EAGAIN;
		if (asked_back && ring_rx_avail(&sl->rx, s->in, 1) != 0) {
			n = rewind_settle(s, fd) < 0 ? -ECONNRESET : 1;
			continue;
		}
		/* Asked back, and empty: what has come since that look may be on its way over TCP already. */
		if (state == GATE_RING)
			got = asked_back ? 0 : take_ring(s, to, flags);
		else if ((n = rx_advance(s, fd)) == 0 &&
			 gate_state(&sl->gate_rx) != state)
			n = 1; /* on the other side of the mark */
		else if (n == 0 && ((done == 0 && !amid) || rx_goes_on(s, fd)))
			got = take_tcp(s, fd, to, flags);
		if (got > 0) {
			n = got;
			done += got;
			rounds = 0;
			if (flags & MSG_PEEK)
				return done + peek_over(s, fd, to, flags, state, done);
		} else if (done > 0) {
			/* No verdict yet: an error told now would be lost. */
			if (gate_state(&sl->gate_rx) == state &&
			    (rx_advance(s, fd) < 0 || gate_state(&sl->gate_rx) == state))
				break;
			n = 1;
		} else if (got < 0 && state == GATE_RING) {
			n = got;
		} else if (kept_error(s)) {
			/* It waits where the call has moved something. */
			if (amid)
				return 0;
			n = -kept_take(s);
			n = n < 0 ? n : 1; /* another thread was faster */
		} else if (n == 0 || state == GATE_RING) {
			n = state == GATE_RING ? ring_is_empty(s, fd, amid, looked)
			    : amid	       ? tcp_is_over(s, fd)
					       : tcp_is_empty(s, got);
		}
	}
	return done > 0 ? done : n;
}

static ssize_t take_locked(struct sock *s, struct wait *w, struct iov_cursor *to,
			   int flags, bool amid)
{
	struct slot *sl = s->slot;
	ssize_t n = -EBADF;
	lock_take(&sl->rx_lock);
	uint64_t before = sl->rx.consumed;
	size_t past = peer_offering ? peer_ops->redirected(w, false) : 0;
	if (past > 0) {
		iov_skip(to, past);
		n = (ssize_t)past;
	} else if (wait_is_open(w)) {
		/* A spin begins and ends with a look. */
		n = take(s, w->fd, to, flags, amid, w->spun);
		if (peer_offering && n > 0)
			peer_ops->redirected(w, true); /* the peer has not used it */
		/* The last byte before the mark may be the last that was asked for: nobody looks at the ring before this. */
		if (gate_state(&sl->gate_rx) == GATE_READY &&
		    load_relaxed(&sl->rx_marked))
			rx_advance(s, w->fd);
	}
	bool roomy = sl->rx.consumed != before && ring_rx_roomy(&sl->rx);
	bool asks = n > 0 && lowat_asks(s, w->fd);
	lock_drop(&sl->rx_lock);
	if (asks)
		bell_ring_peer(s);
	if (roomy)
		bell_ring_room(s);
	return n;
}

/* What ends a receive that could wait for more. */
#define SEEN_OVER (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_RD | SEEN_BROKEN)

/* MSG_PEEK with MSG_WAITALL: sleeps for more than the n bytes that are there. */
static bool peek_goes_on(struct wait *w, const struct iov_cursor *to, ssize_t n,
			 int flags)
{
	size_t total = 0;
	w->some = true;
	for (int i = 0; i < to->left; i++)
		total += to->iov[i].iov_len;
	if (!(flags & MSG_WAITALL) || (size_t)n >= total || (flags & MSG_DONTWAIT))
		return false;
	if (rx_peek_ends_at_mark(w, n))
		return false;
	/* A peek asks the kernel for no end while it finds bytes. */
	sock_look(w->s, w->fd);
	if ((seen_of(w->s->slot) & SEEN_OVER) || sock_has_fin(w->s))
		return false;
	if (!w->held && !wait_hold(w))
		return false;
	return wait_nap(w) == 0;
}

/* True when there is news, or the connection leaves its ring. */
static bool look_now_and_then(struct sock *s, int fd)
{
	uint32_t seen = seen_of(s->slot);
	if (sock_vain_look(s))
		sock_look(s, fd);
	return seen_of(s->slot) != seen || heed_leaves(s, fd, EPOLLIN);
}

/*
 * What nearly every receive is: one piece, from the ring, of which there is enough or all
 * is taken. 0 when it is not so, or there is nothing.
 */
static ssize_t take_quickly(struct sock *s, int fd, uint32_t generation,
			    const struct iovec *iov)
{
	const struct quick_way way = {
		.rx_most = CHUNK_BYTES, .copy = crit_copy, .traces = true};
	struct slot *sl = s->slot;
	bool roomy = false;
	size_t n = 0;
	lock_take_mine(&sl->rx_lock, &s->is_copied);
	/* As wait_is_open of a call that holds nothing. */
	if (fd_is(fd, s) && load_relaxed(&sl->generation) == generation &&
	    quick_may_take(sl))
		n = quick_take(s, iov->iov_base, iov->iov_len, way, &roomy);
	lock_drop(&sl->rx_lock);
	if (roomy)
		bell_ring_room(s);
	return (ssize_t)n;
}

static inline bool is_simple(int iovcnt, int flags)
{
	return iovcnt == 1 && (flags & ~MSG_DONTWAIT) == 0;
}

static int wait_for_more(struct wait *w, const struct iov_cursor *to, int flags)
{
	if (!(flags & (MSG_PEEK | MSG_TRUNC)))
		w->room = iov_part(to, SIZE_MAX);
	int r = wait_for(w);
	/* To who has slept there. */
	return r >= 0 && (seen_of(w->s->slot) & SEEN_DISSOLVED) ? -EPIPE : r;
}

/* After a sleep, as at the begin of the call, unless bytes may have come past the ring. */
static ssize_t take_awake(struct wait *w, const struct iov_cursor *to, int flags)
{
	struct iovec part = iov_part(to, SIZE_MAX);
	return is_simple(to->left, flags) && !peer_offering
		       ? take_quickly(w->s, w->fd, w->generation, &part)
		       : 0;
}

/* With no room: as in the kernel, an error or the end is told, or else waited for once. */
static ssize_t take_nothing(struct sock *s, struct wait *w, int flags)
{
	char byte;
	struct iov_cursor to = iov_start(&(struct iovec){&byte, 1}, 1);
	int saved = errno;
	ssize_t n = take_locked(s, w, &to, MSG_PEEK, false);
	if (n == -EAGAIN) { /* by what was known of the end without asking for it */
		sock_look(s, w->fd);
		n = take_locked(s, w, &to, MSG_PEEK, false);
	}
	if (n == -EAGAIN && !(flags & MSG_DONTWAIT)) {
		w->some = true; /* whatever ends its only sleep ends the call */
		wait_for(w);
		n = 0;
	}
	wait_finish(w);
	errno = saved;
	return n > 0 ? 0 : n;
}

/* The call ends: what has come past the ring by now is its own. */
static size_t take_rest(struct wait *w)
{
	struct slot *sl = w->s->slot;
	lock_take(&sl->rx_lock);
	size_t n = peer_ops->redirected(w, true);
	lock_drop(&sl->rx_lock);
	return n;
}

/* What SO_RCVLOWAT has left is this call's all the same when its wait is over, by any signal, or with no more to wait for. */
static ssize_t wait_and_take(struct wait *w, struct iov_cursor *to, int flags, bool amid)
{
	ssize_t n = wait_for_more(w, to, flags);
	if (amid || (n < 0 && n != -EAGAIN && n != -EINTR && n != SOCK_KERNEL))
		return n;
	if (n >= 0 || load_relaxed(&w->s->slot->rx_lowat) <= 1)
		return n >= 0 ? take_awake(w, to, flags) : n;
	ssize_t some = take_locked(w->s, w, to, flags | MSG_DONTWAIT, false);
	return some > 0 ? some + rx_rest_at_once(w, to, flags) : n;
}

static ssize_t rx_run(struct sock *s, struct wait w, const struct iovec *iov, int iovcnt,
		      int flags)
{
	struct iov_cursor to = iov_start(iov, iovcnt);
	int saved = errno, fd = w.fd;
	size_t done = 0;
	ssize_t n;
	w.at = &to;
	flags = wait_begin(&w, flags);
	if (iov_at_end(&to))
		return take_nothing(s, &w, flags);
	for (;;) {
		struct iov_cursor begin = to;
		n = take_locked(s, &w, &to, flags, done > 0);
		if (n == SOCK_KERNEL && done == 0 && rx_is_marked(&w, flags)) {
			n = rx_rest_at_mark(&w, &to, flags);
			if (n < 0)
				break;
			else if (n == 0)
				continue;
		} else if (n == SOCK_KERNEL &&
			   (done > 0 || rx_rest_stays(&w, fd, flags))) {
			n = rx_rest_in_kernel(&w, &to, flags, done > 0);
			if (n == 0)
				continue;
		}
		if (n > 0 && (flags & MSG_PEEK)) {
			to = begin;
			if (peek_goes_on(&w, &to, n, flags))
				continue;
			done = (size_t)n;
			break;
		} else if (n == -EAGAIN && (flags & MSG_DONTWAIT)) {
			/* Who only ever asks must learn of the end, too. */
			if (!look_now_and_then(s, w.fd))
				break;
			continue;
		} else if (n == -EAGAIN) {
			n = wait_and_take(&w, &to, flags, done > 0);
			if (n < 0)
				break;
			done += (size_t)n;
			if (n > 0)
				break;
			continue;
		} else if (n <= 0) {
			break;
		}
		done += (size_t)n;
		w.some = true;
		w.rounds = 0;
		if (iov_at_end(&to))
			break;
		/* Over the boundary back to TCP, too: all that is there belongs to this call, piece
		 * by piece, since programs take a short count for an empty queue. */
		if (n > 0 && !(flags & MSG_WAITALL)) {
			if (!gate_is_kernel(gate_state(&s->slot->gate_rx)) ||
			    rx_is_at_mark(w.fd))
				break;
			flags |= MSG_DONTWAIT;
		}
	}
	if (peer_offering)
		done += take_rest(&w);
	wait_finish(&w);
	errno = saved;
	if (n == -ENODATA)
		n = 0;
	if (n == -EBADF) /* another may be there by now */
		n = SOCK_KERNEL;
	return done > 0 ? (ssize_t)done : n;
}

ssize_t rx_recv(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	if (__builtin_expect(s->left != NULL, 0))
		return left_recv(s, fd, iov, iovcnt, flags);
	uint32_t handlers = crit_handlers(), interruptions = crit_interruptions();
	uint32_t generation = load_relaxed(&s->slot->generation);
	bool spun = false;
	if (is_simple(iovcnt, flags)) {
		bool some = ring_unread(s->in) > 0;
		/* What is set during a spin counts: nobody can know that the call has begun. */
		if (!some && !sock_is_nonblocking(s, flags))
			spun = !(some = wait_spin(s, EPOLLIN));
		ssize_t n = some ? take_quickly(s, fd, generation, iov) : 0;
		if (n > 0)
			return n;
	}
	/* Of the call's begin, which was before the spin. */
	struct wait w = wait_start(s, fd, EPOLLIN);
	w.handlers = handlers;
	w.interruptions = interruptions;
	w.generation = generation;
	w.spun = spun;
	return rx_run(s, w, iov, iovcnt, flags);
}

/* The part of what a peek has shown on the near side of a boundary: what is behind may be
 * read past rx_lock. */
static ssize_t rx_near(struct sock *s, int fd, ssize_t n, bool in_ring)
{
	int64_t most = in_ring ? ring_rx_avail(&s->slot->rx, s->in, 1)
			       : rx_bounded(s, fd, (int)n);
	return most > 0 && most < n ? (ssize_t)most : n;
}

/*
 * A pipe has bytes of what a peek has shown: they go from where they were seen, whatever the
 * peer has announced since. If they are there no more, the connection ends with an error.
 */
static ssize_t take_given(struct sock *s, int fd, struct iovec given, bool in_ring)
{
	struct iov_cursor at = iov_start(&given, 1);
	ssize_t n = 1;
	while (n > 0 && !iov_at_end(&at))
		n = in_ring ? take_ring(s, &at, MSG_TRUNC)
			    : take_tcp(s, fd, &at, MSG_TRUNC);
	if (iov_at_end(&at))
		return (ssize_t)given.iov_len;
	sock_break(s, VD_REASON_BYPASS);
	return -ECONNRESET;
}

ssize_t rx_give(struct sock *s, int fd, void *room, size_t len, int to)
{
	struct iovec iov = {room, len};
	struct iov_cursor at = iov_start(&iov, 1);
	struct wait w = wait_start(s, fd, EPOLLIN);
	struct slot *sl = s->slot;
	bool roomy = false;
	ssize_t n = SOCK_KERNEL;
	lock_take(&sl->rx_lock);
	uint64_t before = sl->rx.consumed;
	if (wait_is_open(&w))
		n = take(s, fd, &at, MSG_PEEK | MSG_DONTWAIT, false, false);
	bool in_ring = gate_state(&sl->gate_rx) == GATE_RING;
	if (n > 0) {
		iov.iov_len = (size_t)rx_near(s, fd, n, in_ring);
		n = kernel_call4(SYS_vmsplice, to, (long)&iov, 1, SPLICE_F_NONBLOCK);
	}
	if (n > 0) {
		iov.iov_len = (size_t)n;
		n = take_given(s, fd, iov, in_ring);
		roomy = sl->rx.consumed != before && ring_rx_roomy(&sl->rx);
	}
	bool asks = n > 0 && lowat_asks(s, fd);
	lock_drop(&sl->rx_lock);
	if (asks)
		bell_ring_peer(s);
	if (roomy)
		bell_ring_room(s);
	return n;
}
