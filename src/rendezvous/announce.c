/* SPDX-License-Identifier: Apache-2.0 */
/* The hint that a port of this host is served under Viaduct. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/atomic.h"
#include "base/endpoint.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sections.h"
#include "rendezvous/announce.h"
#include "rendezvous/name.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/socket_cache.h"

static struct kept announce_kept;

/* The port of an internet socket, in network order; 0 when it has none. */
static uint16_t announce_port(int listen_fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} local;
	socklen_t len = sizeof(local);

	memset(&local, 0, sizeof(local));
	if (kernel_getsockname(listen_fd, &local.any, &len) != 0)
		return 0;
	if (local.any.sa_family == AF_INET)
		return local.in.sin_port;
	return local.any.sa_family == AF_INET6 ? local.in6.sin6_port : 0;
}

/* fd, with the name; or -1, and fd is closed. */
static int announce_bind(int fd, uint16_t port, const struct sockaddr_un *name,
			 socklen_t len)
{
	/* Nobody reads: so nobody may leave datagrams, nor descriptors in them. */
	REAL(shutdown)(fd, SHUT_RD);
	/* Taken: another listener of that port, in this process or another, does it. */
	if (REAL(bind)(fd, (const struct sockaddr *)name, len) != 0) {
		if (errno != EADDRINUSE)
			log_debug("port %u is not announced: %s", ntohs(port),
				  strerror(errno));
		fds_close(fd);
		return -1;
	}
	return fd;
}

int meet_announce(int listen_fd)
{
	uint16_t port = announce_port(listen_fd);
	struct sockaddr_un name;
	uint64_t netns;
	int fd;

	if (port == 0 || tcp_netns_cookie(listen_fd, &netns) != 0)
		return -1;
	fd = kept_socket_low(AF_UNIX, SOCK_DGRAM, 0, netns);
	if (fd < 0)
		return -1;
	return announce_bind(fd, port, &name, name_port_address(port, &name));
}

FORK_CODE void meet_unannounce(int announced_fd)
{
	fds_close(announced_fd);
}

static bool is_there(int fd, const struct sockaddr_un *name, socklen_t len)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (kernel_connect(fd, (const struct sockaddr *)name, len) < 0)
		return false;
	/* A kept association would keep the listener's socket in memory. */
	kernel_connect(fd, &nobody, sizeof(nobody));
	return true;
}

static int announce_ask(const struct sockaddr_un *name, socklen_t len, uint64_t netns)
{
	int fd = kept_take(&announce_kept, AF_UNIX, SOCK_DGRAM, 0, netns);
	bool there;

	if (fd < 0)
		return fd;
	there = is_there(fd, name, len);
	kept_give(&announce_kept, fd);
	return there;
}

int announce_probe(uint16_t port, uint64_t netns)
{
	struct sockaddr_un name;

	return announce_ask(&name, name_port_address(port, &name), netns);
}

/* ---- ports that connections are led away from ---- */

/* So many ports are told of by one process; others' connections need a connector that may ask. */
#define REWRITTEN_PORTS 8
/* The ports, 0 for none, and the sockets that have the names. A forked child has these as well, and so
 * a name lasts as long as one of them. */
static _Atomic uint32_t rewritten_ports[REWRITTEN_PORTS];
static struct kept rewritten_kept[REWRITTEN_PORTS];

/* The place of that port, or -1. */
static int rewritten_place(uint16_t port)
{
	for (int i = 0; i < REWRITTEN_PORTS; i++) {
		uint32_t now = 0;

		if (atomic_compare_exchange_strong(&rewritten_ports[i], &now, port) ||
		    now == port)
			return i;
	}
	return -1;
}

void announce_rewritten(uint16_t port, uint64_t netns)
{
	struct sockaddr_un name;
	int place = rewritten_place(port), fd;

	if (place < 0 || load_relaxed(&rewritten_kept[place].word) != 0)
		return;
	fd = kept_socket(AF_UNIX, SOCK_DGRAM, 0, netns);
	if (fd >= 0)
		fd = announce_bind(fd, port, &name, name_rewritten_address(port, &name));
	if (fd >= 0)
		kept_give(&rewritten_kept[place], fd);
}

int announce_probe_rewritten(uint16_t port, uint64_t netns)
{
	struct sockaddr_un name;

	return announce_ask(&name, name_rewritten_address(port, &name), netns);
}

int announce_probe_either(uint16_t port, uint64_t netns)
{
	int fd = kept_take(&announce_kept, AF_UNIX, SOCK_DGRAM, 0, netns);
	struct sockaddr_un name;
	bool there;

	if (fd < 0)
		return fd;
	there = is_there(fd, &name, name_rewritten_address(port, &name)) ||
		is_there(fd, &name, name_port_address(port, &name));
	kept_give(&announce_kept, fd);
	return there;
}
