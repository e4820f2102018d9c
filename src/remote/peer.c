/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection asks of its other end (conn/peer.h), for peers on other hosts. */
#include <errno.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/report.h"
#include "conn/switch.h"
#include "conn/trace.h"
#include "remote/near.h"
#include "remote/peer.h"
#include "remote/translate.h"
#include "rendezvous/segment.h"
#include "ring/source.h"
#include "settings/config.h"

_Static_assert(PEER_AREA_LIMIT == ACROSS_AREA_LIMIT, "a place on a link has fewer areas");

/* ---- called by the link, under its lock ---- */

static void ring_owner(void *owner)
{
	sock_ring_self(owner);
}

/* What was under way cannot be known; but nothing was where the link is not needed any more, or the
 * peer has said its last word. */
static void lose_owner(void *owner)
{
	struct sock *s = owner;

	if (!peer_is_past_link(s) && !load_acquire(&s->out->closed))
		sock_break(s, VD_REASON_LINK);
	else
		sock_ring_self(s);
}

static void count_pinned(uint64_t bytes, uint32_t evictions)
{
	/* Relaxed: for those who look on. */
	store_relaxed(&report_now.pinned_bytes, bytes);
	report_add(&report_now.native[NATIVE_EVICTIONS], evictions);
}

static void count_redirect(void *owner, bool out, uint32_t bytes)
{
	struct sock *s = owner;

	report_add(&report_now.redirects, 1);
	fetch_add_relaxed(&s->slot->redirects, 1);
	PROBE3(redirect, slot_cookie(s->slot), out, bytes);
}

/* ---- redirection ---- */

/* The stream stands where the ring has been read to its end, and goes on there. */
static bool is_at_end(struct wait *w)
{
	struct slot *sl = w->s->slot;

	return wait_is_open(w) && gate_state(&sl->gate_rx) == GATE_RING &&
	       !(seen_of(sl) & (SEEN_BROKEN | SEEN_SHUT_RD)) && !rx_is_down(w->s) &&
	       !load_relaxed(&sl->rewinding) && sl->rx.held == RING_PUBLISHED &&
	       ring_rx_avail(&sl->rx, w->s->in, 1) == 0 &&
	       sl->rx.turn_passed == sl->rx.turn_seq;
}

static void remote_offer(struct wait *w)
{
	struct slot *sl = w->s->slot;
	struct peer *a = peer_of(w->s);
	uint32_t least = a ? across_redirect_least(a) : 0;
	bool learns = a && across_learns(a, w->room.iov_len);

	if (w->s->is_copied || (!learns && (least == 0 || w->room.iov_len < least)))
		return;
	if (peer_offering && across_offer_stands())
		return;
	lock_take(&sl->rx_lock);
	if (is_at_end(w)) {
		if (learns)
			least = across_learn(a, w->room.iov_len, sl->rx.consumed);
		const struct across_room room = {
			.start = w->room.iov_base,
			.bytes = w->room.iov_len < WIRE_AREA1_BYTES
					 ? (uint32_t)w->room.iov_len
					 : WIRE_AREA1_BYTES,
			.least = least,
			.position = sl->rx.consumed,
			.turn = sl->rx.turn_passed};

		if (least > 0 && w->room.iov_len >= least)
			across_offer(a, &room);
	}
	lock_drop(&sl->rx_lock);
	if (learns)
		across_learn_save();
}

static size_t remote_redirected(struct wait *w, bool over)
{
	struct sock *s = w->s;
	uint64_t position = s->slot->rx.consumed;
	uint32_t n;

	if (!over && across_offer_stands())
		return 0;
	n = across_offer_end(true);
	if (n == 0)
		return 0;
	ring_rx_bypass(&s->slot->rx, n);
	s->rx_bytes += n;
	s->slot->rx_messages++;
	if (trace_is_wished())
		trace_bytes(s, TRACE_IN, position, w->room.iov_base, n);
	return n;
}

static ssize_t remote_lend(struct sock *s, struct source *src)
{
	struct slot *sl = s->slot;
	uint64_t position = sl->tx.produced;
	struct iovec part = iov_part(&src->from, src->left);
	size_t n;

	/* More parts than one are gathered in the ring. */
	if (part.iov_len < src->left)
		return 0;
	n = across_lend(peer_of(s), &sl->tx, part.iov_base, part.iov_len);
	if (n == 0)
		return 0;
	if (trace_is_wished())
		trace_bytes(s, TRACE_OUT, position, part.iov_base, n);
	iov_skip(&src->from, n);
	src->left -= n;
	s->tx_bytes += n;
	sl->tx_messages++;
	report_add(&report_now.zero_copies, 1);
	return (ssize_t)n;
}

/* A thread that is cancelled takes its memory with it. */
static void leave_lent(void *arg)
{
	(void)arg;
	across_lend_end();
}

/* A peer that is stopped, or hostile, says nothing. The ring has the bytes then, as after a handler. */
#define AWAIT_MS 3000

static void remote_await(struct peer *p, struct wait *w, uint32_t handlers)
{
	uint64_t end_ms = clock_coarse_ms() + AWAIT_MS;
	struct _pthread_cleanup_buffer cleanup;

	crit_enter();
	_pthread_cleanup_push(&cleanup, leave_lent, NULL);
	crit_leave();
	while (crit_handlers() == handlers && across_awaits(p) && !wait_is_late(w) &&
	       clock_coarse_ms() < end_ms)
		;
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
}

/* ---- memory that the peer writes to by itself ---- */

uint32_t remote_redirect_least(struct sock *s)
{
	struct peer *a = peer_of(s);

	return a ? across_redirect_least(a) : 0;
}

int remote_reach(struct sock *s, void *start, size_t bytes, uint32_t may,
		 struct across_key *key, uint64_t *id)
{
	struct peer *a = peer_of(s);

	return a ? across_reach(a, s, start, bytes, may, key, id) : -EAGAIN;
}

int remote_move(struct sock *s, const struct across_key *key, uint64_t offset,
		struct across_span *span)
{
	struct peer *a = peer_of(s);

	return a ? across_move(a, s, key, offset, span) : -EAGAIN;
}

int remote_move_begin(struct sock *s, const struct across_key *key, uint64_t offset,
		      struct across_span *span, uint64_t *id)
{
	struct peer *a = peer_of(s);

	return a ? across_move_begin(a, s, key, offset, span, id) : -EAGAIN;
}

int remote_move_may(struct sock *s, const struct across_key *key)
{
	struct peer *a = peer_of(s);

	return a ? across_move_may(a, s, key) : -EAGAIN;
}

int remote_move_look(struct sock *s, uint64_t id, bool ends)
{
	struct peer *a = peer_of(s);

	/* With its handle it has ended. */
	return a ? across_move_look(a, id, ends) : -EIO;
}

int remote_move_descriptor(struct sock *s)
{
	struct peer *a = peer_of(s);

	return a ? across_move_descriptor(a) : -1;
}

/* ---- the end of TCP ---- */

static bool has_last_words(struct sock *s, struct peer *a)
{
	return sock_has_fin(s) || load_acquire(&s->out->closed) || across_is_over(a);
}

static bool remote_end_is_known(struct sock *s)
{
	struct peer *a = peer_of(s);

	if (!a || !sock_is_direct(s) || (seen_of(s->slot) & (SEEN_FIN | SEEN_HUP)) ||
	    peer_is_past_link(s) || has_last_words(s, a))
		return true;
	/* An honest peer has had them in our memory before its TCP socket ended. */
	across_catch_up();
	if (has_last_words(s, a))
		return true;
	/* It was killed, maybe: then the link fails. */
	across_probe(a);
	return has_last_words(s, a);
}

/* ---- meeting ---- */

static int remote_begin(struct sock *s, int fd)
{
	enum tcp_role role = atomic_load(&s->slot->role);
	struct name_end local, peer;
	struct peer *a;
	int r;

	bool far = across_is_here(), near = near_is_here();
	enum across_role as =
		role == TCP_ROLE_CONNECTED ? ACROSS_CONNECTED : ACROSS_ACCEPTED;

	if (!far && !near)
		return 0;
	r = meet_is_remote(fd, role, &local, &peer);
	if (r <= 0)
		return r;
	r = far ? across_begin(&local, &peer, as, &a) : -VD_REASON_REMOTE_PEER;
	/* Without a device for it the other end is on this host, or out of reach. */
	if (r != 1 && near)
		r = near_begin(&local, &peer, as, &a);
	if (r == 1)
		atomic_store(&s->peer, a);
	return r;
}

/* The peer is on this host: from here on it is none of ours. */
static int step_near(struct sock *s, int fd, struct meet_segment *seg)
{
	struct peer *a = peer_of(s);
	int r = near_step(a, fd, s->window, seg);

	if (r <= 0)
		return r;
	atomic_store(&s->peer, NULL);
	near_end(a);
	return r;
}

static int remote_step(struct sock *s, int fd, struct meet_segment *seg)
{
	struct peer *a = peer_of(s);
	int r;

	if (near_has(a))
		return step_near(s, fd, seg);
	r = across_step(a);
	if (r != 1)
		return r;
	r = segment_with_bell(s->window, seg);
	if (r < 0)
		return r;
	seg->far_bell = across_descriptor(a);
	if (seg->far_bell < 0) {
		seg->far_bell = -1;
		meet_finish(seg);
		return -VD_REASON_FD_LIMIT;
	}
	return 1;
}

static void remote_attach(struct sock *s, enum wire_direction out)
{
	struct peer *a = peer_of(s);
	const struct across_owner owner = {s, ring_owner, lose_owner, count_redirect,
					   count_pinned};
	uint32_t limit = config_get()->area_limit;

	s->in_data = s->link_data = across_in_data(a);
	s->out_data = across_out_data(a);
	ring_tx_init(&s->slot->tx, limit < ACROSS_AREA_LIMIT ? limit : ACROSS_AREA_LIMIT);
	/* The peer is to be told of everything: it has armed where we cannot see. */
	store_relaxed(&s->out->rx_armed, 1);
	store_relaxed(&s->in->tx_armed, 1);
	store_relaxed(&s->slot->across, 1);
	across_attach(a, s->wire, out, &owner);
}

static void remote_end(struct sock *s)
{
	struct peer *p = peer_of(s) ? atomic_exchange(&s->peer, NULL) : NULL;

	if (p && near_has(p))
		near_end(p);
	else if (p)
		across_end(p);
}

/* ---- the door of conn ---- */

static bool remote_look(struct peer *p)
{
	across_progress();
	return across_offer_is_due(p);
}

static void remote_take_back(void)
{
	across_offer_end(false);
}

FORK_CODE static void remote_forked_child(void)
{
	near_forked();
	translate_forked();
	redirect_forked();
	zerocopy_forked();
	across_forked_child();
}

void remote_register(void)
{
	static const struct peer_ops ops = {
		.begin = remote_begin,
		.step = remote_step,
		.attach = remote_attach,
		.end = remote_end,
		.look = remote_look,
		.catch_up = across_catch_up,
		.answer = across_answer,
		.push = across_push,
		.room_is_due = across_room_is_due,
		.flush = across_flush,
		.may_use = across_may_use,
		.is_over = across_is_over,
		.end_is_known = remote_end_is_known,
		.shared_descriptor = across_shared_descriptor,
		.offer = remote_offer,
		.redirected = remote_redirected,
		.take_back = remote_take_back,
		.takes = across_takes,
		.hold = across_hold,
		.lend = remote_lend,
		.release = across_release,
		.await = remote_await,
		.drain = across_drain,
		.forking = across_forking,
		.forked_parent = across_forked_parent,
		.forked_child = remote_forked_child,
	};

	meet_tell = translate_tell;
	/* A test that registers for each of its pairs has threads by then. */
	if (peer_ops != &ops)
		peer_ops = &ops;
}
