/* SPDX-License-Identifier: Apache-2.0 */
/* A sleep that ends with EINTR when the process is stopped and goes on, as on a socket. */
#include "base/brittle.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <time.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/sigsafe.h"

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
static int poll_once(struct pollfd *fds, nfds_t n, const struct timespec *step,
		     const sigset_t *mask)
{
	bool alone = __libc_single_threaded;
	int type = PTHREAD_CANCEL_DEFERRED;
	if (!alone)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	long r = kernel_call6(SYS_ppoll, (long)fds, (long)n, (long)step, (long)mask,
			      _NSIG / 8, 0);
	if (!alone)
		pthread_setcanceltype(type, NULL);
	return (int)r;
}

/* ---- a call that has moved something, whose thread is cancelled ---- */

#ifdef __GLIBC__
#define CANCEL_SIGNAL 32
/* Of struct pthread's word, as it is known to libthread_db. */
#define IS_DISABLED 1
#define IS_CANCELED 8

/* From the thread's pointer to that word. 0: the signal ends such a call as any other. */
static uint32_t cancel_at;

/* Bug 12683 of glibc: since then it ends only a call that has moved nothing. */
void brittle_learn(void)
{
	const uint32_t *field =
		REAL_DLSYM(RTLD_DEFAULT, "_thread_db_pthread_cancelhandling");

	if (field && strverscmp(gnu_get_libc_version(), "2.41") >= 0)
		cancel_at = field[2];
}
#else
#define CANCEL_SIGNAL 33

void brittle_learn(void)
{
}
#endif

/* Whether the C library's own calls do so. */
static bool tells_what_has_moved(void)
{
#ifdef __GLIBC__
	return cancel_at != 0;
#else
	return true;
#endif
}

struct masked {
	uint64_t signals;
	int state; /* of musl */
};

/* Once more does no harm. */
static void unmask(void *arg)
{
	struct masked *was = arg;

	if (was->state >= 0)
		pthread_setcancelstate(was->state, NULL);
	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&was->signals, 0,
		     sizeof(was->signals));
}

/* A request that has come before. */
static bool is_to_end(struct masked *was)
{
#ifdef __GLIBC__
	const _Atomic int *word = (void *)((char *)pthread_self() + cancel_at);

	(void)was;
	/* Relaxed: the signal comes behind the store. */
	return (load_relaxed(word) & (IS_CANCELED | IS_DISABLED)) == IS_CANCELED;
#else
	const struct timespec zero = {0};

	pthread_setcancelstate(PTHREAD_CANCEL_MASKED, &was->state);
	if (was->state != PTHREAD_CANCEL_ENABLE)
		pthread_setcancelstate(was->state, NULL);
	return await_poll(NULL, 0, &zero, NULL) < 0;
#endif
}

/* The signal is let in by the sleep alone. */
static int poll_once_masked(struct pollfd *fds, nfds_t n, const struct timespec *step,
			    struct masked *was)
{
	const uint64_t cancel = 1ull << (CANCEL_SIGNAL - 1);

	kernel_call4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&cancel, 0, sizeof(cancel));
	if (is_to_end(was))
		return -EINTR;
	return (int)kernel_call6(SYS_ppoll, (long)fds, (long)n, (long)step,
				 (long)&was->signals, sizeof(was->signals), 0);
}

/* Such a call says so, and the next point of cancellation obeys. */
static int poll_once_moved(struct pollfd *fds, nfds_t n, const struct timespec *step)
{
	struct _pthread_cleanup_buffer cleanup;
	struct masked was = {.state = -1};
	int r;

	if (__libc_single_threaded || !tells_what_has_moved())
		return poll_once(fds, n, step, NULL);
	kernel_call4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&was.signals,
		     sizeof(was.signals));
	crit_enter(); /* a handler that jumps away has this undone */
	_pthread_cleanup_push(&cleanup, unmask, &was);
	crit_leave();
	r = poll_once_masked(fds, n, step, &was);
	unmask(&was);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 0);
	crit_leave();
	return r;
}

int brittle_poll(struct pollfd *fds, nfds_t n, int64_t ns, const sigset_t *mask,
		 bool moved)
{
	int64_t now = (int64_t)clock_now_ns(), end = INT64_MAX;
	int r = 0;
	if (ns < INT64_MAX - now)
		end = now + ns;
	while (r == 0 && now < end) {
		int step = 63 - __builtin_clzll((uint64_t)(end - now)) - LEAST;
		step = step < 0 ? 0 : step >= STEPS ? STEPS - 1 : step;
		r = moved ? poll_once_moved(fds, n, &steps[step])
			  : poll_once(fds, n, &steps[step], mask);
		now = (int64_t)clock_now_ns();
	}
	if (__builtin_expect(r == -EINVAL, 0) && !await_is_allowed(n)) {
		const struct timespec left = {(end - now) / 1000000000,
					      (end - now) % 1000000000};
		return await_poll(fds, n, now < end ? &left : &steps[0], mask);
	}
	return r;
}
