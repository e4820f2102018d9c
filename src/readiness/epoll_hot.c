/* SPDX-License-Identifier: Apache-2.0 */
/* Which records are looked at by each call, and which are armed: their doorbells ring for what comes. */
#include "base/atomic.h"
#include "readiness/epoll.h"

/* Calls without activity after which a record leaves the hot list: scanning it that
 * often costs about what one doorbell costs. */
#define HOT_CALLS 64

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

void instance_arm(struct instance *in)
{
	for (uint32_t i = 0; i < in->nhot; i++)
		reg_arm(in->hot[i]);
}

void instance_disarm(struct instance *in)
{
	for (uint32_t i = 0; i < in->nhot; i++)
		reg_disarm(in->hot[i]);
}

void instance_attend(struct instance *in)
{
	/* Who watches a side from outside asks before each look, and no event is an edge twice. */
	bool ring = in->side < 0 || in->blind || instance_sleepers(in) > 1;

	for (uint32_t i = 0; i < in->nhot; i++) {
		struct epoll_reg *r = in->hot[i];

		/* What came before it was armed did not ring. */
		reg_arm(r);
		if (ring && reg_report(r, false))
			sock_ring_self(r->s);
	}
}

void instance_age(struct instance *in)
{
	if (in->calls - in->aged_at < HOT_CALLS)
		return;
	in->aged_at = in->calls;
	for (uint32_t i = in->nhot; i-- > 0;) {
		struct epoll_reg *r = in->hot[i];

		/* Watched for a death that the kernel does not tell, and bytes that become due by time. */
		if (in->calls - r->active < HOT_CALLS || sock_is_held(r->s) ||
		    sock_is_held_up(r->s, r->use_fd))
			continue;
		reg_arm(r);
		if (!reg_report(r, false))
			reg_chill(r);
		else if (!instance_sleepers(in))
			reg_disarm(r);
	}
}
