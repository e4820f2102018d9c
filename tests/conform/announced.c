/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a server at whose port another process listens, too, which ends just then. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

/* Another of this host's own. */
#define ANOTHER (INADDR_LOOPBACK + 1)

static int listen_at(in_addr_t host, uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(host),
				 .sin_port = htons(*port)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	NEED(fd >= 0);
	if (bind(fd, (struct sockaddr *)&at, len) != 0) {
		NEED(errno == EADDRINUSE);
		close(fd);
		return -1;
	}
	NEED(listen(fd, 4) == 0);
	NEED(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	*port = ntohs(at.sin_port);
	return fd;
}

struct other {
	pid_t pid;
	int line; /* its end is the process's */
};

/* It listens at the port that it says, until the line ends. */
static struct other other_start(uint16_t *port)
{
	struct other o;
	int way[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0);
	o.pid = fork();
	NEED(o.pid >= 0);
	if (o.pid == 0) {
		close(way[0]);
		*port = 0;
		NEED(listen_at(ANOTHER, port) >= 0);
		send_all(way[1], port, sizeof(*port));
		NEED(read(way[1], port, 1) == 0);
		_exit(0);
	}
	close(way[1]);
	o.line = way[0];
	recv_all(way[0], port, sizeof(*port));
	return o;
}

static void other_stop(struct other o)
{
	close(o.line);
	NEED(child_status(o.pid) == 0);
}

/* Both have the port, each at an address of its own. */
static int listen_beside(struct other *o, uint16_t *port)
{
	for (;;) {
		int fd;

		*o = other_start(port);
		fd = listen_at(INADDR_LOOPBACK, port);
		if (fd >= 0)
			return fd;
		other_stop(*o); /* a third one has it at ours */
	}
}

CASE(other_listener_ends, DIRECT)
{
	struct other o;
	struct pair p;
	uint16_t port;
	int listener = listen_beside(&o, &port);

	other_stop(o);
	p.c = connect_to(AF_INET, port);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	pair_warm(p);
	send_pattern(p.c, 0, 100000);
	recv_pattern(p.s, 0, 100000);
	pair_close(p);
	say("served");
}
