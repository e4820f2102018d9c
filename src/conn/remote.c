/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose peer is on another host, as the stream sees them. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/sections.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/report.h"
#include "conn/trace.h"
#include "rendezvous/farbell.h"
#include "rendezvous/segment.h"
#include "ring/source.h"
#include "settings/config.h"

/* Before a fork: so long is waited for all peers together. */
#define FORK_WAIT_MS 100
/* So long on TCP after a fork, at first; twice as long where the next one comes within ten times
 * that, up to a minute. While a child has the socket, it is asked now and then whether it still does. */
#define GROUND_MOST_MS 60000
#define GROUND_OFTEN   10
#define ASK_MS	       10
uint32_t remote_ground_ms = 100;

static bool is_on_tcp(struct sock *s)
{
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) &&
	       gate_is_kernel(gate_state(&s->slot->gate_tx));
}

/* Nothing is to come by the link any more, nor to go: where the peer is on TCP again, or has shut
 * down, all that it has written to the ring is there, and that is memory like any other. */
static bool is_past_link(struct sock *s)
{
	if (!gate_is_kernel(gate_state(&s->slot->gate_tx)))
		return false;
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) || rx_is_down(s) ||
	       sock_has_fin(s);
}

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

	if (!is_past_link(s) &&
	    !atomic_load_explicit(&s->out->closed, memory_order_acquire))
		sock_break(s, VD_REASON_LINK);
	else
		sock_ring_self(s);
}

static void count_redirect(void *owner, bool out, uint32_t bytes)
{
	struct sock *s = owner;

	report_add(&report_now.redirects, 1);
	atomic_fetch_add_explicit(&s->slot->redirects, 1, memory_order_relaxed);
	PROBE3(redirect, slot_cookie(s->slot), out, bytes);
}

/* ---- redirection ---- */

/* The stream stands where the ring has been read to its end, and goes on there. */
static bool is_at_end(struct wait *w)
{
	struct slot *sl = w->s->slot;

	return wait_is_open(w) && gate_state(&sl->gate_rx) == GATE_RING &&
	       !(seen_of(sl) & (SEEN_BROKEN | SEEN_SHUT_RD)) && !rx_is_down(w->s) &&
	       !atomic_load_explicit(&sl->rewinding, memory_order_relaxed) &&
	       sl->rx.held == RING_PUBLISHED &&
	       ring_rx_avail(&sl->rx, w->s->in, 1) == 0 &&
	       sl->rx.turn_passed == sl->rx.turn_seq;
}

void remote_offer(struct wait *w)
{
	struct slot *sl = w->s->slot;
	struct across *a = remote_of(w->s);
	uint32_t least = a ? across_redirect_least(a) : 0;

	if (least == 0 || w->room.iov_len < least || w->s->is_copied)
		return;
	if (across_offering && across_offer_stands())
		return;
	lock_take(&sl->rx_lock);
	if (is_at_end(w)) {
		const struct across_room room = {
			.start = w->room.iov_base,
			.bytes = w->room.iov_len < WIRE_AREA1_BYTES
					 ? (uint32_t)w->room.iov_len
					 : WIRE_AREA1_BYTES,
			.least = least,
			.position = sl->rx.consumed,
			.turn = sl->rx.turn_passed};

		across_offer(a, &room);
	}
	lock_drop(&sl->rx_lock);
}

size_t remote_redirected(struct wait *w, bool over)
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

ssize_t remote_lend(struct sock *s, struct source *src)
{
	struct slot *sl = s->slot;
	uint64_t position = sl->tx.produced;
	struct iovec part = iov_part(&src->from, src->left);
	size_t n;

	/* More parts than one are gathered in the ring. */
	if (part.iov_len < src->left)
		return 0;
	n = across_lend(remote_of(s), &sl->tx, part.iov_base, part.iov_len);
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

void remote_await(struct across *a)
{
	struct _pthread_cleanup_buffer cleanup;
	uint32_t handlers = crit_handlers();

	crit_enter();
	_pthread_cleanup_push(&cleanup, leave_lent, NULL);
	crit_leave();
	while (crit_handlers() == handlers && across_awaits(a))
		;
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
}

/* ---- memory that the peer writes to by itself ---- */

int remote_reach(struct sock *s, void *start, size_t bytes, struct across_key *key,
		 uint64_t *id)
{
	struct across *a = remote_of(s);

	return a ? across_reach(a, s, start, bytes, key, id) : -EAGAIN;
}

int remote_put(struct sock *s, const struct across_key *key, uint64_t offset,
	       const void *from, size_t bytes)
{
	struct across *a = remote_of(s);

	return a ? across_put(a, s, key, offset, from, bytes) : -EAGAIN;
}

/* ---- bells ---- */

bool remote_ring(struct sock *s)
{
	struct across *a = remote_of(s);

	if (a)
		across_push(a);
	return a != NULL;
}

int bell_answer_far(struct sock *s, int far, bool brief)
{
	if (!remote_of(s))
		return farbell_answer(far);
	across_answer(brief);
	return 1;
}

int sock_shared_bell(struct sock *s)
{
	struct across *a = remote_of(s);

	return a ? across_shared_descriptor(a) : -1;
}

void sock_hear_shared_bell(void)
{
	across_answer(false);
}

void wait_note_kernel(struct sock *s, uint32_t events)
{
	sock_note_kernel(s, events);
	if (remote_of(s) && !remote_end_is_known(s))
		kernel_poll(NULL, 0, 1);
}

/* ---- the end of TCP ---- */

static bool has_last_words(struct sock *s, struct across *a)
{
	return sock_has_fin(s) ||
	       atomic_load_explicit(&s->out->closed, memory_order_acquire) ||
	       across_is_over(a);
}

bool remote_end_is_known(struct sock *s)
{
	struct across *a = remote_of(s);

	if (!a || !sock_is_direct(s) || (seen_of(s->slot) & (SEEN_FIN | SEEN_HUP)) ||
	    is_past_link(s) || has_last_words(s, a))
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

int remote_begin(struct sock *s, int fd)
{
	enum tcp_role role = atomic_load(&s->slot->role);
	struct name_end local, peer;
	struct across *a;
	int r;

	if (!across_is_here())
		return 0;
	r = meet_is_remote(fd, role, &local, &peer);
	if (r <= 0)
		return r;
	r = across_begin(&local, &peer,
			 role == TCP_ROLE_CONNECTED ? ACROSS_CONNECTED : ACROSS_ACCEPTED,
			 &a);
	if (r == 1)
		atomic_store(&s->across, a);
	return r;
}

int remote_step(struct sock *s, struct meet_segment *seg)
{
	struct across *a = remote_of(s);
	int r = across_step(a);

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

void remote_attach(struct sock *s, enum wire_direction out)
{
	struct across *a = remote_of(s);
	const struct across_owner owner = {s, ring_owner, lose_owner, count_redirect};
	uint32_t limit = config_get()->area_limit;

	s->in_data = s->link_data = across_in_data(a);
	s->out_data = across_out_data(a);
	ring_tx_init(&s->slot->tx, limit < ACROSS_AREA_LIMIT ? limit : ACROSS_AREA_LIMIT);
	/* The peer is to be told of everything: it has armed where we cannot see. */
	atomic_store_explicit(&s->out->rx_armed, 1, memory_order_relaxed);
	atomic_store_explicit(&s->in->tx_armed, 1, memory_order_relaxed);
	atomic_store_explicit(&s->slot->across, 1, memory_order_relaxed);
	across_attach(a, s->wire, out, &owner);
}

void remote_end(struct sock *s)
{
	struct across *a;

	if (!remote_of(s))
		return;
	a = atomic_exchange(&s->across, NULL);
	if (a)
		across_end(a);
}

/* ---- fork ---- */

/* Under way in this process, or about to be. */
static _Atomic uint32_t forks FORK_DATA;

static bool is_remote_and_direct(struct sock *s)
{
	return s && remote_of(s) && sock_is_direct(s);
}

static void change_reason(struct sock *s, uint32_t from, enum vd_reason to)
{
	if (atomic_load_explicit(&s->slot->reason, memory_order_relaxed) == from)
		atomic_compare_exchange_strong(&s->slot->reason, &from, to);
}

/* Each fork costs a wait for the peers of what is up: who forks often stays on TCP for longer. */
static void ground(struct sock *s)
{
	uint64_t now = clock_coarse_ms();
	uint64_t last = atomic_exchange(&s->forked_ms, now);
	uint32_t ms = atomic_load_explicit(&s->ground_ms, memory_order_relaxed);

	if (ms && now - last < GROUND_OFTEN * (uint64_t)ms)
		ms = ms < GROUND_MOST_MS / 2 ? 2 * ms : GROUND_MOST_MS;
	else
		ms = ms / 2 > remote_ground_ms ? ms / 2 : remote_ground_ms;
	atomic_store_explicit(&s->ground_ms, ms, memory_order_relaxed);
	atomic_store_explicit(&s->ground_until_ms, now + ms, memory_order_relaxed);
	change_reason(s, VD_REASON_NONE, VD_REASON_SHARED);
}

bool remote_may_rise(struct sock *s)
{
	uint64_t until = atomic_load_explicit(&s->ground_until_ms, memory_order_relaxed);
	uint64_t now;

	/* Sequentially consistent against sock_leave_links: it counts, then takes our lock to go
	 * down; and a fork that is not counted any more has counted its child. */
	if (atomic_load(&forks) > 0)
		return false;
	if (until == 0 && !slot_is_shared(s->slot))
		return true;
	now = clock_coarse_ms();
	if (now < until)
		return false;
	/* To ask whether the others still live costs system calls. */
	if (slot_is_shared(s->slot) && !slot_is_alone(s->slot)) {
		atomic_store_explicit(&s->ground_until_ms, now + ASK_MS,
				      memory_order_relaxed);
		return false;
	}
	return true;
}

void remote_is_down(struct sock *s)
{
	if (remote_of(s))
		change_reason(s, VD_REASON_NONE, VD_REASON_PEER_ASKED);
}

void remote_is_up(struct sock *s)
{
	if (!remote_of(s))
		return;
	change_reason(s, VD_REASON_SHARED, VD_REASON_NONE);
	change_reason(s, VD_REASON_PEER_ASKED, VD_REASON_NONE);
	/* Asked for good just now, by another thread. */
	if (phase_of(s->slot) != SLOT_ATTACHED)
		change_reason(s, VD_REASON_NONE, VD_REASON_PEER_ASKED);
}

/* The memory of the segment that a connection on one host would use: forked children share it. */
static uint8_t *own_in_data(struct sock *s)
{
	return (uint8_t *)s->wire + wire_area_offset((unsigned)(s->in - s->wire->dir), 0);
}

/* What the peer has left in the ring is put where a child finds it, too. The link's memory is given
 * to another connection when the parent closes this one. */
static void share_unread(struct sock *s, int fd)
{
	struct slot *sl = s->slot;

	lock_take(&sl->rx_lock);
	if (fd_sock(fd) == s && s->wire && is_past_link(s) && rx_advance(s, fd) == 0 &&
	    s->in_data == s->link_data) {
		int64_t avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
		uint8_t *to = own_in_data(s);
		struct ring_span span;

		if (avail < 0 || avail > WIRE_DIR_DATA_BYTES)
			avail = 0; /* the next receive says so */
		for (size_t done = 0; done < (size_t)avail; done += span.len) {
			ring_rx_span_within(&sl->rx, s->in_data, areas_of(s), done,
					    &span);
			memcpy(to + (span.data - s->in_data), span.data, span.len);
		}
		s->in_data = to;
	}
	lock_drop(&sl->rx_lock);
}

void remote_opens(struct sock *s)
{
	if (remote_of(s))
		s->in_data = s->link_data;
}

void sock_leave_links(void)
{
	uint64_t end = 0;

	atomic_fetch_add(&forks, 1);
	/* All are asked, then waited for. */
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (!is_remote_and_direct(s))
			continue;
		ground(s);
		sock_bounce(s, fd);
		end = clock_coarse_ms() + FORK_WAIT_MS;
	}
	for (int fd = 0; end && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		int64_t left = (int64_t)(end - clock_coarse_ms());

		if (!is_remote_and_direct(s))
			continue;
		sock_bounce_wait(s, fd, left > 0 ? (int)left : 0);
		share_unread(s, fd);
	}
}

void remote_forked_parent(void)
{
	atomic_fetch_sub(&forks, 1);
}

/* It goes on in the parent; here nobody could read what comes. */
static void lose(struct sock *s)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		if (fd_sock(fd) != s)
			continue;
		sock_sever(s, fd);
		fd_forget(fd);
	}
}

FORK_CODE void remote_forked_child(void)
{
	atomic_store(&forks, 0);
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		/* An exchange for nothing would copy the page. */
		if (!s || !remote_of(s) || !atomic_exchange(&s->across, NULL))
			continue;
		/* Also one that is about to be attached: not by us, whoever may die. */
		atomic_store_explicit(&s->elsewhere, 1, memory_order_relaxed);
		if (sock_is_direct(s) && !is_on_tcp(s) &&
		    !(is_past_link(s) && s->in_data != s->link_data)) {
			lose(s);
			continue;
		}
		/* The parent keeps it there while this process is among the holders. */
		fds_close(atomic_exchange(&s->far_bell, -1));
	}
}

void remote_stay_down(struct sock *s)
{
	if (atomic_exchange(&s->ground_until_ms, UINT64_MAX) != UINT64_MAX)
		slot_hold_foreign(s->slot);
}

NEAR_CODE void remote_leave(struct sock *s, int fd)
{
	if (is_remote_and_direct(s) && is_past_link(s) && slot_is_shared(s->slot))
		sock_down(s, fd, VD_REASON_SHARED);
}
