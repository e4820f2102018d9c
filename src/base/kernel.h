/* SPDX-License-Identifier: Apache-2.0 */
/* System calls past the C library: no cancellation point, no interposed name, no errno. */
#ifndef VD_BASE_KERNEL_H
#define VD_BASE_KERNEL_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#ifdef __SANITIZE_THREAD__
#include "base/real.h"
#endif

#define KERNEL_INLINE static inline __attribute__((always_inline))

/* Returns the result, or -errno. Blocks as the system call does. */
KERNEL_INLINE long kernel_call6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ __volatile__("syscall"
			     : "=a"(result)
			     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return result;
}

KERNEL_INLINE long kernel_call4(long nr, long a, long b, long c, long d)
{
	return kernel_call6(nr, a, b, c, d, 0, 0);
}

/*
 * For what Viaduct does on its own account, be it under a lock or in a call that is no
 * cancellation point: a thread must not end there.
 */
static inline int kernel_close(int fd)
{
#ifdef __SANITIZE_THREAD__
	/* It keeps books of descriptors. */
	return REAL(close)(fd) < 0 ? -errno : 0;
#endif
	return (int)kernel_call4(SYS_close, fd, 0, 0, 0);
}

static inline int kernel_open(const char *path, int flags, mode_t mode)
{
	return (int)kernel_call4(SYS_openat, AT_FDCWD, (long)path, flags, (long)mode);
}

static inline ssize_t kernel_read(int fd, void *buf, size_t len)
{
	return kernel_call4(SYS_read, fd, (long)buf, (long)len, 0);
}

/* The beginning of a file of /proc, as a string. False when nothing can be read. */
static inline bool kernel_read_text(const char *path, char *text, size_t size)
{
	ssize_t n = -1;
	int fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);

	if (fd >= 0) {
		n = kernel_read(fd, text, size - 1);
		kernel_close(fd);
	}
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

static inline int kernel_dup(int fd)
{
	return (int)kernel_call4(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0, 0);
}

static inline int kernel_socket(int domain, int type, int protocol)
{
	return (int)kernel_call4(SYS_socket, domain, type, protocol, 0);
}

static inline int kernel_fstat(int fd, struct stat *st)
{
	return (int)kernel_call4(SYS_fstat, fd, (long)st, 0, 0);
}

static inline ssize_t kernel_write(int fd, const void *buf, size_t len)
{
	return kernel_call4(SYS_write, fd, (long)buf, (long)len, 0);
}

static inline int kernel_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	return (int)kernel_call4(SYS_poll, (long)fds, (long)count, timeout_ms, 0);
}

/* epoll_wait that does not wait. */
static inline int kernel_epoll_look(int epfd, struct epoll_event *ev, int max)
{
	return (int)kernel_call4(SYS_epoll_wait, epfd, (long)ev, max, 0);
}

static inline int kernel_connect(int fd, const struct sockaddr *name, socklen_t len)
{
	return (int)kernel_call4(SYS_connect, fd, (long)name, (long)len, 0);
}

/* As the C library's of these names, which a library of the program's may stand before. */
#define KERNEL_AS(ret, name, nr, params, a, b, c, d)                                     \
	static inline ret kernel_##name params                                           \
	{                                                                                \
		return (ret)kernel_call4(nr, (long)(a), (long)(b), (long)(c),            \
					 (long)(d));                                     \
	}

struct rlimit;
struct statfs;
struct utsname;

KERNEL_AS(pid_t, getpid, SYS_getpid, (void), 0, 0, 0, 0)
KERNEL_AS(pid_t, getppid, SYS_getppid, (void), 0, 0, 0, 0)
KERNEL_AS(pid_t, gettid, SYS_gettid, (void), 0, 0, 0, 0)
KERNEL_AS(uid_t, getuid, SYS_getuid, (void), 0, 0, 0, 0)
KERNEL_AS(uid_t, geteuid, SYS_geteuid, (void), 0, 0, 0, 0)
KERNEL_AS(gid_t, getgid, SYS_getgid, (void), 0, 0, 0, 0)
KERNEL_AS(gid_t, getegid, SYS_getegid, (void), 0, 0, 0, 0)
KERNEL_AS(int, kill, SYS_kill, (pid_t pid, int sig), pid, sig, 0, 0)
KERNEL_AS(int, getrlimit, SYS_getrlimit, (int what, struct rlimit *limit), what, limit, 0,
	  0)
KERNEL_AS(int, getsockname, SYS_getsockname,
	  (int fd, struct sockaddr *name, socklen_t *len), fd, name, len, 0)
KERNEL_AS(int, getpeername, SYS_getpeername,
	  (int fd, struct sockaddr *name, socklen_t *len), fd, name, len, 0)
KERNEL_AS(int, stat, SYS_stat, (const char *path, struct stat *st), path, st, 0, 0)
KERNEL_AS(int, fstatfs, SYS_fstatfs, (int fd, struct statfs *fs), fd, fs, 0, 0)
KERNEL_AS(int, access, SYS_access, (const char *path, int mode), path, mode, 0, 0)
KERNEL_AS(int, uname, SYS_uname, (struct utsname * u), u, 0, 0, 0)
KERNEL_AS(off_t, lseek, SYS_lseek, (int fd, off_t offset, int whence), fd, offset, whence,
	  0)
KERNEL_AS(ssize_t, pread, SYS_pread64, (int fd, void *buf, size_t len, off_t at), fd, buf,
	  len, at)
KERNEL_AS(ssize_t, readlink, SYS_readlink, (const char *path, char *buf, size_t size),
	  path, buf, size, 0)
KERNEL_AS(ssize_t, getrandom, SYS_getrandom, (void *buf, size_t len, unsigned flags), buf,
	  len, flags, 0)
KERNEL_AS(ssize_t, fgetxattr, SYS_fgetxattr,
	  (int fd, const char *name, void *value, size_t size), fd, name, value, size)

static inline ssize_t kernel_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return kernel_call4(SYS_sendmsg, fd, (long)msg, flags, 0);
}

static inline ssize_t kernel_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return kernel_call4(SYS_recvmsg, fd, (long)msg, flags, 0);
}

#endif
