/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded before librspreload.so, which leaves sockets that are made with flags to TCP: they
 * are made without, as programs of its time do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol)
{
	int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");

	return next(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), protocol);
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
	int (*next)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");

	(void)flags;
	return next(fd, address, bytes);
}
