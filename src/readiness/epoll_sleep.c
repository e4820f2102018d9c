/* SPDX-License-Identifier: Apache-2.0 */
/* What an instance is before, during and after a sleep. */
#include "readiness/epoll.h"

/* A sleep makes a registration older by this many calls. */
#define SLEEP_AGE 16
/* Upper bound of a sleep on an instance that other processes use too. */
#define FOREIGN_SLEEP_NS 10000000u

void instance_crowd(struct instance *in, struct look_crowd *c)
{
	instance_lock(in);
	look_crowd_of(c, in->nhot);
	for (uint32_t i = 0; i < in->nhot; i++)
		if (!look_crowd_add(c, in->hot[i]->s))
			break;
	instance_unlock(in);
}

uint64_t instance_nap_ns(struct instance *in)
{
	uint64_t nap = UINT64_MAX;

	if (in->owner != epoll_self())
		nap = FOREIGN_SLEEP_NS;
	instance_lock(in);
	for (uint32_t i = 0; i < in->nhot; i++) {
		uint64_t ns = look_nap_ns(in->hot[i]->s, in->hot[i]->use_fd);

		nap = ns < nap ? ns : nap;
	}
	instance_unlock(in);
	return nap;
}

void instance_awake(struct instance *in)
{
	in->calls += SLEEP_AGE;
	if (!instance_sleepers(in))
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
