/* SPDX-License-Identifier: Apache-2.0 */
/* The hint that a port of this host is served under Viaduct. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

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
	if (getsockname(listen_fd, &local.any, &len) != 0)
		return 0;
	if (local.any.sa_family == AF_INET)
		return local.in.sin_port;
	return local.any.sa_family == AF_INET6 ? local.in6.sin6_port : 0;
}

int meet_announce(int listen_fd)
{
	uint16_t port = announce_port(listen_fd);
	struct sockaddr_un name;
	uint64_t netns;
	socklen_t len;
	int fd;

	if (port == 0 || tcp_netns_cookie(listen_fd, &netns) != 0)
		return -1;
	fd = kept_socket_low(AF_UNIX, SOCK_DGRAM, 0, netns);
	if (fd < 0)
		return -1;
	len = name_port_address(port, &name);
	/* Taken: another listener of that port, in this process or another, does it. */
	if (REAL(bind)(fd, (struct sockaddr *)&name, len) != 0) {
		if (errno != EADDRINUSE)
			log_debug("port %u is not announced: %s", ntohs(port),
				  strerror(errno));
		fds_close(fd);
		return -1;
	}
	/* Nobody reads: so nobody may leave datagrams. */
	REAL(shutdown)(fd, SHUT_RD);
	return fd;
}

FORK_CODE void meet_unannounce(int announced_fd)
{
	fds_close(announced_fd);
}

int announce_probe(uint16_t port, uint64_t netns)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	struct sockaddr_un name;
	socklen_t len = name_port_address(port, &name);
	int fd = kept_take(&announce_kept, AF_UNIX, SOCK_DGRAM, 0, netns);
	bool there;

	if (fd < 0)
		return fd;
	there = kernel_connect(fd, (struct sockaddr *)&name, len) == 0;
	if (there) /* a kept association would keep the listener's socket in memory */
		kernel_connect(fd, &nobody, sizeof(nobody));
	kept_give(&announce_kept, fd);
	return there;
}
