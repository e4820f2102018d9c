/* SPDX-License-Identifier: Apache-2.0 */
/* A look at the program's memory and vectors, whose pointers may be bad. */
#include <limits.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"

/* With page tables of five levels. */
#define FAR_END 0xfffffffffff000ull

/* Asks by a call that looks at the memory before the descriptor. */
static bool reaches_far(void)
{
	static _Atomic int known; /* 0: not asked yet */
	int far = load_relaxed(&known);

	if (!far) {
		far = kernel_call6(SYS_recvfrom, -1, CRIT_MEMORY_END + 1, 1, 0, 0, 0) ==
				      -EBADF
			      ? 1
			      : -1;
		store_relaxed(&known, far);
	}
	return far > 0;
}

bool hook_in_reach_slow(uint64_t end)
{
	return end <= FAR_END && reaches_far();
}

/* One element, as the kernel looks at it. */
static bool is_good(const struct iovec *piece, bool alone)
{
	size_t len = piece->iov_len;

	if (len > SSIZE_MAX)
		return false;
	return hook_in_reach(piece->iov_base,
			     alone && len > SOCK_MOVE_MAX ? SOCK_MOVE_MAX : len);
}

bool hook_vector_is_good(const struct iovec *iov, size_t count, size_t *total)
{
	struct iovec few[CRIT_SHORT_BYTES / sizeof(struct iovec)];
	const size_t most = sizeof(few) / sizeof(*few);
	size_t sum = 0;

	if (count > UIO_MAXIOV)
		return false;
	for (size_t i = 0; i < count; i += most) {
		size_t n = count - i < most ? count - i : most;

		if (crit_copy(few, iov + i, n * sizeof(*iov)) < 0)
			return false;
		for (size_t k = 0; k < n; k++) {
			if (!is_good(&few[k], count == 1))
				return false;
			/* The kernel cuts what is too long together. */
			sum = few[k].iov_len > SSIZE_MAX - sum ? SSIZE_MAX
							       : sum + few[k].iov_len;
		}
	}
	*total = sum;
	return true;
}

/* Apart, for its stack. */
__attribute__((noinline)) ssize_t
hook_recv_cut(struct sock *s, int fd, const struct iovec *iov, int count, int flags)
{
	int most = count < UIO_MAXIOV ? count : UIO_MAXIOV, n = 0;
	struct iovec *cut = __builtin_alloca((size_t)most * sizeof(*cut));
	size_t left = SOCK_MOVE_MAX;

	for (; n < most && left > 0; n++) {
		cut[n] = iov[n];
		if (cut[n].iov_len > left)
			cut[n].iov_len = left;
		left -= cut[n].iov_len;
	}
	return rx_recv(s, fd, cut, n, flags);
}
