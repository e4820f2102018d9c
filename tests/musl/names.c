/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the conformance cases make, and musl lacks: each by its number, or by another name. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/libc_names.h"

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int pidfd_open(pid_t pid, unsigned flags);
int pidfd_getfd(int pidfd, int target, unsigned flags);

char *strerrorname_np(int error)
{
#define NAME(e) [e] = #e
	static const char *const names[] = {
		NAME(EPERM),	    NAME(ENOENT),     NAME(EINTR),
		NAME(EIO),	    NAME(ENXIO),      NAME(EBADF),
		NAME(EAGAIN),	    NAME(ENOMEM),     NAME(EACCES),
		NAME(EFAULT),	    NAME(EBUSY),      NAME(EEXIST),
		NAME(ENOTDIR),	    NAME(EISDIR),     NAME(EINVAL),
		NAME(EMFILE),	    NAME(ENOTTY),     NAME(EFBIG),
		NAME(ESPIPE),	    NAME(EPIPE),      NAME(ENOSYS),
		NAME(ENOTSOCK),	    NAME(EMSGSIZE),   NAME(EOPNOTSUPP),
		NAME(ECONNRESET),   NAME(EISCONN),    NAME(ENOTCONN),
		NAME(ETIMEDOUT),    NAME(EADDRINUSE), NAME(ECONNABORTED),
		NAME(ECONNREFUSED), NAME(EALREADY),   NAME(EINPROGRESS),
		NAME(ENOBUFS),
	};
	size_t count = sizeof(names) / sizeof(*names);

	return (char *)((size_t)error < count && names[error] ? names[error] : "E?");
}

int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

void closefrom(int first)
{
	close_range((unsigned)first, ~0u, 0);
}

int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	return (int)syscall(SYS_execveat, dir, path, argv, envp, flags);
}

int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
		 const struct timespec *timeout, const sigset_t *mask)
{
	/* A point of cancellation, where that can say as much. */
	if (!timeout)
		return epoll_pwait(epfd, ev, max, -1, mask);
	return (int)syscall(SYS_epoll_pwait2, epfd, ev, max, timeout, mask, 8);
}

int pidfd_open(pid_t pid, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

int pidfd_getfd(int pidfd, int target, unsigned flags)
{
	return (int)syscall(SYS_pidfd_getfd, pidfd, target, flags);
}

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	if (offset == -1 && flags == 0)
		return readv(fd, iov, count);
	return syscall(SYS_preadv2, fd, iov, count, offset, 0, flags);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	if (offset == -1 && flags == 0)
		return writev(fd, iov, count);
	return syscall(SYS_pwritev2, fd, iov, count, offset, 0, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	return preadv2(fd, iov, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	return pwritev2(fd, iov, count, offset, flags);
}

/* ---- what _FORTIFY_SOURCE makes programs call: without it, the call itself ---- */

size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *f);

static void check(size_t len, size_t room)
{
	if (len > room)
		abort();
}

ssize_t __read_chk(int fd, void *buf, size_t len, size_t size)
{
	check(len, size);
	return read(fd, buf, len);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags)
{
	check(len, size);
	return recv(fd, buf, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t size, int flags,
		       struct sockaddr *addr, socklen_t *addr_len)
{
	check(len, size);
	return recvfrom(fd, buf, len, flags, addr, addr_len);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	check(n * sizeof(*fds), size);
	return poll(fds, n, timeout);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		const sigset_t *mask, size_t size)
{
	check(n * sizeof(*fds), size);
	return ppoll(fds, n, timeout, mask);
}

size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f)
{
	check(size * count, room);
	return fread(to, size, count, f);
}

size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *f)
{
	check(size * count, room);
	return fread_unlocked(to, size, count, f);
}

int __open_2(const char *path, int flags)
{
	return open(path, flags);
}

int __open64_2(const char *path, int flags)
{
	return open(path, flags);
}

int __openat_2(int dir, const char *path, int flags)
{
	return openat(dir, path, flags);
}

int __openat64_2(int dir, const char *path, int flags)
{
	return openat(dir, path, flags);
}

int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	(void)flag;
	return vdprintf(fd, fmt, ap);
}

int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = __vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return n;
}
