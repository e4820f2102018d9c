/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that create other descriptors: a number that was a socket of ours is one no more.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/kernel.h"
#include "preload/hook.h"

/* What the checked headers call; declared only with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

#define MODE_ARGUMENT(last)                                                              \
	__extension__({                                                                  \
		mode_t mode_ = 0;                                                        \
		va_list ap_;                                                             \
		va_start(ap_, last);                                                     \
		if (__OPEN_NEEDS_MODE(last))                                             \
			mode_ = va_arg(ap_, mode_t);                                     \
		va_end(ap_);                                                             \
		mode_;                                                                   \
	})

HOOK int open(const char *path, int flags, ...)
{
	return hook_opened(HOOK_MAKE(REAL(open)(path, flags, MODE_ARGUMENT(flags))));
}
HOOK_ALIAS(__open, open);

HOOK int open64(const char *path, int flags, ...)
{
	return hook_opened(HOOK_MAKE(REAL(open64)(path, flags, MODE_ARGUMENT(flags))));
}
HOOK_ALIAS(__open64, open64);

HOOK int openat(int dir, const char *path, int flags, ...)
{
	return hook_opened(
		HOOK_MAKE(REAL(openat)(dir, path, flags, MODE_ARGUMENT(flags))));
}

HOOK int openat64(int dir, const char *path, int flags, ...)
{
	return hook_opened(
		HOOK_MAKE(REAL(openat64)(dir, path, flags, MODE_ARGUMENT(flags))));
}

HOOK int __open_2(const char *path, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(__open_2)(path, flags)));
}

HOOK int __open64_2(const char *path, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(__open64_2)(path, flags)));
}

HOOK int __openat_2(int dir, const char *path, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(__openat_2)(dir, path, flags)));
}

HOOK int __openat64_2(int dir, const char *path, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(__openat64_2)(dir, path, flags)));
}

HOOK int creat(const char *path, mode_t mode)
{
	return hook_opened(HOOK_MAKE(REAL(creat)(path, mode)));
}

HOOK int creat64(const char *path, mode_t mode)
{
	return hook_opened(HOOK_MAKE(REAL(creat64)(path, mode)));
}

static int opened_pair(int result, int *fds)
{
	if (result == 0) {
		hook_opened(fds[0]);
		hook_opened(fds[1]);
	}
	return result;
}

HOOK int pipe(int fds[2])
{
	return opened_pair(HOOK_MAKE(REAL(pipe)(fds)), fds);
}
HOOK_ALIAS(__pipe, pipe);

HOOK int pipe2(int fds[2], int flags)
{
	return opened_pair(HOOK_MAKE(REAL(pipe2)(fds, flags)), fds);
}

HOOK int eventfd(unsigned count, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(eventfd)(count, flags)));
}

HOOK int timerfd_create(clockid_t clock, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(timerfd_create)(clock, flags)));
}

HOOK int signalfd(int fd, const sigset_t *mask, int flags)
{
	return hook_opened(HOOK_MAKE(REAL(signalfd)(fd, mask, flags)));
}

HOOK int inotify_init(void)
{
	return hook_opened(HOOK_MAKE(REAL(inotify_init)()));
}

HOOK int inotify_init1(int flags)
{
	return hook_opened(HOOK_MAKE(REAL(inotify_init1)(flags)));
}

HOOK int memfd_create(const char *name, unsigned flags)
{
	return hook_opened(HOOK_MAKE(REAL(memfd_create)(name, flags)));
}

HOOK int pidfd_open(pid_t pid, unsigned flags)
{
	return hook_opened((int)HOOK_MAKE(REAL(syscall)(SYS_pidfd_open, pid, flags)));
}

/* A number of ours under which the socket fd is known, or -1. */
static int known_as(int fd)
{
	struct stat mine, other;

	if (kernel_fstat(fd, &mine) != 0 || !S_ISSOCK(mine.st_mode))
		return -1;
	for (int at = 0; at < hook_known_end(); at++)
		if (at != fd && fd_sock(at) && kernel_fstat(at, &other) == 0 &&
		    other.st_ino == mine.st_ino && other.st_dev == mine.st_dev)
			return at;
	return -1;
}

int hook_fetched(int fd)
{
	int saved = errno, at = fd < 0 ? -1 : known_as(fd);

	if (at < 0)
		hook_opened(fd);
	else
		hook_duplicated(at, fd);
	errno = saved;
	return fd;
}

HOOK int pidfd_getfd(int pidfd, int target, unsigned flags)
{
	return hook_fetched(
		(int)HOOK_MAKE(REAL(syscall)(SYS_pidfd_getfd, pidfd, target, flags)));
}
