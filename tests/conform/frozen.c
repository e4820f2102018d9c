/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: the program's clocks stand still, as under faketime. */
#include <sys/time.h>
#include <time.h>

#define SEEN __attribute__((visibility("default")))
#define THEN 1577836800 /* the year 2020 begins */

SEEN int clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	*t = (struct timespec){.tv_sec = THEN};
	return 0;
}

SEEN int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	(void)zone;
	*t = (struct timeval){.tv_sec = THEN};
	return 0;
}

SEEN time_t time(time_t *t)
{
	if (t)
		*t = THEN;
	return THEN;
}
