/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: between two looks at the clock more than a second has passed. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
							 struct timespec *now)
{
	static time_t passed;
	long r = syscall(SYS_clock_gettime, clock, now);

	now->tv_sec += ++passed;
	return (int)r;
}
