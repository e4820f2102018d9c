/* SPDX-License-Identifier: Apache-2.0 */
/* poll of more descriptors than RLIMIT_NOFILE allows, which the kernel refuses. */
#ifndef VD_BASE_AWAIT_H
#define VD_BASE_AWAIT_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/atomic.h"
#include "base/kernel.h"

/*
 * A wait of Viaduct's has more descriptors than the program's call, and the limit may have fallen,
 * to nothing even, since they were opened. Then it is done by select, which has no such limit, and
 * what each descriptor has to tell is asked in parts that the limit allows. Where that is 0 only a
 * select can tell, and an error that waits in a socket is told as POLLHUP alone.
 */

/* As ppoll, and a point of cancellation, too. A count or -errno. */
int await_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask);

/* RLIMIT_NOFILE as it was last known; a lower one that another process sets is noticed late. */
extern _Atomic uint64_t await_limit;
/* At the start, and when this process has changed it. */
void await_learn_limit(void);
/* Above that many, or this, the kernel is asked. */
#define AWAIT_MANY 1024
bool await_is_allowed_slow(nfds_t n);
/* Whether the kernel would look at so many: it refuses more entries than there can be descriptors
 * before it reads one. */
static inline bool await_is_allowed(nfds_t n)
{
	if (n <= AWAIT_MANY && n <= load_relaxed(&await_limit))
		return true;
	return await_is_allowed_slow(n);
}

int await_glance_slow(struct pollfd *fds, nfds_t n);
/* The same without waiting, and no point of cancellation. */
static inline int await_glance(struct pollfd *fds, nfds_t n)
{
	int count = kernel_poll(fds, n, 0);

	return __builtin_expect(count == -EINVAL, 0) ? await_glance_slow(fds, n) : count;
}

#endif
