/* SPDX-License-Identifier: Apache-2.0 */
/* Epoll instances that are waited for themselves: readable in the kernel as under TCP. */
#include <errno.h>
#include <limits.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/brittle.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/real.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "readiness/epoll.h"
#include "readiness/look.h"
#include "readiness/poll.h"

/*
 * The kernel's instance knows doorbells in place of events, and they say too much or too little. So the
 * tags of a watched instance are not in itself, where only the program can take them out, but in another
 * one of our own, the `side`. It is registered in the program's, level-triggered: what rings makes the
 * program's readable.
 *
 * Before each look from outside the side is settled. With nothing to report in memory it is emptied. With
 * something it is made readable where it is not, or where more has come since it was settled last: that is
 * the edge of an outer registration that is edge-triggered. While somebody sleeps outside (epoll_outside),
 * all looks at the instance leave its doorbells armed, and ring for what they leave. A sleeper outside
 * counts itself first, settles, and then sleeps. It settles again before it believes what woke it. So
 * nothing in memory is without a ring, and no ring outlives what it was for.
 *
 * An instance that somebody watches past us, or that gets no side, has its connections on TCP. Only who
 * made the instance moves tags: a forked child's kernel instance is its parent's.
 */

#define SIDE_EVENTS 64

_Atomic uint32_t epoll_sides FORK_DATA;
_Atomic bool epoll_watched;
/* So far; counted before any can ring. */
static _Atomic uint32_t sides_made;

static int ctl(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return REAL(epoll_ctl)(epfd, op, fd, &ev) < 0 ? -errno : 0;
}

static int open_one(void)
{
	return LOW_MADE(fds_adopt, REAL(epoll_create1)(EPOLL_CLOEXEC));
}

static bool is_movable(const struct epoll_reg *r)
{
	return r->converted && !r->orphan && !r->hushed;
}

/*
 * Only what wakes it on TCP is heard: with bytes the kernel would say that there is room, and after an end with each of both
 * that again.
 */
static uint32_t edge_events(uint32_t events)
{
	return EPOLL_TCP_EVENTS & ~((events & (LOOK_OUT | EPOLLWRBAND) ? 0u : EPOLLOUT) |
				    (events & EPOLL_KEY_IN ? 0u : EPOLL_KEY_IN));
}

/* What is level-triggered goes by what holds, and what is for once is told no second time: its MOD need not be
 * the kernel's. */
static uint32_t tag_events(uint32_t events)
{
	bool by_edge = (events & (EPOLLET | EPOLLONESHOT)) == EPOLLET;

	return by_edge ? edge_events(events) : EPOLL_TCP_EVENTS;
}

uint32_t reg_tag_events(const struct epoll_reg *r)
{
	return tag_events(r->events);
}

void reg_renew_tag(struct epoll_reg *r, uint32_t before)
{
	if (r->orphan || r->in->owner != epoll_self() ||
	    tag_events(before) == tag_events(r->events))
		return;
	ctl(r->aside ? r->in->side : instance_fd(r->in), EPOLL_CTL_MOD, r->fd,
	    reg_tag_events(r), tag_of(r, false));
	/* What the kernel says of it first is told with what holds now, of which it may be the first to say. */
	store_relaxed(&r->in->kernel_turn, true);
	sock_note_kernel(r->s, 0);
}

/* All tags of the instance, also to epfd. */
static int enter_all(struct instance *in, int epfd)
{
	int rc = 0;

	for (struct epoll_reg *r = in->regs; r && !rc; r = r->next) {
		if (is_movable(r))
			rc = ctl(epfd, EPOLL_CTL_ADD, r->fd, reg_tag_events(r),
				 tag_of(r, false));
		if (!rc && r->bell)
			rc = bells_enter(r, epfd);
	}
	return rc;
}

static void leave_all(struct instance *in, int epfd)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next) {
		int shared = sock_shared_bell(r->s);

		if (r->bell)
			bells_drop(r);
		if (r->bell && shared >= 0)
			ctl(epfd, EPOLL_CTL_DEL, shared, 0, 0);
		if (is_movable(r))
			ctl(epfd, EPOLL_CTL_DEL, r->fd, 0, 0);
	}
}

/* What the program has deleted need not be kept any more. */
static void drop_parked(struct instance *in)
{
	for (struct epoll_reg *r = in->regs, *next; r; r = next) {
		next = r->next;
		if (!r->parked)
			continue;
		reg_withdraw(r);
		reg_destroy(r);
	}
}

void side_hear(struct instance *in)
{
	struct epoll_event ev[SIDE_EVENTS];
	int n;

	if (in->side < 0)
		return;
	do {
		n = kernel_epoll_look(in->side, ev, SIDE_EVENTS);
		for (int i = 0; i < n; i++) {
			bool bell;

			if (tag_reg(ev[i].data.u64, &bell))
				tag_heard(in, &ev[i]);
			else
				sock_hear_shared_bell();
		}
	} while (n == SIDE_EVENTS);
}

/* What the program's instance had yet to hand over goes with its tags: the side says anew what holds. */
void side_make(struct instance *in)
{
	int epfd = instance_fd(in), side;

	if (!in->nested || in->side >= 0 || in->sideless || in->owner != epoll_self())
		return;
	drop_parked(in);
	side = open_one();
	in->sideless = side < 0 || enter_all(in, side);
	if (!in->sideless) {
		atomic_fetch_add(&sides_made, 1);
		in->sideless =
			ctl(epfd, EPOLL_CTL_ADD, side, EPOLLIN, tag_of_side()) != 0;
	}
	if (in->sideless) {
		fds_close(side);
		return;
	}
	atomic_store(&in->ever_converted, true);
	leave_all(in, epfd);
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->aside = is_movable(r);
	in->side = side;
	atomic_fetch_add(&epoll_sides, 1);
	side_hear(in);
}

void side_drop(struct instance *in)
{
	int side = in->side, epfd = instance_fd(in);

	if (side < 0)
		return;
	/* Of a child of vfork the memory is its parent's, and the numbers are not. */
	if (kernel_getpid() != self_pid())
		return;
	if (in->owner == epoll_self()) {
		ctl(epfd, EPOLL_CTL_DEL, side, 0, 0);
		enter_all(in, epfd);
	}
	in->side = -1;
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->aside = false;
	fds_close(side);
	atomic_fetch_sub(&epoll_sides, 1);
}

bool epoll_sides_drop(void)
{
	bool some = false;

	epoll_list_lock();
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		instance_lock(in);
		some |= in->side >= 0;
		in->sideless |= in->side >= 0;
		side_drop(in);
		instance_unlock(in);
	}
	epoll_list_unlock();
	return some;
}

void epoll_sides_again(void)
{
	epoll_list_lock();
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		instance_lock(in);
		in->sideless = false;
		if (atomic_load(&in->converted))
			side_make(in);
		instance_unlock(in);
	}
	epoll_list_unlock();
}

/* ---- what it would report ---- */

/* Grows with all that is an edge of the registration. */
static uint64_t edges_of(const struct epoll_reg *r)
{
	return sock_edge_in(r->s) + sock_edge_out(r->s) + sock_moves(r->s) +
	       load_relaxed(&r->s->slot->shuts) + r->added;
}

/*
 * One with something to report, or NULL. *more: to one of them something has come since the last look from outside.
 * While somebody sleeps there, what comes next is to ring, also where what came before has rung and is unheard.
 */
static struct epoll_reg *look_over(struct instance *in, bool *more)
{
	struct epoll_reg *ready = NULL;
	bool awaited = instance_is_awaited(in);

	for (uint32_t i = 0; i < in->nhot; i++) {
		struct epoll_reg *r = in->hot[i];
		uint64_t edges = edges_of(r);

		if (awaited) {
			reg_disarm(r);
			reg_arm(r);
		}
		if (reg_report(r, false)) {
			ready = r;
			*more |= edges != r->edges_shown;
			r->edges_shown = edges;
		}
		/* Given back to the kernel, and the last has taken its place. */
		i -= !r->hot_at;
	}
	return ready;
}

/* The doorbell of one that is not hot may have rung unheard, and would not ring for what comes next. */
static void heat_all(struct instance *in)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->converted && !r->spent)
			reg_heat(r);
}

/* What memory has to report is shown outside: false where that is nothing. */
static bool show(struct instance *in, bool *more)
{
	struct epoll_reg *ready = look_over(in, more);

	if (ready && (*more || !epoll_is_readable(in->side)))
		sock_ring_self(ready->s);
	return ready;
}

void side_show(struct instance *in)
{
	bool more = false;

	show(in, &more);
}

void side_settle(struct instance *in)
{
	bool more = false, ready;

	if (in->side < 0)
		return;
	ready = show(in, &more);
	if (ready && !more)
		heat_all(in);
	else if (!ready)
		side_hear(in);
	if (!more)
		show(in, &more);
	if (!atomic_load(&in->converted))
		side_drop(in);
}

uint64_t epoll_settle(void)
{
	uint64_t nap = UINT64_MAX;

	epoll_list_lock();
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		/* One that gets a side meanwhile rings for what it has: reg_poke. */
		if (__atomic_load_n(&in->side, __ATOMIC_RELAXED) < 0)
			continue;
		instance_lock(in);
		side_settle(in);
		if (in->side >= 0) {
			uint64_t ns = instance_nap_ns(in);

			nap = ns < nap ? ns : nap;
		}
		instance_unlock(in);
	}
	epoll_list_unlock();
	return nap;
}

/* ---- waits of those who watch ---- */

static bool any_instance(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= 0 && instance_at(fds[i].fd))
			return true;
	return false;
}

static bool is_told(const struct pollfd *p)
{
	return p->fd >= 0 && p->revents && instance_at(p->fd);
}

static bool any_told(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (is_told(&fds[i]))
			return true;
	return false;
}

/* Looks that a doorbell may spoil before it counts as an event. */
#define AMID_LOOKS 8

/* An instance was told for a doorbell that rang during the look, and for nothing else. */
static bool rang_amid(const struct pollfd *fds, nfds_t n)
{
	bool amid = false;

	if (!any_told(fds, n))
		return false;
	epoll_settle();
	for (nfds_t i = 0; i < n && !amid; i++)
		amid = is_told(&fds[i]) && !epoll_is_readable(fds[i].fd);
	return amid;
}

static __attribute__((noinline)) int poll_sides(struct pollfd *fds,
						const uint32_t *accept, nfds_t n,
						uint64_t deadline, const sigset_t *mask,
						uint32_t handlers)
{
	int looks = 0;

	while (epoll_any_side() && any_instance(fds, n)) {
		uint64_t end = look_sooner(deadline, epoll_settle());
		int rc;

		rc = poll_core(fds, accept, n, LOOK_NOW, NULL);
		if (rc > 0 && looks++ < AMID_LOOKS && rang_amid(fds, n))
			continue;
		if (rc || deadline == LOOK_NOW)
			return rc;
		/* A handler that has run since the call began, which the sleep would not know of. */
		if (crit_handlers() != handlers)
			return -EINTR;
		rc = poll_core(fds, accept, n, end, mask);
		/* What has ended it may be an old doorbell. */
		if (rc < 0 || (rc == 0 && end == deadline))
			return rc;
	}
	return poll_core(fds, accept, n, deadline, mask);
}

static int poll_counted(struct pollfd *fds, const uint32_t *accept, nfds_t n,
			uint64_t deadline, const sigset_t *mask)
{
	uint32_t made = load_relaxed(&sides_made), handlers = crit_handlers();
	int rc;

	if (epoll_any_side())
		return poll_sides(fds, accept, n, deadline, mask, handlers);
	rc = poll_core(fds, accept, n, deadline, mask);
	/* An instance has got a side while the call slept, whose doorbell may have ended that. */
	if (rc <= 0 || deadline == LOOK_NOW || load_relaxed(&sides_made) == made ||
	    !rang_amid(fds, n))
		return rc;
	return poll_sides(fds, accept, n, deadline, mask, handlers);
}

/* Where an instance is watched. */
static __attribute__((noinline)) int poll_watched(struct pollfd *fds,
						  const uint32_t *accept, nfds_t n,
						  uint64_t deadline, const sigset_t *mask)
{
	bool sleeps = deadline != LOOK_NOW && any_instance(fds, n);
	int rc;

	if (sleeps)
		atomic_fetch_add(&epoll_outside, 1);
	rc = poll_counted(fds, accept, n, deadline, mask);
	if (sleeps)
		atomic_fetch_sub(&epoll_outside, 1);
	return rc;
}

int poll_nesting(struct pollfd *fds, const uint32_t *accept, nfds_t n, uint64_t deadline,
		 const sigset_t *mask)
{
	if (__builtin_expect(load_relaxed(&epoll_watched), 0))
		return poll_watched(fds, accept, n, deadline, mask);
	return poll_core(fds, accept, n, deadline, mask);
}

static bool no_pwait2;

/* The call that is made depends on what the timeout needs: epoll_pwait2 may be unknown to
 * the kernel, or forbidden. */
static int ask(int epfd, struct epoll_event *ev, int max, const struct timespec *t,
	       const sigset_t *mask)
{
	int rc, ms = -1;
	int64_t ns;

	if (t && (t->tv_nsec % 1000000 || t->tv_sec > INT_MAX / 1000 - 1) && !no_pwait2) {
		rc = REAL(epoll_pwait2)(epfd, ev, max, t, mask);
		if (rc >= 0 || (errno != ENOSYS && errno != EPERM))
			return rc < 0 ? -errno : rc;
		no_pwait2 = true;
	}
	if (t && t->tv_sec > INT_MAX / 1000 - 1) {
		ms = INT_MAX;
	} else if (t) {
		ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
		ms = (int)((ns + 999999) / 1000000);
	}
	if (mask)
		rc = REAL(epoll_pwait)(epfd, ev, max, ms, mask);
	else
		rc = REAL(epoll_wait)(epfd, ev, max, ms);
	return rc < 0 ? -errno : rc;
}

/* As epoll_wait sleeps: a stop ends it with EINTR. */
static int sleep_on(struct pollfd *p, uint64_t deadline, const sigset_t *mask)
{
	struct timespec ts;
	const struct timespec *left = look_remaining(deadline, &ts);
	int rc;

	if (!left || left->tv_sec >= INT64_MAX / 1000000000)
		return brittle_poll(p, 1, INT64_MAX, mask, false);
	if (left->tv_sec || left->tv_nsec)
		return brittle_poll(p, 1, left->tv_sec * 1000000000 + left->tv_nsec, mask,
				    false);
	rc = REAL(ppoll)(p, 1, left, mask);
	return rc < 0 ? -errno : rc;
}

/*
 * Sleeps without taking anything out, and takes what is there once that is settled. A handler before the sleep, or
 * between two, ends it, but what came with the signal is told.
 */
static int wait_settled(int epfd, struct epoll_event *ev, int max,
			const struct timespec *t, const sigset_t *mask)
{
	static const struct timespec zero;
	struct pollfd p = {.fd = epfd, .events = POLLIN};
	uint64_t deadline = look_deadline(t);
	uint32_t handlers = crit_handlers();
	bool handled = false;
	int rc;

	for (;;) {
		uint64_t end = look_sooner(deadline, epoll_settle());

		rc = ask(epfd, ev, max, &zero, NULL);
		if (rc || (deadline == LOOK_NOW && !mask))
			return rc;
		if (handled)
			return -EINTR;
		handled = crit_handlers() != handlers;
		rc = handled ? 1 : sleep_on(&p, end, mask);
		if (rc < 0 || (rc == 0 && end == deadline))
			return rc;
	}
}

int epoll_kernel_wait(struct instance *in, int epfd, struct epoll_event *ev, int max,
		      const struct timespec *t, const sigset_t *mask)
{
	/* One that it holds may get a side from another thread while the call sleeps. */
	bool sleeps = (!t || t->tv_sec || t->tv_nsec) && !__libc_single_threaded,
	     outer = in && load_relaxed(&in->outer);
	uint64_t deadline;
	struct timespec ts;
	int n;

	if (outer && (sleeps || epoll_any_side()))
		return wait_settled(epfd, ev, max, t, mask);
	if (!in || outer || !sleeps)
		return ask(epfd, ev, max, t, mask);
	deadline = look_deadline(t);
	n = ask(epfd, ev, max, t, mask);
	if (n <= 0 || !load_relaxed(&in->outer))
		return n;
	epoll_settle();
	n = epoll_drop_vain(in, epfd, ev, n);
	if (n > 0)
		return n;
	return wait_settled(epfd, ev, max, look_remaining(deadline, &ts), mask);
}
