/* SPDX-License-Identifier: Apache-2.0 */
/* poll, select and epoll by syscall(), whose times and masks differ from what libc makes of them. */
#include "preload/syscall.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

#define SECOND_NS 1000000000ll

/* Copies of what a call was given. */
struct given {
	struct timespec time, *timeout;
	uint64_t set; /* as much of a mask as the kernel reads */
	const sigset_t *mask;
};

/* False when the kernel refuses it. */
static bool mask_given(struct given *g, const void *mask, size_t size)
{
	g->mask = mask ? (const void *)&g->set : NULL;
	return !mask ||
	       (size == sizeof(g->set) && crit_copy(&g->set, mask, sizeof(g->set)) == 0);
}

static bool time_given(struct given *g, const void *timeout)
{
	g->timeout = timeout ? &g->time : NULL;
	return !timeout || (crit_copy(&g->time, timeout, sizeof(g->time)) == 0 &&
			    g->time.tv_sec >= 0 && g->time.tv_nsec >= 0 &&
			    g->time.tv_nsec < SECOND_NS);
}

/* What is left of the time, which the kernel tells, if it can. */
static void time_back(const struct given *g, const struct timespec *begin, void *to)
{
	struct timespec now, left = g->time;

	if (!to || (!left.tv_sec && !left.tv_nsec))
		return;
	clock_read(CLOCK_MONOTONIC, &now);
	left.tv_sec -= now.tv_sec - begin->tv_sec;
	left.tv_nsec -= now.tv_nsec - begin->tv_nsec;
	if (left.tv_nsec >= SECOND_NS) {
		left.tv_nsec -= SECOND_NS;
		left.tv_sec++;
	} else if (left.tv_nsec < 0) {
		left.tv_nsec += SECOND_NS;
		left.tv_sec--;
	}
	if (left.tv_sec < 0)
		left = (struct timespec){0, 0};
	(void)crit_copy(to, &left, sizeof(left));
}

static long ppoll_call(const long *a)
{
	struct pollfd *fds = (void *)a[0];
	struct timespec begin;
	struct given g;

	if (!hook_poll_concerns(fds, (unsigned)a[1]) || !time_given(&g, (void *)a[2]) ||
	    !mask_given(&g, (void *)a[3], (size_t)a[4]))
		return HOOK_NOT_MINE;
	clock_read(CLOCK_MONOTONIC, &begin);
	long result = ppoll(fds, (unsigned)a[1], g.timeout, g.mask);
	time_back(&g, &begin, (void *)a[2]);
	return result;
}

/* As the kernel adds the two up; the C library's select has its own way. */
static bool timeval_given(struct timeval *time, const void *timeout)
{
	if (crit_copy(time, timeout, sizeof(*time)) < 0)
		return false;
	__builtin_add_overflow(time->tv_sec, time->tv_usec / 1000000, &time->tv_sec);
	time->tv_usec %= 1000000;
	return time->tv_sec >= 0 && time->tv_usec >= 0;
}

static long select_call(const long *a)
{
	fd_set *r = (void *)a[1], *w = (void *)a[2], *e = (void *)a[3];
	struct timeval time, *timeout = a[4] ? &time : NULL;

	if (!hook_select_concerns((int)a[0], r, w, e) ||
	    (timeout && !timeval_given(&time, (void *)a[4])))
		return HOOK_NOT_MINE;
	long result = select((int)a[0], r, w, e, timeout);
	if (timeout)
		(void)crit_copy((void *)a[4], &time, sizeof(time));
	return result;
}

static long pselect_call(const long *a)
{
	fd_set *r = (void *)a[1], *w = (void *)a[2], *e = (void *)a[3];
	struct timespec begin;
	struct given g;
	struct {
		const void *mask;
		size_t size;
	} sig = {NULL, 0};

	if (!hook_select_concerns((int)a[0], r, w, e) ||
	    (a[5] && crit_copy(&sig, (void *)a[5], sizeof(sig)) < 0) ||
	    !time_given(&g, (void *)a[4]) || !mask_given(&g, sig.mask, sig.size))
		return HOOK_NOT_MINE;
	clock_read(CLOCK_MONOTONIC, &begin);
	long result = pselect((int)a[0], r, w, e, g.timeout, g.mask);
	time_back(&g, &begin, (void *)a[4]);
	return result;
}

static long epoll_call(long nr, const long *a)
{
	struct epoll_event *events = (void *)a[1];
	int instance = (int)a[0], most = (int)a[2];
	struct given g;

	if (!instance_at(instance) && !(left_any() && left_epoll_is_ready(instance)))
		return HOOK_NOT_MINE;
	if (nr == SYS_epoll_wait)
		return epoll_wait(instance, events, most, (int)a[3]);
	if (!mask_given(&g, (void *)a[4], (size_t)a[5]))
		return HOOK_NOT_MINE;
	if (nr == SYS_epoll_pwait)
		return epoll_pwait(instance, events, most, (int)a[3], g.mask);
	if (!time_given(&g, (void *)a[3]))
		return HOOK_NOT_MINE;
	return epoll_pwait2(instance, events, most, g.timeout, g.mask);
}

/*
 * Behind a filter, with bytes of a ring to read: the program's own call, which must be allowed there, but without
 * waiting. False: nothing of that kind is ready.
 */
static bool left_is_ready(long nr, const long *a, long *result)
{
	struct pollfd *fds = (void *)a[0];
	fd_set *in = (void *)a[1];
	struct timespec at_once = {0, 0}; /* as a timeval, too */
	struct left_sets left;
	int made;

	if (nr == SYS_poll || nr == SYS_ppoll) {
		if (!left_poll_is_ready(fds, (unsigned)a[1]))
			return false;
		made = (int)kernel_call6(nr, a[0], a[1],
					 nr == SYS_poll ? 0 : (long)&at_once, a[3], a[4],
					 0);
		made = left_poll_add(fds, (unsigned)a[1], made);
	} else if (nr == SYS_select || nr == SYS_pselect6) {
		if (!left_select_is_ready((int)a[0], in, &left))
			return false;
		made = (int)kernel_call6(nr, a[0], a[1], a[2], a[3], (long)&at_once,
					 a[5]);
		made = left_select_add(in, &left, made);
	} else {
		return false;
	}
	if (made < 0)
		errno = -made;
	*result = made < 0 ? -1 : made;
	return true;
}

long syscall_wait(long nr, long *a)
{
	long result;

	if (left_any() && left_is_ready(nr, a, &result))
		return result;
	switch (nr) {
	case SYS_poll:
		return hook_poll_concerns((void *)a[0], (unsigned)a[1])
			       ? poll((void *)a[0], (unsigned)a[1], (int)a[2])
			       : HOOK_NOT_MINE;
	case SYS_ppoll:
		return ppoll_call(a);
	case SYS_select:
	case SYS_pselect6:
		a[0] = hook_select_clip((int)a[0], (void *)a[1], (void *)a[2],
					(void *)a[3]);
		return nr == SYS_select ? select_call(a) : pselect_call(a);
	default:
		return epoll_call(nr, a);
	}
}
