/* SPDX-License-Identifier: Apache-2.0 */
/* poll as the program calls it: whether it concerns us, and what the kernel would refuse. */
#include <errno.h>

#include "base/await.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "readiness/epoll.h"
#include "readiness/look.h"
#include "readiness/poll.h"
#include "readiness/pollset.h"
#include "readiness/ready.h"

#define POLL_FEW 16

bool ready_poll_concerns(struct pollfd *fds, nfds_t n)
{
	if (!await_is_allowed(n))
		return false;
	if (!crit_readable(fds, n * sizeof(*fds)))
		return false;
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= 0 && (fd_sock(fds[i].fd) || instance_at(fds[i].fd)))
			return true;
	return false;
}

enum glance { GLANCE_VAIN, GLANCE_PLAIN, GLANCE_MORE };

/*
 * A call that does not wait, on a few. What nearly every one of a program that looks all the time
 * is takes one pass: nothing in memory, and then nothing in the kernel either, so that there was
 * nothing when it began (VAIN). PLAIN: none is direct, and the kernel's call will do. MORE:
 * something is there, or to be seen to.
 */
static enum glance glance(struct pollfd *fds, nfds_t n)
{
	struct pollfd k[POLL_FEW];
	nfds_t nk = 0, direct = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct pollfd *p = &fds[i];
		struct sock *s = p->fd < 0 ? NULL : fd_sock(p->fd);

		p->revents = 0;
		if (s && sock_is_direct(s)) {
			uint32_t want = (uint16_t)p->events | LOOK_ALWAYS;

			direct++;
			/* The kernel is to be asked about its end as well. */
			if ((want & POLLRDHUP) || sock_vain_is_due(s) ||
			    look_level_held(s, p->fd, want))
				return GLANCE_MORE;
		} else if (p->fd >= 0) {
			if (!s && instance_at(p->fd))
				return GLANCE_MORE;
			k[nk++] = *p;
		}
	}
	if (!direct)
		return GLANCE_PLAIN;
	if (nk > 0 && kernel_poll(k, nk, 0) != 0)
		return GLANCE_MORE;
	pollset_note(n, false);
	return GLANCE_VAIN;
}

/* Whether there are sockets of ours, as far as they matter to such a call. */
static bool has_ours(const struct pollfd *fds, nfds_t n, bool now)
{
	bool ours = false;

	for (nfds_t i = 0; i < n; i++) {
		struct sock *s;

		if (fds[i].fd < 0)
			continue;
		s = fd_sock(fds[i].fd);
		/* Who looks at once, and has none that is direct, need not look here. */
		ours |= s && (!now || sock_is_direct(s));
		/* Of an instance that is polled itself, the kernel is to know all. */
		if (instance_at(fds[i].fd)) {
			epoll_nested(fds[i].fd);
			ours |= epoll_any_side();
		}
	}
	return ours;
}

int ready_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	bool now = timeout && !timeout->tv_sec && !timeout->tv_nsec && !mask;
	enum glance found = GLANCE_MORE;
	int rc;

	if (now && n <= POLL_FEW && !pollset_is_wanted(n))
		found = glance(fds, n);
	if (found == GLANCE_VAIN)
		return 0;
	if (found == GLANCE_MORE && look_timeout_valid(timeout) && has_ours(fds, n, now))
		return poll_nesting(fds, NULL, n, look_deadline(timeout), mask);
	rc = REAL(ppoll)(fds, n, timeout, mask);
	return rc < 0 ? -errno : rc;
}
