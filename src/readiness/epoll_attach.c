/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the registrations of a connection can be taken over from the kernel: it is upgraded then. */
#include "base/atomic.h"
#include "readiness/epoll.h"

/* After so many operations the upgrade is undone. */
#define ATTACH_OPS_MOST 65536u

/* In the kernel's own list, where an armed one has EPOLLERR at any rate. One that has been told
 * stays so until its MOD, which comes by here. */
bool reg_is_spent_there(struct epoll_reg *r)
{
	struct listing listing = epoll_listing(instance_fd(r->in));
	const char *at = listing.text;
	bool spent = false;
	struct listed l;

	while (!spent && listing_next(&at, &l))
		spent = l.fd == r->fd && l.data == r->data.u64 &&
			(l.events & EPOLLONESHOT) && !(l.events & EPOLLERR);
	listing_drop(&listing);
	return spent;
}

/* A ONESHOT registration that is armed may be told at any moment, and taken over, once more. */
static bool is_oneshot_ready(struct epoll_reg *r, bool asks)
{
	return !(r->events & EPOLLONESHOT) || (asks && reg_is_spent_there(r));
}

/*
 * A ONESHOT registration is taken over at its next MOD, which arms it; or as one that has been
 * told, where that does not come (next_try): Erlang leaves it in one instance, and waits in
 * another.
 * And who waits by system calls of his own would not hear of what memory has: Bun sends and receives by the C
 * library, and waits past it. So some wait has to be seen first.
 */
bool epoll_may_attach(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t ops = load_relaxed(&sl->ops);
	bool asks = ops >= load_relaxed(&sl->next_try);
	bool may = true, heeded;
	int fd = -1;

	if (!reg_is_any(s))
		return true;
	epoll_list_lock();
	heeded = reg_is_heeded(s);
	for (struct epoll_reg *r = s->regs; r && may; r = r->next_of_sock) {
		instance_lock(r->in);
		may = r->converted || instance_refuses(r->in) ||
		      (is_oneshot_ready(r, asks) &&
		       (heeded || !instance_puts_off(r->in)));
		fd = r->use_fd;
		instance_unlock(r->in);
	}
	epoll_list_unlock();
	if (!may && ops > ATTACH_OPS_MOST)
		sock_refuse(s, fd, VD_REASON_EPOLL);
	return may;
}
