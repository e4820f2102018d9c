/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a connection in epoll instances may be attached: who else has these, and whether their waits come by here. */
#include <errno.h>
#include <signal.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "readiness/epoll.h"

/* A forked child's instance is the parent's as well, unless the parent has gone. */
bool instance_is_foreign(struct instance *in)
{
	if (in->owner == epoll_self())
		return false;
	if (kill(in->owner, 0) == 0 || errno != ESRCH)
		return true;
	in->owner = epoll_self();
	instance_note_unseen(in);
	/* The number was the parent's. */
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->shared = -1;
	return false;
}

bool instance_refuses(struct instance *in)
{
	return in->nested || in->no_upgrade || instance_is_foreign(in);
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
static bool puts_off(struct instance *in)
{
	if (instance_is_heeded(in) || waits_past_us(in))
		return false;
	if (in->put_off == 0)
		in->put_off_since = clock_coarse_ms();
	in->put_off += in->put_off <= PUT_OFF_MOST;
	return true;
}

/* One of its instances is waited on by calls that come by here: then the others are believed as well. Under the list lock. */
static bool is_heeded(struct sock *s)
{
	struct epoll_reg *r = s->regs;

	while (r && !instance_is_heeded(r->in))
		r = r->next_of_sock;
	return r != NULL;
}

/*
 * Whether the kernel has reported a ONESHOT registration, and to whom, cannot be asked: taken
 * over now, it could be reported twice. It is taken over at its next MOD, which arms it.
 * And who waits by system calls of his own would not hear of what memory has: Bun sends and receives by the C
 * library, and waits past it. So some wait has to be seen first.
 */
bool epoll_may_attach(struct sock *s)
{
	bool may = true, heeded;

	if (!reg_is_any(s))
		return true;
	epoll_list_lock();
	heeded = is_heeded(s);
	for (struct epoll_reg *r = s->regs; r && may; r = r->next_of_sock) {
		instance_lock(r->in);
		may = r->converted || instance_refuses(r->in) ||
		      (!(r->events & EPOLLONESHOT) && (heeded || !puts_off(r->in)));
		instance_unlock(r->in);
	}
	epoll_list_unlock();
	return may;
}

void epoll_on_attach(struct sock *s)
{
	enum vd_reason reason = VD_REASON_NONE;
	bool heeded;
	int fd = -1;

	if (!reg_is_any(s))
		return;
	epoll_list_lock();
	heeded = is_heeded(s);
	/* Another thread may have refused it meanwhile. */
	for (struct epoll_reg *r = s->regs;
	     r && fd < 0 && atomic_load(&s->slot->phase) != SLOT_FINAL;
	     r = r->next_of_sock) {
		struct instance *in = r->in;

		instance_lock(in);
		reason = instance_reason(in);
		if (reason == VD_REASON_RAW && heeded)
			reason = VD_REASON_NONE;
		if (!reason && reg_convert(r, false))
			reason = VD_REASON_EPOLL;
		if (reason)
			fd = r->use_fd;
		instance_unlock(in);
	}
	epoll_list_unlock();
	if (fd >= 0)
		sock_refuse(s, fd, reason);
}
