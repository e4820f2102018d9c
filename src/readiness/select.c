/* SPDX-License-Identifier: Apache-2.0 */
/* select on top of the core of poll. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/real.h"
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "readiness/epoll.h"
#include "readiness/look.h"
#include "readiness/poll.h"
#include "readiness/ready.h"

#define SELECT_STACK 4
#define SELECT_BITS  (8 * (int)sizeof(unsigned long))

/* What poll must report for a descriptor of each set, as in the kernel's fs/select.c. */
#define ACCEPT_R (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR | POLLNVAL)
#define ACCEPT_W (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR | POLLNVAL)
#define ACCEPT_E (POLLPRI | POLLNVAL)
/* Beside these: it was one of ours when the call began. */
#define WAS_OPEN (1u << 31)

/* One call. */
struct choice {
	int n;
	fd_set *r, *w, *e;
	int count; /* of the descriptors in the sets */
	uint64_t deadline;
	const sigset_t *mask;
	struct pollfd *room; /* for them, and for what counts of each */
	size_t bytes;
};

/* The sets as words: a program may pass larger ones than fd_set, as the kernel allows. */
static bool has(const fd_set *set, int fd)
{
	const unsigned long *words = (const unsigned long *)set;

	return set && (words[fd / SELECT_BITS] >> (fd % SELECT_BITS) & 1);
}

static void clear(fd_set *set, int n)
{
	if (set)
		memset(set, 0,
		       (size_t)((n + SELECT_BITS - 1) / SELECT_BITS) *
			       sizeof(unsigned long));
}

static void put(fd_set *set, int fd)
{
	((unsigned long *)set)[fd / SELECT_BITS] |= 1ul << (fd % SELECT_BITS);
}

static unsigned long word(const fd_set *set, int at)
{
	return set ? ((const unsigned long *)set)[at] : 0;
}

/* The first descriptor in any set, from fd on; n when there is none. */
static int next(int n, const fd_set *r, const fd_set *w, const fd_set *e, int fd)
{
	while (fd < n) {
		int at = fd / SELECT_BITS, skip = fd % SELECT_BITS;
		unsigned long bits = (word(r, at) | word(w, at) | word(e, at)) >> skip;

		if (bits) {
			fd += __builtin_ctzl(bits);
			return fd < n ? fd : n;
		}
		fd += SELECT_BITS - skip;
	}
	return n;
}

/* Number of descriptors in the sets; *ours when one of them concerns us. */
static int survey(int n, const fd_set *r, const fd_set *w, const fd_set *e, bool *ours)
{
	int count = 0;

	*ours = false;
	for (int fd = next(n, r, w, e, 0); fd < n; fd = next(n, r, w, e, fd + 1)) {
		count++;
		*ours |= fd_sock(fd) != NULL;
		if (instance_at(fd)) {
			epoll_nested(fd);
			*ours |= epoll_any_side();
		}
	}
	return count;
}

static void collect(int n, fd_set *r, fd_set *w, fd_set *e, struct pollfd *p,
		    uint32_t *accept)
{
	for (int fd = next(n, r, w, e, 0); fd < n; fd = next(n, r, w, e, fd + 1)) {
		bool in = has(r, fd), out = has(w, fd), pri = has(e, fd);

		p->fd = fd;
		p->events = (short)((in ? POLLIN | POLLRDNORM | POLLRDBAND : 0) |
				    (out ? POLLOUT | POLLWRNORM | POLLWRBAND : 0) |
				    (pri ? POLLPRI : 0));
		*accept = (in ? ACCEPT_R : 0) | (out ? ACCEPT_W : 0) |
			  (pri ? ACCEPT_E : 0) | (fd_sock(fd) ? WAS_OPEN : 0);
		p++;
		accept++;
	}
}

/* Before the call. What another thread closes amid it the kernel calls ready. */
static bool any_closed(const struct pollfd *p, const uint32_t *accept, int count)
{
	for (int i = 0; i < count; i++)
		if ((p[i].revents & POLLNVAL) && !(accept[i] & WAS_OPEN))
			return true;
	return false;
}

/* Each descriptor counts once for each set in which it stays. The kernel writes the sets one after the
 * other: of two at the same place the later one is left. */
static int deliver(int n, fd_set *r, fd_set *w, fd_set *e, const struct pollfd *p,
		   int count)
{
	bool keeps_r = r != w && r != e, keeps_w = w != e;
	int bits = 0;

	clear(r, n);
	clear(w, n);
	clear(e, n);
	for (int i = 0; i < count; i++) {
		uint32_t got = (uint16_t)p[i].revents;

		if ((p[i].events & POLLIN) && (got & ACCEPT_R)) {
			if (keeps_r)
				put(r, p[i].fd);
			bits++;
		}
		if ((p[i].events & POLLOUT) && (got & ACCEPT_W)) {
			if (keeps_w)
				put(w, p[i].fd);
			bits++;
		}
		if ((p[i].events & POLLPRI) && (got & ACCEPT_E)) {
			put(e, p[i].fd);
			bits++;
		}
	}
	return bits;
}

static int wait_for(struct choice *c, struct pollfd *p, uint32_t *accept)
{
	int rc;

	collect(c->n, c->r, c->w, c->e, p, accept);
	rc = poll_nesting(p, accept, (nfds_t)c->count, c->deadline, c->mask);
	if (rc > 0 && any_closed(p, accept, c->count))
		rc = -EBADF;
	return rc < 0 ? rc : deliver(c->n, c->r, c->w, c->e, p, c->count);
}

static void give_back(void *arg)
{
	struct choice *c = arg;

	scratch_give(c->room, c->bytes);
}

/* Nothing is left of it by a handler that jumps away. */
static int wait_in_room(struct choice *c)
{
	struct _pthread_cleanup_buffer cleanup;
	size_t each = sizeof(struct pollfd) + sizeof(uint32_t);
	int rc;

	c->bytes = (size_t)c->count * each;
	crit_enter();
	c->room = scratch_take(c->bytes);
	if (c->room)
		_pthread_cleanup_push(&cleanup, give_back, c);
	crit_leave();
	if (!c->room)
		return -ENOMEM;
	rc = wait_for(c, c->room, (uint32_t *)(c->room + c->count));
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return rc;
}

static int wait_on_stack(struct choice *c)
{
	struct pollfd p[SELECT_STACK];
	uint32_t accept[SELECT_STACK];

	return wait_for(c, p, accept);
}

int ready_select(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout,
		 const sigset_t *mask)
{
	bool ours = false;
	int count = 0, rc;

	if (look_timeout_valid(timeout))
		count = survey(n, r, w, e, &ours);
	if (!ours) {
		rc = REAL(pselect)(n, r, w, e, timeout, mask);
		return rc < 0 ? -errno : rc;
	}
	struct choice c = {.n = n,
			   .r = r,
			   .w = w,
			   .e = e,
			   .count = count,
			   .deadline = look_deadline(timeout),
			   .mask = mask};

	return count > SELECT_STACK ? wait_in_room(&c) : wait_on_stack(&c);
}
