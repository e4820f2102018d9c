/* SPDX-License-Identifier: Apache-2.0 */
/* The names that programs built with _FORTIFY_SOURCE call: a size check, then the call.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/hook.h"

/* libc's, declared in no installed header. */
_Noreturn void __chk_fail(void);
ssize_t __read_chk(int fd, void *buf, size_t len, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t size, int flags,
		       struct sockaddr *addr, socklen_t *addr_len);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		const sigset_t *mask, size_t size);

HOOK ssize_t __read_chk(int fd, void *buf, size_t len, size_t size)
{
	if (len > size)
		__chk_fail();
	return read(fd, buf, len);
}

HOOK ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags)
{
	if (len > size)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t size, int flags,
			    struct sockaddr *addr, socklen_t *addr_len)
{
	if (len > size)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, addr, addr_len);
}

HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return poll(fds, n, timeout);
}

HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		     const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return ppoll(fds, n, timeout, mask);
}
