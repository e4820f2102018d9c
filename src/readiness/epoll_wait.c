/* SPDX-License-Identifier: Apache-2.0 */
/* epoll_wait over the kernel's half of an instance and the half that lies in memory. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/probe.h"
#include "base/sigsafe.h"
#include "conn/kernel_call.h"
#include "conn/report.h"
#include "readiness/epoll_call.h"
#include "readiness/ready.h"

/* Answers of nothing but our own tags before the program is told that there is nothing. */
#define ASK_BEHIND 1000
/* As in the kernel. */
#define MAX_EVENTS (INT_MAX / (int)sizeof(struct epoll_event))

/* Begins with the kernel's events. */
static APART int ask_first(struct call *c)
{
	struct epoll_event *raw = c->found.raw;
	int n = call_ask(c, raw, c->max);

	if (n > 0)
		n = instance_translate(c->in, raw, n, c->ev);
	if (n <= 0)
		order_told(c->in, raw, n);
	return call_ask_again(c, c->ev, n, c->max);
}

/*
 * Puts the kernel's events before what memory has had since its last report. Whatever came
 * before that is there by now: also a connection that has cooled down, of which the kernel
 * has only the doorbell.
 */
static APART int ask_after(struct call *c, int n)
{
	struct epoll_event raw[RAW_EVENTS];
	int more = call_ask(c, raw, c->max - n), kept;

	if (more <= 0) {
		order_told(c->in, raw, more);
		return n;
	}
	kept = instance_translate(c->in, raw, more, raw);
	kept = call_ask_again(c, raw, kept, c->max - n);
	instance_lock(c->in);
	c->found.max = c->max - kept;
	instance_scan_until(c->in, &c->found, c->asking);
	if (instance_is_awaited(c->in))
		instance_attend(c->in);
	instance_unlock(c->in);
	order_merge(c->in, &c->found, c->ev, raw, kept);
	return kept + c->found.n;
}

/* Looks in memory. Returns how many events there are. */
static int scan(struct call *c)
{
	c->found.ev = c->ev;
	c->found.max = c->max;
	instance_scan(c->in, &c->found);
	return c->found.n;
}

/* What one who has looked has to do besides. */
static void looked(struct instance *in)
{
	instance_age(in);
	if (instance_is_awaited(in))
		instance_attend(in);
}

static int add_hot(struct call *c)
{
	int n = scan(c);

	looked(c->in);
	return n;
}

/*
 * The kernel has told n events of the program's. With them goes what memory has had before that,
 * and no more: what came since may have come after something that the kernel has not been asked
 * for.
 */
static int add_earlier(struct call *c, int n)
{
	c->found.ev = c->ev + n;
	c->found.max = c->max - n;
	instance_scan_begin(c->in, &c->found);
	instance_scan_until(c->in, &c->found, c->asking);
	looked(c->in);
	return n + c->found.n;
}

/* The same with doorbells and the like among the n. With nothing of the program's a whole look is
 * better, which ends with a question. */
static int add_heard(struct call *c, const struct epoll_event *raw, int n)
{
	n = instance_translate(c->in, raw, n, c->ev);
	n = call_ask_again(c, c->ev, n, c->max);
	order_told(c->in, c->ev, n);
	if (n == 0)
		return 0;
	instance_lock(c->in);
	n = add_earlier(c, n);
	instance_unlock(c->in);
	return n;
}

/* The kernel was asked first, and its n events stand before those of memory. */
static APART int kernel_first(struct call *c, int n)
{
	struct epoll_event raw[RAW_EVENTS];

	memcpy(raw, c->ev, (size_t)n * sizeof(*raw));
	memmove(c->ev, c->ev + n, (size_t)c->found.n * sizeof(*raw));
	order_merge(c->in, &c->found, c->ev, raw, n);
	return n + c->found.n;
}

/* After a look in memory alone. */
static int complete(struct call *c, int n)
{
	if (n <= 0 || !instance_ask_due(c->in))
		return n;
	if (n < c->max)
		return ask_after(c, n);
	store_relaxed(&c->in->kernel_turn, true);
	return n;
}

static int look(struct call *c)
{
	int n;

	instance_lock(c->in);
	n = add_hot(c);
	instance_unlock(c->in);
	return complete(c, n);
}

/* *heard: what the kernel has told, our own included. */
static APART int ask_and_hear(struct call *c, int *heard)
{
	struct epoll_event *raw = c->found.raw;

	*heard = call_ask(c, raw, c->max);
	if (*heard > 0)
		return add_heard(c, raw, *heard);
	order_told(c->in, raw, *heard);
	return 0;
}

/* Memory has just had nothing. */
static int ask_and_look(struct call *c)
{
	int n = 0, room = call_room(c->max), heard = room;

	/* Where the room was full of what only we are told, the program's own may stand behind. */
	for (int i = 0; n == 0 && heard == room && i < ASK_BEHIND; i++) {
		n = ask_and_hear(c, &heard);
		/* Nothing there either: there was nothing at that moment. */
		if (heard < 0 || (heard == 0 && c->deadline == LOOK_NOW))
			return heard;
		n = n ? n : look(c);
	}
	return n;
}

/*
 * The first look of a call: in memory, and in the kernel as well when it is due. With
 * nothing in memory the kernel's turn comes by itself, in the spin or the sleep. Where
 * memory takes all the room, the kernel goes first at the next call.
 */
static int look_first(struct call *c)
{
	struct instance *in = c->in;
	int told = load_relaxed(&in->kernel_turn) ? ask_first(c) : 0, n;

	if (told < 0)
		return told;
	instance_lock(in);
	in->calls++;
	n = told ? add_earlier(c, told) : add_hot(c);
	instance_unlock(in);
	return told ? kernel_first(c, told) : complete(c, n);
}

static int spin(struct call *c)
{
	struct look_crowd crowd;
	struct look_spin sp;
	bool ask = false;
	int n = 0;

	instance_crowd(c->in, look_crowd_begin(&crowd));
	if (!look_crowd_end(&crowd))
		return 0;
	look_spin_begin(&sp, c->deadline);
	while (!n && look_spin_turn(&sp, &ask) && crit_handlers() == c->handlers)
		n = ask ? ask_and_look(c) : look(c);
	look_spin_end(&sp, n != 0);
	return n;
}

struct sleep {
	struct instance *in;
	uint32_t generation;
	uint32_t forks; /* sock_forks when it began */
	int result;
	bool gone; /* the instance was closed meanwhile */
};

static void woke(void *arg)
{
	struct sleep *sl = arg;

	sl->gone = sl->forks == sock_forks && !instance_up(sl->in, sl->generation);
}

static const struct timespec *sleep_time(struct call *c, struct timespec *ts)
{
	uint64_t still = sock_settle(), nap;

	instance_lock(c->in);
	nap = instance_nap_ns(c->in);
	instance_unlock(c->in);
	return look_remaining(look_sooner(c->deadline, nap < still ? nap : still), ts);
}

/* Arms everything. Returns what came before that: it did not ring. */
static int lie_down(struct call *c, struct sleep *sl)
{
	struct instance *in = c->in;
	int n;

	instance_lock(in);
	sl->generation = instance_sleep(in);
	instance_arm(in);
	n = scan(c);
	if (n) {
		instance_woke(in, sl->generation);
		instance_awake(in);
		if (instance_is_awaited(in))
			instance_attend(in);
	}
	instance_unlock(in);
	return n;
}

static int mixed_sleep(struct call *c, struct sleep *sl, struct epoll_event *raw)
{
	const struct timespec *t;
	struct timespec ts;

	report_add(&report_now.sleeps, 1);
	t = sleep_time(c, &ts);
	c->epfd = instance_fd_now(c->in, c->epfd);
	PROBE3(sleep, PROBE_EPOLL, c->epfd, 0ull);
	sl->result =
		epoll_kernel_wait(c->in, c->epfd, raw, call_room(c->max), t, c->mask);
	c->asked = __rdtsc();
	PROBE4(wake, PROBE_EPOLL, c->epfd, 0ull, sl->result);
	c->late = sl->result == 0 && c->deadline != LOOK_FOREVER &&
		  (c->deadline == LOOK_NOW || clock_now_ns() >= c->deadline);
	return sl->result;
}

/* Does what was to be done where a handler jumps away. */
static void get_up(struct _pthread_cleanup_buffer *cleanup)
{
	crit_enter();
	_pthread_cleanup_pop(cleanup, 1);
	crit_leave();
}

/* *awake: it did not sleep, and memory has n. */
static APART int sleep_and_hear(struct call *c, bool *awake)
{
	struct epoll_event *raw = c->found.raw;
	struct _pthread_cleanup_buffer cleanup;
	struct sleep sl = {.in = c->in};
	bool has_room;
	int n;

	c->asking = __rdtsc();
	/* No handler jumps away between a count and the note of it. */
	crit_enter();
	sl.forks = sock_forks;
	n = lie_down(c, &sl);
	if (!n)
		_pthread_cleanup_push(&cleanup, woke, &sl);
	crit_leave();
	if ((*awake = n != 0))
		return n;
	n = mixed_sleep(c, &sl, raw);
	get_up(&cleanup);
	has_room = call_has_room(c);
	if (sl.gone) {
		n = n > 0 ? instance_translate(c->in, raw, n, has_room ? c->ev : raw) : n;
		if (n > 0 && !has_room)
			return -EFAULT;
		return n ? n : -EBADF;
	}
	if (!has_room)
		return call_shrink(c, raw, n);
	if (n <= 0)
		order_told(c->in, raw, n);
	return n > 0 ? add_heard(c, raw, n) : n;
}

static int sleep_once(struct call *c)
{
	bool awake;
	int n = sleep_and_hear(c, &awake);

	if (awake)
		return complete(c, n);
	return n || c->late ? n : look(c);
}

/* Changes with each registration that goes to memory or back to the kernel. */
static uint64_t moves(struct instance *in)
{
	return (uint64_t)load_relaxed(&in->reverts) << 32 | load_relaxed(&in->converted);
}

static int wait_mixed(struct call *c)
{
	int n;

	if (c->in->owner != epoll_self() ? instance_refuses_waiter(c->in)
					 : c->in->forked && instance_comes_shared(c->in))
		instance_refuse_all(c->in);
	c->moves = moves(c->in);
	n = look_first(c);
	if (!n && c->deadline == LOOK_NOW && !c->mask)
		return ask_and_look(c);
	/* A signal that the mask lets in must end the wait, so it must be a sleep. */
	if (!n && !c->mask)
		n = spin(c);
	/* A handler during the spin, or between two sleeps, ends the wait, as it would have ended a sleep. But
	 * what came with the signal, as urgent data does, that sleep would have told. */
	while (!n && !c->late) {
		bool handled = crit_handlers() != c->handlers;

		n = handled ? ask_and_look(c) : sleep_once(c);
		n = n || !handled ? n : -EINTR;
	}
	return n;
}

static int plain_sleep(struct call *c, const struct timespec *timeout)
{
	struct _pthread_cleanup_buffer cleanup;
	struct sleep sl = {.in = c->in};

	crit_enter();
	sl.forks = sock_forks;
	sl.generation = instance_sleep(c->in);
	_pthread_cleanup_push(&cleanup, woke, &sl);
	crit_leave();
	if (!atomic_load(&c->in->converted)) {
		sl.result = epoll_kernel_wait(c->in, c->epfd, c->ev, c->max, timeout,
					      c->mask);
		c->late = sl.result == 0;
	}
	get_up(&cleanup);
	c->gone = sl.gone;
	return sl.result;
}

/* What the kernel has told where no registration was ours. A conversion during this very call may have left tags. */
static APART int tell_plain(struct instance *in, struct epoll_event *ev, int n, bool gone)
{
	int kept = n;

	if (n > 0 && (gone || instance_may_have_tags(in)))
		kept = instance_translate(in, ev, n, ev);
	if (!gone)
		order_told(in, ev, kept);
	if (kept < n)
		memset(ev + kept, 0, (size_t)(n - kept) * sizeof(*ev));
	return kept;
}

/* No registration is ours: the kernel's call, watched for a conversion during it. */
static int wait_plain(struct call *c, const struct timespec *timeout)
{
	int n;

	if (c->deadline == LOOK_NOW) {
		n = epoll_kernel_wait(c->in, c->epfd, c->ev, c->max, timeout, c->mask);
		c->late = n == 0;
	} else {
		n = plain_sleep(c, timeout);
	}
	return tell_plain(c->in, c->ev, n, c->gone);
}

/* A registration that has moved during the call may be told twice, by memory and the kernel. */
static int tell_once(struct call *c, int n)
{
	if (n < 2 || moves(c->in) == c->moves)
		return n;
	return order_fold_all(c->ev, n);
}

/*
 * A registration that has gone back to the kernel during the call is told by whoever has it now, which may have been
 * neither while the call looked. In the kernel's queue it stands behind what is level-triggered, all of which may have
 * been told: where that takes the room, the kernel goes on behind it when it is asked again.
 */
static APART int add_returned(struct call *c, int n)
{
	struct epoll_event *raw = c->found.raw;
	bool behind = true;

	for (int asks = n; behind && asks >= 0 && n >= 0 && n < c->max && !c->gone;
	     asks--) {
		int room = c->max - n, heard = call_ask(c, raw, room), more = 0;

		behind = heard == call_room(room);
		if (heard > 0)
			more = instance_translate(c->in, raw, heard, c->ev + n);
		if (more > 0)
			n = tell_once(c, n + more);
	}
	return n;
}

/* Without its largest part, which need not be cleared. */
static void call_begin(struct call *c, struct instance *in, int epfd)
{
	c->in = in;
	c->epfd = epfd;
	c->handlers = crit_handlers();
	c->late = c->gone = c->lost = false;
}

/* There is no memory for even one event: it stays where it is, and its bearer is told. */
static int wait_nowhere(struct call *c)
{
	struct _pthread_cleanup_buffer cleanup;
	struct epoll_event ev;
	struct listing listing;
	int n;

	c->ev = &ev;
	c->max = 1;
	crit_enter(); /* no handler jumps away with the listing */
	listing = epoll_listing(c->epfd);
	_pthread_cleanup_push(&cleanup, listing_drop, &listing);
	crit_leave();
	n = wait_mixed(c);
	if (n > 0)
		epoll_untell(c->in, c->epfd, listing.text, ev.data.u64);
	get_up(&cleanup);
	return n > 0 ? -EFAULT : n;
}

/* Upgraded connections are in the instance, or were. */
static inline int wait_here(struct call *c)
{
	uint32_t reverts;
	int n;

	/* Written in place, so it must be writable. */
	c->max = epoll_room(c->ev, c->max,
			    load_relaxed(&c->in->converted) + 2 * RAW_EVENTS);
	if (c->max == 0)
		return wait_nowhere(c);
	reverts = load_relaxed(&c->in->reverts);
	n = wait_mixed(c);
	if (load_relaxed(&c->in->reverts) != reverts)
		n = add_returned(c, n);
	return n > 0 && c->lost ? call_untell(c) : tell_once(c, n);
}

static inline void note_wait(struct instance *in)
{
	store_relaxed(&in->waited_on, true);
	if (__builtin_expect(in->forked, 0))
		instance_note_waiter(in);
}

int ready_epoll_wait(int epfd, struct epoll_event *ev, int max,
		     const struct timespec *timeout, const sigset_t *mask)
{
	struct instance *in = instance_at(epfd);
	struct call c;
	int n;

	if (!in)
		return epoll_kernel_wait(in, epfd, ev, max, timeout, mask);
	if (max <= 0 || max > MAX_EVENTS)
		return -EINVAL;
	if (!epoll_is_user(ev, max))
		return -EFAULT;
	note_wait(in);
	call_begin(&c, in, epfd);
	c.ev = ev;
	c.max = max;
	c.mask = mask;
	c.deadline = look_deadline(timeout);
	if (!atomic_load(&in->converted)) {
		n = wait_plain(&c, timeout);
		if (n || c.gone || (c.late && !atomic_load(&in->converted)))
			return n;
		c.late = false;
	}
	return wait_here(&c);
}

/*
 * As wait_plain. A registration that is converted before instance_sleep is seen here, and one that is converted after it
 * finds a sleeper, and wakes it. With nothing to tell, but a registration converted or only tags of ours heard, the rest
 * of the time is another call's.
 */
long ready_epoll_wait_alone(int epfd, struct epoll_event *ev, int max, int ms, long other)
{
	struct instance *in = instance_at(epfd);
	uint64_t deadline = LOOK_NOW;
	struct timespec ts;
	uint32_t generation;
	bool gone = false;
	long n, kept;

	if (!in || atomic_load(&in->converted) || epoll_any_side() ||
	    load_relaxed(&in->outer))
		return other;
	note_wait(in);
	if (ms != 0) {
		ts = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
		deadline = look_deadline(ms < 0 ? NULL : &ts);
		generation = instance_sleep(in);
		if (atomic_load(&in->converted)) {
			instance_up(in, generation);
			return other;
		}
	}
	n = kernel_call4(SYS_epoll_wait, epfd, (long)ev, max, ms);
	if (ms != 0)
		gone = !instance_up(in, generation);
	kept = n > 0 ? tell_plain(in, ev, (int)n, gone) : n;
	if (kept > 0 && !gone && load_relaxed(&in->outer)) {
		epoll_settle();
		kept = epoll_drop_vain(in, epfd, ev, (int)kept);
	}
	if (kept != 0 || gone || (n == 0 && !atomic_load(&in->converted)))
		return kept;
	return ready_epoll_wait(instance_fd_now(in, epfd), ev, max,
				look_remaining(deadline, &ts), NULL);
}
