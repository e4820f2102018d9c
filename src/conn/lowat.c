/* SPDX-License-Identifier: Apache-2.0 */
/* SO_RCVLOWAT, set while bytes are unread in the ring. */
#include "conn/lowat.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/promise.h"
#include "conn/switch.h"
#include "ring/iov.h"

bool lowat_leaves(struct sock *s, const struct iov_cursor *to, int flags)
{
	struct ring_rx *rx = &s->slot->rx;
	uint64_t least = lowat_least(s), room = 0;
	if (least <= 1 || (flags & (MSG_DONTWAIT | MSG_WAITALL)) ||
	    (rx->held & RING_ENDED) || rx_is_down(s) || rx_take_due(s) < 0)
		return false;
	for (int i = 0; i < to->left; i++)
		room += to->iov[i].iov_len;
	int64_t n = ring_rx_avail(rx, s->in, SIZE_MAX);
	return n >= 0 && (uint64_t)n < (room < least ? room : least);
}

bool lowat_asks_slow(struct sock *s)
{
	return !peer_is_parents(s) && lowat_least(s) > 1 &&
	       ring_rx_avail(&s->slot->rx, s->in, 1) > 0 && rewind_again(s);
}

void lowat_set(struct sock *s, int fd)
{
	int bytes = 0, own = 0, lowat = 1;
	socklen_t len = sizeof(lowat);
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) < 0)
		return;
	store_relaxed(&s->slot->rx_lowat, (uint32_t)lowat);
	/* Past the peer's end there is always enough. */
	bool ended =
		sock_is_direct(s) && ((seen_of(s->slot) & SEEN_FIN) || sock_has_fin(s));
	if (!ended && (sock_inq(s, fd, &bytes) != 0 || bytes == 0 || bytes < lowat))
		return;
	/* With enough in its own queue, the kernel has told already. */
	if (!ended && REAL(ioctl)(fd, FIONREAD, &own) == 0 && own >= lowat)
		return;
	fetch_add_relaxed(&s->slot->nudges, 1);
	sock_ring_self(s);
}
