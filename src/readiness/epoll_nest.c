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
 * Its sockets go back to TCP, but that needs their peers, and until then the kernel's instance
 * knows doorbells, which say too much or too little, in place of events. So the tags of such an
 * instance are not in itself, where only the program can take them out, but in two instances of
 * our own. The `side` is registered in the program's, level-triggered: what rings makes that one
 * readable. The `news` has the same tags, and is for hearing what they say.
 *
 * Before each look from outside the side is settled: when memory has nothing to report it is
 * emptied. While there is something, it is left alone, since to make it readable once more would
 * be an edge to who watches edge-triggered; but the doorbells are armed anew, so that what comes
 * next is one. Who sleeps on an instance sleeps after that, and looks again after it is settled
 * once more. So nothing in memory is without a ring, and no ring outlives what it was for.
 *
 * Only who made the instance moves tags: a forked child's kernel instance is its parent's.
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

/* What wakes who watches the instance is what would wake it on TCP. */
uint32_t reg_side_events(const struct epoll_reg *r)
{
	return (r->events & (LOOK_IN | LOOK_OUT | LOOK_KERNEL | EPOLLRDBAND |
			     EPOLLWRBAND | EPOLLMSG)) |
	       EPOLLET;
}

/*
 * Only what wakes it on TCP is heard: with bytes the kernel would say that there is room, and after an end with each of both
 * that again.
 */
static uint32_t news_events(uint32_t events)
{
	return EPOLL_TCP_EVENTS & ~((events & (LOOK_OUT | EPOLLWRBAND) ? 0u : EPOLLOUT) |
				    (events & EPOLL_KEY_IN ? 0u : EPOLL_KEY_IN));
}

uint32_t reg_news_events(const struct epoll_reg *r)
{
	return news_events(r->events);
}

/* What is level-triggered goes by what holds, and what is for once is told no second time: its MOD need not be
 * the kernel's. */
static uint32_t tag_events(uint32_t events)
{
	bool by_edge = (events & (EPOLLET | EPOLLONESHOT)) == EPOLLET;

	return by_edge ? news_events(events) : EPOLL_TCP_EVENTS;
}

uint32_t reg_tag_events(const struct epoll_reg *r)
{
	return tag_events(r->events);
}

static void renew_aside(struct epoll_reg *r, uint32_t before)
{
	uint32_t events = reg_news_events(r);

	ctl(r->in->side, EPOLL_CTL_MOD, r->fd, reg_side_events(r), tag_of(r, false));
	if (events == news_events(before))
		return;
	ctl(r->in->news, EPOLL_CTL_MOD, r->fd, events, tag_of(r, false));
	/* What holds is said of the new one, and told with it. */
	side_hear(r->in);
}

void reg_renew_tag(struct epoll_reg *r, uint32_t before, bool was_spent)
{
	if (r->orphan || r->in->owner != epoll_self())
		return;
	/* A spent one may have been given to the kernel, and taken again, for nothing. */
	if (r->aside) {
		renew_aside(r, was_spent ? 0 : before);
	} else if (tag_events(before) != tag_events(r->events)) {
		ctl(instance_fd(r->in), EPOLL_CTL_MOD, r->fd, reg_tag_events(r),
		    tag_of(r, false));
		/* What the kernel says of it first is told with what holds now, of which it may be the first to say. */
		store_relaxed(&r->in->kernel_turn, true);
		sock_note_kernel(r->s, 0);
	}
}

/* All tags of the instance, also to epfd. */
static int enter_all(struct instance *in, int epfd,
		     uint32_t (*events)(const struct epoll_reg *r))
{
	int rc = 0;

	for (struct epoll_reg *r = in->regs; r && !rc; r = r->next) {
		if (is_movable(r))
			rc = ctl(epfd, EPOLL_CTL_ADD, r->fd, events(r), tag_of(r, false));
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

/*
 * Nothing is heard from the side: who heard the same there and in the news would count it as two edges.
 * What is taken out of it is in the news by then, since the kernel wakes those first that came last to a
 * wait queue: so each tag goes to the side first, and to the news after that.
 */
static void empty(int epfd)
{
	struct epoll_event ev[SIDE_EVENTS];

	while (kernel_epoll_look(epfd, ev, SIDE_EVENTS) == SIDE_EVENTS)
		;
}

/* With `all`, also what the kernel says of the connections themselves. */
static void hear(struct instance *in, int epfd, bool all)
{
	struct epoll_event ev[SIDE_EVENTS];
	int n;

	do {
		n = kernel_epoll_look(epfd, ev, SIDE_EVENTS);
		for (int i = 0; i < n; i++) {
			bool bell = false;
			struct epoll_reg *r = tag_reg(ev[i].data.u64, &bell);

			if (r && (bell || all))
				tag_heard(in, &ev[i]);
			else if (!r)
				sock_hear_shared_bell();
		}
	} while (n == SIDE_EVENTS);
}

void side_hear(struct instance *in)
{
	hear(in, in->news, true);
}

/* What the program's instance had yet to hand over goes with its tags: what holds is said again. */
static void say_again(struct instance *in, int news)
{
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (is_movable(r))
			ctl(news, EPOLL_CTL_MOD, r->fd, reg_news_events(r),
			    tag_of(r, false));
}

void side_make(struct instance *in)
{
	int epfd = instance_fd(in), side, news;

	if (!in->nested || in->side >= 0 || in->sideless || in->owner != epoll_self())
		return;
	drop_parked(in);
	side = open_one();
	news = open_one();
	if (side < 0 || news < 0 || enter_all(in, side, reg_side_events) ||
	    enter_all(in, news, reg_news_events)) {
		in->sideless = true;
	} else {
		empty(side);
		atomic_fetch_add(&sides_made, 1);
		in->sideless =
			ctl(epfd, EPOLL_CTL_ADD, side, EPOLLIN, tag_of_side()) != 0;
	}
	if (in->sideless) {
		fds_close(side);
		fds_close(news);
		return;
	}
	atomic_store(&in->ever_converted, true);
	hear(in, news, false);
	say_again(in, news);
	leave_all(in, epfd);
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->aside = is_movable(r);
	in->side = side;
	in->news = news;
	atomic_fetch_add(&epoll_sides, 1);
	hear(in, news, true);
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
		enter_all(in, epfd, reg_tag_events);
	}
	in->side = -1;
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		r->aside = false;
	fds_close(side);
	fds_close(in->news);
	in->news = -1;
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

/* The last of those with something to report, or NULL. All are armed anew first. */
static struct epoll_reg *look_over(struct instance *in)
{
	struct epoll_reg *ready = NULL;

	for (struct epoll_reg *r = in->regs; r; r = r->next) {
		if (!r->converted || reg_is_stale(r))
			continue;
		sock_service(r->s, r->use_fd);
		if (load_acquire(&r->s->slot->phase) == SLOT_FINAL)
			reg_revert(r);
		if (!r->converted || r->spent)
			continue;
		reg_heat(r);
		reg_disarm(r);
		reg_arm(r);
		if (reg_report(r, false))
			ready = r;
	}
	return ready;
}

void side_settle(struct instance *in)
{
	struct epoll_reg *ready;

	if (in->side < 0)
		return;
	side_hear(in);
	ready = look_over(in);
	if (!ready) {
		empty(in->side);
		side_hear(in);
		ready = look_over(in);
	}
	/* Where it came in between, that was an edge. */
	if (ready && !epoll_is_readable(in->side))
		sock_ring_self(ready->s);
	if (!atomic_load(&in->converted))
		side_drop(in);
}

void epoll_settle(void)
{
	epoll_list_lock();
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		instance_lock(in);
		side_settle(in);
		instance_unlock(in);
	}
	epoll_list_unlock();
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
		int rc;

		epoll_settle();
		rc = poll_core(fds, accept, n, LOOK_NOW, NULL);
		if (rc > 0 && looks++ < AMID_LOOKS && rang_amid(fds, n))
			continue;
		if (rc || deadline == LOOK_NOW)
			return rc;
		/* A handler that has run since the call began, which the sleep would not know of. */
		if (crit_handlers() != handlers)
			return -EINTR;
		rc = poll_core(fds, accept, n, deadline, mask);
		/* What has ended it may be an old doorbell. */
		if (rc <= 0)
			return rc;
	}
	return poll_core(fds, accept, n, deadline, mask);
}

/* Where an instance is watched. */
static __attribute__((noinline)) int poll_watched(struct pollfd *fds,
						  const uint32_t *accept, nfds_t n,
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
		epoll_settle();
		rc = ask(epfd, ev, max, &zero, NULL);
		if (rc || (deadline == LOOK_NOW && !mask))
			return rc;
		if (handled)
			return -EINTR;
		handled = crit_handlers() != handlers;
		rc = handled ? 1 : sleep_on(&p, deadline, mask);
		if (rc <= 0)
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
