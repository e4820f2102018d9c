/* SPDX-License-Identifier: Apache-2.0 */
/* poll, select and epoll. */
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "readiness/epoll.h"
#include "readiness/look.h"
#include "readiness/ready.h"

static const struct timespec *from_ms(int ms, struct timespec *ts)
{
	if (ms < 0)
		return NULL;
	ts->tv_sec = ms / 1000;
	ts->tv_nsec = (long)(ms % 1000) * 1000000;
	return ts;
}

/* A mask that cannot be read is the kernel's to refuse, before it looks at anything else. */
static bool mask_is_good(const sigset_t *mask)
{
	return !mask || crit_readable(mask, NSIG / 8);
}

/*
 * A call's mask holds until it returns, also where the call sleeps more than once. A signal that it
 * blocks is handled after the call, and does not end it. What it lets in comes in the sleeps.
 */
struct held_mask {
	uint64_t before;
	bool held;
};

static struct held_mask mask_hold(const sigset_t *mask)
{
	struct held_mask h = {0, false};

	h.held = mask && kernel_call4(SYS_rt_sigprocmask, SIG_BLOCK, (long)mask,
				      (long)&h.before, sizeof(h.before)) == 0;
	return h;
}

static void mask_release(const struct held_mask *h)
{
	if (h->held)
		kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&h->before, 0,
			     sizeof(h->before));
}

#define UNDER_MASK(mask, call)                                                           \
	({                                                                               \
		struct held_mask held_ = mask_hold(mask);                                \
		int told_ = (call);                                                      \
		mask_release(&held_);                                                    \
		told_;                                                                   \
	})

static const struct timespec at_once;

bool hook_poll_concerns(struct pollfd *fds, unsigned long n)
{
	return hook_active && ready_poll_concerns(fds, n);
}

/* The kernel takes an unsigned int for the number of entries. */
HOOK int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct timespec ts;

	n = (unsigned)n;
	if (left_any() && left_poll_is_ready(fds, n))
		return left_poll_add(fds, n, REAL(poll)(fds, n, 0));
	if (left_any() || !hook_poll_concerns(fds, n))
		return REAL(poll)(fds, n, timeout);
	hook_cancel_point();
	return (int)ret_keeping(ready_poll(fds, n, from_ms(timeout, &ts), NULL));
}
HOOK_ALIAS(__poll, poll);

HOOK int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	n = (unsigned)n;
	if (left_any() && left_poll_is_ready(fds, n))
		return left_poll_add(fds, n, REAL(ppoll)(fds, n, &at_once, mask));
	if (left_any() || !hook_poll_concerns(fds, n) || !mask_is_good(mask))
		return REAL(ppoll)(fds, n, timeout, mask);
	hook_cancel_point();
	return (int)ret_keeping(UNDER_MASK(mask, ready_poll(fds, n, timeout, mask)));
}

static unsigned long set_word(const fd_set *set, int i)
{
	return set ? ((const unsigned long *)set)[i] : 0;
}

static bool set_readable(const fd_set *set, size_t bytes)
{
	return !set || crit_readable(set, bytes);
}

/* True when one of the descriptors in the sets is a socket or an instance of ours. */
bool hook_select_concerns(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	const int bits = 8 * (int)sizeof(unsigned long);
	size_t bytes = n > 0 ? (size_t)(n + bits - 1) / (size_t)bits * sizeof(long) : 0;

	if (!hook_active || !set_readable(r, bytes) || !set_readable(w, bytes) ||
	    !set_readable(e, bytes))
		return false;
	for (int base = 0; base < n; base += bits) {
		unsigned long word = set_word(r, base / bits) | set_word(w, base / bits) |
				     set_word(e, base / bits);

		for (; word; word &= word - 1) {
			int fd = base + __builtin_ctzl(word);

			if (fd < n && (fd_sock(fd) || instance_at(fd)))
				return true;
		}
	}
	return false;
}

static void time_since(const struct timespec *begin, struct timespec *spent)
{
	clock_read(CLOCK_MONOTONIC, spent);
	spent->tv_sec -= begin->tv_sec;
	spent->tv_nsec -= begin->tv_nsec;
	if (spent->tv_nsec < 0) {
		spent->tv_sec--;
		spent->tv_nsec += 1000000000;
	}
}

/* Linux leaves the time that was not slept in the caller's timeval, and so does glibc. musl does not. */
static void select_time_left(struct timeval *tv, const struct timespec *given,
			     const struct timespec *begin)
{
	struct timespec spent;
	time_t sec;
	long nsec;

	time_since(begin, &spent);
	sec = given->tv_sec - spent.tv_sec;
	nsec = given->tv_nsec - spent.tv_nsec;
	if (nsec < 0) {
		sec--;
		nsec += 1000000000;
	}
	tv->tv_sec = sec < 0 ? 0 : sec;
	tv->tv_usec = sec < 0 ? 0 : nsec / 1000;
}

/*
 * glibc since 2.34 looks at the low half of the microseconds, and refuses a negative one before it asks the
 * kernel. Others hand all of them on: then the kernel has the sets to complain of.
 */
static void select_time_cut(struct timeval *tv)
{
	struct timeval odd = {0, 1L << 31};
	fd_set *nowhere = (fd_set *)8;

	if (tv->tv_usec != (int32_t)tv->tv_usec &&
	    REAL(select)(1, nowhere, NULL, NULL, &odd) < 0 && errno == EINVAL)
		tv->tv_usec = (int32_t)tv->tv_usec;
}

static int select_ours(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *tv)
{
	struct timespec given, begin;
	int result;

	if (!tv)
		return ready_select(n, r, w, e, NULL, NULL);
	select_time_cut(tv);
	if (tv->tv_sec < 0 || tv->tv_usec < 0)
		return -EINVAL;
	if (__builtin_add_overflow(tv->tv_sec, tv->tv_usec / 1000000, &given.tv_sec))
		given.tv_sec = __LONG_MAX__;
	given.tv_nsec = tv->tv_usec % 1000000 * 1000;
	clock_read(CLOCK_MONOTONIC, &begin);
	result = ready_select(n, r, w, e, &given, NULL);
#ifdef __GLIBC__
	select_time_left(tv, &given, &begin);
#else
	(void)select_time_left;
#endif
	return result;
}

HOOK int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *tv)
{
	struct left_sets left;

	n = hook_select_clip(n, r, w, e);
	if (left_any() && left_select_is_ready(n, r, &left))
		return left_select_add(r, &left,
				       REAL(select)(n, r, w, e, &(struct timeval){0}));
	if (left_any() || !hook_select_concerns(n, r, w, e))
		return REAL(select)(n, r, w, e, tv);
	hook_cancel_point();
	return (int)ret_keeping(select_ours(n, r, w, e, tv));
}
HOOK_ALIAS(__select, select);

HOOK int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout,
		 const sigset_t *mask)
{
	struct left_sets left;

	n = hook_select_clip(n, r, w, e);
	if (left_any() && left_select_is_ready(n, r, &left))
		return left_select_add(r, &left,
				       REAL(pselect)(n, r, w, e, &at_once, mask));
	if (left_any() || !hook_select_concerns(n, r, w, e) || !mask_is_good(mask))
		return REAL(pselect)(n, r, w, e, timeout, mask);
	hook_cancel_point();
	return (int)ret_keeping(
		UNDER_MASK(mask, ready_select(n, r, w, e, timeout, mask)));
}

static int epoll_created(int fd)
{
	hook_opened(fd);
	if (fd >= 0 && left_any())
		left_epoll_made(fd);
	if (fd >= 0 && hook_active && !hook_is_borrowed()) {
		hook_known(fd);
		ready_epoll_create(fd);
	}
	return fd;
}

HOOK int epoll_create(int size)
{
	return epoll_created(HOOK_MAKE(REAL(epoll_create)(size)));
}

HOOK int epoll_create1(int flags)
{
	return epoll_created(HOOK_MAKE(REAL(epoll_create1)(flags)));
}

HOOK int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (left_any() && !instance_at(epfd))
		return left_epoll_ctl(epfd, op, fd, ev);
	/* An unknown instance may be an inherited one: a socket of ours in it matters. */
	if (!instance_at(epfd) && !fd_sock(fd))
		return REAL(epoll_ctl)(epfd, op, fd, ev);
	return (int)ret_keeping(ready_epoll_ctl(epfd, op, fd, ev));
}

/* As much of a mask as the kernel reads: into *copy. */
static bool mask_copied(const sigset_t **mask, uint64_t *copy)
{
	if (!*mask)
		return true;
	if (crit_copy(copy, *mask, sizeof(*copy)) != 0)
		return false;
	*mask = (const void *)copy;
	return true;
}

static int wait_masked(int epfd, struct epoll_event *ev, int max,
		       const struct timespec *timeout, const sigset_t *mask)
{
	uint64_t copy; /* no more than it needs: the stack may be short */

	if (!mask_copied(&mask, &copy))
		return -EFAULT;
	return UNDER_MASK(mask, ready_epoll_wait(epfd, ev, max, timeout, mask));
}

/* The time comes first, then the mask, then the rest. */
static int wait_timed(int epfd, struct epoll_event *ev, int max,
		      const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec copy;

	if (timeout) {
		if (crit_copy(&copy, timeout, sizeof(copy)) != 0)
			return -EFAULT;
		if (!look_timeout_valid(&copy))
			return -EINVAL;
		timeout = &copy;
	}
	return wait_masked(epfd, ev, max, timeout, mask);
}

HOOK int epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
	struct timespec ts;

	if (left_any() && left_epoll_is_ready(epfd))
		return left_epoll_add(epfd, ev, max, REAL(epoll_wait)(epfd, ev, max, 0));
	if (!instance_at(epfd))
		return REAL(epoll_wait)(epfd, ev, max, timeout);
	hook_cancel_point();
	return (int)ret_keeping(
		ready_epoll_wait(epfd, ev, max, from_ms(timeout, &ts), NULL));
}

HOOK int epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout,
		     const sigset_t *mask)
{
	struct timespec ts;

	if (left_any() && left_epoll_is_ready(epfd))
		return left_epoll_add(epfd, ev, max,
				      REAL(epoll_pwait)(epfd, ev, max, 0, mask));
	if (!instance_at(epfd) || !mask_is_good(mask))
		return REAL(epoll_pwait)(epfd, ev, max, timeout, mask);
	hook_cancel_point();
	return (int)ret_keeping(wait_masked(epfd, ev, max, from_ms(timeout, &ts), mask));
}

HOOK int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
		      const struct timespec *timeout, const sigset_t *mask)
{
	if (left_any() && left_epoll_is_ready(epfd))
		return left_epoll_add(epfd, ev, max,
				      REAL(epoll_pwait2)(epfd, ev, max, &at_once, mask));
	if (!instance_at(epfd) || !mask_is_good(mask))
		return REAL(epoll_pwait2)(epfd, ev, max, timeout, mask);
	hook_cancel_point();
	return (int)ret_keeping(wait_timed(epfd, ev, max, timeout, mask));
}
