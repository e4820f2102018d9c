/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded before librspreload.so, which leaves sockets that are made with flags to TCP: they
 * are made without, as programs of its time do. And it does not know what kind of socket one is, which libtirpc asks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

int getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	int (*next)(int, int, int, void *, socklen_t *) = dlsym(RTLD_NEXT, "getsockopt");
	int result = next(fd, level, name, value, bytes);

	if (result == 0 || errno != ENOTSUP || level != SOL_SOCKET || name != SO_TYPE ||
	    *bytes < sizeof(int))
		return result;
	*(int *)value = SOCK_STREAM;
	*bytes = sizeof(int);
	return 0;
}
