/* SPDX-License-Identifier: Apache-2.0 */
/* A sleep that ends with EINTR when the process is stopped and goes on, as on a socket. */
#ifndef VD_BASE_BRITTLE_H
#define VD_BASE_BRITTLE_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * As poll, for ns nanoseconds at least, and a millisecond more at most; a cancellation point. A
 * count, or -errno: -EINTR also after SIGSTOP and SIGCONT without a handler, where ppoll itself
 * would go on. `mask` as for ppoll, or NULL, as always with `moved`: the call that sleeps has moved
 * something. Calls of musl, and of glibc since 2.41, tell that to a thread that is cancelled: with
 * these it ends with -EINTR then.
 */
int brittle_poll(struct pollfd *fds, nfds_t n, int64_t ns, const sigset_t *mask,
		 bool moved);

/* Finds out what the C library does. Before there are threads. */
void brittle_learn(void);

#endif
