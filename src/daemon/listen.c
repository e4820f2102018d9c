/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that processes and other daemons connect to: given by systemd, or made. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/daemon.h"

#define LISTEN_FDS_START 3
#define ACCEPTS_AT_ONCE	 16
#define LEFT_TURNS	 1000
#define LEFT_NAP_MS	 10

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum holder { HOLDER_NONE, HOLDER_DEAD, HOLDER_FULL, HOLDER_OTHER };

static bool own_socket, own_near;
static unsigned given;	   /* by systemd, the first so many listeners */
static bool after_a_death; /* a daemon that was killed has left a socket's name */

/* Of whoever connects to it: no process can send descriptors along. */
static bool refuse_rights(int fd)
{
	int off = 0;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
}

static int fail(char *message, size_t size, const char *what, int error)
{
	snprintf(message, size, "%s: %s", what, strerror(-error));
	return error;
}

static int add(struct relay *r, int fd, bool local, bool near)
{
	uint32_t index = r->listeners;
	int e;

	if (index == RELAY_LISTENERS)
		return -E2BIG;
	e = loop_watch(r, fd, RELAY_LISTENER, index, 0, false, true);
	if (e < 0)
		return e;
	r->listener[r->listeners++] = (struct relay_listener){
		.fd = fd,
		.local = local,
		.near = near,
		.rights = local && (near || !refuse_rights(fd)),
	};
	return 0;
}

/* ---- given ---- */

static int option_of(int fd, int option)
{
	socklen_t size = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

static bool is_named(int fd, const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(name) - 1;

	return *path && getsockname(fd, (struct sockaddr *)&name, &size) == 0 &&
	       strcmp(name.sun_path, path) == 0;
}

static int adopt(struct relay *r, int fd)
{
	int domain = option_of(fd, SO_DOMAIN), type = option_of(fd, SO_TYPE);
	bool local = domain == AF_UNIX && type == SOCK_SEQPACKET;
	bool peers = (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;

	if (option_of(fd, SO_ACCEPTCONN) != 1 || (!local && !peers))
		return -EINVAL;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return add(r, fd, local, local && is_named(fd, r->settings.near));
}

static int take_given(struct relay *r, char *message, size_t size)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	int fds = count ? atoi(count) : 0;

	if (!pid || atoi(pid) != (int)getpid())
		fds = 0;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	for (int fd = LISTEN_FDS_START; fd < LISTEN_FDS_START + fds; fd++) {
		int e = adopt(r, fd);

		if (e < 0)
			return fail(message, size,
				    "a socket from systemd: neither "
				    "ListenSequentialPacket= for processes nor "
				    "ListenStream=PORT for peers",
				    e);
	}
	given = r->listeners;
	return 0;
}

/* ---- made ---- */

/* Of what fd is connected to: the process that called listen. */
static bool has_ended(int fd)
{
	struct pollfd process = {.events = POLLIN};
	socklen_t size = sizeof(struct ucred);
	struct ucred owner;
	bool ended;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) < 0 || owner.pid <= 0)
		return false;
	process.fd = (int)syscall(SYS_pidfd_open, owner.pid, 0);
	if (process.fd < 0)
		return errno == ESRCH;
	ended = poll(&process, 1, 0) == 1;
	close(process.fd);
	return ended;
}

static enum holder holder_of(const struct sockaddr_un *name)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	enum holder holder = HOLDER_OTHER;
	struct stat st;

	if (fd < 0 || lstat(name->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		;
	else if (connect(fd, (const struct sockaddr *)name, sizeof(*name)) == 0)
		holder = has_ended(fd) ? HOLDER_DEAD : HOLDER_OTHER;
	else if (errno == ECONNREFUSED)
		holder = HOLDER_NONE;
	else if (errno == EAGAIN)
		holder = HOLDER_FULL; /* of those who wait to be accepted */
	if (fd >= 0)
		close(fd);
	return holder;
}

/*
 * Who makes a name has a lock beside it until it listens there. So nobody else meets a name at which nobody
 * listens yet, or removes one that has been made since he looked. The kernel gives the lock back at a death.
 */
struct name_lock {
	char path[sizeof(struct sockaddr_un) + sizeof(".lock")];
	int fd;
};

/* Whoever had it before has removed the file. */
static bool is_removed(const struct name_lock *l)
{
	struct stat ours, there;

	return fstat(l->fd, &ours) < 0 || lstat(l->path, &there) < 0 ||
	       ours.st_ino != there.st_ino || ours.st_dev != there.st_dev;
}

static int lock_once(struct name_lock *l)
{
	int e;

	l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
		     0600);
	if (l->fd < 0)
		return -errno;
	e = flock(l->fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	/* Without locks, as some file systems are, it is as without others. */
	if (e == -ENOLCK || e == -EOPNOTSUPP)
		return 0;
	if (e == 0 && is_removed(l))
		e = -EWOULDBLOCK;
	if (e < 0)
		close(l->fd);
	return e;
}

static int name_lock(struct name_lock *l, const char *name)
{
	int e;

	snprintf(l->path, sizeof(l->path), "%s.lock", name);
	e = lock_once(l);
	/* Another user's, left by a daemon that was ended while it had it. */
	if (e == -EACCES) {
		unlink(l->path);
		e = lock_once(l);
	}
	for (int i = 0; e == -EWOULDBLOCK && i < LEFT_TURNS; i++) {
		poll(NULL, 0, LEFT_NAP_MS);
		e = lock_once(l);
	}
	return e == -EWOULDBLOCK ? -EADDRINUSE : e;
}

static void name_unlock(struct name_lock *l)
{
	unlink(l->path);
	close(l->fd);
}

/*
 * A daemon that was killed leaves the name of its socket. It may leave children, too, that have what it had
 * until they have closed it, which they do when they begin: that is waited for.
 */
static int bind_local(int fd, const struct sockaddr_un *name)
{
	const struct sockaddr *any = (const struct sockaddr *)name;
	enum holder holder;

	if (bind(fd, any, sizeof(*name)) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	holder = holder_of(name);
	for (int i = 0; holder == HOLDER_DEAD && i < LEFT_TURNS; i++) {
		poll(NULL, 0, LEFT_NAP_MS);
		holder = holder_of(name);
		if (holder == HOLDER_FULL)
			holder = HOLDER_DEAD;
	}
	if (holder != HOLDER_NONE)
		return -EADDRINUSE;
	after_a_death = true;
	unlink(name->sun_path);
	return bind(fd, any, sizeof(*name)) < 0 ? -errno : 0;
}

/* The port is closed by the same children, and with the socket, but not at one moment. */
static int bind_peers(int fd, const union address *name, socklen_t len)
{
	int e;

	for (int i = 0;; i++) {
		e = bind(fd, &name->any, len) < 0 ? -errno : 0;
		if (e != -EADDRINUSE || !after_a_death || i == LEFT_TURNS)
			return e;
		poll(NULL, 0, LEFT_NAP_MS);
	}
}

/* Everybody may connect: the rules say who is served. */
static int listen_local(int fd, const struct sockaddr_un *name, bool *own)
{
	int e = bind_local(fd, name);

	*own = e == 0;
	if (e == 0 && (chmod(name->sun_path, 0666) < 0 || listen(fd, SOMAXCONN) < 0))
		e = -errno;
	return e;
}

static int make_local(struct relay *r, const char *path, bool near, char *message,
		      size_t size)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct name_lock lock;
	int fd, e;

	strcpy(name.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(message, size, path, -errno);
	e = name_lock(&lock, path);
	if (e < 0) {
		close(fd);
		return fail(message, size, e == -EADDRINUSE ? path : lock.path, e);
	}
	e = listen_local(fd, &name, near ? &own_near : &own_socket);
	name_unlock(&lock);
	if (e == 0)
		e = add(r, fd, true, near);
	if (e == 0)
		return 0;
	close(fd);
	return fail(message, size, path, e);
}

static int make_peers(struct relay *r, const struct in6_addr *addr)
{
	struct name_end end = {.port = htons(r->settings.port)};
	union address name;
	socklen_t len;
	int fd, e, on = 1;

	memcpy(end.addr, addr, sizeof(end.addr));
	len = address_of_end(&end, &name);
	fd = socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (name.any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	e = bind_peers(fd, &name, len);
	if (e == 0 && listen(fd, 128) < 0)
		e = -errno;
	if (e == 0)
		e = add(r, fd, false, false);
	if (e < 0)
		close(fd);
	return e;
}

static int fail_at(const struct in6_addr *addr, char *message, size_t size, int error)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(addr);
	char text[INET6_ADDRSTRLEN], what[INET6_ADDRSTRLEN + 16];

	inet_ntop(v4 ? AF_INET : AF_INET6, addr->s6_addr + (v4 ? 12 : 0), text,
		  sizeof(text));
	snprintf(what, sizeof(what), "listen = %s", text);
	return fail(message, size, what, error);
}

static int make_all_peers(struct relay *r, char *message, size_t size)
{
	static const struct in6_addr v4_any = {{{[10] = 0xff, [11] = 0xff}}};
	unsigned made = 0;
	int e = 0;

	for (unsigned i = 0; i < r->settings.listens; i++) {
		e = make_peers(r, &r->settings.listen[i]);
		if (e < 0)
			return fail_at(&r->settings.listen[i], message, size, e);
	}
	if (r->settings.listens > 0)
		return 0;
	/* A host without IPv6 has the other one. */
	e = make_peers(r, &v4_any);
	made += e == 0;
	if (e == 0 || e == -EAFNOSUPPORT) {
		e = make_peers(r, &in6addr_any);
		made += e == 0;
	}
	if (made > 0 && (e == 0 || e == -EAFNOSUPPORT || e == -EADDRNOTAVAIL))
		return 0;
	return fail(message, size, "the TCP port for other hosts", e);
}

static int open_all(struct relay *r, char *message, size_t size)
{
	bool local = false, near = !*r->settings.near, peers = false;
	int e = take_given(r, message, size);

	if (e < 0)
		return e;
	for (unsigned i = 0; i < r->listeners; i++) {
		local |= r->listener[i].local && !r->listener[i].near;
		near |= r->listener[i].near;
		peers |= !r->listener[i].local;
	}
	if (!local && (e = make_local(r, r->settings.socket, false, message, size)) < 0)
		return e;
	if (!near && (e = make_local(r, r->settings.near, true, message, size)) < 0)
		return e;
	return peers ? 0 : make_all_peers(r, message, size);
}

int listen_open(struct relay *r, char *message, size_t size)
{
	int e = open_all(r, message, size);

	if (e < 0)
		listen_close(r); /* a name that is left says that a daemon has died */
	return e;
}

/* ---- at work ---- */

/* No descriptor can be had now: not before the next tick. */
static void pause_listener(struct relay *r, struct relay_listener *l)
{
	notice(r, "no descriptor or memory for another connection: LimitNOFILE=?");
	loop_unwatch(r, l->fd);
	l->paused = true;
}

void listen_ready(struct relay *r, unsigned index)
{
	struct relay_listener *l = &r->listener[index];

	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0 && l->local)
			client_admit(r, fd, l);
		else if (fd >= 0)
			link_admit(r, fd);
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			return;
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			 errno == ENOMEM) {
			pause_listener(r, l);
			return;
		}
	}
}

void listen_tick(struct relay *r)
{
	for (unsigned i = 0; i < r->listeners; i++) {
		struct relay_listener *l = &r->listener[i];

		if (l->paused &&
		    loop_watch(r, l->fd, RELAY_LISTENER, i, 0, false, true) == 0)
			l->paused = false;
	}
}

void listen_own(struct relay *r)
{
	for (unsigned i = 0; i < r->listeners; i++) {
		const struct relay_listener *l = &r->listener[i];

		if (l->local && (l->near ? own_near : own_socket))
			listen(l->fd, SOMAXCONN);
	}
}

void listen_leave(struct relay *r)
{
	for (unsigned i = 0; i < r->listeners; i++)
		close(r->listener[i].fd);
}

void listen_close(struct relay *r)
{
	/* First: once nobody listens, the names may be the next daemon's. */
	if (own_socket)
		unlink(r->settings.socket);
	if (own_near)
		unlink(r->settings.near);
	/* A child that has just begun may have them a moment longer. */
	for (unsigned i = given; i < r->listeners; i++)
		shutdown(r->listener[i].fd, SHUT_RDWR);
	listen_leave(r);
}
