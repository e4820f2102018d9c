/* SPDX-License-Identifier: Apache-2.0 */
/* An instance comes to be watched from outside, and what that means for its sockets. */
#include "base/atomic.h"
#include "conn/table.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/* A peer is waited for before a registration of ours is the kernel's. */
#define GIVE_WAIT_MS 500

void instance_return_all(struct instance *in)
{
	if (in->side < 0)
		return;
	side_hear(in);
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->aside && !reg_is_stale(r) &&
		    load_acquire(&r->s->slot->phase) == SLOT_FINAL)
			reg_revert(r);
}

static void return_side(struct instance *in)
{
	instance_return_all(in);
	if (in->side >= 0 && !atomic_load(&in->converted))
		side_drop(in);
}

void epoll_return_all(void)
{
	if (!epoll_any_side())
		return;
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		instance_lock(in);
		return_side(in);
		instance_unlock(in);
	}
}

void epoll_return_all_forking(void)
{
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		if (!in->fds)
			continue;
		instance_lock(in);
		return_side(in);
		if (!in->forked)
			in->first_fork = table_fork_number();
		in->forked = true;
		instance_unlock(in);
	}
}

/* ---- the sockets stay on TCP ---- */

/* The next socket of the instance that has not been told to stay on TCP. */
static struct sock *next_to_refuse(struct instance *in, int *fd)
{
	struct sock *s = NULL;

	instance_lock(in);
	for (struct epoll_reg *r = in->regs; r && !s; r = r->next) {
		if (r->refused)
			continue;
		r->refused = true;
		s = r->s;
		*fd = r->use_fd;
	}
	instance_unlock(in);
	return s;
}

void instance_refuse_all(struct instance *in)
{
	struct sock *s;
	int fd = -1;

	while ((s = next_to_refuse(in, &fd)))
		sock_refuse(s, fd, VD_REASON_EPOLL);
}

/* Instances are never freed, and new ones stand before the others. */
void epoll_refuse_sideless(void)
{
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in))
		if (in->sideless)
			instance_refuse_all(in);
}

/* Both locks are held. The first whose doorbells the kernel counts: of those that have been told
 * to stay on TCP, or of the others. */
static struct epoll_reg *next_to_give(struct instance *in, bool refused)
{
	struct epoll_reg *r = in->owner == epoll_self() ? in->regs : NULL;

	while (r && (!r->converted || r->orphan || r->parked || reg_is_stale(r) ||
		     r->refused != refused))
		r = r->next;
	return r;
}

/* Under the list lock. */
static struct epoll_reg *to_give(bool refused, int *fd)
{
	struct epoll_reg *r = NULL;

	for (struct instance *in = instance_next(NULL); in && !r;
	     in = instance_next(in)) {
		instance_lock(in);
		r = in->fds ? next_to_give(in, refused) : NULL;
		if (r) {
			r->refused = true;
			*fd = r->use_fd;
		}
		instance_unlock(in);
	}
	return r;
}

static bool hush_parked(struct instance *in)
{
	bool some = false;

	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->parked && !r->hushed) {
			reg_hush(r);
			some = true;
		}
	return some;
}

/* Under the list lock: what is deleted needs no doorbell, and an idle side is of no use. */
static bool give_idle(void)
{
	bool some = false;

	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		if (!in->fds || in->owner != epoll_self())
			continue;
		instance_lock(in);
		some |= hush_parked(in);
		if (in->side >= 0 && !atomic_load(&in->converted)) {
			side_drop(in);
			some = true;
		}
		instance_unlock(in);
	}
	return some;
}

static bool is_given(struct epoll_reg *r)
{
	bool given;

	epoll_list_lock();
	/* The record may be free by now, or another's. */
	given = !r->in || !r->converted;
	epoll_list_unlock();
	return given;
}

bool epoll_give_watches(void)
{
	struct epoll_reg *r = NULL;
	struct sock *s = NULL;
	bool idle, again;
	int fd = -1;

	epoll_list_lock();
	idle = give_idle();
	if (!idle)
		r = to_give(false, &fd);
	again = !idle && !r;
	if (again)
		r = to_give(true, &fd);
	if (r)
		s = r->s;
	epoll_list_unlock();
	if (s)
		sock_down_wait(s, fd, VD_REASON_EPOLL, GIVE_WAIT_MS);
	/* Each is told once, and waited for as long as that helps. */
	return idle || (s && (!again || is_given(r)));
}

void instance_give_spent(struct instance *in, bool for_now)
{
	if (in->owner != epoll_self())
		return;
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		reg_give_spent(r, for_now);
}

void instance_take_spent(struct instance *in)
{
	if (in->owner != epoll_self() || in->no_upgrade)
		return;
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		reg_take_spent(r);
}

void ready_epoll_passing(int epfd, void (*down)(struct sock *s, int fd))
{
	struct instance *in = instance_at(epfd);
	struct sock *s;
	int fd = -1;

	if (!in)
		return;
	instance_lock(in);
	instance_return_all(in);
	in->no_upgrade = true;
	instance_goes_on(in);
	instance_unlock(in);
	while ((s = next_to_refuse(in, &fd)))
		down(s, fd);
	instance_lock(in);
	instance_give_spent(in, false);
	instance_unlock(in);
}

/* ---- who begins to watch ---- */

static void nest(struct instance *in, bool past)
{
	bool was = in->blind;

	in->blind |= past;
	if (past)
		instance_return_all(in);
	in->nested = true;
	store_relaxed(&epoll_watched, true);
	if (!past && atomic_load(&in->converted))
		side_make(in);
	if (was || !past)
		return;
	/* Whoever watches it past us is a sleeper that never looks. */
	instance_sleep(in);
	instance_arm(in);
	instance_attend(in);
}

static void nested(int fd, bool past)
{
	struct instance *in = instance_at(fd);
	bool done, refuses;

	if (!in)
		return;
	instance_lock(in);
	done = in->nested &&
	       (past ? in->blind
		     : in->side >= 0 || in->sideless || !atomic_load(&in->converted));
	instance_unlock(in);
	if (!done) {
		epoll_list_lock();
		instance_lock(in);
		nest(in, past);
		instance_unlock(in);
		epoll_list_unlock();
	}
	instance_lock(in);
	refuses = instance_refuses(in);
	instance_unlock(in);
	if (refuses)
		instance_refuse_all(in);
}

void epoll_nested(int fd)
{
	nested(fd, false);
}

void epoll_look_into(int fd)
{
	epoll_nested(fd);
	if (epoll_any_side())
		epoll_settle();
}

void ready_watched(int fd)
{
	epoll_nested_past(fd);
}

void epoll_nested_past(int fd)
{
	nested(fd, true);
}
