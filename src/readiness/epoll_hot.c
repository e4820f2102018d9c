/* SPDX-License-Identifier: Apache-2.0 */
/* Which records are looked at by each call, and which are armed: their doorbells ring for what comes. */
#include "base/atomic.h"
#include "readiness/epoll.h"

void reg_heat(struct epoll_reg *r)
{
	struct instance *in = r->in;

	r->active = in->calls;
	if (r->hot_at)
		return;
	in->hot[in->nhot++] = r;
	r->hot_at = in->nhot;
}

void reg_chill(struct epoll_reg *r)
{
	struct instance *in = r->in;
	struct epoll_reg *last;

	if (!r->hot_at)
		return;
	last = in->hot[--in->nhot];
	in->hot[r->hot_at - 1] = last;
	last->hot_at = r->hot_at;
	r->hot_at = 0;
}

void reg_arm(struct epoll_reg *r)
{
	uint32_t interest = look_interest(r->events);

	if ((r->armed && !r->rung && r->armed == interest) || reg_is_stale(r))
		return;
	reg_disarm(r);
	r->armed = interest;
	/* Of a room that nobody has lacked an edge-triggered registration is not told. */
	if (interest && r->events & EPOLLET)
		sock_arm_edge(r->s, interest, r->edge_out);
	else if (interest)
		sock_arm(r->s, interest);
}

void reg_disarm(struct epoll_reg *r)
{
	if (r->armed && !reg_is_stale(r))
		sock_disarm(r->s, r->armed);
	r->armed = 0;
	r->rung = false;
}

void reg_abandon(struct epoll_reg *r)
{
	reg_chill(r);
	r->armed = 0;
	if (r->converted)
		atomic_fetch_sub(&r->in->converted, 1);
	r->converted = false;
}

/* Upper bound of a sleep on an instance that other processes use too. */
#define FOREIGN_SLEEP_NS 10000000u

uint64_t instance_nap_ns(struct instance *in)
{
	uint64_t nap = UINT64_MAX;

	if (in->owner != epoll_self())
		nap = FOREIGN_SLEEP_NS;
	for (uint32_t i = 0; i < in->nhot; i++) {
		uint64_t ns = look_nap_ns(in->hot[i]->s, in->hot[i]->use_fd);

		nap = ns < nap ? ns : nap;
	}
	return nap;
}
