/* SPDX-License-Identifier: Apache-2.0 */
/* What an instance is before, during and after a sleep. */
#include "base/atomic.h"
#include "readiness/epoll.h"

/* A sleep makes a registration older by this many calls. */
#define SLEEP_AGE 16
/* Calls without activity after which a record leaves the hot list: scanning it that
 * often costs about what one doorbell costs. */
#define HOT_CALLS 64

void instance_crowd(struct instance *in, struct look_crowd *c)
{
	instance_lock(in);
	look_crowd_of(c, in->nhot);
	for (uint32_t i = 0; i < in->nhot; i++)
		if (!look_crowd_add(c, in->hot[i]->s))
			break;
	instance_unlock(in);
}

void instance_awake(struct instance *in)
{
	in->calls += SLEEP_AGE;
	if (!instance_is_awaited(in))
		instance_disarm(in);
}

bool instance_up(struct instance *in, uint32_t generation)
{
	if (!instance_woke(in, generation))
		return false;
	if (!atomic_load(&in->converted))
		return true;
	instance_lock(in);
	instance_awake(in);
	instance_unlock(in);
	return true;
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
	if (!instance_sleepers(in)) {
		side_show(in);
		return;
	}
	for (uint32_t i = 0; i < in->nhot; i++) {
		struct epoll_reg *r = in->hot[i];

		/* What came before it was armed did not ring. */
		reg_arm(r);
		if (reg_report(r, false))
			sock_ring_self(r->s);
		/* Given back to the kernel, and the last has taken its place. */
		i -= !r->hot_at;
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
		else if (!instance_is_awaited(in))
			reg_disarm(r);
	}
}
