/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: runs a function of the test's before and after each question to the
 * kernel, so that what happens in the middle of a call happens there each time. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>

#define SEEN __attribute__((visibility("default")))

SEEN void (*conform_between)(void);

static void between(void)
{
	int err = errno;

	if (conform_between)
		conform_between();
	errno = err;
}

SEEN int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	static int (*next)(struct pollfd *, nfds_t, const struct timespec *,
			   const sigset_t *);
	int rc;

	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "ppoll");
	between();
	rc = next(fds, n, timeout, mask);
	between();
	return rc;
}

SEEN int epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	static int (*next)(int, struct epoll_event *, int, int);
	int rc;

	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "epoll_wait");
	between();
	rc = next(ep, ev, max, timeout);
	between();
	return rc;
}
