/* SPDX-License-Identifier: Apache-2.0 */
/* From one image of a process to the next: what lies unread in the ring, in memory that exec
 * leaves open. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/exec_carry.h"
#include "conn/lowat.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "rendezvous/segment.h"

/* Behind the header of the segment, in the same page. */
struct note {
	uint64_t cookie; /* SO_COOKIE of the connection */
	uint32_t role;
	uint32_t gate;	       /* READY: TCP is to be read up to `up_at` first; or RING */
	int64_t timeout_ns[2]; /* as in the slot: the kernel does not tell all of it */
};
#define NOTE_OFFSET 2048u
static_assert(sizeof(struct wire) <= NOTE_OFFSET &&
		      NOTE_OFFSET + sizeof(struct note) <= WIRE_HEADER_BYTES,
	      "the note has a place of its own");

static struct note *note_of(struct wire *w)
{
	return (struct note *)((uint8_t *)w + NOTE_OFFSET);
}

static unsigned direction_in(enum tcp_role role)
{
	return role == TCP_ROLE_CONNECTED ? WIRE_FROM_ACCEPTOR : WIRE_FROM_CONNECTOR;
}

/* ---- the old image ---- */

/* The first n unread bytes, as a producer would write them. */
static int copy_bytes(struct sock *s, struct wire_dir *d, uint8_t *data, uint64_t n)
{
	struct ring_tx tx;
	ring_tx_init(&tx, WIRE_AREAS - 1);
	for (uint64_t done = 0; done < n;) {
		struct ring_span from, to;
		shown_or_ring_span(s, done, &from);
		if (from.len > n - done)
			from.len = n - done;
		if (ring_tx_span(&tx, d, data, from.len, &to) < 0)
			return -EPROTO;
		if (to.len == 0 && !ring_tx_grow(&tx, d))
			return -ENOSPC;
		if (to.len > from.len)
			to.len = from.len;
		memcpy(to.data, from.data, to.len);
		ring_tx_commit(&tx, d, to.len, false);
		done += to.len;
	}
	return 0;
}

/* Under rx_lock. A direction that has been left already, at the end of these bytes. */
static int fill(struct sock *s, struct wire *w, uint64_t cookie, uint64_t n)
{
	enum tcp_role role = atomic_load(&s->slot->role);
	unsigned in = direction_in(role);
	struct wire_dir *d = &w->dir[in];
	int r = copy_bytes(s, d, (uint8_t *)w + wire_area_offset(in, 0), n);
	if (r < 0)
		return r;
	/* Nobody else sees it yet: any order will do. */
	d->up_at = atomic_load(&s->in->up_at);
	d->down_at = n;
	d->ready_epoch = d->up_epoch = d->down_epoch = 1;
	*note_of(w) = (struct note){
		.cookie = cookie,
		.role = role,
		.gate = gate_state(&s->slot->gate_rx),
		.timeout_ns = {timeout_ns(s, TIMEOUT_RX), timeout_ns(s, TIMEOUT_TX)}};
	return 0;
}

static int keep_and_fill(struct sock *s, int fd, struct wire *w, uint64_t cookie)
{
	int64_t n;
	int r = 0;
	lock_take(&s->slot->rx_lock);
	n = rewind_keep(s, fd);
	lowat_divide(s, fd);
	if (n > 0)
		r = fill(s, w, cookie, (uint64_t)n);
	lock_drop(&s->slot->rx_lock);
	if (r < 0)
		rewind_unkeep(s, fd);
	if (n > 0 && r == 0)
		log_debug("fd %d: the next image gets %lld unread bytes", fd,
			  (long long)n);
	return n <= 0 ? (int)n : r < 0 ? r : 1;
}

int carry_out(struct sock *s, int fd, uint64_t *cookie)
{
	struct meet_segment seg;
	int r;
	if (!sock_is_direct(s) || !slot_is_held_alone(s->slot, BUT_CLOSING) ||
	    (seen_of(s->slot) & SEEN_BROKEN))
		return -EBUSY;
	r = tcp_cookie(fd, cookie);
	if (r < 0)
		return r;
	if (segment_alone(&seg) != 1)
		return -ENOMEM;
	r = keep_and_fill(s, fd, seg.wire, *cookie);
	int memfd = seg.memfd;
	if (r == 1)
		seg.memfd = -1; /* the only thing that is left of it */
	meet_finish(&seg);
	if (r == 1 && REAL(fcntl64)(memfd, F_SETFD, 0) < 0) {
		r = -errno;
		carry_undo(s, fd, memfd);
	}
	return r == 1 ? memfd : r;
}

void carry_undo(struct sock *s, int fd, int memfd)
{
	rewind_unkeep(s, fd);
	fds_close(memfd);
}

/* ---- the new image ---- */

static bool marks_fit(struct wire *w, uint64_t cookie)
{
	struct note *note = note_of(w);
	if (note->cookie != cookie ||
	    (note->role != TCP_ROLE_CONNECTED && note->role != TCP_ROLE_ACCEPTED) ||
	    (note->gate != GATE_READY && note->gate != GATE_RING))
		return false;
	struct wire_dir *d = &w->dir[direction_in(note->role)];
	return d->consumed == 0 && d->produced > 0 && d->down_at == d->produced &&
	       d->produced <= WIRE_DIR_DATA_BYTES && d->ready_epoch == 1 &&
	       d->up_epoch == 1 && d->down_epoch == 1;
}

static void give_up(int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	log_error("fd %d: what the last image had not read is lost: the connection ends",
		  fd);
	kernel_connect(fd, &nobody, sizeof(nobody));
}

/* Another number of a connection that has come already. */
static bool is_duplicate(int fd, uint64_t cookie)
{
	for (int first = 0; first < fd_limit(); first++) {
		struct sock *s = fd_sock(first);
		if (s && atomic_load(&s->slot->cookie) == cookie) {
			fd_duplicated(first, fd);
			return true;
		}
	}
	return false;
}

/* As after the way down of both directions, with the end of the ring yet to be reached. */
static void begin(struct sock *s, int fd, struct meet_segment *seg, uint64_t cookie)
{
	struct slot *sl = s->slot;
	unsigned in = direction_in(note_of(seg->wire)->role);
	s->wire = s->window = seg->wire;
	s->bell = seg->bell;
	store_relaxed(&sock_had_bells, true);
	s->in = &s->wire->dir[in];
	s->out = &s->wire->dir[1 - in];
	s->in_data = (uint8_t *)s->wire + wire_area_offset(in, 0);
	s->out_data = (uint8_t *)s->wire + wire_area_offset(1 - in, 0);
	ring_tx_init(&sl->tx, 0);
	ring_rx_init(&sl->rx);
	sl->rx_epoch = 1;
	atomic_store(&sl->cookie, cookie);
	atomic_store(&sl->reason, VD_REASON_EXEC);
	tx_final(sl);
	rx_carried(sl, note_of(seg->wire)->gate);
	atomic_store(&sl->phase, SLOT_LEAVING);
	for (unsigned i = 0; i < 2; i++)
		atomic_store(&sl->timeout_ns[i], note_of(seg->wire)->timeout_ns[i]);
	options_learn(s, fd);
	lowat_carried(s, fd);
	log_debug("fd %d: goes on with %llu bytes that the last image had not read", fd,
		  (unsigned long long)ring_unread(s->in));
}

int carry_in(int fd, int memfd, uint64_t cookie)
{
	struct meet_segment seg;
	uint64_t own;
	if (tcp_cookie(fd, &own) < 0 || own != cookie)
		return 0;
	if (is_duplicate(fd, cookie))
		return 1;
	if (segment_alone_take(memfd, &seg) != 1) {
		give_up(fd);
		return 1;
	}
	kernel_close(memfd);
	int flags = REAL(fcntl64)(fd, F_GETFL);
	struct sock *s = NULL;
	if (marks_fit(seg.wire, cookie))
		s = fd_open_carried(fd, flags & O_NONBLOCK,
				    (enum tcp_role)note_of(seg.wire)->role);
	if (!s) {
		meet_finish(&seg);
		give_up(fd);
		return 1;
	}
	begin(s, fd, &seg, cookie);
	return 1;
}
