/* SPDX-License-Identifier: Apache-2.0 */
/* poll of more descriptors than RLIMIT_NOFILE allows, which the kernel refuses. */
#include "base/kernel.h"
#include "base/atomic.h"
#include "base/await.h"

#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "base/tcp.h"

#define WORD_BITS (8 * sizeof(unsigned long))
#define IN_BITS	  (POLLIN | POLLRDNORM | POLLRDBAND)
#define OUT_BITS  (POLLOUT | POLLWRNORM | POLLWRBAND)
/* select also ends for bytes where only a hang-up is waited for: then it is a nap. */
#define NAP_NS 10000000

/* Sets as long as the highest descriptor wants them. */
struct sets {
	unsigned long *in, *out, *pri;
	size_t words;
	int end; /* one past that descriptor */
};

_Atomic uint64_t await_limit;

static nfds_t limit_now(void)
{
	struct rlimit limit;

	return kernel_getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

static size_t sets_bytes(const struct sets *t)
{
	return 3 * t->words * sizeof(*t->in);
}

static bool sets_open(struct sets *t, const struct pollfd *fds, nfds_t n)
{
	void *memory;

	t->end = 0;
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= t->end)
			t->end = fds[i].fd + 1;
	t->words = (size_t)t->end / WORD_BITS + 1;
	memory = mmap(NULL, sets_bytes(t), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	t->in = memory;
	t->out = t->in + t->words;
	t->pri = t->out + t->words;
	return true;
}

static void sets_close(void *arg)
{
	struct sets *t = arg;

	munmap(t->in, sets_bytes(t));
}

static void put(unsigned long *set, int fd, bool in)
{
	if (in)
		set[(size_t)fd / WORD_BITS] |= 1ul << ((size_t)fd % WORD_BITS);
}

static bool has(const unsigned long *set, int fd)
{
	return set[(size_t)fd / WORD_BITS] >> ((size_t)fd % WORD_BITS) & 1;
}

/* `ends`: those of which only the end is waited for, too. */
static void sets_fill(struct sets *t, const struct pollfd *fds, nfds_t n, bool ends)
{
	memset(t->in, 0, sets_bytes(t));
	for (nfds_t i = 0; i < n; i++) {
		if (fds[i].fd < 0)
			continue;
		put(t->in, fds[i].fd, ends || (fds[i].events & IN_BITS));
		put(t->out, fds[i].fd, fds[i].events & OUT_BITS);
		put(t->pri, fds[i].fd, fds[i].events & POLLPRI);
	}
}

/* ---- what each has to tell, now ---- */

static short end_of(int fd)
{
	int state;

	if (tcp_state(fd, &state) < 0)
		return 0;
	if (state == TCP_CLOSE_WAIT)
		return POLLRDHUP;
	return state == TCP_LAST_ACK || state == TCP_CLOSING || state == TCP_CLOSE
		       ? POLLRDHUP | POLLHUP
		       : 0;
}

static short found(const struct sets *t, const struct pollfd *p)
{
	bool in = has(t->in, p->fd), out = has(t->out, p->fd);
	short bits = (short)((in ? IN_BITS : 0) | (out ? OUT_BITS : 0) |
			     (has(t->pri, p->fd) ? POLLPRI : 0));

	if (in || out)
		bits |= end_of(p->fd);
	return (short)(bits & (p->events | POLLHUP));
}

/* One of them is closed. */
static int mark_closed(struct pollfd *fds, nfds_t n)
{
	int count = 0;

	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = 0;
		if (fds[i].fd >= 0 &&
		    kernel_call4(SYS_fcntl, fds[i].fd, F_GETFD, 0, 0) < 0)
			fds[i].revents = POLLNVAL;
		count += fds[i].revents != 0;
	}
	return count;
}

static int glance_by_select(struct pollfd *fds, nfds_t n, struct sets *t)
{
	struct timespec zero = {0};
	int count = 0;
	long rc;

	sets_fill(t, fds, n, true);
	rc = kernel_call6(SYS_pselect6, t->end, (long)t->in, (long)t->out, (long)t->pri,
			  (long)&zero, 0);
	if (rc == -EBADF)
		return mark_closed(fds, n);
	if (rc < 0)
		return (int)rc;
	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = fds[i].fd < 0 ? 0 : found(t, &fds[i]);
		count += fds[i].revents != 0;
	}
	return count;
}

static int glance(struct pollfd *fds, nfds_t n, struct sets *t)
{
	nfds_t limit = limit_now(), part;
	int count = 0, rc;

	for (nfds_t at = 0; at < n && limit > 0; at += part) {
		part = n - at < limit ? n - at : limit;
		rc = kernel_poll(fds + at, part, 0);
		if (rc == -EINVAL) /* it falls still */
			limit = 0;
		else if (rc < 0)
			return rc;
		else
			count += rc;
	}
	return limit > 0 ? count : glance_by_select(fds, n, t);
}

void await_learn_limit(void)
{
	store_relaxed(&await_limit, limit_now());
}

bool await_is_allowed_slow(nfds_t n)
{
	await_learn_limit();
	return n <= load_relaxed(&await_limit);
}

int await_glance_slow(struct pollfd *fds, nfds_t n)
{
	struct sets t;
	int count;

	if (await_is_allowed_slow(n)) /* it was not that */
		return kernel_poll(fds, n, 0);
	if (!sets_open(&t, fds, n))
		return -ENOMEM;
	count = glance(fds, n, &t);
	sets_close(&t);
	return count;
}

/* ---- the wait ---- */

static uint64_t time_left(uint64_t end)
{
	uint64_t now;

	if (end == UINT64_MAX)
		return end;
	now = clock_now_ns();
	return now < end ? end - now : 0;
}

/* True when the time is over. */
static bool doze(struct sets *t, const struct pollfd *fds, nfds_t n, uint64_t end,
		 bool ends, const sigset_t *mask, int *error)
{
	uint64_t left = time_left(end);
	bool nap = !ends && left > NAP_NS;
	struct timespec ts;
	int rc;

	left = nap ? NAP_NS : left;
	ts.tv_sec = (time_t)(left / 1000000000u);
	ts.tv_nsec = (long)(left % 1000000000u);
	sets_fill(t, fds, n, ends);
	rc = REAL(pselect)(t->end, (fd_set *)t->in, (fd_set *)t->out, (fd_set *)t->pri,
			   left == UINT64_MAX ? NULL : &ts, mask);
	/* One that was closed meanwhile is told by a look at each. */
	*error = rc < 0 && errno != EBADF ? -errno : 0;
	return rc == 0 && !nap;
}

static int wait_by_select(struct pollfd *fds, nfds_t n, uint64_t end,
			  const sigset_t *mask, struct sets *t)
{
	bool ends = true, over = false;
	int count, error = 0;

	for (;;) {
		count = glance(fds, n, t);
		if (count != 0 || over || error)
			return count ? count : error;
		over = doze(t, fds, n, end, ends, mask, &error);
		ends = !ends;
	}
}

static int await_slowly(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
			const sigset_t *mask)
{
	struct _pthread_cleanup_buffer cleanup;
	uint64_t end = UINT64_MAX, now = clock_now_ns();
	struct sets t;
	int count = -ENOMEM;
	bool open;

	if (timeout && (uint64_t)timeout->tv_sec < (UINT64_MAX - now) / 1000000000u - 1)
		end = now + (uint64_t)timeout->tv_sec * 1000000000u +
		      (uint64_t)timeout->tv_nsec;
	crit_enter(); /* no handler jumps away between the memory and the note of it */
	open = sets_open(&t, fds, n);
	if (open)
		_pthread_cleanup_push(&cleanup, sets_close, &t);
	crit_leave();
	if (!open)
		return count;
	count = wait_by_select(fds, n, end, mask, &t);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return count;
}

int await_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask)
{
	int count = REAL(ppoll)(fds, n, timeout, mask);

	if (__builtin_expect(count >= 0, 1))
		return count;
	if (errno != EINVAL || await_is_allowed_slow(n))
		return -errno;
	return await_slowly(fds, n, timeout, mask);
}
