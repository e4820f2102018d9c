/* SPDX-License-Identifier: Apache-2.0 */
/* A look at the program's vectors, whose pointers may be bad. */
#include <limits.h>
#include <sys/uio.h>

#include "base/crit.h"
#include "hook/hook.h"

int hook_look_at_vector(const struct iovec *iov, size_t count, size_t *total)
{
	struct iovec few[CRIT_SHORT_BYTES / sizeof(struct iovec)];
	const size_t most = sizeof(few) / sizeof(*few);
	size_t sum = 0;

	if (count > UIO_MAXIOV)
		return -EINVAL;
	for (size_t i = 0; i < count; i += most) {
		size_t n = count - i < most ? count - i : most;

		if (crit_copy(few, iov + i, n * sizeof(*iov)) < 0)
			return -EFAULT;
		for (size_t k = 0; k < n; k++) {
			if (few[k].iov_len > SSIZE_MAX)
				return -EINVAL;
			/* The kernel cuts what is too long together. */
			sum = few[k].iov_len > SSIZE_MAX - sum ? SSIZE_MAX
							       : sum + few[k].iov_len;
		}
	}
	*total = sum;
	return 0;
}

/* Apart, for its stack. */
__attribute__((noinline)) ssize_t hook_recv_cut(hook_recv_fn take, struct sock *s, int fd,
						const struct iovec *iov, int count,
						int flags)
{
	struct iovec cut[UIO_MAXIOV];
	size_t left = SOCK_MOVE_MAX;
	int n = 0;

	for (; n < count && n < UIO_MAXIOV && left > 0; n++) {
		cut[n] = iov[n];
		if (cut[n].iov_len > left)
			cut[n].iov_len = left;
		left -= cut[n].iov_len;
	}
	return take(s, fd, cut, n, flags);
}
