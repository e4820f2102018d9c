/* SPDX-License-Identifier: Apache-2.0 */
/* poll as the program calls it: whether it concerns us, and what the kernel would refuse. */
#include <errno.h>
#include <sys/single_threaded.h>

#include "base/await.h"
#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "conn/heed.h"
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
		struct sock *s = fd_sock(p->fd);

		p->revents = 0;
		if (s)
			heed_wait(s, (uint16_t)p->events);
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
		struct sock *s = fd_sock(fds[i].fd);

		if (s) {
			/* Who looks at once, and has none that is direct, need not look here. */
			ours |= !now || sock_is_direct(s);
			heed_wait(s, (uint16_t)fds[i].events);
		} else if (fds[i].fd >= 0 && instance_at(fds[i].fd)) {
			/* Of one that is polled itself, the kernel is to know all. */
			epoll_nested(fds[i].fd);
			/* Another thread may register one of ours while the call sleeps. */
			ours |= (!now && !__libc_single_threaded) || epoll_any_side();
		}
	}
	return ours;
}

/* The answer can be written: a look at each page. Writes what the kernel overwrites at any rate. */
static bool takes(struct pollfd *fds, nfds_t n)
{
	const nfds_t page = CRIT_PAGE_BYTES / sizeof(*fds);
	const short nothing = 0;

	for (nfds_t i = 0; i < n; i += page)
		if (crit_copy_short(&fds[i].revents, &nothing, sizeof(nothing)) != 0)
			return false;
	return n == 1 ||
	       crit_copy_short(&fds[n - 1].revents, &nothing, sizeof(nothing)) == 0;
}

/* How many of n entries end in the page in which the first does. */
static nfds_t of_page(const struct pollfd *fds, nfds_t n)
{
	uintptr_t rest = -(uintptr_t)(fds + 1) % CRIT_PAGE_BYTES;
	nfds_t most = 1 + rest / sizeof(*fds);

	return n < most ? n : most;
}

/* As far as it can be told. The first of each page is a look at that, too. */
static inline int tell(struct pollfd *fds, const struct pollfd *own, nfds_t n)
{
	while (n > 0) {
		nfds_t some = of_page(fds, n);

		if (crit_copy_short(&fds->revents, &own->revents, sizeof(own->revents)) !=
		    0)
			return -EFAULT;
		for (nfds_t i = 1; i < some; i++)
			fds[i].revents = own[i].revents;
		fds += some;
		own += some;
		n -= some;
	}
	return 0;
}

/*
 * A call that may sleep: what other threads make of the array meanwhile is not its concern. It is read
 * when the call begins, and revents is all that is written, at the end; that it cannot be is found
 * out then, and after a signal as well.
 */
static int wait_apart(struct pollfd *fds, struct pollfd *own, nfds_t n, uint64_t deadline,
		      const sigset_t *mask)
{
	int rc;

	if (crit_copy(own, fds, n * sizeof(*own)) != 0)
		return -EFAULT;
	rc = poll_nesting(own, NULL, n, deadline, mask);
	return (rc >= 0 || rc == -EINTR) && tell(fds, own, n) != 0 ? -EFAULT : rc;
}

static __attribute__((noinline)) int wait_few(struct pollfd *fds, nfds_t n,
					      uint64_t deadline, const sigset_t *mask)
{
	struct pollfd own[POLL_FEW];

	return wait_apart(fds, own, n, deadline, mask);
}

struct room {
	struct pollfd *own;
	size_t bytes;
};

static void give_back(void *arg)
{
	struct room *room = arg;

	scratch_give(room->own, room->bytes);
}

/* Nothing is left of it by a handler that jumps away. */
static __attribute__((noinline)) int wait_many(struct pollfd *fds, nfds_t n,
					       uint64_t deadline, const sigset_t *mask)
{
	struct _pthread_cleanup_buffer cleanup;
	struct room room = {.bytes = n * sizeof(*fds)};
	int rc;

	crit_enter();
	room.own = scratch_take(room.bytes);
	if (room.own)
		_pthread_cleanup_push(&cleanup, give_back, &room);
	crit_leave();
	if (!room.own)
		return -ENOMEM;
	rc = wait_apart(fds, room.own, n, deadline, mask);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return rc;
}

int ready_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	bool now = timeout && !timeout->tv_sec && !timeout->tv_nsec && !mask;
	bool in_place = now && takes(fds, n);
	enum glance found = GLANCE_MORE;
	int rc;

	if (in_place && n <= POLL_FEW && !pollset_is_wanted(n))
		found = glance(fds, n);
	if (found == GLANCE_VAIN)
		return 0;
	if (found == GLANCE_MORE && look_timeout_valid(timeout) &&
	    has_ours(fds, n, now)) {
		uint64_t deadline = look_deadline(timeout);

		if (in_place)
			return poll_nesting(fds, NULL, n, deadline, mask);
		return n <= POLL_FEW ? wait_few(fds, n, deadline, mask)
				     : wait_many(fds, n, deadline, mask);
	}
	rc = REAL(ppoll)(fds, n, timeout, mask);
	return rc < 0 ? -errno : rc;
}
