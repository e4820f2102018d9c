/* SPDX-License-Identifier: Apache-2.0 */
/* Who else has an epoll instance, and whether waits on it come by here. */
#include <errno.h>
#include <signal.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/sections.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/* A forked child's instance is the parent's as well, unless the parent has gone. Then it may be another child's: of its
 * tags this process knows nothing. */
bool instance_is_foreign(struct instance *in)
{
	if (in->owner == epoll_self())
		return false;
	if (kernel_kill(in->owner, 0) != -ESRCH ||
	    slot_table_has_others_since(in->first_fork, false))
		return true;
	/* The number was the parent's. */
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->shared = -1;
	in->owner = epoll_self();
	return false;
}

/* Own, and a child waits on it, who would be told of our tags, or not at all. */
bool instance_is_shared(struct instance *in)
{
	return in->forked && in->owner == epoll_self() && slot_table_waits() != 0 &&
	       slot_table_has_others_since(in->first_fork, false);
}

/* Nothing else makes it so: a wait need not look at all processes each time. Relaxed: two that look find the same. */
bool instance_comes_shared(struct instance *in)
{
	uint32_t waits = slot_table_waits();

	if (load_relaxed(&in->waits_seen) == waits)
		return false;
	store_relaxed(&in->waits_seen, waits);
	return instance_is_shared(in);
}

void instance_note_waiter(struct instance *in)
{
	if (in->owner == epoll_self() || load_relaxed(&in->noted))
		return;
	instance_lock(in);
	if (!load_relaxed(&in->noted) && instance_is_foreign(in)) {
		store_relaxed(&in->noted, true);
		slot_table_note_wait();
	}
	instance_unlock(in);
}

/* Of the same instance a parent, or a child, hears by the table, which both have. */
void instance_goes_on(struct instance *in)
{
	if (in->owner != epoll_self() || in->forked)
		slot_table_uncounted();
}

void ready_goes_along(int epfd)
{
	struct instance *in = instance_at(epfd);

	if (!in)
		return;
	instance_lock(in);
	instance_goes_on(in);
	instance_unlock(in);
}

_Atomic uint32_t epoll_outside FORK_DATA;

/* Somebody sleeps outside. Without the locks of the others: who comes to sleep settles this one afterwards. */
static bool is_awaited_outside(struct instance *in)
{
	if (atomic_load(&epoll_outside))
		return true;
	for (int depth = 0; depth < EPOLL_DEPTH && load_relaxed(&in->watched); depth++) {
		struct instance *by = load_relaxed(&in->watcher);

		if (by == in || instance_sleepers(by))
			return true;
		in = by;
	}
	return false;
}

bool instance_is_awaited(struct instance *in)
{
	return instance_sleepers(in) || (in->nested && is_awaited_outside(in));
}

void instance_watch(struct instance *in, struct instance *by, bool asks)
{
	struct instance *before = load_relaxed(&in->watcher);
	bool other = before && before != by;

	store_relaxed(&in->watcher, other ? in : by);
	store_relaxed(&in->watched, asks || other);
}

bool instance_refuses(struct instance *in)
{
	return in->blind || (in->nested && in->sideless) || in->no_upgrade ||
	       instance_is_foreign(in) || instance_is_shared(in);
}

bool instance_refuses_waiter(struct instance *in)
{
	bool refuses;

	instance_lock(in);
	refuses = instance_refuses(in);
	instance_unlock(in);
	return refuses;
}

/* Of one instance. Then its waits go past us. */
#define PUT_OFF_MOST 1000u
#define PUT_OFF_MS   1000u

static bool waits_past_us(const struct instance *in)
{
	return !instance_is_heeded(in) && in->put_off > PUT_OFF_MOST &&
	       clock_coarse_ms() - in->put_off_since > PUT_OFF_MS;
}

enum vd_reason instance_reason(struct instance *in)
{
	if (instance_refuses(in))
		return VD_REASON_EPOLL;
	return waits_past_us(in) ? VD_REASON_RAW : VD_REASON_NONE;
}

/* Under the instance's lock: it is still to be seen whether anybody waits. */
bool instance_puts_off(struct instance *in)
{
	if (instance_is_heeded(in) || waits_past_us(in))
		return false;
	if (in->put_off == 0)
		in->put_off_since = clock_coarse_ms();
	in->put_off += in->put_off <= PUT_OFF_MOST;
	return true;
}

/* One of its instances is waited on by calls that come by here: then the others are believed as well. Under the list lock. */
bool reg_is_heeded(struct sock *s)
{
	struct epoll_reg *r = s->regs;

	while (r && !instance_is_heeded(r->in))
		r = r->next_of_sock;
	return r != NULL;
}
