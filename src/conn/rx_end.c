/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what is received: what is known of it, and what the reader is told. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "conn/conn.h"
#include "conn/promise.h"
#include "conn/switch.h"

/* Looks at the kernel's queue without taking: -EAGAIN, 0 at its end, 1, or the error. The
 * first look takes away what a call has left in the socket. */
static ssize_t probe_kernel(int fd)
{
	char byte;
	long n = 0;
	for (int looks = 0; looks < 2 && (looks == 0 || rx_is_left_behind(n)); looks++)
		n = kernel_call6(SYS_recvfrom, fd, (long)&byte, 1,
				 MSG_PEEK | MSG_DONTWAIT, 0, 0);
	return n;
}

static bool is_reset(int fd)
{
	int state;
	return tcp_state(fd, &state) == 0 && state == TCP_CLOSE;
}

ssize_t rx_tcp_end(struct sock *s, int fd, bool up)
{
	ssize_t n = probe_kernel(fd);
	if (n < 0 && n != -EAGAIN)
		seen_add(s->slot, SEEN_ERR);
	if (n != 0)
		return n == 1 ? 0 : n; /* arrived just now */
	/* After our own shutdown for reading, that 0 says nothing of the peer. */
	if (seen_of(s->slot) & SEEN_SHUT_RD) {
		sock_look(s, fd);
		if (!(seen_of(s->slot) & SEEN_FIN))
			return -ENODATA;
	} else {
		if (!peer_end_is_known(s))
			return -EAGAIN; /* the peer's last words are on their way */
		seen_add(s->slot, SEEN_FIN);
	}
	/* The end, before the bytes that were announced: after a reset that is as it may be. */
	if (up)
		return seen_of(s->slot) & SEEN_ERR || is_reset(fd) ? -ENODATA : -EPROTO;
	/* The mark precedes the FIN: only without one is this the end of the stream. */
	if (rx_is_up(s))
		return 0;
	bool told = is_reset(fd) && !(seen_of(s->slot) & SEEN_SHUT_WR);
	return !told && sock_take_reset(s) ? -ECONNRESET : -ENODATA;
}

int rx_ring_end(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t seen = seen_of(sl);
	/* Order of evidence: the FIN was seen, or `fin` read, before the ring is looked at
	 * once more; whoever says the end has published every byte before. */
	bool fin = load_acquire(&s->in->fin);
	if (!fin && !(seen & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_FIN_SAID)))
		return seen & SEEN_SHUT_RD ? 0 : -EAGAIN;
	int64_t more = ring_rx_avail(&sl->rx, s->in, 1);
	if (more == 0)
		more = ring_rx_take_held(&sl->rx, s->in);
	if (more < 0) {
		sock_break(s, VD_REASON_CORRUPT);
		return -ECONNRESET;
	}
	return rx_is_down(s) || more > 0 ? -EINPROGRESS : 1;
}

/* The program is told of the end: whatever the peer writes from now on does not come. */
static __attribute__((noinline)) ssize_t tell_end(struct sock *s)
{
	seen_add(s->slot, SEEN_FIN_SAID);
	if (is_foreign(s))
		s->slot->rx.held |= RING_OVER;
	return 0;
}

ssize_t rx_verdict(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t seen = seen_of(sl);
	if (seen & SEEN_BROKEN)
		return -ECONNRESET;
	/* An own shutdown for reading is an end, but an error goes before it. */
	if ((seen & SEEN_SHUT_RD) && !(seen & (SEEN_FIN | SEEN_HUP | SEEN_ERR))) {
		sock_look(s, fd);
		seen = seen_of(sl);
	}
	/* No word of an end is here, nor any of the kernel's that the peer's may have come before. */
	if (!load_acquire(&s->in->fin) &&
	    !(seen & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_FIN_SAID | SEEN_SHUT_RD)))
		return -EAGAIN;
	peer_catch_up(s);
	bool fin = load_acquire(&s->in->fin) || (seen & SEEN_FIN_SAID);
	int r = rx_ring_end(s);
	if (r != 1)
		return r;
	if (fin && !(seen & (SEEN_HUP | SEEN_ERR)))
		return tell_end(s);
	ssize_t n = probe_kernel(fd);
	/* Sent again, and the mark is to come; but not after the end. */
	if (n == 1 && load_relaxed(&sl->rewinding)) {
		if (!(seen & SEEN_FIN))
			return -EAGAIN;
		return rewind_settle(s, fd) < 0 ? -ECONNRESET : -EINPROGRESS;
	}
	if (n == 1) {
		sock_break(s, VD_REASON_BYPASS);
		return -ECONNRESET;
	}
	if (n == -EAGAIN)
		return fin ? tell_end(s) : seen & SEEN_SHUT_RD ? 0 : -EAGAIN;
	if (n < 0) {
		seen_add(sl, SEEN_ERR); /* the kernel has told, and will not again */
		return n;
	}
	if (fin)
		return tell_end(s);
	/* A full close. TCP answers one that leaves bytes unread with a reset. */
	return sock_take_reset(s) ? -ECONNRESET : 0;
}

bool rx_is_tcp_over(struct sock *s, int fd)
{
	sock_look(s, fd); /* the end first, the queue after */
	return rx_is_at_mark(fd) || (!rx_tcp_has_more(s, fd) &&
				     (seen_of(s->slot) & (SEEN_FIN | SEEN_HUP | SEEN_ERR |
							  SEEN_BROKEN | SEEN_SHUT_RD)));
}
