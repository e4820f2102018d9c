/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's own functions, past Viaduct's interposed ones. */
#ifndef VD_BASE_REAL_H
#define VD_BASE_REAL_H

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/sections.h"

struct aiocb;
struct rlimit;

/* X(return type, name, parameters): every symbol that Viaduct calls past itself. */
#define VD_REAL(X)                                                                       \
	X(void *, dlopen, (const char *, int))                                           \
	X(int, socket, (int, int, int))                                                  \
	X(int, socketpair, (int, int, int, int *))                                       \
	X(int, bind, (int, const struct sockaddr *, socklen_t))                          \
	X(int, listen, (int, int))                                                       \
	X(int, connect, (int, const struct sockaddr *, socklen_t))                       \
	X(int, accept, (int, struct sockaddr *, socklen_t *))                            \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                      \
	X(int, shutdown, (int, int))                                                     \
	X(int, getsockopt, (int, int, int, void *, socklen_t *))                         \
	X(int, setsockopt, (int, int, int, const void *, socklen_t))                     \
	X(ssize_t, read, (int, void *, size_t))                                          \
	X(ssize_t, readv, (int, const struct iovec *, int))                              \
	X(ssize_t, recv, (int, void *, size_t, int))                                     \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *)) \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                 \
	X(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *))      \
	X(ssize_t, write, (int, const void *, size_t))                                   \
	X(ssize_t, writev, (int, const struct iovec *, int))                             \
	X(ssize_t, send, (int, const void *, size_t, int))                               \
	X(ssize_t, sendto,                                                               \
	  (int, const void *, size_t, int, const struct sockaddr *, socklen_t))          \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int))                           \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned, int))                         \
	X(ssize_t, sendfile64, (int, int, off64_t *, size_t))                            \
	X(int, close, (int))                                                             \
	X(int, dup, (int))                                                               \
	X(int, dup2, (int, int))                                                         \
	X(int, dup3, (int, int, int))                                                    \
	X(int, fcntl64, (int, int, ...))                                                 \
	X(int, fstat, (int, struct stat *))                                              \
	X(int, fstat64, (int, struct stat64 *))                                          \
	X(int, ioctl, (int, unsigned long, ...))                                         \
	X(int, poll, (struct pollfd *, nfds_t, int))                                     \
	X(int, ppoll,                                                                    \
	  (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))          \
	X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))            \
	X(int, pselect,                                                                  \
	  (int, fd_set *, fd_set *, fd_set *, const struct timespec *,                   \
	   const sigset_t *))                                                            \
	X(int, epoll_create, (int))                                                      \
	X(int, epoll_create1, (int))                                                     \
	X(int, epoll_ctl, (int, int, int, struct epoll_event *))                         \
	X(int, epoll_wait, (int, struct epoll_event *, int, int))                        \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))     \
	X(int, epoll_pwait2,                                                             \
	  (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))   \
	X(int, open64, (const char *, int, ...))                                         \
	X(long, syscall, (long, ...))                                                    \
	X(void, _exit, (int))                                                            \
	X(int, open, (const char *, int, ...))                                           \
	X(int, openat, (int, const char *, int, ...))                                    \
	X(int, openat64, (int, const char *, int, ...))                                  \
	X(int, __open_2, (const char *, int))                                            \
	X(int, __open64_2, (const char *, int))                                          \
	X(int, __openat_2, (int, const char *, int))                                     \
	X(int, __openat64_2, (int, const char *, int))                                   \
	X(int, creat, (const char *, mode_t))                                            \
	X(int, creat64, (const char *, mode_t))                                          \
	X(int, pipe, (int *))                                                            \
	X(int, pipe2, (int *, int))                                                      \
	X(int, eventfd, (unsigned, int))                                                 \
	X(int, timerfd_create, (int, int))                                               \
	X(int, signalfd, (int, const sigset_t *, int))                                   \
	X(int, inotify_init, (void))                                                     \
	X(int, inotify_init1, (int))                                                     \
	X(int, memfd_create, (const char *, unsigned))                                   \
	X(int, mlockall, (int))                                                          \
	X(int, munlockall, (void))                                                       \
	X(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int))                \
	X(ssize_t, pwritev2, (int, const struct iovec *, int, off_t, int))               \
	X(ssize_t, splice, (int, off64_t *, int, off64_t *, size_t, unsigned))           \
	X(int, aio_read, (struct aiocb *))                                               \
	X(int, aio_write, (struct aiocb *))                                              \
	X(int, lio_listio, (int, struct aiocb *const *, int, struct sigevent *))         \
	X(FILE *, fdopen, (int, const char *))                                           \
	X(int, fclose, (FILE *))                                                         \
	X(size_t, fread, (void *, size_t, size_t, FILE *))                               \
	X(FILE *, fopencookie, (void *, const char *, cookie_io_functions_t))            \
	X(void, perror, (const char *))                                                  \
	X(size_t, fread_unlocked, (void *, size_t, size_t, FILE *))                      \
	X(FILE *, freopen, (const char *, const char *, FILE *))                         \
	X(FILE *, freopen64, (const char *, const char *, FILE *))                       \
	X(int, daemon, (int, int))                                                       \
	X(int, execve, (const char *, char *const *, char *const *))                     \
	X(int, execvpe, (const char *, char *const *, char *const *))                    \
	X(int, fexecve, (int, char *const *, char *const *))                             \
	X(int, posix_spawn,                                                              \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *,                    \
	   const posix_spawnattr_t *, char *const *, char *const *))                     \
	X(int, posix_spawnp,                                                             \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *,                    \
	   const posix_spawnattr_t *, char *const *, char *const *))                     \
	X(int, posix_spawn_file_actions_adddup2,                                         \
	  (posix_spawn_file_actions_t *, int, int))                                      \
	X(pid_t, vfork, (void))                                                          \
	X(pid_t, _Fork, (void))                                                          \
	X(int, clone, (int (*)(void *), void *, int, void *, ...))                       \
	X(int, vdprintf, (int, const char *, va_list))                                   \
	X(pid_t, fork, (void))                                                           \
	X(int, prctl, (int, ...))                                                        \
	X(int, setrlimit, (int, const struct rlimit *))                                  \
	X(int, prlimit, (pid_t, int, const struct rlimit *, struct rlimit *))            \
	X(int, sigaction, (int, const struct sigaction *, struct sigaction *))

struct real {
#define X(ret, name, params) ret(*name) params;
	VD_REAL(X)
#undef X
};

NEAR_EXTERN struct real real_table;
NEAR_EXTERN int real_ready;
void real_resolve(void);

/* Stands in for calls that the C library lacks, and the kernel has; NULL: there is none (musl/lacking.c). */
void *real_lacking(const char *name);

/* The loader's dlsym, which we interpose. It searches in the order of its caller's library. */
void *real_dlsym(void);
#define REAL_DLSYM (*(void *(*)(void *, const char *))real_dlsym())

/*
 * A name that few programs call, looked up at the call: the others are looked up at each start.
 * NULL where libc lacks it; such a search may allocate memory.
 */
void *real_late(const char *name);
#define REAL_LATE(name) (*(__typeof__(&(name)))real_late(#name))

/* REAL(recv)(fd, ...) calls libc's recv; usable before any constructor has run. */
#define REAL(name)                                                                       \
	(*((void)(__builtin_expect(__atomic_load_n(&real_ready, __ATOMIC_ACQUIRE), 1)    \
			  ? 0                                                            \
			  : (real_resolve(), 0)),                                        \
	   __atomic_load_n(&real_table.name, __ATOMIC_RELAXED)))

#endif
