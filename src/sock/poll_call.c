/* SPDX-License-Identifier: Apache-2.0 */
/* poll as the program calls it: whether it concerns us, and what the kernel would refuse. */
#include <errno.h>
#include <sys/resource.h>

#include "base/crit.h"
#include "base/real.h"
#include "sock/epoll.h"
#include "sock/look.h"
#include "sock/poll.h"
#include "sock/ready.h"

#define POLL_MANY 1024

/* The kernel refuses more entries than there can be descriptors, before it reads one. */
static bool within_limit(nfds_t n)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && n <= limit.rlim_cur;
}

bool ready_poll_concerns(struct pollfd *fds, nfds_t n)
{
	if (n > POLL_MANY && !within_limit(n))
		return false;
	if (!crit_readable(fds, n * sizeof(*fds)))
		return false;
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= 0 && (fd_sock(fds[i].fd) || instance_at(fds[i].fd)))
			return true;
	return false;
}

int ready_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	bool now = timeout && !timeout->tv_sec && !timeout->tv_nsec && !mask;
	bool ours = false;
	int rc;

	if (n > POLL_MANY && !within_limit(n)) {
		rc = REAL(ppoll)(fds, n, timeout, mask);
		return rc < 0 ? -errno : rc;
	}
	/* An instance that is polled itself cannot have sockets that only memory knows. */
	for (nfds_t i = 0; i < n; i++) {
		struct sock *s;

		if (fds[i].fd < 0)
			continue;
		s = fd_sock(fds[i].fd);
		/* Who looks at once, and has none that is direct, need not look here. */
		ours |= s && (!now || sock_is_direct(s));
		if (instance_at(fds[i].fd))
			epoll_nested(fds[i].fd);
	}
	if (ours && look_timeout_valid(timeout))
		return poll_core(fds, NULL, n, look_deadline(timeout), mask);
	rc = REAL(ppoll)(fds, n, timeout, mask);
	return rc < 0 ? -errno : rc;
}
