/* SPDX-License-Identifier: Apache-2.0 */
/* Connections by name: connect, listen and accept. */
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/native.h"

static int resolve(const char *host, const char *service, int flags,
		   struct addrinfo **list)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};

	switch (service ? getaddrinfo(host, service, &hints, list) : EAI_NONAME) {
	case 0:
		return 0;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return -errno;
	default:
		return -EHOSTUNREACH;
	}
}

/* ---- connect ---- */

/* Waits until the kernel has connected. */
static int await(int fd, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int n, error = 0;
	socklen_t len = sizeof(error);

	do
		n = door->poll(&p, 1, until_left(deadline));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		return -errno;
	return -error;
}

/* Not waiting: what a connection does, each call says by a flag of its own. */
static int connect_one(const struct addrinfo *a, int64_t deadline)
{
	int fd = door->socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	r = door->fcntl(fd, F_SETFL, O_NONBLOCK);
	if (r == 0)
		r = door->connect(fd, a->ai_addr, a->ai_addrlen);
	r = r < 0 ? -errno : 0;
	if (r == -EINPROGRESS || r == -EINTR)
		r = await(fd, deadline);
	if (r == 0 && door->fcntl(fd, F_SETFL, 0) < 0)
		r = -errno;
	if (r == 0)
		return fd;
	door->close(fd);
	return r;
}

NATIVE int vd_connect(const char *host, const char *service, int timeout_ms, vd_conn **c)
{
	struct addrinfo *list = NULL;
	int64_t deadline;
	int r = native_begin(), fd = -EHOSTUNREACH;

	if (r == 0)
		r = resolve(host, service, 0, &list);
	if (r < 0)
		return r;
	deadline = until(timeout_ms);
	for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
		fd = connect_one(a, deadline);
	freeaddrinfo(list);
	if (fd < 0)
		return fd;
	r = conn_create(fd, -1, c);
	if (r < 0)
		door->close(fd);
	return r;
}

/* ---- listen ---- */

/* All addresses of both families are one of IPv6's, where the host has that. */
static bool is_everywhere(const struct addrinfo *a)
{
	const struct sockaddr_in6 *in6 = (const void *)a->ai_addr;

	return a->ai_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

static int listen_one(const struct addrinfo *a)
{
	const int on = 1, off = 0;
	int fd = door->socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	door->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (is_everywhere(a))
		door->setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (door->fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    bind(fd, a->ai_addr, a->ai_addrlen) < 0 || door->listen(fd, SOMAXCONN) < 0)
		r = -errno;
	if (r == 0)
		return fd;
	door->close(fd);
	return r;
}

/* The first of a list, of those that are everywhere or of the others, that can be. */
static int listen_any(const struct addrinfo *list, bool everywhere)
{
	int fd = -EADDRNOTAVAIL;

	for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
		if (is_everywhere(a) == everywhere)
			fd = listen_one(a);
	return fd;
}

NATIVE int vd_listen(const char *host, const char *service, vd_listener **out)
{
	NOT_CANCELLED;
	struct addrinfo *list = NULL;
	vd_listener *l;
	int r = native_begin(), fd;

	if (r == 0)
		r = resolve(host, service, AI_PASSIVE, &list);
	if (r < 0)
		return r;
	fd = listen_any(list, true);
	if (fd < 0 && fd != -EADDRINUSE)
		fd = listen_any(list, false);
	freeaddrinfo(list);
	if (fd < 0)
		return fd;
	l = malloc(sizeof(*l));
	if (!l) {
		door->close(fd);
		return -ENOMEM;
	}
	l->fd = fd;
	l->birth = load_relaxed(native_birth);
	service_listens(l);
	*out = l;
	return 0;
}

/* Whether the listener is this process's. */
static int check(const vd_listener *l)
{
	return load_relaxed(native_birth) == l->birth ? 0 : -ECHILD;
}

/* One that goes before it is taken is none. */
static bool is_passing(int error)
{
	return error == ECONNABORTED || error == EINTR || error == EAGAIN ||
	       error == EPROTO || error == ENETDOWN || error == EHOSTUNREACH ||
	       error == ENETUNREACH;
}

/* The socket of the next connection, or an error. */
static int accept_one(vd_listener *l, int64_t deadline)
{
	struct pollfd p = {.fd = l->fd, .events = POLLIN};

	for (;;) {
		int fd = door->accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (!is_passing(errno))
			return -errno;
		if (door->poll(&p, 1, until_left(deadline)) == 0)
			return -ETIMEDOUT;
	}
}

NATIVE int vd_accept(vd_listener *l, int timeout_ms, vd_conn **c)
{
	int64_t deadline = until(timeout_ms);
	int r = check(l), fd;

	if (r < 0)
		return r;
	do {
		fd = accept_one(l, deadline);
		if (fd < 0)
			return fd;
		r = conn_create(fd, -1, c);
		if (r < 0)
			door->close(fd);
		/* The kernel gives out what its peer has reset already: that one has gone, too. */
	} while (r == -ECONNRESET || r == -EPIPE);
	return r;
}

NATIVE int vd_listener_fd(vd_listener *l)
{
	int r = check(l);

	return r < 0 ? r : l->fd;
}

NATIVE void vd_listener_close(vd_listener *l)
{
	NOT_CANCELLED;
	if (!l || check(l) < 0)
		return;
	service_listens_no_more(l);
	door->close(l->fd);
	free(l);
}
