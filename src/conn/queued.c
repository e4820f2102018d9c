/* SPDX-License-Identifier: Apache-2.0 */
/* What can be received: FIONREAD, TCP_INQ, SIOCATMARK. */
#include <errno.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/promise.h"
#include "conn/switch.h"

int rx_take_held(struct sock *s)
{
	return wait_held_due(s) ? ring_rx_take_held(&s->slot->rx, s->in) : 0;
}

/* Unread in the ring, with what the peer has held back for long enough. Under rx_lock. */
static int64_t ring_bytes(struct sock *s)
{
	return rx_take_due(s) < 0 ? -EPROTO
				  : ring_rx_avail(&s->slot->rx, s->in, SIZE_MAX);
}

/* What one receive can give, on both sides of a boundary. Under rx_lock. */
static int64_t queued_bytes(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int queued = 0;
	int64_t count = 0;
	/* In the ring the kernel's queue counts only behind the mark down, and is asked when that is seen.
	 * Elsewhere it is asked first: without a mark, all that it has then was sent before any. */
	bool in_ring = gate_state(&sl->gate_rx) == GATE_RING && fd_is(fd, s);
	if (!in_ring && REAL(ioctl)(fd, FIONREAD, &queued) < 0)
		return -errno;
	/* A mark that was there before stands where the ring ends: what is sent again is behind it alone. */
	bool asked_back = load_relaxed(&sl->rewinding) && !rx_is_down(s);
	int r = rx_advance(s, fd);
	if (r < 0)
		return 0; /* broken: the next receive says so */
	if (gate_state(&sl->gate_rx) == GATE_RING) {
		count = ring_bytes(s);
		sl->rx.told = sl->rx.seen;
		/* What is sent again is on both sides until the mark is passed. */
		if (!rx_is_down(s) || asked_back)
			queued = 0;
		else if (in_ring && REAL(ioctl)(fd, FIONREAD, &queued) < 0)
			return -errno;
		return (count > 0 ? count : 0) + queued;
	}
	if (gate_state(&sl->gate_rx) != GATE_READY)
		return SOCK_KERNEL;
	int64_t left = rx_is_up(s) ? rx_tcp_left(s, fd) : INT_MAX;
	if (left >= 0 && left <= queued) {
		count = ring_bytes(s);
		sl->rx.told = sl->rx.seen;
		/* Left again meanwhile: what TCP has behind the mark comes after the ring's. */
		if (!rx_is_down(s) || asked_back)
			queued = (int)left;
	}
	return queued + (count > 0 ? count : 0);
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
	peer_hear(s);
	lock_take(&sl->rx_lock);
	int64_t count = queued_bytes(s, fd);
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
	if (ring_bytes(s) == 0)
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

int sock_inq_hint(struct sock *s, int fd)
{
	int queued = 0;
	/* First: with the end known all bytes before it are. */
	bool end = (seen_of(s->slot) & SEEN_FIN) ||
		   (gate_state(&s->slot->gate_rx) == GATE_RING && sock_has_fin(s));
	if (sock_is_quiet(s) && !is_foreign(s) && !sock_is_held(s))
		queued = (int)ring_unread(s->in);
	else if (sock_inq(s, fd, &queued) == SOCK_KERNEL)
		REAL(ioctl)(fd, FIONREAD, &queued);
	return queued + end;
}
