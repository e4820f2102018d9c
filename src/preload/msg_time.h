/* SPDX-License-Identifier: Apache-2.0 */
/* The timeout of a recvmmsg. */
#ifndef VD_PRELOAD_MSG_TIME_H
#define VD_PRELOAD_MSG_TIME_H

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "base/sigsafe.h"

/* The time left until `end`; false when there is none. */
static inline bool time_left(const struct timespec *end, struct timespec *left)
{
	struct timespec now;

	clock_read(CLOCK_MONOTONIC, &now);
	left->tv_sec = end->tv_sec - now.tv_sec;
	left->tv_nsec = end->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_sec--;
		left->tv_nsec += 1000000000;
	}
	if (left->tv_sec >= 0)
		return left->tv_sec > 0 || left->tv_nsec > 0;
	*left = (struct timespec){0, 0};
	return false;
}

/* When a call with that timeout, which is in the program's memory, ends. 0 or -errno. */
static inline int time_end(const struct timespec *timeout, struct timespec *end)
{
	struct timespec given;

	if (crit_copy(&given, timeout, sizeof(given)) < 0)
		return -EFAULT;
	if (given.tv_sec < 0 || (unsigned long)given.tv_nsec >= 1000000000)
		return -EINVAL;
	clock_read(CLOCK_MONOTONIC, end);
	end->tv_nsec += given.tv_nsec;
	if (end->tv_nsec >= 1000000000) {
		end->tv_sec++;
		end->tv_nsec -= 1000000000;
	}
	/* As the kernel: what has no number is at the end of time. */
	if (__builtin_add_overflow(end->tv_sec, given.tv_sec, &end->tv_sec))
		*end = (struct timespec){__LONG_MAX__, 0};
	return 0;
}

#endif
