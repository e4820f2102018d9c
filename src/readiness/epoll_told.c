/* SPDX-License-Identifier: Apache-2.0 */
/* What an edge-triggered registration has been told by the kernel, when its connection is upgraded. */
#include "base/atomic.h"
#include "base/await.h"
#include "base/tcp.h"
#include "readiness/epoll.h"

#define NEVER UINT64_MAX
#define STATES                                                                           \
	(SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_WR | SEEN_SHUT_RD | SEEN_GONE |      \
	 SEEN_BROKEN | SEEN_FIN_SAID)

/* A change of the connection's state, or urgent data, has come, or may have. */
static bool has_state(struct epoll_reg *r, uint32_t level)
{
	uint32_t seen = load_acquire(&r->s->slot->seen);

	return (level & (EPOLLRDHUP | EPOLLPRI | LOOK_ALWAYS)) || sock_has_fin(r->s) ||
	       (seen & STATES);
}

void reg_begin(struct epoll_reg *r)
{
	r->edge_in = sock_edge_in(r->s);
	r->moves = sock_moves(r->s);
	r->edge_out = sock_edge_out(r->s);
	r->ups = load_relaxed(&r->s->out->up_epoch);
	r->shuts = load_relaxed(&r->s->slot->shuts);
}

/*
 * What comes from reg_begin on is news in any case, so it is first.
 * An instance that is not readable has handed over all that it was woken for. A wake-up is part of the change that
 * brings it, under the connection's lock, which the kernel takes for its counts: so all that led to this level and to
 * the later counts is in the instance when that is asked. Who has found no room since the earlier ones has written, and
 * waits for more than this level.
 */
bool reg_all_told(struct epoll_reg *r)
{
	struct pollfd p = {.fd = r->use_fd,
			   .events = LOOK_IN | LOOK_OUT | EPOLLRDHUP | EPOLLPRI},
		      in = {.fd = instance_fd(r->in), .events = POLLIN};
	struct tcp_counts before, c;
	uint32_t level;

	if ((r->events & (EPOLLET | EPOLLEXCLUSIVE)) != EPOLLET || r->converted)
		return false;
	reg_begin(r);
	if (tcp_counts(r->use_fd, TCP_ROLE_ACCEPTED, &before) != 0 ||
	    await_glance(&p, 1) < 0 || (p.revents & POLLNVAL))
		return false;
	level = (uint16_t)p.revents;
	if (has_state(r, level) || tcp_counts(r->use_fd, TCP_ROLE_ACCEPTED, &c) != 0 ||
	    await_glance(&in, 1) != 0)
		return false;
	/* The kernel's first word of bytes that lie there is not heard. Looks are to ask it for them all the same. */
	if (level & LOOK_IN)
		sock_note_kernel(r->s, level & LOOK_IN);
	r->had_in = c.received;
	r->had_out = level & EPOLLOUT ? before.written : NEVER;
	/* The kernel says nothing at first of what asks for nothing that holds: what it says then is news. */
	r->first = (level & reg_tag_events(r)) != 0;
	return true;
}

/*
 * The kernel looks at a registration that it is given, and says what holds. Without a byte more than there was
 * that has been told; and so has the room, where nothing has been written that could have filled it since.
 */
bool reg_first_word(struct epoll_reg *r, uint32_t *events)
{
	struct tcp_counts c;

	r->first = false;
	if (tcp_counts(r->use_fd, TCP_ROLE_ACCEPTED, &c) != 0)
		return true;
	if (c.written == r->had_out || !(r->events & LOOK_OUT))
		*events &= ~(uint32_t)LOOK_OUT;
	/* Urgent data may run ahead of the count. */
	if (c.received != r->had_in || (*events & EPOLLPRI))
		return true;
	*events &= ~(uint32_t)EPOLL_KEY_IN;
	return *events != 0;
}
