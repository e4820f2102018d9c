/* SPDX-License-Identifier: Apache-2.0 */
/* SIOCOUTQ and SIOCOUTQNSD: which bytes in the ring TCP would call acknowledged. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/switch.h"

/*
 * TCP acknowledges what the peer's kernel has taken, whether or not its program reads. So of the
 * unread bytes in the ring those count as acknowledged that the window of the connection has room
 * for. What lies behind them TCP would not have sent.
 */

/* Of kernels that do not tell: what a connection begins with. */
#define WINDOW_BYTES 65536u
/* The kernel opens the window as the peer's program takes bytes in bulk: to so many times less
 * than it has taken, about. */
#define WINDOW_PART 8u

/* The peer's window for what comes next. */
static uint64_t window_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
	    len < offsetof(struct tcp_info, tcpi_snd_wnd) + sizeof(info.tcpi_snd_wnd))
		return WINDOW_BYTES;
	return info.tcpi_snd_wnd;
}

/* With what has gone through the ring, of which the kernel knows nothing. */
static uint64_t room_at_peer(struct sock *s, int fd, uint64_t taken)
{
	struct slot *sl = s->slot;
	uint64_t window = window_of(fd);
	uint64_t bound = load_relaxed(&s->out->rx_bound);
	if (bound / 2 > window)
		window = bound / 2;
	/* A buffer that the program has set does not grow. */
	if (!bound && sl->tx.produced / RING_BULK_BYTES >= sl->tx_messages)
		window += taken / WINDOW_PART;
	return window;
}

uint64_t tx_held_back(struct sock *s)
{
	struct ring_tx *tx = &s->slot->tx;
	return tx->pushed != tx->produced && !wait_held_is_over(s->out)
		       ? tx->produced - tx->pushed
		       : 0;
}

uint64_t acked_not(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!sock_is_direct(s))
		return 0;
	peer_hear(s);
	lock_take(&sl->tx_lock);
	uint64_t taken = load_acquire(&s->out->consumed);
	uint64_t unread = sl->tx.produced - taken, held = tx_held_back(s);
	/* A cursor of the peer's that lies says nothing. */
	if (unread > WIRE_DIR_DATA_BYTES)
		unread = 0;
	uint64_t room = unread > 0 ? room_at_peer(s, fd, taken) : 0;
	lock_drop(&sl->tx_lock);
	uint64_t beyond = unread > room ? unread - room : 0;
	return beyond > held ? beyond : held < unread ? held : unread;
}

int sock_outq(struct sock *s, int fd, bool unsent, int *bytes)
{
	int queued = 0;
	if (!sock_is_direct(s))
		return SOCK_KERNEL;
	if (REAL(ioctl)(fd, unsent ? SIOCOUTQNSD : SIOCOUTQ, &queued) < 0)
		return -errno;
	*bytes = queued + (int)acked_not(s, fd);
	return 0;
}
