/* SPDX-License-Identifier: Apache-2.0 */
/* Names of libc's that programs come to call, declared in no installed header. */
#ifndef CONFORM_LIBC_NAMES_H
#define CONFORM_LIBC_NAMES_H

#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>

/* What _FORTIFY_SOURCE makes programs call. */
ssize_t __read_chk(int fd, void *buf, size_t len, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t size, int flags,
		       struct sockaddr *addr, socklen_t *addr_len);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		const sigset_t *mask, size_t size);

ssize_t __read(int fd, void *buf, size_t len);
ssize_t __write(int fd, const void *buf, size_t len);
ssize_t __send(int fd, const void *buf, size_t len, int flags);
int __poll(struct pollfd *fds, nfds_t n, int timeout);
int __select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout);

#endif
