/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's own descriptors: kept high, close-on-exec, and safe from the program's close.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/real.h"

#define FDS_MAX 1048576 /* highest number that can be ours, plus one */
/*
 * The kernel's table of a process is as long as its highest descriptor, and each fork
 * copies it: a descriptor at 16384 makes a fork a third dearer (measured: 114 to 154 us),
 * one at 4096 less than a tenth. So "high" has an end.
 */
#define FDS_BASE_MAX 4096
#define FDS_BITS     64

static _Atomic uint64_t fds_map[FDS_MAX / FDS_BITS];
static _Atomic int fds_count;
static _Atomic int fds_lowest_ever = INT_MAX;

static int fds_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	return limit.rlim_cur < FDS_MAX ? (int)limit.rlim_cur : FDS_MAX;
}

static int fds_base(int limit)
{
	return limit / 2 < FDS_BASE_MAX ? limit / 2 : FDS_BASE_MAX;
}

static uint64_t fds_bit(int fd)
{
	return (uint64_t)1 << ((unsigned)fd % FDS_BITS);
}

static void fds_note_lowest(int fd)
{
	int low = atomic_load_explicit(&fds_lowest_ever, memory_order_relaxed);

	while (fd < low && !atomic_compare_exchange_weak_explicit(
				   &fds_lowest_ever, &low, fd, memory_order_relaxed,
				   memory_order_relaxed))
		;
}

int fds_adopt(int fd)
{
	int limit = fds_limit(), high = -1, saved = errno;

	/* Relaxed everywhere: the numbers order no other memory. */
	if (atomic_fetch_add_explicit(&fds_count, 1, memory_order_relaxed) < limit / 2)
		high = REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, fds_base(limit));
	if (high >= FDS_MAX) {
		kernel_close(high);
		high = -1;
	}
	kernel_close(fd);
	errno = saved;
	if (high < 0) {
		atomic_fetch_sub_explicit(&fds_count, 1, memory_order_relaxed);
		return -EMFILE;
	}
	fds_note_lowest(high);
	atomic_fetch_or_explicit(&fds_map[high / FDS_BITS], fds_bit(high),
				 memory_order_relaxed);
	return high;
}

void fds_close(int fd)
{
	int saved = errno;

	if (fd < 0)
		return;
	if (fds_is_ours(fd)) {
		/* Before the close: the next owner of the number may be the program. */
		atomic_fetch_and_explicit(&fds_map[fd / FDS_BITS], ~fds_bit(fd),
					  memory_order_relaxed);
		atomic_fetch_sub_explicit(&fds_count, 1, memory_order_relaxed);
	}
	kernel_close(fd);
	errno = saved;
}

bool fds_is_ours(int fd)
{
	if ((unsigned)fd >= FDS_MAX)
		return false;
	return atomic_load_explicit(&fds_map[fd / FDS_BITS], memory_order_relaxed) &
	       fds_bit(fd);
}

int fds_lowest(void)
{
	int base = fds_base(fds_limit());
	int low = atomic_load_explicit(&fds_lowest_ever, memory_order_relaxed);

	return low < base ? low : base;
}
