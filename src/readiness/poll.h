/* SPDX-License-Identifier: Apache-2.0 */
/* The core that poll and select share. */
#ifndef VD_READINESS_POLL_H
#define VD_READINESS_POLL_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

/*
 * Waits until an entry has one of the bits that count for it: accept[i], or all that
 * poll reports when accept is NULL. The deadline is absolute (look.h). Fills in revents.
 * Returns the number of such entries, 0 at the deadline, or -errno.
 */
int poll_core(struct pollfd *fds, const uint32_t *accept, nfds_t n, uint64_t deadline,
	      const sigset_t *mask);
/* The same where epoll instances may be among them: see epoll_nest.c. */
int poll_nesting(struct pollfd *fds, const uint32_t *accept, nfds_t n, uint64_t deadline,
		 const sigset_t *mask);

#endif
