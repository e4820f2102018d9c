/* SPDX-License-Identifier: Apache-2.0 */
/* epoll_ctl: forwarded to the kernel, and recorded where it names a socket of ours. */
#include <errno.h>
#include <stdlib.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/heed.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/* A peer is waited for before the kernel tells of a connection in place of memory. */
#define FOREIGN_WAIT_MS 500
#define FOREIGN_NAP_MS	2

static int kernel_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return REAL(epoll_ctl)(epfd, op, fd, ev) < 0 ? -errno : 0;
}

static bool is_attached(struct sock *s)
{
	uint32_t phase = atomic_load(&s->slot->phase);

	/* From ATTACHING on epoll_on_attach may already have been here. */
	return phase >= SLOT_ATTACHING && phase < SLOT_FINAL;
}

/* Nothing that the kernel need know, but what wakes for an edge. */
void reg_renew(struct epoll_reg *r, const struct epoll_event *ev)
{
	uint32_t before = r->events;

	r->events = ev->events;
	r->data = ev->data;
	r->spent = false;
	r->fresh = true;
	r->added = __rdtsc();
	r->heard = 0;
	reg_disarm(r);
	reg_heat(r);
	reg_renew_tag(r, before);
	reg_poke(r);
}

static void reg_unpark(struct epoll_reg *r, const struct epoll_event *ev)
{
	r->parked = false;
	r->in->parked--;
	reg_renew(r, ev);
	r->made = r->added;
}

/*
 * DEL of a converted registration. Event loops that add and delete a descriptor for each
 * message are many, and two changes of the kernel's set cost more than the message: what
 * is there stays, says nothing, and goes when the descriptor is closed, or the first time
 * that it wakes somebody (reg_hush).
 */
static void reg_park(struct epoll_reg *r)
{
	reg_disarm(r);
	reg_chill(r);
	r->parked = r->spent = true;
	r->in->parked++;
	r->queued = 0;
}

/* As the kernel judges it, before it looks whether the descriptor is registered. */
#define EXCLUSIVE_BITS                                                                   \
	(EPOLLEXCLUSIVE | EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP |       \
	 EPOLLET)

static bool is_exclusive_ok(int op, uint32_t events)
{
	if (!(events & EPOLLEXCLUSIVE))
		return true;
	return op == EPOLL_CTL_ADD && !(events & ~(uint32_t)EXCLUSIVE_BITS);
}

/* Nobody but others is known to wait on it. Who waits himself hears at once of a peer that makes no call. */
static bool is_others(struct instance *in)
{
	return instance_is_foreign(in) ||
	       (!load_relaxed(&in->waited_on) && instance_is_shared(in));
}

/*
 * Whoever else has the kernel's instance, or waits past us, could do nothing with a tag of ours. What is being attached
 * waits for a wait; where it does not any more, make_attached looks for this once more.
 */
static bool may_convert(struct instance *in, struct sock *s, enum vd_reason refuse)
{
	return is_attached(s) && (refuse != VD_REASON_EPOLL || !is_others(in)) &&
	       (instance_is_heeded(in) || refuse == VD_REASON_EPOLL ||
		(atomic_load(&s->slot->phase) != SLOT_ATTACHING &&
		 refuse != VD_REASON_RAW));
}

/* Both locks are held. */
static int add_locked(struct instance *in, int epfd, struct sock *s, int fd,
		      struct epoll_event *ev, enum vd_reason *refuse)
{
	enum vd_reason reason = instance_reason(in);
	bool ours = may_convert(in, s, reason);
	bool tagged = ours && !(ev->events & EPOLLEXCLUSIVE);
	struct epoll_reg *r = reg_find(in, s, fd);
	int rc;

	if (r && !r->parked)
		return -EEXIST;
	if (r && tagged && !r->hushed && !instance_refuses(in)) {
		reg_unpark(r, ev);
		return 0;
	}
	if (r) {
		reg_withdraw(r);
		reg_destroy(r);
	}
	r = reg_create(in, s, fd, ev);
	if (!r) {
		*refuse = VD_REASON_MEMORY;
		return -ENOMEM;
	}
	/* Again: from here on whoever attaches sees the record. */
	ours = may_convert(in, s, reason);
	tagged = ours && !(ev->events & EPOLLEXCLUSIVE);
	rc = reg_register(r, epfd, ev, tagged);
	if (rc) {
		reg_destroy(r);
		return rc;
	}
	*refuse = reason;
	if (ours && (reg_convert(r, tagged) || instance_refuses(in)) && !*refuse)
		*refuse = VD_REASON_EPOLL;
	r->refused = *refuse != VD_REASON_NONE;
	return 0;
}

/* There is no memory for a record: it is the kernel's, as the connection is. */
static int add_to_kernel(struct instance *in, int epfd, struct sock *s, int fd,
			 struct epoll_event *ev)
{
	sock_down_wait(s, fd, VD_REASON_MEMORY, FOREIGN_WAIT_MS);
	instance_lock(in);
	instance_mixed(in);
	instance_unlock(in);
	return kernel_ctl(epfd, EPOLL_CTL_ADD, fd, ev);
}

static int reg_add(struct instance *in, int epfd, struct sock *s, int fd,
		   struct epoll_event *ev)
{
	enum vd_reason refuse = VD_REASON_NONE;
	int rc;

	/* Who has got the instance in a message, or by a fork, would be told our tag. */
	if ((in->no_upgrade || instance_is_shared(in)) && is_attached(s))
		sock_down_wait(s, fd, VD_REASON_EPOLL, FOREIGN_WAIT_MS);
	epoll_list_lock();
	instance_lock(in);
	rc = add_locked(in, epfd, s, fd, ev, &refuse);
	instance_unlock(in);
	epoll_list_unlock();
	if (refuse == VD_REASON_MEMORY)
		return add_to_kernel(in, epfd, s, fd, ev);
	/* Nobody may hear of what lies unread in memory: it is to come over TCP. */
	if (refuse == VD_REASON_RAW || (refuse && in->owner != epoll_self()))
		sock_down_wait(s, fd, refuse, FOREIGN_WAIT_MS);
	else if (refuse)
		sock_refuse(s, fd, refuse);
	return rc;
}

int reg_enter(struct instance *in, int epfd, struct sock *s, int fd,
	      struct epoll_event *ev)
{
	enum vd_reason refuse = VD_REASON_NONE;
	int rc = add_locked(in, epfd, s, fd, ev, &refuse);
	struct epoll_reg *r = rc ? NULL : reg_find(in, s, fd);

	if (r && !r->converted) {
		reg_leave(r, epfd);
		rc = -EINVAL;
	}
	return rc;
}

/* The MOD that a ONESHOT registration has waited for, see epoll_may_attach. False: it is the
 * kernel's to do. */
static bool mod_converts(struct epoll_reg *r, const struct epoll_event *ev)
{
	const struct epoll_event was = {.events = r->events, .data = r->data};

	if (!is_attached(r->s) || ((ev->events | r->events) & EPOLLEXCLUSIVE) ||
	    instance_refuses(r->in) || !instance_is_heeded(r->in))
		return false;
	r->events = ev->events;
	r->data = ev->data;
	if (reg_convert(r, false) == 0)
		return true;
	r->events = was.events;
	r->data = was.data;
	return false;
}

/* The instance's lock is held. */
static int mod_locked(struct epoll_reg *r, int epfd, struct epoll_event *ev)
{
	int rc;

	if (r->parked)
		return -ENOENT;
	r->given = false;
	if (r->converted && ((ev->events | r->events) & EPOLLEXCLUSIVE))
		return -EINVAL;
	if (r->converted) {
		reg_renew(r, ev);
		return 0;
	}
	r->added = __rdtsc();
	if (mod_converts(r, ev))
		return 0;
	rc = kernel_ctl(epfd, EPOLL_CTL_MOD, r->fd, ev);
	if (rc)
		return rc;
	r->events = ev->events;
	r->data = ev->data;
	r->spent = false;
	return 0;
}

static int reg_mod(struct instance *in, int epfd, struct sock *s, int fd,
		   struct epoll_event *ev)
{
	struct epoll_reg *r;
	int rc;

	epoll_list_lock();
	r = reg_find(in, s, fd);
	instance_lock(in);
	epoll_list_unlock();
	/* Found: its instance's lock keeps it. Not found: the kernel says what is wrong. */
	rc = r ? mod_locked(r, epfd, ev) : kernel_ctl(epfd, EPOLL_CTL_MOD, fd, ev);
	instance_unlock(in);
	return rc;
}

int reg_leave(struct epoll_reg *r, int epfd)
{
	int rc;

	if (r->parked)
		return -ENOENT;
	if (r->converted && !r->orphan && is_attached(r->s) &&
	    r->in->owner == epoll_self()) {
		reg_park(r);
		return 0;
	}
	rc = r->converted ? reg_withdraw(r)
			  : kernel_ctl(epfd, EPOLL_CTL_DEL, r->fd, NULL);
	if (!rc) {
		reg_disarm(r);
		reg_destroy(r);
	}
	return rc;
}

static int reg_del(struct instance *in, int epfd, struct sock *s, int fd)
{
	struct epoll_reg *r;
	int rc;

	epoll_list_lock();
	r = reg_find(in, s, fd);
	instance_lock(in);
	rc = r ? reg_leave(r, epfd) : kernel_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
	instance_unlock(in);
	epoll_list_unlock();
	return rc;
}

/* ---- in a child, of what its parent has in memory ---- */

/* The kernel's instance has a registration of that number that is the program's own. */
static bool kernel_has(int epfd, int fd)
{
	struct listing listing = epoll_listing(epfd);
	const char *at = listing.text;
	bool has = false;
	struct listed l;

	while (!has && listing_next(&at, &l))
		has = l.fd == fd && !tag_collides(l.data);
	listing_drop(&listing);
	return has;
}

static bool waits_for_parent(struct instance *in, struct epoll_reg *r)
{
	return r && r->converted && !r->parked && !in->unheard && instance_is_foreign(in);
}

static bool is_parents(struct instance *in, struct sock *s, int fd)
{
	bool is;

	epoll_list_lock();
	instance_lock(in);
	is = waits_for_parent(in, reg_find(in, s, fd));
	instance_unlock(in);
	epoll_list_unlock();
	return is;
}

/* Whether the kernel has it now; then our record is as one that has been given back. */
static void note_given(struct instance *in, struct sock *s, int fd, bool given)
{
	struct epoll_reg *r;

	epoll_list_lock();
	instance_lock(in);
	r = reg_find(in, s, fd);
	in->unheard |= !given;
	if (waits_for_parent(in, r)) {
		reg_disarm(r);
		reg_chill(r);
		r->converted = r->bell = r->aside = false;
		atomic_fetch_sub(&in->converted, 1);
	}
	instance_unlock(in);
	epoll_list_unlock();
}

/*
 * What the parent knows of it a child cannot change, but what the kernel has: so the connection goes
 * back to TCP, and the parent is given time to give the registration back, which it does when it looks.
 * One that does not in time is not waited for again.
 */
static void get_back(struct instance *in, int epfd, struct sock *s, int fd)
{
	bool given = false;

	if (in->owner == epoll_self() || !is_parents(in, s, fd))
		return;
	sock_down_wait(s, fd, VD_REASON_EPOLL, FOREIGN_WAIT_MS);
	for (int ms = 0; !given && ms < FOREIGN_WAIT_MS; ms += FOREIGN_NAP_MS) {
		given = kernel_has(epfd, fd);
		if (!given)
			kernel_poll(NULL, 0, FOREIGN_NAP_MS);
	}
	note_given(in, s, fd, given);
}

/* Data that looks like one of our tags could not be told from it. */
static void check_collision(struct instance *in, int op, const struct epoll_event *ev)
{
	if (op == EPOLL_CTL_DEL || !tag_collides(ev->data.u64))
		return;
	instance_lock(in);
	in->no_upgrade = true;
	instance_unlock(in);
	instance_refuse_all(in);
}

/* The kernel counts the sides as levels of nesting. */
static int ctl_unrolled(int epfd, int op, int fd, struct epoll_event *ev)
{
	int rc = kernel_ctl(epfd, op, fd, ev);

	if (rc == -ELOOP && epoll_sides_drop()) {
		rc = kernel_ctl(epfd, op, fd, ev);
		if (rc)
			epoll_sides_again();
		else
			epoll_refuse_sideless();
	}
	return rc;
}

/*
 * What the instance fd would tell must be there in the kernel when that looks, which ADD and MOD do: the
 * wake-up of an instance has but one key, and may never reach who asks for another. But one that nobody
 * watches, since the kernel refuses that, keeps its connections: so it is added for nothing at first. No
 * handler comes in between, which could see that, or jump away.
 */
static void note_watch(int epfd, int fd, uint32_t events)
{
	struct instance *in = instance_at(fd), *by = instance_at(epfd);

	if (!in)
		return;
	instance_lock(in);
	instance_watch(in, by ? by : in, events & EPOLL_KEY_IN);
	instance_unlock(in);
}

static int add_instance(int epfd, int fd, struct epoll_event *ev)
{
	struct epoll_event none = *ev;
	int rc;

	none.events = 0;
	crit_enter();
	rc = ctl_unrolled(epfd, EPOLL_CTL_ADD, fd, &none);
	if (!rc) {
		note_watch(epfd, fd, ev->events);
		epoll_look_into(fd);
		rc = kernel_ctl(epfd, EPOLL_CTL_MOD, fd, ev);
		if (rc == -ENOENT) /* another thread has deleted it */
			rc = 0;
	}
	crit_leave();
	return rc;
}

static int ctl_of_instance(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct instance *inner = instance_at(fd);
	bool was_nested = inner && inner->nested;
	int rc;

	if (op == EPOLL_CTL_ADD && !(ev->events & EPOLLEXCLUSIVE))
		return add_instance(epfd, fd, ev);
	if (op == EPOLL_CTL_MOD && was_nested) {
		if (ev->events & EPOLL_KEY_IN)
			note_watch(epfd, fd, ev->events);
		epoll_look_into(fd);
	}
	rc = kernel_ctl(epfd, op, fd, ev);
	if (!rc)
		note_watch(epfd, fd, op == EPOLL_CTL_DEL ? 0 : ev->events);
	if (rc || op == EPOLL_CTL_DEL || was_nested)
		return rc;
	epoll_look_into(fd);
	return op == EPOLL_CTL_MOD ? kernel_ctl(epfd, op, fd, ev) : 0;
}

static int ctl_once(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct instance *in = instance_at(epfd);
	struct sock *s = fd_sock(fd);
	int rc;

	if (in)
		check_collision(in, op, ev);
	if (in && s && op != EPOLL_CTL_DEL)
		heed_wait(s, ev->events);
	if (in && s && (op == EPOLL_CTL_DEL || is_exclusive_ok(op, ev->events))) {
		if (op == EPOLL_CTL_ADD)
			return reg_add(in, epfd, s, fd, ev);
		if (op == EPOLL_CTL_MOD) {
			get_back(in, epfd, s, fd);
			return reg_mod(in, epfd, s, fd, ev);
		}
		if (op == EPOLL_CTL_DEL)
			return reg_del(in, epfd, s, fd);
	}
	if (in && op == EPOLL_CTL_ADD && instance_at(fd))
		store_relaxed(&in->outer, true);
	rc = instance_at(fd) ? ctl_of_instance(epfd, op, fd, ev)
			     : ctl_unrolled(epfd, op, fd, ev);
	if (!rc && op == EPOLL_CTL_ADD) {
		if (in) {
			instance_lock(in);
			instance_mixed(in);
			instance_unlock(in);
		}
		/* An instance that came from elsewhere: its events are the kernel's. */
		if (s)
			sock_refuse(s, fd, VD_REASON_EPOLL);
	}
	return rc;
}

/*
 * The kernel bounds how many registrations a user has (fs.epoll.max_user_watches). What TCP would
 * take must not be refused for ours: those of upgraded connections are given back until it is taken.
 */
int ready_epoll_ctl(int epfd, int op, int fd, struct epoll_event *given)
{
	struct epoll_event copy, *ev = given;
	int rc;

	/* The kernel copies it first of all, whatever the call is. */
	if (op != EPOLL_CTL_DEL) {
		if (!given || crit_copy(&copy, given, sizeof(copy)) != 0)
			return -EFAULT;
		ev = &copy;
	}
	do
		rc = ctl_once(epfd, op, fd, ev);
	while (rc == -ENOSPC && epoll_give_watches());
	return rc;
}
