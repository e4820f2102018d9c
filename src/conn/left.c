/* SPDX-License-Identifier: Apache-2.0 */
/* A process that can make no calls of ours from now on: what it has not read of its rings is kept in
 * memory of its own, and read without a call. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/await.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/conn.h"
#include "conn/lowat.h"
#include "conn/rx_give.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "ring/iov.h"

/* In one mapping. */
struct left {
	size_t bytes; /* of the mapping */
	size_t at, end;
	size_t tcp;	/* of them, that TCP had: they come first */
	uint64_t begin; /* where the others stood in the ring */
	uint8_t data[];
};

_Atomic uint32_t left_socks;
bool left_are_last;

/* TCP's, before a mark that has not been passed; then the first n of the ring. TCP gives its
 * own last, when nothing more can fail. */
static struct left *collect(struct sock *s, int fd, size_t tcp, size_t n)
{
	struct slot *sl = s->slot;
	size_t bytes = sizeof(struct left) + tcp + n;
	long got = 0;
	struct left *l = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l == MAP_FAILED)
		return NULL;
	*l = (struct left){
		.bytes = bytes, .end = tcp + n, .tcp = tcp, .begin = sl->rx.consumed};
	for (size_t done = 0; done < n;) {
		struct ring_span span;
		shown_or_ring_span(s, done, &span);
		if (span.len == 0)
			goto failed;
		if (span.len > n - done)
			span.len = n - done;
		memcpy(l->data + tcp + done, span.data, span.len);
		done += span.len;
	}
	if (tcp > 0)
		got = kernel_call6(SYS_recvfrom, fd, (long)l->data, (long)tcp,
				   MSG_DONTWAIT, 0, 0);
	if (got == (long)tcp)
		return l;
	if (got > 0) /* they would be lost */
		sock_break(s, VD_REASON_BYPASS);
failed:
	munmap(l, bytes);
	return NULL;
}

/* Under rx_lock. 1 with *left, 0 there is none, -errno. */
static int keep(struct sock *s, int fd, struct left **left)
{
	int64_t tcp = 0, n;
	int queued = 0;
	/* With nothing unread the request stands: what comes will come over TCP. */
	if (ring_rx_avail(&s->slot->rx, s->in, 1) == 0)
		return 0;
	if (!slot_is_alone(s->slot))
		return -EBUSY;
	n = rewind_keep(s, fd);
	lowat_divide(s, fd);
	if (n <= 0)
		return (int)n;
	if (gate_state(&s->slot->gate_rx) == GATE_READY)
		tcp = rx_is_up(s) ? rx_tcp_left(s, fd) : -EAGAIN;
	if (tcp > 0 && (REAL(ioctl)(fd, FIONREAD, &queued) < 0 || queued < tcp))
		tcp = -EAGAIN;
	if (tcp >= 0)
		*left = collect(s, fd, (size_t)tcp, (size_t)n);
	if (*left)
		return 1;
	/* It goes on as it was. */
	atomic_store(&s->slot->rewinding, REWINDING_ASKED);
	rewind_settle(s, fd);
	return -EAGAIN;
}

bool sock_abandon(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	struct left *left = NULL;
	int r = -EBADF;
	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		lock_take(&sl->rx_lock);
		r = gate_is_kernel(gate_state(&sl->gate_rx)) ? 0 : keep(s, fd, &left);
		if (r >= 0) {
			s->left = left;
			rx_final(sl);
		}
		lock_drop(&sl->rx_lock);
		if (r > 0) {
			atomic_fetch_add(&left_socks, 1);
			log_debug("fd %d: %zu unread bytes are kept", fd, left->end);
		}
		if (r >= 0) {
			sock_ring_self(s);
			control_leave_if_done(s);
		}
		sock_unhold(s);
	}
	crit_leave();
	return r >= 0;
}

size_t left_bytes(const struct sock *s)
{
	return s->left ? s->left->end - s->left->at : 0;
}

/* The memory stays: another thread may have looked at it. */
static void drop(struct sock *s)
{
	s->left = NULL;
	if (atomic_fetch_sub(&left_socks, 1) == 1 && left_are_last)
		fd_stand_down();
}

void left_drop(struct sock *s)
{
	if (s->left)
		drop(s);
}

/* Tells the peer, who would else take a close for one with bytes unread. */
static void commit(struct sock *s, struct left *l, size_t n)
{
	l->at += n;
	if (l->at > l->tcp)
		atomic_store(&s->in->consumed, l->begin + l->at - l->tcp);
	if (l->at == l->end)
		drop(s);
}

static ssize_t take(struct sock *s, struct iov_cursor *to, int flags)
{
	struct left *l = s->left;
	ssize_t done = 0, n;
	while (l && !iov_at_end(to) && l->at + (size_t)done < l->end) {
		n = iov_fill(to, l->data + l->at + done, l->end - l->at - (size_t)done,
			     flags & MSG_TRUNC);
		if (n < 0)
			return done ? done : n;
		done += n;
	}
	if (l && !(flags & MSG_PEEK))
		commit(s, l, (size_t)done);
	return done;
}

ssize_t left_recv(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	struct iov_cursor to = iov_start(iov, iovcnt);
	ssize_t n, more = 0;
	lock_take(&s->slot->rx_lock);
	n = take(s, &to, flags);
	lock_drop(&s->slot->rx_lock);
	if (n == 0 && !iov_at_end(&to))
		return SOCK_KERNEL;
	/* Who waits for all has a call for it that it may make. */
	while (n > 0 && (flags & MSG_WAITALL) && !(flags & MSG_PEEK) &&
	       !iov_at_end(&to)) {
		struct iovec part = iov_part(&to, SIZE_MAX);
		more = REAL(recv)(fd, part.iov_base, part.iov_len, flags);
		if (more <= 0)
			break;
		iov_skip(&to, (size_t)more);
		n += more;
	}
	return n;
}

ssize_t left_give(struct sock *s, size_t len, int to)
{
	struct pollfd p = {.fd = to, .events = POLLOUT};
	ssize_t n = SOCK_KERNEL;
	lock_take(&s->slot->rx_lock);
	struct left *l = s->left;
	if (l && (n = await_glance(&p, 1)) <= 0)
		n = n < 0 ? n : -EAGAIN;
	else if (l)
		n = kernel_write(to, l->data + l->at,
				 len < l->end - l->at ? len : l->end - l->at);
	if (n > 0)
		commit(s, l, (size_t)n);
	lock_drop(&s->slot->rx_lock);
	return n;
}
