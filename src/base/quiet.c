/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of Viaduct's own that must not send the program a signal. */
#include <signal.h>
#include <time.h>

#include "base/kernel.h"
#include "base/quiet.h"

static uint64_t bit_of(int sig)
{
	return 1ull << (sig - 1);
}

void quiet_begin(struct quiet *q)
{
	uint64_t both = bit_of(SIGPIPE) | bit_of(SIGXFSZ);

	kernel_call4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&both, (long)&q->mask,
		     sizeof(q->mask));
	kernel_call4(SYS_rt_sigpending, (long)&q->pending, sizeof(q->pending), 0, 0);
}

void quiet_end(const struct quiet *q, long result)
{
	static const struct timespec at_once;
	uint64_t caused = result == -EPIPE   ? bit_of(SIGPIPE)
			  : result == -EFBIG ? bit_of(SIGXFSZ)
					     : 0;

	/* One that waited before stays: the two have become one. */
	caused &= ~q->pending;
	if (caused)
		kernel_call4(SYS_rt_sigtimedwait, (long)&caused, 0, (long)&at_once,
			     sizeof(caused));
	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&q->mask, 0, sizeof(q->mask));
}

ssize_t quiet_write(int fd, const void *buf, size_t len)
{
	struct quiet q;
	ssize_t n;

	quiet_begin(&q);
	n = kernel_write(fd, buf, len);
	quiet_end(&q, n);
	return n;
}

int quiet_truncate(int fd, off_t size)
{
	struct quiet q;
	long r;

	quiet_begin(&q);
	r = kernel_call4(SYS_ftruncate, fd, size, 0, 0);
	quiet_end(&q, r);
	return (int)r;
}
