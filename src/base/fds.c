/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's own descriptors: kept high, close-on-exec, safe from the program's close, and few
 * enough to leave the program its own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/low.h"
#include "base/real.h"
#include "base/sections.h"

#define FDS_MAX 1048576 /* highest number that can be ours, plus one */
/*
 * The kernel's table of a process is as long as its highest descriptor, and each fork
 * copies it: a descriptor at 16384 makes a fork a third dearer (measured: 114 to 154 us),
 * one at 4096 less than a tenth. So "high" has an end: under a large limit they begin here and
 * go up, under a small one they begin at its top and go down to its half.
 */
#define FDS_BASE_MAX 4096
#define FDS_BITS     64
/* Places from the top that are tried, before the lowest above the base is taken. */
#define FDS_PLACES_MOST 16
/* Numbers that Viaduct leaves free for what the program makes next: a part of the limit. */
#define FDS_RESERVE_PART  16
#define FDS_RESERVE_LEAST 8
#define FDS_RESERVE_MOST  256
/* The kernel's table is as long as a power of two, 64 or 256 at first, which an exec does not tell:
 * it counts for as long as an fd_set, lest it be shorter here than it would be. */
#define FDS_TABLE_LEAST 1024
#define FDS_TABLE_MOST	(1 << 30)

/*
 * Held while a number becomes ours or ceases to be, and over each fork: the kernel copies the
 * descriptors first and the memory later, and a child would take one that came in between for
 * its own, and close what it has there itself.
 */
static struct lock fds_lock FORK_DATA __attribute__((aligned(64))); /* see FORK_DATA */
static _Atomic uint64_t fds_map[FDS_MAX / FDS_BITS];
static _Atomic int fds_used FORK_DATA;
_Atomic int fds_lowest_ever FORK_DATA = INT_MAX;
static _Atomic int fds_highest_ever FORK_DATA = -1;
_Atomic uint32_t fds_closed FORK_DATA;
_Atomic int fds_tight = INT_MAX;
_Atomic int fds_watched = FDS_TABLE_LEAST;
/* See fds_table_length. It only grows, as the kernel's table does. Relaxed: it orders nothing. */
static _Atomic int fds_length FORK_DATA = FDS_TABLE_LEAST;

int fds_limit(void)
{
	struct rlimit limit;

	if (kernel_getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	return limit.rlim_cur < FDS_MAX ? (int)limit.rlim_cur : FDS_MAX;
}

static int fds_base(int limit)
{
	return limit / 2 < FDS_BASE_MAX ? limit / 2 : FDS_BASE_MAX;
}

/* Where to begin to look for a free number, below `end`. */
static int fds_place(int limit, int end)
{
	int base = fds_base(limit);

	if (base == FDS_BASE_MAX)
		return base;
	/* From the top: the program's own numbers are then what they are without Viaduct. */
	for (int fd = end - 1; fd > base; fd--)
		if (!fds_is_ours(fd))
			return fd;
	return base;
}

static uint64_t fds_bit(int fd)
{
	return (uint64_t)1 << ((unsigned)fd % FDS_BITS);
}

/* Under the lock. */
static void fds_note_range(int fd)
{
	if (fd < load_relaxed(&fds_lowest_ever))
		store_relaxed(&fds_lowest_ever, fd);
	if (fd > load_relaxed(&fds_highest_ever))
		store_relaxed(&fds_highest_ever, fd);
}

FORK_CODE int fds_count(void)
{
	return load_relaxed(&fds_used);
}

static uint64_t fds_word(int index)
{
	return load_relaxed(&fds_map[index]);
}

static int fds_marked_below(int fd)
{
	int lowest = load_relaxed(&fds_lowest_ever);
	int highest = load_relaxed(&fds_highest_ever);
	int count = 0, last;

	/* A large limit is far away from what is used. */
	if (fd > highest)
		fd = highest + 1;
	if (fd <= lowest)
		return 0;
	last = fd / FDS_BITS;
	for (int i = lowest / FDS_BITS; i < last; i++)
		count += __builtin_popcountll(fds_word(i));
	if (fd % FDS_BITS)
		count += __builtin_popcountll(fds_word(last) & (fds_bit(fd) - 1));
	return count;
}

int fds_below(int fd)
{
	int count;

	lock_take(&fds_lock);
	count = fds_marked_below(fd);
	lock_drop(&fds_lock);
	return count;
}

static void fds_give(int fd)
{
	kernel_close(fd);
	atomic_fetch_add_explicit(&fds_closed, 1, memory_order_release);
}

static int fds_reserve(int limit)
{
	int reserve = limit / FDS_RESERVE_PART;

	if (reserve < FDS_RESERVE_LEAST)
		return FDS_RESERVE_LEAST;
	return reserve < FDS_RESERVE_MOST ? reserve : FDS_RESERVE_MOST;
}

/* Under a small limit they stand above all of the program's, and give way to these. */
static bool fds_is_stacked(int limit)
{
	return fds_base(limit) < FDS_BASE_MAX;
}

static int fds_lowest_now(int limit)
{
	int low = load_relaxed(&fds_lowest_ever);

	for (int i = low / FDS_BITS; i * FDS_BITS < limit; i++)
		if (fds_word(i))
			return i * FDS_BITS + __builtin_ctzll(fds_word(i) | fds_bit(63));
	return limit;
}

/* Relaxed: with a guess that is one late, a number is looked at in vain, or the next one is. */
static void fds_watch(void)
{
	int tight = load_relaxed(&fds_tight);
	int length = load_relaxed(&fds_length);
	int watched = tight < length ? tight : length;

	if (load_relaxed(&fds_watched) != watched)
		store_relaxed(&fds_watched, watched);
}

static void fds_set_tight(int tight)
{
	store_relaxed(&fds_tight, tight);
	fds_watch();
}

static int fds_length_for(int fd)
{
	int length = FDS_TABLE_LEAST;

	while (length <= fd && length < FDS_TABLE_MOST)
		length *= 2;
	return length;
}

bool fds_got(int fd)
{
	int length = load_relaxed(&fds_length);

	while (fd >= length && length < FDS_TABLE_MOST &&
	       !atomic_compare_exchange_weak_explicit(
		       &fds_length, &length, fds_length_for(fd), memory_order_relaxed,
		       memory_order_relaxed))
		;
	fds_watch();
	return fd >= load_relaxed(&fds_tight);
}

int fds_table_length(void)
{
	/* As long as it has held none of ours, the table is the program's own. */
	if (load_relaxed(&fds_highest_ever) < 0)
		return INT_MAX;
	return load_relaxed(&fds_length);
}

/* Relaxed: a guess that is one late is set right by the next look at the limit. */
static void fds_note_tight(int limit)
{
	int held = fds_count(), tight = INT_MAX;

	if (held > 0)
		tight = (fds_is_stacked(limit) ? fds_lowest_now(limit) : limit - held) -
			fds_reserve(limit);
	fds_set_tight(tight < 0 ? 0 : tight);
}

int fds_excess(int fd, int *below)
{
	int limit = fds_limit(), free_end = fd + 1 + fds_reserve(limit), ours;

	fds_note_tight(limit);
	*below = limit;
	if (fds_is_stacked(limit)) {
		if (free_end < limit)
			*below = free_end;
		return fds_marked_below(*below);
	}
	/* The kernel gives the lowest number: all below it are taken, by whom ever. */
	ours = fds_marked_below(limit) - fds_marked_below(fd < limit ? fd : limit);
	return free_end + ours - limit;
}

/* Whether the program, which has the numbers below fd, can spare the number high. */
static bool fds_fits(int fd, int high, int limit)
{
	int below;

	if (fds_is_stacked(limit))
		return high > fd + fds_reserve(limit);
	return fds_excess(fd, &below) < 0;
}

static int fds_dup(int fd, int limit, bool low)
{
	int high = -1, base = fds_base(limit), end = limit;

	if (low && base == FDS_BASE_MAX)
		return REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, FDS_APART);
	/* The program may have some up there. */
	for (int i = 0; high < 0 && end > base && i < FDS_PLACES_MOST; i++) {
		end = fds_place(limit, end);
		high = REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, end);
	}
	return high < 0 ? REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, base) : high;
}

/* Moves fd, within half of the limit; or, unless it is needed, within what the program leaves. */
static int fds_move_locked(int fd, bool needed, bool low)
{
	int limit = fds_limit(), high = -1, saved = errno;

	/* Relaxed everywhere: the numbers order no other memory. */
	if (fetch_add_relaxed(&fds_used, 1) < limit / 2)
		high = fds_dup(fd, limit, low);
	if (high >= FDS_MAX || (high >= 0 && !needed && !fds_fits(fd, high, limit))) {
		fds_give(high);
		high = -1;
	}
	errno = saved;
	if (high < 0) {
		fetch_sub_relaxed(&fds_used, 1);
		return -EMFILE;
	}
	fds_give(fd);
	fds_note_range(high);
	fetch_or_relaxed(&fds_map[high / FDS_BITS], fds_bit(high));
	fds_note_tight(limit);
	return high;
}

static int fds_take_locked(int fd, bool needed, bool low)
{
	int high = fds_move_locked(fd, needed, low);

	if (high < 0)
		fds_give(fd);
	return high;
}

static int fds_take(int fd, bool needed, bool low)
{
	if (fds_is_ours(fd)) /* raised */
		return fd;
	lock_take(&fds_lock);
	fd = fds_take_locked(fd, needed, low);
	lock_drop(&fds_lock);
	return fd;
}

int fds_adopt(int fd)
{
	return fds_take(fd, false, false);
}

int fds_adopt_needed(int fd)
{
	return fds_take(fd, true, false);
}

int fds_adopt_low(int fd)
{
	return fds_take(fd, false, true);
}

int fds_raise(int fd)
{
	int high;

	/* A child of vfork has a table of its own. */
	if (is_borrowed())
		return fd;
	lock_take(&fds_lock);
	high = fds_move_locked(fd, false, false);
	lock_drop(&fds_lock);
	return high < 0 ? fd : high;
}

static void fds_raise_all(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
		     at += sizeof(int)) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			fd = fds_raise(fd);
			memcpy(CMSG_DATA(c) + at, &fd, sizeof(fd));
		}
	}
}

ssize_t fds_receive(int sock, struct msghdr *msg)
{
	ssize_t n;

	low_begin();
	n = kernel_recvmsg(sock, msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n >= 0)
		fds_raise_all(msg);
	low_end();
	return n;
}

static void fds_count_apart(int by)
{
	fetch_add_relaxed(&fds_used, by);
	fds_note_tight(fds_limit());
}

int fds_adopt_apart(int fd)
{
	lock_take(&fds_lock);
	fd = fds_take_locked(fd, false, true);
	if (fd >= 0)
		fds_count_apart(-1);
	lock_drop(&fds_lock);
	return fd;
}

static void fds_unmark(int fd)
{
	fetch_and_relaxed(&fds_map[fd / FDS_BITS], ~fds_bit(fd));
	fetch_sub_relaxed(&fds_used, 1);
	if (fds_count() <= 0)
		fds_set_tight(INT_MAX);
}

static void fds_close_locked(int fd)
{
	/* Before the close: the next owner of the number may be the program. */
	if (fds_is_ours(fd))
		fds_unmark(fd);
	fds_give(fd);
}

void fds_close(int fd)
{
	int saved = errno;

	if (fd < 0)
		return;
	lock_take(&fds_lock);
	fds_close_locked(fd);
	lock_drop(&fds_lock);
	errno = saved;
}

void fds_close_forgotten(int fd, void (*forget)(int fd))
{
	if (fd < 0)
		return;
	lock_take(&fds_lock);
	forget(fd);
	fds_close_locked(fd);
	lock_drop(&fds_lock);
}

void fds_note(int fd)
{
	lock_take(&fds_lock);
	fds_note_range(fd);
	fetch_or_relaxed(&fds_map[fd / FDS_BITS], fds_bit(fd));
	lock_drop(&fds_lock);
}

void fds_close_apart(int fd)
{
	int saved = errno;

	lock_take(&fds_lock);
	fds_count_apart(1);
	fds_close_locked(fd);
	lock_drop(&fds_lock);
	errno = saved;
}

void fds_lost(int fd)
{
	lock_take(&fds_lock);
	/* One that stands apart is not counted: then the count is one too low, and no harm. */
	if (fds_is_ours(fd))
		fds_unmark(fd);
	lock_drop(&fds_lock);
}

void fds_forking(void)
{
	/* Also a child of vfork is in a section, as its own child will be. */
	if (is_borrowed())
		crit_enter();
	else
		lock_take(&low_lock);
	low_is_forking = true;
	lock_take(&fds_lock);
}

void fds_forked_parent(void)
{
	lock_drop(&fds_lock);
	low_is_forking = false;
	if (is_borrowed())
		crit_leave();
	else
		lock_drop(&low_lock);
}

FORK_CODE void fds_forked_child(void)
{
	/* The kernel makes the child's table for the descriptors that are open, not for former ones. */
	if (load_relaxed(&fds_length) > FDS_TABLE_LEAST) {
		store_relaxed(&fds_length, FDS_TABLE_LEAST);
		fds_watch();
	}
	lock_drop_forked(&fds_lock);
	low_is_forking = false;
	lock_drop_forked(&low_lock);
}

bool fds_is_marked(int fd)
{
	return (unsigned)fd < FDS_MAX &&
	       (load_relaxed(&fds_map[fd / FDS_BITS]) & fds_bit(fd));
}

int fds_next(int from)
{
	int lowest = load_relaxed(&fds_lowest_ever);
	int highest = load_relaxed(&fds_highest_ever);

	for (int fd = from < lowest ? lowest : from; fd <= highest;) {
		uint64_t word = fds_word(fd / FDS_BITS) >> ((unsigned)fd % FDS_BITS);

		if (word)
			return fd + __builtin_ctzll(word);
		fd = (fd / FDS_BITS + 1) * FDS_BITS;
	}
	return INT_MAX;
}
