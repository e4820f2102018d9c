/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that has died while its FIN cannot come, behind TCP bytes that we do not read. */
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "base/atomic.h"
#include "base/real.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "rendezvous/diag.h"

/* Between two questions about one socket. */
#define ASK_MS 500

/*
 * Where bytes of ours lie unread, TCP would have had a reset at once. With the other direction
 * in the ring the FIN comes, and sock_was_reset tells; on TCP it can be held up for ever.
 */
static bool may_be_held_up(struct sock *s)
{
	struct slot *sl = s->slot;
	return gate_state(&sl->gate_tx) == GATE_RING &&
	       gate_state(&sl->gate_rx) != GATE_RING && sock_is_direct(s) &&
	       !(seen_of(sl) &
		 (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_BROKEN | SEEN_GONE)) &&
	       !load_relaxed(&s->in->fin) && ring_unread(s->out);
}

bool sock_is_held_up(struct sock *s, int fd)
{
	int queued = 0;
	return may_be_held_up(s) && REAL(ioctl)(fd, FIONREAD, &queued) == 0 && queued > 0;
}

/* Asks the kernel whether the peer's socket has lost its last descriptor. */
static bool is_owner_gone(struct sock *s, int fd)
{
	bool connected = atomic_load(&s->slot->role) == TCP_ROLE_CONNECTED;
	struct name_tuple t;
	struct diag_socket peer;
	uint64_t netns;
	if (tcp_netns_cookie(fd, &netns) < 0 ||
	    name_of_connection(fd, atomic_load(&s->slot->role), &t) < 0)
		return false;
	int found = diag_lookup(netns, connected ? &t.server : &t.client,
				connected ? &t.client : &t.server, t.scope, &peer);
	/* In another network namespace nobody can be asked, but the peer's doorbell went with its last
	 * process; or before an exec, which leaves a request behind. */
	if (found == 0 ? rewind_is_due(s) || !bell_is_over(s)
		       : found < 0 || peer.inode != 0)
		return false;
	/* The number may have become another socket's meanwhile. */
	return sock_is_at(s, fd);
}

bool sock_watch_owner(struct sock *s, int fd)
{
	if (!may_be_held_up(s))
		return false;
	uint64_t now = clock_coarse_ms();
	uint64_t due = load_relaxed(&s->owner_due_ms);
	if (now < due ||
	    !atomic_compare_exchange_strong(&s->owner_due_ms, &due, now + ASK_MS))
		return true;
	if (!sock_is_held_up(s, fd) || !is_owner_gone(s, fd))
		return true;
	seen_add(s->slot, SEEN_GONE);
	fetch_add_relaxed(&s->edges, 1);
	sock_ring_self(s); /* also for the caller: he has looked already */
	return true;
}
