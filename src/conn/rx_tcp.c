/* SPDX-License-Identifier: Apache-2.0 */
/* What TCP still has for a receiver: before the mark, behind the ring, and at urgent data. */
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/scratch.h"
#include "conn/conn.h"
#include "conn/report.h"
#include "conn/switch.h"
#include "ring/iov.h"

bool rx_count_taken(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	int state;
	sl->rx_taken_known = tcp_consumed(fd, &sl->rx_taken) == 0 &&
			     tcp_state(fd, &state) == 0 && state != TCP_CLOSE;
	return sl->rx_taken_known;
}

/*
 * What is left before the mark after a reset, where nobody can tell whether a FIN is in the count. It comes
 * behind all bytes, so either count says whether all have arrived; if so, what is queued is
 * what is left. If not, there is one more, that never comes: the kernel says the error.
 */
static int64_t left_after_reset(int fd, uint64_t mark)
{
	uint64_t received;
	uint32_t queued;
	int r = tcp_after_reset(fd, &received, &queued);
	if (r < 0)
		return r;
	if (received != mark && received > mark + 1)
		return -ECONNRESET; /* the peer had gone back to TCP: where is no longer known */
	return (int64_t)queued + (received >= mark ? 0 : 1);
}

int64_t rx_tcp_left(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t mark = load_relaxed(&s->in->up_at);
	/* Unknown only after the death of a sibling inside the kernel's call. */
	if (!sl->rx_taken_known && !rx_count_taken(s, fd))
		return left_after_reset(fd, mark);
	if (mark - sl->rx_taken > (uint64_t)INT32_MAX)
		return -EPROTO;
	return (int64_t)(mark - sl->rx_taken);
}

bool rx_is_taken_past_us(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t mark = load_relaxed(&s->in->up_at), taken;
	int state;
	if (!sl->rx_taken_known || tcp_consumed(fd, &taken) < 0 ||
	    tcp_state(fd, &state) < 0 || state == TCP_CLOSE || taken > mark)
		return false;
	sl->rx_taken = taken;
	return taken == mark;
}

int rx_bounded(struct sock *s, int fd, int queued)
{
	/* Past the mark, and after the way down, it bounds nothing. */
	if (gate_state(&s->slot->gate_rx) != GATE_READY)
		return queued;
	int64_t left = rx_is_up(s) ? rx_tcp_left(s, fd) : queued;
	return left >= 0 && left < queued ? (int)left : queued;
}

bool rx_is_queued(int fd)
{
	int queued = 0;
	return REAL(ioctl)(fd, FIONREAD, &queued) == 0 && queued > 0;
}

bool rx_tcp_has_more(struct sock *s, int fd)
{
	int queued = 0;
	return REAL(ioctl)(fd, FIONREAD, &queued) == 0 && rx_bounded(s, fd, queued) > 0;
}

bool rx_is_at_mark(int fd)
{
	int at_mark = 0;
	return REAL(ioctl)(fd, SIOCATMARK, &at_mark) == 0 && at_mark;
}

bool rx_goes_on(struct sock *s, int fd)
{
	return rx_tcp_has_more(s, fd) && !rx_is_at_mark(fd);
}

/* So many pieces of a peek are thrown away, for what lies behind them. */
#define PEEK_SKIPS 16
/* UIO_MAXIOV */
#define PIECES_MOST 1024

/* One call has to show all, since the next one would begin anew. Not more on a short stack than most calls need. */
static ssize_t peek_behind(int fd, const struct iov_cursor *to, size_t cap, int flags,
			   size_t skip)
{
	static uint8_t waste[16384]; /* nobody reads it, and the stack may be small */
	struct iovec few[PEEK_SKIPS + IOV_PARTS], *parts = few;
	size_t n = (skip + sizeof(waste) - 1) / sizeof(waste);
	size_t bytes = PIECES_MOST * sizeof(*parts);
	if (n > PEEK_SKIPS)
		return 0;
	if (to->left > IOV_PARTS)
		parts = scratch_take(bytes);
	if (!parts)
		parts = few;
	for (size_t i = 0, left = skip; i < n; left -= parts[i++].iov_len)
		parts[i] = (struct iovec){waste,
					  left < sizeof(waste) ? left : sizeof(waste)};
	struct msghdr msg = {.msg_iov = parts};
	msg.msg_iovlen = n + iov_parts(to, cap, parts + n,
				       parts == few ? IOV_PARTS : PIECES_MOST - n);
	long got = kernel_call4(SYS_recvmsg, fd, (long)&msg,
				(flags & MSG_TRUNC) | MSG_PEEK | MSG_DONTWAIT, 0);
	if (parts != few)
		scratch_give(parts, bytes);
	return got < 0 ? got : got <= (long)skip ? 0 : got - (long)skip;
}

ssize_t rx_read_kernel(struct sock *s, int fd, struct iov_cursor *to, size_t cap,
		       int flags)
{
	struct iovec parts[IOV_PARTS];
	struct msghdr msg = {.msg_iov = parts};
	long n;
	if (flags & MSG_PEEK) {
		n = peek_behind(fd, to, cap, flags, 0);
	} else {
		msg.msg_iovlen = iov_parts(to, cap, parts, IOV_PARTS);
		n = kernel_call4(SYS_recvmsg, fd, (long)&msg,
				 (flags & MSG_TRUNC) | MSG_DONTWAIT, 0);
	}
	if (n < 0) {
		/* The kernel has told an error, and will not again. */
		if (n != -EAGAIN && !rx_is_left_behind(n))
			seen_add(s->slot, SEEN_ERR);
		return n;
	}
	if (!(flags & MSG_PEEK))
		report_add(&report_now.rx_tcp_bytes, (uint64_t)n);
	iov_skip(to, (size_t)n);
	return n;
}

ssize_t rx_peek_third(int fd, struct iov_cursor *to, int flags, size_t skip)
{
	ssize_t n = rx_is_queued(fd) ? peek_behind(fd, to, INT_MAX, flags, skip) : 0;
	if (n <= 0)
		return 0;
	iov_skip(to, (size_t)n);
	return n;
}

/* An urgent byte has come by TCP behind what a peek sees, which began before it. */
static bool is_urgent_behind(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	return kernel_poll(&p, 1, 0) > 0 && (p.revents & POLLPRI) && !rx_is_at_mark(fd);
}

bool rx_peek_ends_at_mark(struct wait *w, ssize_t n)
{
	struct slot *sl = w->s->slot;
	bool ends = false;
	lock_take(&sl->rx_lock);
	if (wait_is_open(w) && gate_state(&sl->gate_rx) != GATE_RING) {
		ends = is_urgent_behind(w->fd);
	} else if (wait_is_open(w) && rx_is_down(w->s) && !load_relaxed(&sl->rewinding)) {
		uint64_t left = load_relaxed(&w->s->in->down_at) - sl->rx.consumed;
		ends = left == (uint64_t)n
			       ? rx_is_at_mark(w->fd)
			       : left < (uint64_t)n && is_urgent_behind(w->fd);
	}
	lock_drop(&sl->rx_lock);
	return ends;
}
