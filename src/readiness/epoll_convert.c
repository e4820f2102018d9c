/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of attached sockets: taken over from the kernel, and given back. */
#include <errno.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

static int ctl_at(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return REAL(epoll_ctl)(epfd, op, fd, &ev) < 0 ? -errno : 0;
}

static int ctl(struct instance *in, int op, int fd, uint32_t events, uint64_t data)
{
	return ctl_at(instance_fd(in), op, fd, events, data);
}

/* Where the instance's tags are. */
static int tag_ctl(struct instance *in, int op, int fd, uint32_t events, uint64_t data)
{
	return ctl_at(in->side < 0 ? instance_fd(in) : in->side, op, fd, events, data);
}

/* EPOLLEXCLUSIVE can be neither set nor changed by MOD. */
static int replace(struct epoll_reg *r, uint32_t events, uint64_t data)
{
	int rc;

	if (!(r->events & EPOLLEXCLUSIVE))
		return ctl(r->in, EPOLL_CTL_MOD, r->fd, events, data);
	rc = ctl(r->in, EPOLL_CTL_DEL, r->fd, 0, 0);
	return rc ? rc : ctl(r->in, EPOLL_CTL_ADD, r->fd, events, data);
}

/* The TCP descriptor's tag, where the instance has a side. */
static int put_aside(struct epoll_reg *r)
{
	int rc = ctl_at(r->in->side, EPOLL_CTL_ADD, r->fd, reg_tag_events(r),
			tag_of(r, false));

	r->aside = rc == 0;
	return rc;
}

/* The kernel's registration gets the tag. */
static int give_tag(struct epoll_reg *r)
{
	int rc;

	if (r->in->side < 0)
		return replace(r, reg_tag_events(r), tag_of(r, false));
	rc = put_aside(r);
	if (rc == 0)
		ctl(r->in, EPOLL_CTL_DEL, r->fd, 0, 0);
	return rc;
}

static int rejoin(struct epoll_reg *r)
{
	int rc = ctl(r->in, EPOLL_CTL_ADD, r->fd, r->events, r->data.u64);

	/* By a parent, or a child, with whom the instance is shared; or for the second time. */
	if (rc == -EEXIST)
		rc = replace(r, r->events, r->data.u64);
	return rc;
}

static void leave_aside(struct epoll_reg *r)
{
	tag_ctl(r->in, EPOLL_CTL_DEL, r->fd, 0, 0);
	r->aside = false;
}

/* It is the program's own again. */
static int take_tag_back(struct epoll_reg *r)
{
	int rc;

	if (!r->aside)
		return replace(r, r->events, r->data.u64);
	rc = rejoin(r);
	if (rc == -ENOSPC) {
		/* There is room where it leaves; what holds is told once more. */
		leave_aside(r);
		return rejoin(r);
	}
	if (!rc)
		leave_aside(r);
	return rc;
}

int reg_register(struct epoll_reg *r, int epfd, struct epoll_event *ev, bool tagged)
{
	struct epoll_event tag;

	if (tagged) {
		atomic_store(&r->in->ever_converted, true);
		side_make(r->in);
		if (r->in->side >= 0)
			return put_aside(r);
		tag = (struct epoll_event){.events = reg_tag_events(r),
					   .data.u64 = tag_of(r, false)};
		ev = &tag;
	}
	return REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, r->fd, ev) < 0 ? -errno : 0;
}

/* Another record of the same socket in the same instance, reached by a duplicate. */
static struct epoll_reg *sibling(struct epoll_reg *r, bool with_bell)
{
	if (reg_is_only(r))
		return NULL;
	for (struct epoll_reg *o = r->in->regs; o; o = o->next)
		if (o != r && o->s == r->s && o->converted && o->bell == with_bell)
			return o;
	return NULL;
}

/* Registered once for all that have it, until the last of them goes. */
static int shared_bell_add(int epfd, int fd)
{
	int rc = ctl_at(epfd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, tag_of_shared());

	return rc == -EEXIST ? 0 : rc;
}

/* One tag for both: whichever rings, the record is to be looked at. */
static int bells_ctl_at(int epfd, struct epoll_reg *r, int op, struct epoll_reg *owner)
{
	uint32_t events = EPOLLIN | EPOLLET;
	uint64_t tag = tag_of(owner, true);
	int rc = ctl_at(epfd, op, r->s->bell, events, tag);
	int shared = sock_shared_bell(r->s);

	if (rc == 0 && shared >= 0)
		rc = shared_bell_add(epfd, shared);
	else if (rc == 0 && r->s->far_bell >= 0)
		rc = ctl_at(epfd, op, r->s->far_bell, events, tag);
	return rc;
}

static int bells_ctl(struct epoll_reg *r, int op, struct epoll_reg *owner)
{
	struct instance *in = r->in;

	return bells_ctl_at(in->side < 0 ? instance_fd(in) : in->side, r, op, owner);
}

int bells_enter(struct epoll_reg *r, int epfd)
{
	return bells_ctl_at(epfd, r, EPOLL_CTL_ADD, r);
}

void bells_drop(struct epoll_reg *r)
{
	tag_ctl(r->in, EPOLL_CTL_DEL, r->s->bell, 0, 0);
	if (r->s->far_bell >= 0)
		tag_ctl(r->in, EPOLL_CTL_DEL, r->s->far_bell, 0, 0);
}

static int bell_add(struct epoll_reg *r)
{
	int rc;

	if (sibling(r, true))
		return 0;
	rc = bells_ctl(r, EPOLL_CTL_ADD, r);
	if (rc)
		bells_drop(r);
	r->bell = rc == 0;
	r->shared = sock_shared_bell(r->s);
	return rc;
}

static bool is_shared(const struct instance *in, int bell)
{
	for (const struct epoll_reg *o = in->regs; o; o = o->next)
		if (o->bell && o->shared == bell)
			return true;
	return false;
}

/* The instance would wake for what comes to others. */
static void shared_bell_drop(struct epoll_reg *r)
{
	if (r->shared >= 0 && r->in->owner == epoll_self() &&
	    !is_shared(r->in, r->shared))
		tag_ctl(r->in, EPOLL_CTL_DEL, r->shared, 0, 0);
}

static void bell_remove(struct epoll_reg *r)
{
	struct epoll_reg *o;

	if (!r->bell)
		return;
	r->bell = false;
	o = sibling(r, false);
	if (o && !bells_ctl(r, EPOLL_CTL_MOD, o)) {
		o->bell = true;
		o->shared = r->shared;
	} else {
		bells_drop(r);
		shared_bell_drop(r);
	}
}

/* What comes from now on is news. */
static void begin(struct epoll_reg *r)
{
	r->edge_in = sock_edge_in(r->s);
	r->moves = sock_moves(r->s);
	r->edge_out = sock_edge_out(r->s);
	r->shuts = load_relaxed(&r->s->slot->shuts);
	r->tcp_edge = r->state_told = 0;
	/* Whether the program has seen the last edge is not known: it is told once more. */
	r->fresh = true;
}

int reg_convert(struct epoll_reg *r, bool tagged)
{
	int rc = 0;

	if (r->converted)
		return 0;
	if (r->orphan)
		return -EBADF;
	/* First: a thread in the kernel gets the tag before this call returns. */
	atomic_store(&r->in->ever_converted, true);
	if (!tagged) {
		side_make(
			r->in); /* where it is watched: its tag is no event to who looks on */
		rc = give_tag(r);
	}
	if (rc)
		return rc;
	rc = bell_add(r);
	if (rc) {
		take_tag_back(r);
		return rc;
	}
	r->converted = true;
	if (load_relaxed(&r->in->mixed))
		sock_want_times(r->s);
	r->queued = order_queued(r);
	begin(r);
	atomic_fetch_add(&r->in->converted, 1);
	/* What the kernel says first of its new registration is part of that one telling. */
	store_relaxed(&r->in->kernel_turn, true);
	if (!r->spent)
		reg_heat(r);
	reg_poke(r);
	return 0;
}

int reg_withdraw(struct epoll_reg *r)
{
	if (r->hushed)
		return 0;
	bell_remove(r);
	if (r->aside && !r->orphan)
		return tag_ctl(r->in, EPOLL_CTL_DEL, r->fd, 0, 0);
	return r->orphan ? 0 : ctl(r->in, EPOLL_CTL_DEL, r->fd, 0, 0);
}

/*
 * Something has woken the instance for a record that is parked, and so in vain: whoever waits for it has
 * another descriptor. So that this comes once, the kernel forgets it; the next ADD makes another.
 */
void reg_hush(struct epoll_reg *r)
{
	if (r->hushed)
		return;
	reg_withdraw(r);
	r->hushed = true;
	r->in->parked--;
}

static bool hears_shared(const struct instance *in)
{
	for (const struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->bell && r->shared >= 0 && !r->parked)
			return true;
	return false;
}

bool instance_has_ears(struct instance *in)
{
	/* The kernel's set is the owner's as well, who may have it back by now. */
	if (in->parked == 0 || in->owner != epoll_self() || hears_shared(in))
		return true;
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->bell && r->shared >= 0)
			reg_hush(r);
	return hears_shared(in); /* of two that have it, the other has it now */
}

static void given_back(struct epoll_reg *r)
{
	bell_remove(r);
	r->converted = false;
	atomic_fetch_add(&r->in->reverts, 1);
	store_relaxed(&r->in->ask_now, true);
	atomic_fetch_sub(&r->in->converted, 1);
}

void reg_revert(struct epoll_reg *r)
{
	/* A spent one waits for its MOD, which is when the kernel needs to know it; one
	 * whose key is gone cannot be given back and is asked about one by one. */
	if (!r->converted || r->spent || r->orphan)
		return;
	reg_disarm(r);
	reg_chill(r);
	if (take_tag_back(r) == 0)
		given_back(r);
}

/* An orphan's number is needed for that once more, if it is free. */
static bool take_orphans_tag_back(struct epoll_reg *r, int fd)
{
	bool done;
	int key;

	low_begin();
	key = (int)kernel_call4(SYS_fcntl, fd, F_DUPFD_CLOEXEC, r->fd, 0);
	done = key == r->fd && take_tag_back(r) == 0;
	if (key >= 0)
		kernel_close(key);
	low_end();
	return done;
}

/*
 * A spent one goes to who knows nothing of our tags: a tag would be an event there. The kernel cannot be given a
 * registration that is spent, but one that has asked for nothing; it tells an error or a hang-up all the same.
 */
void reg_give_spent(struct epoll_reg *r, bool for_now)
{
	uint32_t events = r->events;

	if (!r->converted || !r->spent || r->parked || r->orphan || reg_is_stale(r))
		return;
	r->events = EPOLLONESHOT | (events & EPOLLET);
	if (take_tag_back(r) == 0) {
		given_back(r);
		r->given = for_now;
		r->spent = false; /* its MOD is the kernel's from now on */
	}
	r->events = events;
}

/* The kernel's, too, has told what it was armed for. */
static int convert_spent(struct epoll_reg *r)
{
	uint32_t events = r->events;
	int rc;

	r->events = EPOLLONESHOT | (events & EPOLLET);
	r->spent = true;
	rc = reg_convert(r, false);
	r->spent = rc == 0;
	r->events = events;
	return rc;
}

void reg_take_spent(struct epoll_reg *r)
{
	uint32_t events = r->events;
	bool given = r->given;

	r->given = false;
	if (!given || r->converted || r->orphan || reg_is_stale(r))
		return;
	if (load_acquire(&r->s->slot->phase) != SLOT_FINAL) {
		convert_spent(r);
		return;
	}
	r->events = EPOLLONESHOT | (events & EPOLLET);
	r->spent = true;
	if (give_tag(r) == 0) { /* no bell: its MOD gives it back */
		r->converted = true;
		atomic_fetch_add(&r->in->converted, 1);
	} else {
		r->spent = false;
	}
	r->events = events;
}

void reg_revert_orphan(struct epoll_reg *r, int fd)
{
	if (!r->converted || r->spent)
		return;
	reg_disarm(r);
	reg_chill(r);
	r->orphan = !take_orphans_tag_back(r, fd);
	if (!r->orphan)
		given_back(r);
}

void reg_poke(struct epoll_reg *r)
{
	if (r->spent || !instance_is_awaited(r->in))
		return;
	reg_arm(r);
	/* Its own doorbell: an edge for every instance that holds it. */
	if (reg_report(r, false))
		sock_ring_self(r->s);
}

static int convert_attached(struct epoll_reg *r)
{
	if (!r->converted && (r->events & EPOLLONESHOT) && reg_is_spent_there(r))
		return convert_spent(r);
	return reg_convert(r, false);
}

void epoll_on_attach(struct sock *s)
{
	enum vd_reason reason = VD_REASON_NONE;
	bool heeded;
	int fd = -1;

	if (!reg_is_any(s))
		return;
	epoll_list_lock();
	heeded = reg_is_heeded(s);
	/* Another thread may have refused it meanwhile. */
	for (struct epoll_reg *r = s->regs;
	     r && fd < 0 && atomic_load(&s->slot->phase) != SLOT_FINAL;
	     r = r->next_of_sock) {
		struct instance *in = r->in;

		instance_lock(in);
		reason = instance_reason(in);
		if (reason == VD_REASON_RAW && heeded)
			reason = VD_REASON_NONE;
		if (!reason && (convert_attached(r) || instance_refuses(in)))
			reason = VD_REASON_EPOLL;
		if (reason)
			fd = r->use_fd;
		instance_unlock(in);
	}
	epoll_list_unlock();
	if (fd >= 0)
		sock_refuse(s, fd, reason);
}

/* Under the list lock. True when one of them is somebody else's. */
static bool revert_all(struct sock *s)
{
	bool foreign = false;

	for (struct epoll_reg *r = s->regs, *next; r; r = next) {
		struct instance *in = r->in;

		next = r->next_of_sock;
		instance_lock(in);
		/* A copy of our parent's record, which he alone knows the state of. */
		if (instance_is_foreign(in)) {
			foreign = true;
		} else if (r->parked) {
			reg_withdraw(r);
			reg_destroy(r);
		} else if (r->converted && r->orphan) {
			reg_heat(r);
		} else {
			reg_revert(r);
		}
		instance_unlock(in);
	}
	return foreign;
}

void epoll_on_final(struct sock *s)
{
	bool foreign;

	if (!reg_is_any(s))
		return;
	if (epoll_locked()) {
		/* From inside one of our own looks: whoever hears the bell does the rest. */
		sock_ring_self(s);
		return;
	}
	epoll_list_lock();
	foreign = revert_all(s);
	epoll_list_unlock();
	if (foreign)
		sock_ring_self(s); /* he looks then */
}

/*
 * No instance may hold a doorbell whose number is about to be the program's. With both locks
 * and the phase FINAL nobody puts one there any more. A spent record waits for its MOD, which
 * gives it back, and needs no bell until then.
 */
bool epoll_on_release(struct sock *s)
{
	bool bells = false;

	if (epoll_locked())
		return false;
	epoll_list_lock();
	bells = revert_all(s);
	for (struct epoll_reg *r = s->regs; r && !bells; r = r->next_of_sock) {
		instance_lock(r->in);
		if (r->bell && (r->spent || r->aside) && !r->orphan) {
			bells_drop(r);
			r->bell = false;
		}
		/* An orphan is asked about one by one, for which its sleepers are rung. */
		bells = r->bell || (r->converted && r->orphan);
		instance_unlock(r->in);
	}
	epoll_list_unlock();
	return !bells;
}
