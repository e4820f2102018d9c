/* SPDX-License-Identifier: Apache-2.0 */
/* What a watched instance has aside goes back to the kernel, and no edge is told once more. */
#include "base/atomic.h"
#include "readiness/epoll.h"

/*
 * The kernel looks at a registration that it is given. Of one whose level holds, and has been told,
 * that is an edge once more, which is taken out of its queue again. What comes meanwhile is heard in
 * the news, and has the kernel look once more.
 */

static bool goes(const struct epoll_reg *r)
{
	return r->aside && r->converted && !r->spent && !r->orphan &&
	       load_acquire(&r->s->slot->phase) == SLOT_FINAL;
}

/* Returns how many are left, of which all has been told. */
static uint32_t return_news(struct instance *in)
{
	uint32_t told = 0;

	for (struct epoll_reg *r = in->regs; r; r = r->next) {
		if (!goes(r))
			continue;
		/* A report gives back what has something to tell. */
		if (!reg_report(r, false) && r->converted && reg_would_repeat(r))
			told++;
		else
			reg_revert(r);
	}
	return told;
}

static void return_told(struct instance *in)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->rejoined = goes(r) && reg_rejoin(r) == 0;
	instance_sift(in);
	/* This also lets pass who is waking: what the look has taken out is in the news then. */
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->rejoined)
			reg_leave_side(r);
	side_hear(in);
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->rejoined && !reg_report(r, false) && r->rejoined)
			reg_revert_rejoined(r);
}

void instance_return_all(struct instance *in)
{
	if (in->side < 0)
		return;
	side_hear(in);
	if (return_news(in))
		return_told(in);
}

void epoll_return_all(void)
{
	if (!epoll_any_side())
		return;
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		instance_lock(in);
		instance_return_all(in);
		if (in->side >= 0 && !atomic_load(&in->converted))
			side_drop(in);
		instance_unlock(in);
	}
}
