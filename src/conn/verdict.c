/* SPDX-License-Identifier: Apache-2.0 */
/* What is found out about the peer, its end, its death, or a lie of it; and the errors that it makes. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/log.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "conn/trace.h"

void sock_break(struct sock *s, enum vd_reason reason)
{
	if (seen_of(s->slot) & SEEN_BROKEN)
		return;
	seen_add(s->slot, SEEN_BROKEN);
	atomic_store(&s->slot->reason, reason);
	if (trace_is_wished() && s->wire)
		trace_event(s, -1, TRACE_BROKEN, reason);
	/* A link fails with each peer that is killed: nothing is wrong here. */
	if (reason == VD_REASON_LINK)
		log_debug("connection ended with ECONNRESET: %s (%s)",
			  reason_name(reason), reason_text(reason));
	else
		log_error("connection ended with ECONNRESET: %s (%s)",
			  reason_name(reason), reason_text(reason));
	sock_ring_self(s);
}

/*
 * Whoever has the peer's end says `fin` before it shuts down: it sends by the ring, or
 * it reads the ring and has not asked for TCP, for somebody else. In the second case we
 * may receive in the kernel, which then tells a real reset past us, but shows it as a
 * hang-up. Once we have shut down, an end shows so, too; who waits then does so outside
 * of the kernel, where bytes lie unread (rx_open).
 */
static bool is_peer_known(struct sock *s)
{
	struct slot *sl = s->slot;
	if (gate_state(&sl->gate_rx) == GATE_RING &&
	    load_acquire(&s->in->down_epoch) != load_relaxed(&s->in->up_epoch))
		return true;
	return gate_state(&sl->gate_rx) != GATE_FINAL &&
	       (seen_of(sl) & (SEEN_HUP | SEEN_SHUT_WR)) != SEEN_HUP &&
	       gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s) &&
	       !load_acquire(&s->out->want_down);
}

/* Bytes unread that TCP would have sent, those that were held back for long enough with them. */
static bool is_out_unread(struct sock *s)
{
	uint64_t held = load_relaxed(&s->out->held_at);
	return ring_unread(s->out) ||
	       ((int64_t)(held - load_relaxed(&s->out->consumed)) > 0 &&
		wait_held_is_over(s->out));
}

bool sock_was_reset(struct sock *s)
{
	uint32_t seen = seen_of(s->slot);
	/* With an error of its own the kernel has had a real reset, and tells itself. */
	if ((seen & SEEN_ERR) || !(seen & (SEEN_FIN | SEEN_GONE)) || sock_has_fin(s) ||
	    !is_peer_known(s))
		return false;
	return (seen & SEEN_RESET_TOLD) || is_out_unread(s);
}

bool sock_take_reset(struct sock *s)
{
	if (!sock_was_reset(s))
		return false;
	return !(atomic_fetch_or(&s->slot->seen, SEEN_RESET_TOLD) & SEEN_RESET_TOLD);
}

/* Verdicts in a set of poll events. After shutdown for reading, POLLRDHUP is our own. */
static uint32_t verdicts(struct sock *s, int fd, uint32_t events)
{
	uint32_t seen = 0;
	int state = 0;
	if ((events & (EPOLLRDHUP | EPOLLHUP)) && !peer_end_is_known(s))
		events &= ~(uint32_t)(EPOLLRDHUP | EPOLLHUP);
	if (events & EPOLLRDHUP)
		seen |= SEEN_FIN;
	if (events & EPOLLHUP)
		seen |= SEEN_HUP;
	if (events & EPOLLERR)
		seen |= SEEN_ERR;
	if ((seen & SEEN_FIN) && (seen_of(s->slot) & SEEN_SHUT_RD) &&
	    (fd < 0 || tcp_state(fd, &state) < 0 || state == TCP_ESTABLISHED ||
	     state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2))
		seen &= ~(uint32_t)SEEN_FIN;
	return seen;
}

bool sock_see(struct sock *s, int fd, uint64_t mark, uint32_t events)
{
	uint32_t seen = verdicts(s, fd, events);
	if (!(seen & ~seen_of(s->slot)))
		return true;
	/* Another thread may have closed the number, put another file there, and the connection again. */
	if (!sock_had(s, fd, mark))
		return false;
	seen_add(s->slot, seen);
	return true;
}

void sock_note_kernel(struct sock *s, uint32_t events)
{
	uint32_t seen = verdicts(s, -1, events);
	if (seen & ~seen_of(s->slot))
		seen_add(s->slot, seen);
	fetch_add_relaxed(&s->edges, 1);
}

void sock_look(struct sock *s, int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLRDHUP};
	uint64_t mark;
	if (await_glance(&pfd, 1) <= 0 || (pfd.revents & POLLNVAL) ||
	    !(verdicts(s, fd, (uint32_t)pfd.revents) & ~seen_of(s->slot)))
		return;
	/* There is news: once more, since the number may have been another file's. */
	do {
		mark = sock_mark(s, fd);
		if (!mark || await_glance(&pfd, 1) <= 0 || (pfd.revents & POLLNVAL))
			return;
	} while (!sock_see(s, fd, mark, (uint32_t)pfd.revents));
}

bool sock_has_fin(struct sock *s)
{
	if (seen_of(s->slot) & SEEN_FIN_SAID)
		return true;
	/* Acquire: whoever says the end has published every byte before. */
	if (!load_acquire(&s->in->fin))
		return false;
	seen_add(s->slot, SEEN_FIN_SAID);
	return true;
}

/* Where the peer is on TCP again, or has shut down, all that it has written to the ring is there, and
 * that is memory like any other. */
bool peer_is_past_link(struct sock *s)
{
	if (!gate_is_kernel(gate_state(&s->slot->gate_tx)))
		return false;
	return gate_is_kernel(gate_state(&s->slot->gate_rx)) || rx_is_down(s) ||
	       sock_has_fin(s);
}

/* ---- errors that are told ---- */

void sock_keep_error(struct sock *s, int error)
{
	struct slot *sl = s->slot;
	uint32_t seen = seen_of(sl);
	while (!atomic_compare_exchange_weak(&sl->seen, &seen,
					     (seen & SEEN_VERDICTS) |
						     (uint32_t)error << SEEN_KEPT_SHIFT))
		;
}

int sock_take_kept(struct sock *s, int fd)
{
	struct pollfd p = {.fd = fd};
	int state = 0, saved = errno, kept = kept_take(s);
	bool closed = kept && await_glance(&p, 1) > 0 && (p.revents & POLLERR) &&
		      tcp_state(fd, &state) == 0 && state == TCP_CLOSE;
	if (closed && sock_is_direct(s))
		sock_look(s, fd); /* so that a send asks the kernel */
	errno = saved;
	return closed ? 0 : kept;
}

void sock_error_ask(struct sock *s, int fd)
{
	/* Nobody may have looked since the peer has ended. */
	if (sock_is_direct(s))
		sock_look(s, fd);
}

int sock_take_error(struct sock *s)
{
	int kept = kept_take(s);
	if (kept)
		return kept;
	if (!sock_is_direct(s))
		return 0;
	if (seen_of(s->slot) & SEEN_BROKEN)
		return ECONNRESET;
	return sock_take_reset(s) ? ECONNRESET : 0;
}

void sock_error_told(struct sock *s)
{
	if (sock_is_direct(s))
		seen_add(s->slot, SEEN_ERR);
}

void sock_ended_short(struct sock *s, int fd)
{
	const uint32_t others = SEEN_ERR | SEEN_SHUT_WR | SEEN_DISSOLVED;
	struct pollfd p = {.fd = fd};
	uint64_t mark;
	int state = 0, saved = errno;
	if (!sock_is_direct(s) || gate_state(&s->slot->gate_tx) == GATE_RING ||
	    (seen_of(s->slot) & others))
		return;
	mark = sock_mark(s, fd);
	/* Closed by the kernel, with no error left: that has been taken. The state first, so that no error comes behind. */
	if (mark && tcp_state(fd, &state) == 0 && state == TCP_CLOSE &&
	    await_glance(&p, 1) > 0 && !(p.revents & (POLLERR | POLLNVAL)) &&
	    sock_had(s, fd, mark) && !(seen_of(s->slot) & others))
		seen_add(s->slot, SEEN_ERR);
	errno = saved;
}
