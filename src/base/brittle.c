/* SPDX-License-Identifier: Apache-2.0 */
/* A sleep that ends with EINTR when the process is stopped and goes on, as on a socket. */
#include "base/brittle.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <time.h>

#include "base/await.h"
#include "base/clock.h"
#include "base/kernel.h"

/*
 * An interrupted ppoll writes to the program's timespec what is left of its time, and begins anew
 * with that when no handler has run. Where it cannot write, it gives EINTR. So its times are
 * constants, in memory that nobody can write to: powers of two, by which every time can be slept.
 */
#define LEAST 20 /* about 1 ms: the kernel's own timeouts are no finer */
#define NS(k)                                                                            \
	{                                                                                \
		(1ll << (k)) / 1000000000, (1ll << (k)) % 1000000000                     \
	}
#define NS_4(k) NS(k), NS((k) + 1), NS((k) + 2), NS((k) + 3)
static const struct timespec steps[] = {
	NS_4(20), NS_4(24), NS_4(28), NS_4(32), NS_4(36), NS_4(40),
	NS_4(44), NS_4(48), NS_4(52), NS_4(56), NS(60),	  NS(61),
};
#define STEPS (int)(sizeof(steps) / sizeof(*steps))

/* libc's ppoll would copy the time to where it can be written, so this is done past it, and made
 * a cancellation point as it does that. */
static int poll_once(struct pollfd *fds, nfds_t n, const struct timespec *step)
{
	bool alone = __libc_single_threaded;
	int type = PTHREAD_CANCEL_DEFERRED;
	if (!alone)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	long r = kernel_call6(SYS_ppoll, (long)fds, (long)n, (long)step, 0, _NSIG / 8, 0);
	if (!alone)
		pthread_setcanceltype(type, NULL);
	return (int)r;
}

int brittle_poll(struct pollfd *fds, nfds_t n, int64_t ns)
{
	int64_t now = (int64_t)clock_now_ns(), end = INT64_MAX;
	int r = 0;
	if (ns < INT64_MAX - now)
		end = now + ns;
	while (r == 0 && now < end) {
		int step = 63 - __builtin_clzll((uint64_t)(end - now)) - LEAST;
		step = step < 0 ? 0 : step >= STEPS ? STEPS - 1 : step;
		r = poll_once(fds, n, &steps[step]);
		now = (int64_t)clock_now_ns();
	}
	if (__builtin_expect(r == -EINVAL, 0) && !await_is_allowed(n)) {
		const struct timespec left = {(end - now) / 1000000000,
					      (end - now) % 1000000000};
		return await_poll(fds, n, now < end ? &left : &steps[0], NULL);
	}
	return r;
}
