/* SPDX-License-Identifier: Apache-2.0 */
/* close, close_range, dup and fcntl. */
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/low.h"
#include "base/sections.h"
#include "conn/passed.h"
#include "conn/placing.h"
#include "conn/table.h"
#include "preload/hook.h"
#include "preload/lent.h"
#include "preload/withheld.h"

/* The receiver may take it on when the kernel has closed it here. */
static int close_passed(int fd)
{
	struct sock *s = fd_sock(fd);
	uint32_t generation = 0;
	uint64_t cookie = hook_is_borrowed() ? 0 : passed_closing(s, fd, &generation);
	int result;

	if (!hook_closing(fd))
		return (int)ret_errno(-EBADF);
	result = REAL(close)(fd);
	if (cookie && result == 0)
		passed_closed(s, cookie, generation);
	return result;
}

/* Behind the close: who has lent it may take it back at once. */
static __attribute__((noinline)) int close_lent(int fd)
{
	bool is_one = fd >= 0 && fd == load_relaxed(&lent_one);
	int result, saved;

	if (passed_any())
		result = close_passed(fd);
	else
		result = hook_closing(fd) ? REAL(close)(fd) : (int)ret_errno(-EBADF);
	saved = errno;
	if (is_one)
		lent_closed();
	errno = saved;
	return result;
}

NEAR_CODE HOOK int close(int fd)
{
	if (lent_is_any())
		return close_lent(fd);
	if (passed_any())
		return close_passed(fd);
	if (!hook_closing(fd))
		return (int)ret_errno(-EBADF);
	return REAL(close)(fd);
}
HOOK_ALIAS(__close, close);

static int range_real(unsigned first, unsigned last, int flags)
{
	return (int)REAL(syscall)(SYS_close_range, first, last, flags);
}

/* Closes a range in the kernel, around Viaduct's own descriptors. */
static int range_around_ours(unsigned first, unsigned last, int flags)
{
	int result = 0;

	for (unsigned fd = first; fd <= INT_MAX && result == 0; fd++) {
		fd = (unsigned)fds_next((int)fd);
		if (fd == INT_MAX || fd > last)
			break;
		if (fd > first)
			result = range_real(first, fd - 1, flags);
		first = fd + 1;
	}
	return first <= last && result == 0 ? range_real(first, last, flags) : result;
}

/* Everything that the tables know of the range is told that it will be closed. */
static void range_closing(unsigned first, unsigned last)
{
	unsigned end = (unsigned)hook_known_end();

	for (unsigned fd = first; fd < end && fd <= last; fd++)
		hook_closing((int)fd);
}

HOOK int close_range(unsigned first, unsigned last, int flags)
{
	int known = CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE, result;
	bool parts;

	parts = (flags & CLOSE_RANGE_UNSHARE) && first <= last && !(flags & ~known) &&
		!hook_is_alone();
	if (parts)
		hook_parting();
	/* Ours are close-on-exec already; and what fails in the kernel closes nothing. */
	if (first > last || (flags & ~known) || (flags & CLOSE_RANGE_CLOEXEC) ||
	    hook_is_borrowed())
		return range_real(first, last, flags);
	/* A thread that parts from the others' descriptors leaves theirs open. */
	if (!parts)
		range_closing(first, last);
	result = range_around_ours(first, last, flags);
	lent_closed();
	return result;
}

HOOK void closefrom(int low)
{
	close_range(low < 0 ? 0 : (unsigned)low, UINT_MAX, 0);
}

HOOK int dup(int oldfd)
{
	int newfd = HOOK_MAKE(REAL(dup)(oldfd));

	if (newfd >= 0)
		hook_duplicated(oldfd, newfd);
	return newfd;
}

/* The kernel refuses such a number as a new one, though the program may have it from before its
 * limit fell. */
static bool is_beyond_limit(int fd)
{
	struct rlimit limit;

	return kernel_getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
	       (rlim_t)fd >= limit.rlim_cur;
}

/* It has a ring, and newfd is another file's, which other threads may be about to use. */
static bool is_in_use(struct sock *s, int newfd)
{
	return !__libc_single_threaded && !low_does_without() && sock_is_direct(s) &&
	       fd_sock(newfd) != s &&
	       kernel_call4(SYS_fcntl, newfd, F_GETFD, 0, 0) >= 0 && !hook_is_alone();
}

/*
 * Before dup2 closes newfd. Returns 0 to go on, 1 when the call will close nothing, or
 * -EBADF when newfd is Viaduct's.
 */
static int dup_closing(int oldfd, int newfd)
{
	struct sock *s;

	if (oldfd == newfd || newfd < 0)
		return 1;
	if (newfd < hook_known_end() && is_beyond_limit(newfd))
		return 1;
	if (fds_is_ours(newfd) && !hook_is_borrowed() && !table_make_way(newfd))
		return -EBADF;
	/* The last words cannot be taken back: nothing may be wrong with oldfd. */
	if (REAL(fcntl64)(oldfd, F_GETFD) < 0)
		return 1;
	s = fd_sock(oldfd);
	if (s && newfd <= 2)
		hook_take_down(s, oldfd, VD_REASON_STDIO);
	else if (s && is_in_use(s, newfd))
		hook_take_down(s, oldfd, VD_REASON_PLACED);
	return 0;
}

/*
 * The kernel's dup2 is one step. Ours is three: the table loses the file that was there, the kernel puts the other in
 * its place, the table learns of it. So those to one number come one after the other: else the table would end with
 * a file that the kernel has closed, or lose one uncounted. Taken before every other lock.
 *
 * Other threads use the number meanwhile, and their bytes go where their file is:
 * - One connection, by two numbers: nothing changes in the table.
 * - A connection on a ring leaves the number and stays: kernel and table change in one step (fd_closing_for).
 * - A connection on a ring comes to a number that is open: a call by that may be on its way to the kernel already. So
 *   the connection goes to TCP before, for good.
 */
#define PLACES 1024
static struct lock places[PLACES];
static _Atomic uint32_t places_held NEAR_DATA;

/* In a child of fork: its parent's other threads held them. */
FORK_CODE void hook_places_forked(void)
{
	if (!load_relaxed(&places_held))
		return;
	for (int i = 0; i < PLACES; i++)
		store_relaxed(&places[i].word, 0);
	store_relaxed(&places_held, 0);
}

/* Who is inside a fork holds locks that another may wait for in here. */
static struct lock *place_take(int fd)
{
	struct lock *place = &places[(unsigned)fd % PLACES];

	if (__libc_single_threaded || !hook_active || low_does_without())
		return NULL;
	crit_enter();
	atomic_fetch_add(&places_held, 1);
	lock_take(place);
	return place;
}

static void place_drop(struct lock *place)
{
	if (!place)
		return;
	lock_drop(place);
	atomic_fetch_sub(&places_held, 1);
	crit_leave();
}

/*
 * Before the kernel places a file at fd. A number that is free may be one of ours for a moment (base/low.h): true,
 * and placed gives the lock back. One that is open is the program's, and to close it may take long: it is placed
 * without the lock.
 */
static bool placing_begin(int fd)
{
	/* Where there is no other thread, ours makes none now. */
	if (__libc_single_threaded || !hook_active || low_does_without() ||
	    load_relaxed(&hook_is_parted))
		return false;
	low_begin();
	if (kernel_call4(SYS_fcntl, fd, F_GETFD, 0, 0) < 0)
		return true;
	low_end();
	return false;
}

static int placed(bool locked, int result)
{
	if (locked)
		low_end();
	return result;
}

static int dup_real(int oldfd, int newfd, const int *flags)
{
	bool locked = placing_begin(newfd);

	return placed(locked, flags ? REAL(dup3)(oldfd, newfd, *flags)
				    : REAL(dup2)(oldfd, newfd));
}

/* Both are numbers of one connection. Where another thread closes newfd the table has to learn of it anew. */
static int place_again(int oldfd, int newfd, const int *flags)
{
	struct sock *s = fd_sock(newfd);
	int result = dup_real(oldfd, newfd, flags);

	if (result >= 0 && fd_sock(newfd) != s)
		hook_duplicated(oldfd, newfd);
	return result;
}

static int place_over(int oldfd, int newfd, const int *flags)
{
	struct fd_placing by = {.from = oldfd, .flags = flags ? *flags : 0};
	int result;

	hook_closing_for(newfd, &by);
	if (by.done && by.result >= 0)
		hook_placed(oldfd, newfd);
	if (by.done)
		return (int)ret_errno(by.result);
	result = dup_real(oldfd, newfd, flags);
	if (result >= 0)
		hook_duplicated(oldfd, newfd);
	return result;
}

/* dup3, or without flags dup2. */
static int place(int oldfd, int newfd, const int *flags)
{
	bool refused = flags && (*flags & ~O_CLOEXEC);
	int closing = refused ? 1 : dup_closing(oldfd, newfd), result;
	struct lock *lock;

	if (closing < 0)
		return (int)ret_errno(closing);
	if (closing > 0)
		return dup_real(oldfd, newfd, flags);
	lock = place_take(newfd);
	if (fd_sock(oldfd) && fd_sock(oldfd) == fd_sock(newfd) && !hook_is_borrowed())
		result = place_again(oldfd, newfd, flags);
	else
		result = place_over(oldfd, newfd, flags);
	place_drop(lock);
	return result;
}

HOOK int dup2(int oldfd, int newfd)
{
	return place(oldfd, newfd, NULL);
}
HOOK_ALIAS(__dup2, dup2);

HOOK int dup3(int oldfd, int newfd, int flags)
{
	return place(oldfd, newfd, &flags);
}

/* What fcntl has done or is about to do to a socket of ours. */
static void fcntl_before(struct sock *s, int fd, int cmd, long arg)
{
	if ((cmd == F_SETFL && (arg & O_ASYNC)) || cmd == F_SETOWN ||
	    cmd == F_SETOWN_EX || cmd == F_SETSIG)
		hook_take_down(s, fd, VD_REASON_SIGIO);
	if (cmd == F_SETFD && (arg & FD_CLOEXEC))
		withheld_forget(s, fd);
}

static void fcntl_after(struct sock *s, int cmd, long arg)
{
	if (cmd == F_SETFL)
		store_relaxed(&s->slot->nonblock, !!(arg & O_NONBLOCK));
}

NEAR_CODE HOOK int fcntl64(int fd, int cmd, ...)
{
	bool is_dup = cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC;
	struct sock *s = fd_sock(fd);
	int result;
	va_list ap;
	long arg;

	/* As libc does: the argument is a word, whatever the command makes of it. */
	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (hook_hidden(fd))
		return -1;
	if (s)
		fcntl_before(s, fd, cmd, arg);
	result = HOOK_MAKE_FROM(is_dup ? (int)arg : 0, REAL(fcntl64)(fd, cmd, arg));
	if (result < 0)
		return result;
	if (is_dup)
		hook_duplicated(fd, result);
	else if (s)
		fcntl_after(s, cmd, arg);
	return result;
}
HOOK_ALIAS(fcntl, fcntl64);
HOOK_ALIAS(__fcntl, fcntl64);
