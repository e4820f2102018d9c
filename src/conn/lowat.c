/* SPDX-License-Identifier: Apache-2.0 */
/* SO_RCVLOWAT, set while bytes are unread in the ring. */
#include "conn/lowat.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/conn.h"
#include "conn/promise.h"
#include "conn/switch.h"
#include "ring/iov.h"

static bool kernel_tells(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI};
	return await_glance(&p, 1) != 0;
}

bool lowat_leaves(struct sock *s, int fd, const struct iov_cursor *to, int flags)
{
	struct ring_rx *rx = &s->slot->rx;
	uint64_t least = lowat_least(s), room = 0;
	bool ended = rx->held & RING_ENDED;
	int queued = 0;
	if (least <= 1 || (flags & (MSG_DONTWAIT | MSG_WAITALL)) || rx_take_due(s) < 0 ||
	    (!ended && rx_is_down(s)))
		return false;
	for (int i = 0; i < to->left; i++)
		room += to->iov[i].iov_len;
	/* TCP has what comes behind the ring, and tells also of less: where it has no room for more, or by what is urgent. */
	if (ended && (kernel_tells(fd) || REAL(ioctl)(fd, FIONREAD, &queued) < 0))
		return false;
	int64_t n = ring_rx_avail(rx, s->in, SIZE_MAX);
	return n > 0 && (uint64_t)n + (uint64_t)queued < (room < least ? room : least);
}

/* Of what the kernel has. */
static int mark_of(int fd, uint64_t *mark)
{
	int lowat = 1;
	socklen_t len = sizeof(lowat);
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) < 0)
		return -1;
	*mark = (uint64_t)lowat;
	return 0;
}

static void set_mark(int fd, uint64_t mark)
{
	int lowat = (int)mark;
	REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
}

/*
 * While the ring has bytes nobody takes any of TCP's, so enough of those stay enough: then the mark is not raised, which
 * would wake once more.
 */
void lowat_divide(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	const struct ring_rx *rx = &sl->rx;
	uint64_t least = load_relaxed(&sl->rx_lowat), left = 0, mark;
	int queued = 0;
	if (least <= 1 || !fd_is(fd, s) || mark_of(fd, &mark) < 0)
		return;
	/* TCP may have some before the ring, too. */
	if (!gate_is_kernel(gate_state(&sl->gate_rx)) && (rx->held & RING_ENDED) &&
	    load_relaxed(&sl->rewinding) != REWINDING_KEPT)
		left = rx->seen - rx->consumed;
	/* Where the ring has enough, each byte that comes behind it is an edge. */
	uint64_t due = left < least ? least - left : 1;
	if (left > 0 && mark < due && REAL(ioctl)(fd, FIONREAD, &queued) == 0 &&
	    (uint64_t)queued >= due)
		due = mark;
	if (mark != due)
		set_mark(fd, due);
	uint32_t before = atomic_exchange(&sl->rx_lowat_less, (uint32_t)left);
	/* Who sleeps may not ask the kernel for bytes yet. */
	if (left > 0 && left < least && (before == 0 || before >= least) &&
	    load_acquire(&sl->sleepers_rx))
		sock_ring_self(s);
}

bool lowat_is_there_slow(struct sock *s, int fd)
{
	int bytes = 0, lowat = (int)load_relaxed(&s->slot->rx_lowat);
	return gate_state(&s->slot->gate_rx) == GATE_READY &&
	       sock_inq(s, fd, &bytes) == 0 && bytes >= lowat;
}

void lowat_carried(struct sock *s, int fd)
{
	uint64_t mark;
	if (mark_of(fd, &mark) == 0)
		store_relaxed(&s->slot->rx_lowat, (uint32_t)mark);
}

bool lowat_asks_slow(struct sock *s, int fd)
{
	if (s->slot->rx.held & RING_ENDED)
		lowat_divide(s, fd);
	return !peer_is_parents(s) && lowat_least(s) > 1 &&
	       ring_rx_avail(&s->slot->rx, s->in, 1) > 0 && rewind_again(s);
}

int lowat_put(struct sock *s, int fd, const void *value, socklen_t len)
{
	uint64_t mark;
	lock_take(&s->slot->rx_lock);
	int r = REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, value, len) < 0 ? -errno
									      : 0;
	if (r == 0 && mark_of(fd, &mark) == 0)
		store_relaxed(&s->slot->rx_lowat, (uint32_t)mark);
	lock_drop(&s->slot->rx_lock);
	return r;
}

/* As the kernel tells it, whose own mark is less. */
static int tell(void *value, socklen_t *len, int lowat)
{
	int room = 0;
	if (crit_copy(&room, len, sizeof(room)) < 0)
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	if (room > (int)sizeof(lowat))
		room = sizeof(lowat);
	if (room > 0 && crit_copy(value, &lowat, (size_t)room) < 0)
		return -EFAULT;
	return crit_copy(len, &room, sizeof(room)) < 0 ? -EFAULT : 0;
}

int lowat_ask(struct sock *s, int fd, void *value, socklen_t *len)
{
	uint64_t mark;
	lock_take(&s->slot->rx_lock);
	bool less = load_relaxed(&s->slot->rx_lowat_less);
	int lowat = (int)load_relaxed(&s->slot->rx_lowat);
	int r = less ? mark_of(fd, &mark)
		     : REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, value, len);
	r = r < 0 ? -errno : 0;
	lock_drop(&s->slot->rx_lock);
	return r == 0 && less ? tell(value, len, lowat) : r;
}

void lowat_set(struct sock *s, int fd)
{
	int bytes = 0, own = 0;
	int lowat = (int)load_relaxed(&s->slot->rx_lowat);
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
