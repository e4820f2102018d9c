/* SPDX-License-Identifier: Apache-2.0 */
/* Around a fork: connections with other hosts go back to TCP, since a child cannot use their link. */
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/sections.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/switch.h"

/* Before a fork: so long is waited for all peers together. */
#define FORK_WAIT_MS 100

static bool is_far_and_direct(struct sock *s)
{
	return s && peer_is_far(s) && sock_is_direct(s);
}

/* Held for it, where other threads close and open meanwhile. True: it was one. */
static bool ground(int fd)
{
	struct sock *s = sock_hold_at(fd);
	bool is_one;

	if (!s)
		return false;
	is_one = is_far_and_direct(s);
	if (is_one) {
		peer_ground(s);
		sock_bounce(s, fd);
	}
	sock_let_go(s);
	return is_one;
}

static bool is_on_tcp(struct sock *s)
{
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) &&
	       gate_is_kernel(gate_state(&s->slot->gate_tx));
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
	if (fd_sock(fd) == s && s->wire && peer_is_past_link(s) &&
	    rx_advance(s, fd) == 0 && s->in_data == s->link_data) {
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

void sock_leave_links(void)
{
	uint64_t end = 0;

	atomic_fetch_add(&peer_forks, 1);
	/* All are asked, then waited for. */
	for (int fd = 0; fd < fd_limit(); fd++) {
		/* Looked at before it is held: a fork leaves what is not concerned as it is. */
		if (is_far_and_direct(fd_sock(fd)) && ground(fd))
			end = clock_coarse_ms() + FORK_WAIT_MS;
	}
	for (int fd = 0; end && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		int64_t left = (int64_t)(end - clock_coarse_ms());

		if (!is_far_and_direct(s))
			continue;
		sock_bounce_wait(s, fd, left > 0 ? (int)left : 0);
		share_unread(s, fd);
	}
}

void peer_forked_parent(void)
{
	atomic_fetch_sub(&peer_forks, 1);
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

FORK_CODE void peer_forked_child(void)
{
	atomic_store(&peer_forks, 0);
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		/* An exchange for nothing would copy the page. */
		if (!s || !peer_is_far(s) || !atomic_exchange(&s->peer, NULL))
			continue;
		/* Also one that is about to be attached: not by us, whoever may die. */
		store_relaxed(&s->elsewhere, 1);
		if (sock_is_direct(s) && !is_on_tcp(s) &&
		    !(peer_is_past_link(s) && s->in_data != s->link_data)) {
			lose(s);
			continue;
		}
		/* The parent keeps it there while this process is among the holders. */
		fds_close(atomic_exchange(&s->far_bell, -1));
	}
}
