/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a suite's programs, so that connections are upgraded before a byte. */
/*
 * Plain and under Viaduct alike: both ends of each TCP connection are looked at, in turns,
 * once it is connected and accepted, where one process has both. With the threshold at 0
 * that upgrades it. Where another process has the other end, each looks EARLY_LOOKS times
 * (default 0), 50 us apart.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* All else is built hidden: without this the programs would not see what is here. */
#define SEEN	 __attribute__((visibility("default")))
#define LOOKS	 16
#define NAP_NS	 50000
#define FDS_MOST 4096

enum side { CALLER = 1, ACCEPTED };
/*
 * Ends that wait for their other end to be found. A number that is another socket's by
 * now is looked at in vain.
 */
static _Atomic enum side waiting[FDS_MOST];

static void look(int fd)
{
	char byte;

	recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

static bool is_tcp(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len);
	return (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
}

/* The port of one of the two ends, in network order, or 0. */
static in_port_t port(int (*name)(int, struct sockaddr *restrict, socklen_t *restrict),
		      int fd)
{
	struct sockaddr_storage at = {0};
	socklen_t len = sizeof(at);

	if (name(fd, (struct sockaddr *)&at, &len) != 0)
		return 0;
	if (at.ss_family == AF_INET)
		return ((struct sockaddr_in *)&at)->sin_port;
	return at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port : 0;
}

static bool are_one(int caller, int accepted)
{
	in_port_t from = port(getsockname, caller), to = port(getpeername, caller);

	return from && to && from == port(getpeername, accepted) &&
	       to == port(getsockname, accepted);
}

/* The other end of fd in this process, or -1. One of two threads finds it. */
static int other_end(int fd, enum side side)
{
	for (int i = 0; i < FDS_MOST; i++) {
		enum side found = side == CALLER ? ACCEPTED : CALLER;

		if (atomic_load(&waiting[i]) == found &&
		    (side == CALLER ? are_one(fd, i) : are_one(i, fd)) &&
		    atomic_compare_exchange_strong(&waiting[i], &found, 0))
			return i;
	}
	return -1;
}

static void look_at_both(int fd, enum side side)
{
	const char *text = getenv("EARLY_LOOKS");
	const struct timespec nap = {.tv_nsec = NAP_NS};
	int saved = errno, other;

	if (fd < FDS_MOST && is_tcp(fd)) {
		atomic_store(&waiting[fd], side);
		other = other_end(fd, side);
		if (other >= 0)
			atomic_store(&waiting[fd], 0);
		for (int i = 0; i < LOOKS && other >= 0; i++) {
			look(other);
			look(fd);
		}
		for (int i = other < 0 && text ? atoi(text) : 0; i > 0; i--) {
			/* To look at one that is refused would take its error away. */
			if (port(getpeername, fd))
				look(fd);
			nanosleep(&nap, NULL);
		}
	}
	errno = saved;
}

#define NEXT(name)                                                                       \
	static __typeof__(&name) next;                                                   \
	if (!next)                                                                       \
	*(void **)&next = dlsym(RTLD_NEXT, #name)

SEEN int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	NEXT(connect);
	int result = next(fd, to, len);

	/* Over loopback it is connected by now where it does not wait, too. */
	if (result == 0 || errno == EINPROGRESS)
		look_at_both(fd, CALLER);
	return result;
}

SEEN int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict len,
		 int flags)
{
	NEXT(accept4);
	int result = next(fd, from, len, flags);

	if (result >= 0)
		look_at_both(result, ACCEPTED);
	return result;
}

SEEN int accept(int fd, struct sockaddr *restrict from, socklen_t *restrict len)
{
	NEXT(accept);
	int result = next(fd, from, len);

	if (result >= 0)
		look_at_both(result, ACCEPTED);
	return result;
}
