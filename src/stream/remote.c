/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose peer is on another host, as the stream sees them. */
#include <errno.h>
#include <poll.h>

#include "base/config.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "meet/farbell.h"
#include "base/probe.h"
#include "base/report.h"
#include "meet/segment.h"
#include "stream/conn.h"
#include "stream/trace.h"

/* Before a fork: so long is waited for all peers together. */
#define FORK_WAIT_MS 100

/* ---- called by the link, under its lock ---- */

static void ring_owner(void *owner)
{
	sock_ring_self(owner);
}

/* What was under way cannot be known; but nothing was where both directions are the kernel's,
 * or the peer has said its last word. */
static void lose_owner(void *owner)
{
	struct sock *s = owner;
	struct slot *sl = s->slot;
	bool kernel = gate_is_kernel(gate_state(&sl->gate_rx)) &&
		      gate_is_kernel(gate_state(&sl->gate_tx));

	if (!kernel && !atomic_load_explicit(&s->out->closed, memory_order_acquire))
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

/* ---- bells ---- */

bool remote_ring(struct sock *s)
{
	struct across *a = remote_of(s);

	if (a)
		across_push(a);
	return a != NULL;
}

int bell_answer_far(struct sock *s, int far)
{
	if (!remote_of(s))
		return farbell_answer(far);
	across_answer();
	return 1;
}

int sock_shared_bell(struct sock *s)
{
	struct across *a = remote_of(s);

	return a ? across_shared_descriptor(a) : -1;
}

void sock_hear_shared_bell(void)
{
	across_answer();
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
	return atomic_load_explicit(&s->in->fin, memory_order_acquire) ||
	       atomic_load_explicit(&s->out->closed, memory_order_acquire) ||
	       across_is_over(a);
}

bool remote_end_is_known(struct sock *s)
{
	struct across *a = remote_of(s);

	if (!a || !sock_is_direct(s) || has_last_words(s, a))
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

	s->in_data = across_in_data(a);
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

static bool is_remote_and_direct(struct sock *s)
{
	return s && remote_of(s) && sock_is_direct(s);
}

void sock_leave_links(void)
{
	uint64_t end = 0;

	/* All are asked, then waited for. */
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (!is_remote_and_direct(s))
			continue;
		sock_down(s, fd, VD_REASON_SHARED);
		end = clock_coarse_ms() + FORK_WAIT_MS;
	}
	for (int fd = 0; end && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		int64_t left = (int64_t)(end - clock_coarse_ms());

		if (is_remote_and_direct(s))
			sock_down_wait(s, fd, VD_REASON_SHARED, left > 0 ? (int)left : 0);
	}
}

void remote_forked_child(void)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (!s || !atomic_exchange(&s->across, NULL))
			continue;
		if (!sock_is_direct(s))
			continue;
		/* It goes on in the parent; here nobody could read what comes. */
		sock_sever(s, fd);
		fd_forget(fd);
	}
}
