/* SPDX-License-Identifier: Apache-2.0 */
/* socket, accept, connect, listen and shutdown. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/timeout.h"
#include "preload/hook.h"

static bool socket_is_tcp(int domain, int type, int protocol)
{
	return (domain == AF_INET || domain == AF_INET6) &&
	       (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
	       (protocol == 0 || protocol == IPPROTO_TCP);
}

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return REAL(getsockopt)(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

NEAR_CODE HOOK int socket(int domain, int type, int protocol)
{
	int fd = hook_opened(HOOK_MAKE(REAL(socket)(domain, type, protocol))), saved;
	struct sock *s;

	if (fd >= 0 && hook_active && socket_is_tcp(domain, type, protocol) &&
	    !hook_is_borrowed()) {
		saved = errno;
		s = fd_open_socket(fd, type & SOCK_NONBLOCK);
		if (s)
			sock_options_are(s, OPTIONS_PLAIN);
		hook_took(fd);
		errno = saved;
	}
	return fd;
}

HOOK int socketpair(int domain, int type, int protocol, int fds[2])
{
	int result = HOOK_MAKE(REAL(socketpair)(domain, type, protocol, fds));

	if (result == 0) {
		hook_opened(fds[0]);
		hook_opened(fds[1]);
	}
	return result;
}

/* A listener may have come by exec or in a message: known by what it gives. */
static bool is_listener(int listen_fd, int fd)
{
	return fd_sock(listen_fd) ||
	       (hook_active &&
		socket_is_tcp(socket_option(fd, SO_DOMAIN), SOCK_STREAM,
			      socket_option(fd, SO_PROTOCOL)) &&
		announce_found(listen_fd));
}

/* Where another process has left the table, it may have set some on the listener since. */
static uint32_t options_inherited(struct sock *listener)
{
	uint32_t options = sock_options(listener);

	return options == OPTIONS_PLAIN && load_relaxed(&listener->slot->left)
		       ? OPTIONS_UNKNOWN
		       : options;
}

static inline int accepted(int listen_fd, int fd, bool nonblock)
{
	struct sock *listener, *s;
	int saved;

	hook_opened(fd);
	if (fd < 0 || hook_is_borrowed())
		return fd;
	saved = errno;
	if (is_listener(listen_fd, fd)) {
		s = fd_open_accepted(fd, nonblock);
		listener = fd_sock(listen_fd);
		if (s && listener) {
			sock_options_are(s, options_inherited(listener));
			timeout_inherit(s, listener);
		}
		hook_took(fd);
		sock_attend(false);
		if (__builtin_expect(load_relaxed(&announce_missing) > 0, 0))
			announce_again(fd_sock(listen_fd), listen_fd);
	}
	errno = saved;
	return fd;
}

int hook_accepted(int listen_fd, int fd, bool nonblock)
{
	return accepted(listen_fd, fd, nonblock);
}

NEAR_CODE HOOK int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accepted(fd, HOOK_MAKE(REAL(accept)(fd, addr, len)), false);
}

NEAR_CODE HOOK int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return accepted(fd, HOOK_MAKE(REAL(accept4)(fd, addr, len, flags)),
			flags & SOCK_NONBLOCK);
}

/* True when the connection will be dissolved. */
static bool connecting(struct sock *s, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage to;

	/* What the kernel refuses changes nothing. */
	if (len < sizeof(to.ss_family) || len > sizeof(to) ||
	    crit_copy(&to, addr, len) < 0)
		return false;
	if (to.ss_family == AF_UNSPEC) {
		sock_dissolving(s, true);
		return true;
	}
	/* A connect that asks how an earlier one went must not change who connected. */
	if (load_relaxed(&s->slot->role) == TCP_ROLE_UNKNOWN)
		fd_connecting(s, fd);
	return false;
}

NEAR_CODE HOOK int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sock *s = fd_sock(fd);
	bool dissolves = false;
	int result;

	if (s) {
		sock_attend(false);
		dissolves = connecting(s, fd, addr, len);
	}
	result = REAL(connect)(fd, addr, len);
	/* What the ring holds goes with the connection. Afterwards: on its way down, a call of
	 * another thread's would take the error from who is to be told it. */
	if (dissolves && result == 0)
		sock_dissolve(s, fd);
	else if (dissolves)
		sock_dissolving(s, false);
	return result;
}
HOOK_ALIAS(__connect, connect);

HOOK int listen(int fd, int backlog)
{
	struct sock *s = fd_sock(fd);
	int result = REAL(listen)(fd, backlog);

	if (s && result == 0)
		announce_listener(s, fd);
	return result;
}

HOOK int shutdown(int fd, int how)
{
	struct sock *s = fd_sock(fd);

	return s ? (int)ret_keeping(sock_shutdown(s, fd, how)) : REAL(shutdown)(fd, how);
}
