/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that musl lacks, or has since a late version: syscall() comes by here with their numbers. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "base/kernel.h"
#include "base/real.h"

static long told(long result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

/* With all of the offset in the first of its two words. */
static ssize_t lacking_preadv2(int fd, const struct iovec *iov, int count, off_t offset,
			       int flags)
{
	return told(kernel_call6(SYS_preadv2, fd, (long)iov, count, offset, 0, flags));
}

static ssize_t lacking_pwritev2(int fd, const struct iovec *iov, int count, off_t offset,
				int flags)
{
	return told(kernel_call6(SYS_pwritev2, fd, (long)iov, count, offset, 0, flags));
}

/* A point of cancellation: sleeps of ours are made by it. */
static int lacking_epoll_pwait2(int epfd, struct epoll_event *ev, int max,
				const struct timespec *timeout, const sigset_t *mask)
{
	int type;
	long result;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = kernel_call6(SYS_epoll_pwait2, epfd, (long)ev, max, (long)timeout,
			      (long)mask, _NSIG / 8);
	pthread_setcanceltype(type, NULL);
	return (int)told(result);
}

void *real_lacking(const char *name)
{
	if (strcmp(name, "preadv2") == 0)
		return (void *)lacking_preadv2;
	if (strcmp(name, "pwritev2") == 0)
		return (void *)lacking_pwritev2;
	if (strcmp(name, "epoll_pwait2") == 0)
		return (void *)lacking_epoll_pwait2;
	return NULL;
}
