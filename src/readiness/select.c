/* SPDX-License-Identifier: Apache-2.0 */
/* select on top of the core of poll. */
#include <errno.h>
#include <string.h>
#include <sys/single_threaded.h>

#include "base/cleanup.h"
#include "base/real.h"
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "conn/heed.h"
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
		struct sock *s = fd_sock(fd);

		*ours |= s != NULL;
		if (s)
			heed_wait(s, has(r, fd) ? EPOLLIN : 0);
		if (instance_at(fd)) {
			epoll_nested(fd);
			/* Another thread may register one of ours while the call sleeps. */
			*ours |= !__libc_single_threaded || epoll_any_side();
		}
	}
	return count;
}

/* Returns how many: no more than were counted, whatever another thread makes of the sets. */
static int collect(const struct choice *c, struct pollfd *p, uint32_t *accept)
{
	int count = 0, fd = next(c->n, c->r, c->w, c->e, 0);

	for (; fd < c->n && count < c->count; fd = next(c->n, c->r, c->w, c->e, fd + 1)) {
		bool in = has(c->r, fd), out = has(c->w, fd), pri = has(c->e, fd);

		p[count].fd = fd;
		p[count].events = (short)((in ? POLLIN | POLLRDNORM | POLLRDBAND : 0) |
					  (out ? POLLOUT | POLLWRNORM | POLLWRBAND : 0) |
					  (pri ? POLLPRI : 0));
		accept[count++] = (in ? ACCEPT_R : 0) | (out ? ACCEPT_W : 0) |
				  (pri ? ACCEPT_E : 0) | (fd_sock(fd) ? WAS_OPEN : 0);
	}
	return count;
}

/* Before the call. What another thread closes amid it the kernel calls ready. */
static bool any_closed(const struct pollfd *p, const uint32_t *accept, int count)
{
	for (int i = 0; i < count; i++)
		if ((p[i].revents & POLLNVAL) && !(accept[i] & WAS_OPEN))
			return true;
	return false;
}

/* A word is read and written as it is. */
static bool word_takes(unsigned long *at)
{
	unsigned long as_it_is;

	return crit_copy(&as_it_is, at, sizeof(as_it_is)) == 0 &&
	       crit_copy(at, &as_it_is, sizeof(as_it_is)) == 0;
}

/* It can be written: a look at each page. */
static bool takes(fd_set *set, int n)
{
	const int page = CRIT_PAGE_BYTES / (int)sizeof(unsigned long);
	unsigned long *words = (unsigned long *)set;
	int count = (n + SELECT_BITS - 1) / SELECT_BITS;

	for (int i = 0; i < count; i += page)
		if (!word_takes(&words[i]))
			return false;
	return count == 1 || word_takes(&words[count - 1]);
}

/* Those for which that set asked. Returns how many, or -EFAULT: another thread may have taken the memory away. */
static int deliver_set(const struct choice *c, fd_set *set, const struct pollfd *p,
		       uint32_t asked, uint32_t accept)
{
	int bits = 0;

	if (!set)
		return 0;
	if (!takes(set, c->n))
		return -EFAULT;
	clear(set, c->n);
	for (int i = 0; i < c->count; i++) {
		if (!((uint16_t)p[i].events & asked) ||
		    !((uint16_t)p[i].revents & accept))
			continue;
		put(set, p[i].fd);
		bits++;
	}
	return bits;
}

/* Each descriptor counts once for each set in which it stays. As in the kernel, one set is written after the
 * other: of two at the same place the later one is left. */
static int deliver(const struct choice *c, const struct pollfd *p)
{
	int r = deliver_set(c, c->r, p, POLLIN, ACCEPT_R);
	int w = r < 0 ? r : deliver_set(c, c->w, p, POLLOUT, ACCEPT_W);
	int e = w < 0 ? w : deliver_set(c, c->e, p, POLLPRI, ACCEPT_E);

	return e < 0 ? e : r + w + e;
}

static int wait_for(struct choice *c, struct pollfd *p, uint32_t *accept)
{
	int rc;

	c->count = collect(c, p, accept);
	rc = poll_nesting(p, accept, (nfds_t)c->count, c->deadline, c->mask);
	if (rc > 0 && any_closed(p, accept, c->count))
		rc = -EBADF;
	return rc < 0 ? rc : deliver(c, p);
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
