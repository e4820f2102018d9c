/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's instance would hand over next: our tags are taken out, the rest stays. */
#include "base/atomic.h"
#include "base/kernel.h"
#include "readiness/epoll.h"

#define SIFT_EVENTS 64
/* More registrations than that are not compared with all others. */
#define SIFT_EDGES 64

/*
 * A look takes out of the kernel's queue what it is told. What is level-triggered is put there again by
 * the kernel itself. What is not, or is for once, has to be: by a MOD to what it is, after which the
 * kernel looks, and queues it where the level still holds. That takes the number, so it can be done for
 * sockets of ours that are not converted, and for nothing else; and the data must say which one it is.
 */
void instance_note_own(struct instance *in, const struct epoll_event *ev)
{
	bool edge = ev->events & (EPOLLET | EPOLLONESHOT);

	/* Under the lock: who sifts has seen it, or the kernel does not have it yet. */
	if (load_relaxed(&in->others) && (load_relaxed(&in->edges) || !edge))
		return;
	instance_lock(in);
	store_relaxed(&in->others, true);
	if (edge)
		store_relaxed(&in->edges, true);
	instance_unlock(in);
}

static bool is_edge(const struct epoll_reg *r)
{
	return !r->converted && (r->events & (EPOLLET | EPOLLONESHOT));
}

static bool is_told_apart(const struct epoll_reg *r)
{
	if (r->orphan || load_relaxed(&r->in->others) || fd_sock(r->fd) != r->s)
		return false;
	for (const struct epoll_reg *o = r->in->regs; o; o = o->next)
		if (o != r && (!o->converted || o->aside) && o->data.u64 == r->data.u64)
			return false;
	return true;
}

static bool may_sift(const struct instance *in)
{
	int edges = 0;

	if (load_relaxed(&in->edges) || in->no_upgrade || in->owner != epoll_self() ||
	    (in->forked && slot_epoll_noted()))
		return false;
	for (const struct epoll_reg *r = in->regs; r; r = r->next)
		if (is_edge(r) && (edges++ == SIFT_EDGES || !is_told_apart(r)))
			return false;
	return true;
}

static void put_back(struct instance *in, uint64_t data)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (is_edge(r) && r->data.u64 == data)
			reg_say_again(r);
}

/* True for a tag of ours that is gone from the queue with that. */
static bool hear_or_put_back(struct instance *in, const struct epoll_event *ev)
{
	bool bell;

	if (ev->data.u64 == tag_of_side())
		return false;
	if (ev->data.u64 == tag_of_shared())
		sock_hear_shared_bell();
	else if (tag_reg(ev->data.u64, &bell))
		tag_heard(in, ev);
	else if (put_back(in, ev->data.u64), true)
		return false;
	return true;
}

bool instance_sift(struct instance *in)
{
	struct epoll_event ev[SIFT_EVENTS];
	int epfd = instance_fd(in), n;
	bool progress;

	if (!may_sift(in))
		return false;
	do {
		progress = false;
		n = kernel_epoll_look(epfd, ev, SIFT_EVENTS);
		for (int i = 0; i < n; i++)
			progress |= hear_or_put_back(in, &ev[i]);
	} while (n == SIFT_EVENTS && progress);
	return n < SIFT_EVENTS;
}
