/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness that has been told stays true, whatever the peer writes afterwards. */
#include "base/atomic.h"
#include "conn/promise.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/await.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/scratch.h"
#include "conn/lowat.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "ring/iov.h"

/* Under rx_lock. */
static bool take_over(struct sock *s)
{
	struct ring_rx *rx = &s->slot->rx;
	int64_t n = ring_rx_avail(rx, s->in, 1);

	if (n == 0 && wait_held_due(s))
		n = ring_rx_take_held(rx, s->in);
	if (n < 0)
		sock_break(s, VD_REASON_CORRUPT);
	/* By the count that is ours, and the mark as it has been taken note of: neither can be taken back. */
	if (n > 0 && lowat_least(s) > 1 && !(rx->held & RING_ENDED)) {
		if (wait_held_due(s))
			ring_rx_take_held(rx, s->in);
		n = ring_rx_avail(rx, s->in, SIZE_MAX) >= (int64_t)lowat_least(s);
	}
	rx->told = rx->seen;
	return n != 0;
}

bool promise_bytes(struct sock *s)
{
	struct slot *sl = s->slot;
	bool some = false;

	/* From another host come words that can only rise, into memory of ours. */
	if (peer_is_far(s))
		return (ring_unread(s->in) || wait_held_due(s)) && !lowat_lacks(s);
	lock_take(&sl->rx_lock);
	/* Not of a window that was emptied. */
	if (s->wire && gate_state(&sl->gate_rx) == GATE_RING)
		some = (seen_of(sl) & SEEN_BROKEN) || take_over(s);
	lock_drop(&sl->rx_lock);
	return some;
}

/* Under tx_lock. 1 there is room, 0 the area is full, -EPROTO. */
static int find_room(struct ring_tx *tx, struct wire_dir *out)
{
	uint32_t quarter = wire_area_bytes(ring_tx_area(tx)) / 4;
	int64_t room = ring_tx_room(tx, out, quarter);

	return room < 0 ? (int)room : room >= quarter;
}

/* What `find` says, while there is a ring to send by. */
static int ask_ring(struct sock *s, int (*find)(struct ring_tx *tx, struct wire_dir *out))
{
	struct slot *sl = s->slot;
	int r = 0;

	lock_take(&sl->tx_lock);
	if (s->wire && gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
		r = find(&sl->tx, s->out);
	if (r < 0)
		sock_break(s, VD_REASON_CORRUPT);
	lock_drop(&sl->tx_lock);
	return r;
}

static int grow(struct ring_tx *tx, struct wire_dir *out)
{
	return ring_tx_grow(tx, out);
}

bool promise_room(struct sock *s)
{
	int r = ask_ring(s, find_room);

	/* That it may grow is the peer's to say, and to take back: so it does now. */
	if (r == 0 && room_will_grow(s)) {
		r = ask_ring(s, grow);
		if (r > 0)
			settle_later();
	}
	return r != 0;
}

bool promise_tcp_room(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};

	return await_glance(&pfd, 1) > 0 && (pfd.revents & POLLOUT);
}

/* ---- a direction that goes back to TCP ---- */

/* An honest peer's bytes, and its FIN, have been sent before its mark: they come at once. */
#define ARRIVAL_MS     2000
#define ARRIVAL_NAP_MS 1

/* Until so many bytes are queued on TCP. */
static bool wait_queued(int fd, int64_t count)
{
	for (int ms = 0; ms < ARRIVAL_MS; ms += ARRIVAL_NAP_MS) {
		int queued = 0;

		if (REAL(ioctl)(fd, FIONREAD, &queued) < 0)
			return false;
		if (queued >= count)
			return true;
		kernel_poll(NULL, 0, ARRIVAL_NAP_MS);
	}
	return false;
}

/* Behind `skip` bytes, TCP has the n that have been shown. */
static bool are_the_same(struct sock *s, int fd, size_t skip, size_t n)
{
	int offset = -1;
	socklen_t len = sizeof(offset);
	uint8_t *bytes;
	bool same = false;

	/* A look would move the program's own place. */
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len) < 0 ||
	    offset >= 0)
		return false;
	bytes = scratch_take(PROMISE_SHOWN_MOST);
	if (bytes) {
		const struct iovec iov = {bytes, n};
		struct iov_cursor to = iov_start(&iov, 1);

		same = rx_peek_third(fd, &to, MSG_PEEK, skip) == (ssize_t)n &&
		       shown_are(s, bytes, n);
		scratch_give(bytes, PROMISE_SHOWN_MOST);
	}
	return same;
}

/* The peer says that it has sent what was unread over TCP. */
static bool was_sent_again(struct sock *s, int fd)
{
	bool ready = gate_state(&s->slot->gate_rx) == GATE_READY;
	size_t shown = shown_bytes(s);
	int64_t skip = 0;

	if (ready)
		skip = rx_is_up(s) ? rx_tcp_left(s, fd) : -1;
	if (skip < 0 || shown > PROMISE_SHOWN_MOST)
		return false;
	if (!wait_queued(fd, skip + (shown ? (int64_t)shown : 1)))
		return false;
	return shown == 0 || are_the_same(s, fd, (size_t)skip, shown);
}

/*
 * An end that has been told of is TCP's to tell from now on. Where bytes have come that way it may lie behind them, and
 * they may be more than there is room for before somebody reads; but none comes behind an end that has been read.
 */
static bool end_holds(struct sock *s, int fd)
{
	bool over = s->slot->rx.held & RING_OVER;
	struct pollfd pfd = {.fd = fd, .events = over ? POLLRDHUP : POLLIN | POLLRDHUP};
	uint32_t seen = seen_of(s->slot);

	return !(seen & SEEN_FIN_SAID) || (seen & (SEEN_FIN | SEEN_HUP | SEEN_ERR)) ||
	       (!over && rx_is_queued(fd)) || kernel_poll(&pfd, 1, ARRIVAL_MS) > 0;
}

static bool bytes_hold(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	bool far = peer_is_far(s);
	uint64_t told = sl->rx.told;

	if (far) /* of all that has come */
		told = load_relaxed(&s->in->produced);
	if ((int64_t)(told - sl->rx.consumed) <= 0)
		return true;
	/* Nobody sends them so but who was asked to. */
	return !far && ((sl->rx.held & RING_RESENT) || load_relaxed(&sl->rewinding)) &&
	       was_sent_again(s, fd);
}

bool promise_holds(struct sock *s, int fd)
{
	return !is_foreign(s) || (bytes_hold(s, fd) && end_holds(s, fd));
}
