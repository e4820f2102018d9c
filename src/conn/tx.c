/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: the copy into the ring, and what a send does when there is no room or no ring. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/mechanism.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/heed.h"
#include "conn/peer_hint.h"
#include "conn/quick_move.h"
#include "conn/switch.h"
#include "conn/trace.h"
#include "ring/iov.h"
#include "ring/source.h"

/* To another host each telling of a piece is an immediate, which wakes whoever sleeps there. */
#define CHUNK_FAR_BYTES 65536u

/* The peer's processor was last our own: awake, it would stand in our way. Hints, both. */
static bool is_peer_here(struct sock *s)
{
	return wait_shares_cpu(s, load_relaxed(&s->out->rx_cpu));
}

static bool is_piece(struct sock *s, size_t bytes)
{
	return bytes >= CHUNK_FAR_BYTES || !peer_is_far(s);
}

/*
 * Of a send, what is published next. Each piece of a file takes a call to the kernel, so they are larger
 * where the peer has twice as much to read before it comes to them.
 */
static size_t piece_bytes(struct sock *s, const struct source *src)
{
	size_t most = SOURCE_PIECE_BYTES;
	if (src->is_file && !src->is_past) {
		uint64_t ahead = ring_tx_ahead(&s->slot->tx, s->out, SOURCE_FILE_BYTES);
		if (ahead / 2 > most)
			most = ahead / 2 < SOURCE_FILE_BYTES ? ahead / 2
							     : SOURCE_FILE_BYTES;
	}
	return src->left < most ? src->left : most;
}

/* Copies as much as fits, under tx_lock. A count, 0 when full, or -errno. */
static ssize_t put(struct sock *s, struct source *src, bool hold)
{
	struct slot *sl = s->slot;
	size_t done = 0, told = 0;
	ssize_t n = 0;
	bool near = is_peer_here(s);
	enum room_way way = room_find(s, src->left, near);
	if (src->least > 1 && room_lacks(s, src->least) && !room_grow_small(s)) {
		ring_tx_push(&sl->tx, s->out);
		return 0;
	}
	src->is_past = way == ROOM_PAST;
	/* As TCP shows it, also where it goes on at the beginning of the area. */
	bool whole = src->left <= SOURCE_PIECE_BYTES;
	while (src->left > 0) {
		struct ring_span span;
		size_t piece = piece_bytes(s, src);
		if (ring_tx_span_within(&sl->tx, s->out, s->out_data, areas_of(s), piece,
					&span) < 0) {
			sock_break(s, VD_REASON_CORRUPT);
			return done ? (ssize_t)done : -ECONNRESET;
		}
		if (span.len == 0) {
			if (room_grow_small(s))
				continue;
			ring_tx_push(&sl->tx, s->out);
			break;
		}
		uint64_t from = way == ROOM_FEW ? 0 : __rdtsc();
		n = source_copy(src, span.data, span.len < piece ? span.len : piece);
		if (n <= 0)
			break;
		if (way != ROOM_FEW)
			room_used(s, span.data, (size_t)n, near ? 0 : __rdtsc() - from);
		if (trace_is_wished())
			trace_bytes(s, TRACE_OUT, sl->tx.produced, span.data, (size_t)n);
		ring_tx_commit(&sl->tx, s->out, (size_t)n,
			       hold || (whole && src->left > 0));
		done += (size_t)n;
		if (hold && ring_tx_holds_enough(&sl->tx))
			ring_tx_push(&sl->tx, s->out);
		/* A sleeper may begin with the first piece, where it has a processor. */
		if (src->left > 0 && !whole && !near && is_piece(s, done - told)) {
			bell_ring_bytes(s);
			told = done;
		}
	}
	if (!hold && done > 0 && sl->tx.pushed != sl->tx.produced)
		ring_tx_push(&sl->tx, s->out);
	s->tx_bytes += done;
	sl->tx_messages += done > 0;
	return done > 0 || n >= 0 ? (ssize_t)done : n;
}

/* Under tx_lock: what is held now goes by itself after TCP's ceiling, at the other end. */
static void note_held(struct sock *s)
{
	struct ring_tx *tx = &s->slot->tx;
	if (tx->pushed != tx->produced && !load_relaxed(&s->out->held_since_ms))
		store_release(&s->out->held_since_ms, clock_shared_ms());
}

void sock_push(struct sock *s)
{
	struct slot *sl = s->slot;
	if (!sock_is_direct(s))
		return;
	lock_take(&sl->tx_lock);
	if (gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
		ring_tx_push(&sl->tx, s->out);
	lock_drop(&sl->tx_lock);
	bell_ring_bytes(s);
}

void tx_answer_late(struct sock *s, int fd)
{
	if (!fd_is(fd, s))
		return;
	int saved = errno;
	sock_service(s, fd);
	errno = saved;
}

static inline void answer_late(struct sock *s, int fd)
{
	if (quick_is_asked_late(s))
		tx_answer_late(s, fd);
}

static ssize_t put_locked(struct sock *s, struct wait *w, struct source *src, bool hold)
{
	struct slot *sl = s->slot;
	ssize_t n = -EBADF;
	bool look = false;
	peer_look(s);
	lock_take(&sl->tx_lock);
	if (wait_is_open(w)) {
		if (gate_state(&sl->gate_tx) != GATE_RING) {
			n = seen_of(sl) & SEEN_BROKEN ? -ECONNRESET
			    : kept_error(s)	      ? -EINPROGRESS
						      : SOCK_KERNEL;
		} else if (!tx_is_up(s)) {
			tx_repair(s);
			n = SOCK_KERNEL;
		} else if (quick_attention(s) ||
			   (look = ++sl->tx_unchecked >= LOOK_INTERVAL)) {
			n = -EINPROGRESS;
			if (look)
				info_look(s);
			sl->tx_unchecked = 0;
		} else {
			/* What was held for long enough has gone: these bytes have a time of their own. */
			if (hold && wait_held_is_over(s->out))
				ring_tx_push(&sl->tx, s->out);
			n = src->may_lend && !hold ? peer_ops->lend(s, src) : 0;
			if (n == 0)
				n = put(s, src, hold);
			if (hold)
				note_held(s);
			if (n > 0 && (special_of(sl) & TX_TIMED))
				info_sent(s);
		}
	}
	lock_drop(&sl->tx_lock);
	if (n > 0) {
		bell_ring_bytes(s);
		answer_late(s, w->fd);
	}
	if (look)
		sock_look(s, w->fd);
	return n;
}

/*
 * The same for a blocking send, where the peer waits for the bytes past the ring: they are kept
 * together, and the call stays until it is known what has become of them, since nobody may poll
 * here afterwards.
 */
static ssize_t put_past(struct sock *s, struct wait *w, struct source *src, bool hold)
{
	struct peer *p = peer_of(s);
	crit_enter(); /* no handler jumps away while nothing is pushed */
	uint32_t handlers = crit_handlers();
	peer_ops->hold(p);
	src->may_lend = !src->is_file;
	ssize_t n = put_locked(s, w, src, hold);
	src->may_lend = false;
	bool used = peer_ops->release(p);
	crit_leave(); /* a handler that had to wait runs here, and ends the wait below */
	if (used || peer_lending)
		peer_ops->await(p, w, handlers);
	return n;
}

/* Under the lock, until it is dropped, the number is the connection's. */
static void shut_again(struct sock *s, int fd)
{
	lock_take(&s->slot->tx_lock);
	if (sock_has(s, fd))
		tx_shut_missing(fd);
	lock_drop(&s->slot->tx_lock);
}

/* The verdict on a peer that is gone, as a send tells it: once ECONNRESET, then EPIPE. 0: there is none. */
static ssize_t tell_reset(struct sock *s, int flags)
{
	if (sock_take_reset(s))
		return -ECONNRESET;
	if ((seen_of(s->slot) & SEEN_SHUT_WR) || !sock_was_reset(s))
		return 0;
	if (!(flags & MSG_NOSIGNAL))
		crit_send_sigpipe();
	return -EPIPE;
}

/* The peer has ended its direction, or asks for TCP, or we are broken. Of what a send that has `some_sent` meets the
 * next call is told; sendfile, a row of sends, meets it in one of its own, and nobody is told. */
static ssize_t attend(struct sock *s, int fd, int flags, bool some_sent)
{
	struct slot *sl = s->slot;
	ssize_t n;
	if (seen_of(sl) & SEEN_BROKEN)
		return -ECONNRESET;
	if (kept_error(s))
		return some_sent ? -EAGAIN : -sock_take_kept(s, fd);
	if (atomic_exchange(&s->look_due, 0))
		sock_look(s, fd);
	sock_service(s, fd);
	if (!(seen_of(sl) &
	      (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_WR | SEEN_GONE)) &&
	    !load_relaxed(&s->out->closed) && !load_relaxed(&s->in->fin))
		return 0;
	sock_look(s, fd); /* an error of the kernel's goes before a verdict of ours */
	if (some_sent && sock_was_reset(s))
		return -EAGAIN; /* what was sent counts; the next call is told */
	n = tell_reset(s, flags);
	if (n < 0)
		return n;
	if (seen_of(sl) & SEEN_SHUT_WR)
		shut_again(s, fd);
	/* Nobody is known to read on: the kernel alone can tell, so it gets the bytes. */
	tx_down(s, fd, GATE_FINAL);
	return 0;
}

static bool ends_short(struct sock *s)
{
	if (!room_ends_short(s))
		return false;
	/* In an epoll instance, too, somebody is to look at it before he sleeps. Pairs with the store of whoever
	 * registers it just now: he sees that note, or we see him. */
	fence_full();
	if (__atomic_load_n(&s->regs, __ATOMIC_RELAXED))
		sock_ring_self(s);
	return true;
}

/* Who sleeps elsewhere for room as an edge is told where it has come meanwhile. */
static void found_full(struct sock *s)
{
	sock_lacks_room(s);
	if (load_relaxed(&s->slot->sleepers_tx) && wait_hint(s, EPOLLOUT))
		sock_ring_self(s);
}

/* At most what the kernel moves in one call. */
static size_t total_bytes(const struct iovec *iov, int iovcnt)
{
	size_t total = 0;
	for (int i = 0; i < iovcnt && total < SOCK_MOVE_MAX; i++)
		total += iov[i].iov_len;
	return total < SOCK_MOVE_MAX ? total : SOCK_MOVE_MAX;
}

/* sendfile is a row of sends to the kernel, of what its pipe holds: each asks anew how long it may
 * block. */
#define FILE_SEND_BYTES 65536

/* How much room it needs before its first byte. */
static size_t least_room(const struct source *src, int flags)
{
	bool any = (flags & MSG_DONTWAIT) || src->is_file;
	return any || src->left > ROOM_WHOLE_BYTES ? 1 : src->left;
}

static ssize_t tx_run(struct sock *s, int fd, struct source *src, int flags)
{
	struct wait w = wait_start(s, fd, EPOLLOUT);
	int saved = errno;
	ssize_t done = 0, n = 0;
	flags = wait_begin(&w, flags);
	w.at = src->is_file ? NULL : &src->from;
	src->least = least_room(src, flags);
	/* Another thread may have made the array shorter before it was kept. */
	while (src->left > 0 && (src->is_file || !iov_at_end(&src->from))) {
		bool hold = (flags & MSG_MORE) || (special_of(s->slot) & TX_CORKED);
		if (peer_takes(s, flags & MSG_DONTWAIT ? 0 : src->left) &&
		    !(flags & MSG_DONTWAIT))
			n = put_past(s, &w, src, hold);
		else
			n = put_locked(s, &w, src, hold);
		if (n == -EINPROGRESS) {
			n = attend(s, w.fd, flags, done > 0 && !src->is_file);
			if (n < 0)
				break;
			continue;
		}
		if (n == SOCK_KERNEL) {
			n = tx_go_on_in_kernel(s, fd, &w, src, flags, &done);
			if (n <= 0)
				break;
			continue;
		}
		if (n < 0)
			break;
		source_moved(src);
		done += n;
		if (src->left == 0)
			break;
		if (n > 0) {
			w.rounds = 0;
			w.some = true;
			if (src->is_file &&
			    done / FILE_SEND_BYTES != (done - n) / FILE_SEND_BYTES) {
				flags = wait_begin(&w, 0);
				w.deadline_ns = 0;
			}
			continue;
		}
		if (flags & MSG_DONTWAIT) {
			if (!(done > 0 && ends_short(s)) && room_grow(s, 1))
				continue;
			if (room_go_on(s, w.fd, false))
				continue;
			if (heed_leaves(s, w.fd, EPOLLOUT))
				continue;
			found_full(s);
			n = -EAGAIN;
			break;
		}
		if (++w.rounds <= VAIN_ROUNDS && wait_spin(s, EPOLLOUT))
			continue;
		if (room_grow(s, src->least) || room_go_on(s, w.fd, true))
			continue;
		sock_lacks_room(s);
		src->has_slept = true;
		n = wait_for(&w);
		if (n < 0)
			break;
	}
	wait_finish(&w);
	errno = saved;
	if (n == -EBADF && !src->is_gone) /* another may be there by now */
		n = SOCK_KERNEL;
	return done > 0 || src->left == 0 ? done : n;
}

static uint8_t *glance_larger(struct sock *s, size_t len)
{
	struct ring_tx *tx = &s->slot->tx;
	if (ring_tx_strays(tx) && !peer_is_far(s))
		ring_tx_front(tx, s->out);
	return ring_tx_glance_in(tx, s->out_data, area_of(s, ring_tx_area(tx)), len);
}

/*
 * What nearly every send is: one small piece, for which there is room, and nothing to look
 * at. 0 when it is not so.
 */
static ssize_t put_quickly(struct sock *s, int fd, const struct iovec *iov)
{
	const struct quick_way way = {
		.copy = crit_copy, .traces = true, .tx_larger = glance_larger};
	struct slot *sl = s->slot;
	size_t n = 0;
	lock_take_mine(&sl->tx_lock, &s->is_copied);
	if (quick_may_put(s, sl, fd)) {
		if (LACKS(LATE_LOOKS))
			ring_tx_room(&sl->tx, s->out, SIZE_MAX);
		n = quick_put(s, iov->iov_base, iov->iov_len, way);
	}
	lock_drop(&sl->tx_lock);
	if (n > 0) {
		bell_ring_bytes(s);
		answer_late(s, fd);
	}
	return (ssize_t)n;
}

ssize_t tx_send(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags)
{
	wait_tell_cpu(s);
	if (iovcnt == 1 && iov->iov_len < RING_BULK_BYTES && !(flags & MSG_MORE) &&
	    !peer_takes(s, 0)) {
		ssize_t n = put_quickly(s, fd, iov);
		if (n > 0)
			return n;
	}
	struct source src = {.from = iov_start(iov, iovcnt),
			     .left = total_bytes(iov, iovcnt)};
	return tx_run(s, fd, &src, flags);
}

ssize_t tx_send_none(struct sock *s, int fd, int flags)
{
	int saved = errno;
	int kept = kept_error(s) ? sock_take_kept(s, fd) : 0;
	if (kept)
		return -kept;
	if (!sock_is_direct(s))
		return 0;
	if (seen_of(s->slot) & SEEN_BROKEN)
		return -ECONNRESET;
	sock_look(s, fd); /* as in attend */
	errno = saved;
	return tell_reset(s, flags);
}

/* The kernel reads and sends it, and does not know of an error that is ours to tell: behind what it has against the file. */
static ssize_t send_odd_file(struct sock *s, int fd, int in_fd, off64_t *offset)
{
	int saved = errno, error;
	sock_down(s, fd, VD_REASON_SPLICE);
	if (!kept_error(s) && !(seen_of(s->slot) & SEEN_BROKEN)) {
		errno = saved;
		return SOCK_KERNEL;
	}
	if (REAL(sendfile64)(fd, in_fd, offset, 0) < 0)
		return -errno;
	error = sock_take_error(s);
	return error ? -error : SOCK_KERNEL;
}

ssize_t tx_sendfile(struct sock *s, int fd, int in_fd, off64_t *offset, size_t count)
{
	off64_t at;
	struct source src = {.is_file = true,
			     .file = in_fd,
			     .offset = offset ? offset : &at,
			     .moves = !offset,
			     .left = count};
	struct stat st;
	int saved = errno;
	if (kernel_fstat(in_fd, &st) < 0)
		return -EBADF;
	if (S_ISSOCK(st.st_mode))
		return -EINVAL;
	/* Only from a file can bytes be read under a lock without waiting for somebody. */
	at = src.moves ? kernel_call4(SYS_lseek, in_fd, 0, SEEK_CUR, 0) : 0;
	if ((!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) || at < 0) {
		errno = saved;
		return send_odd_file(s, fd, in_fd, offset);
	}
	/* No sendfile appends, also to a socket: the kernel has the error that comes first. */
	if (REAL(fcntl64)(fd, F_GETFL) & O_APPEND)
		return REAL(sendfile64)(fd, in_fd, offset, 0) < 0 ? -errno : -EINVAL;
	src.device = st.st_dev;
	src.inode = st.st_ino;
	wait_tell_cpu(s);
	ssize_t n = tx_run(s, fd, &src, 0);
	if (n != -EINVAL || !src.is_odd)
		return n;
	/* It cannot be read to any place (O_DIRECT), and that is no error that was kept. The kernel may send it all the same. */
	sock_down(s, fd, VD_REASON_SPLICE);
	errno = saved;
	return SOCK_KERNEL;
}
