/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile peer: meets a victim as an honest end would, and then lies. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tcp.h"
#include "hostile.h"
#include "rendezvous/farbell.h"

#define LOOKS 100000 /* of the honest part: a victim that does not meet is a failure */

void die(const char *what)
{
	perror(what);
	exit(1);
}

void echo_tcp(struct hostile *h)
{
	char byte = 'e';

	if (send(h->fd, &byte, 1, MSG_NOSIGNAL) != 1)
		die("hostile: send");
	if (recv(h->fd, &byte, 1, 0) != 1 || byte != 'e')
		die("hostile: the victim does not echo");
}

void ring_bell(struct hostile *h)
{
	const uint64_t one = 1;

	if (h->seg.far_bell >= 0)
		farbell_ring(h->seg.far_bell);
	else if (write(h->seg.peer_bell, &one, sizeof(one)) < 0 && errno != EAGAIN)
		die("hostile: bell");
}

void say_ring(struct hostile *h, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		h->out_data[(h->produced + i) % WIRE_AREA0_BYTES] = 'r';
	h->produced += n;
	atomic_store(&h->out->produced, h->produced);
	ring_bell(h);
}

void wait_for_end(struct hostile *h)
{
	struct pollfd p = {.fd = h->fd, .events = POLLRDHUP};

	if (poll(&p, 1, -1) < 0)
		die("hostile: poll");
}

static void meet_victim(struct hostile *h)
{
	int r = 0;

	for (int i = 0; r == 0 && i < LOOKS; i++) {
		echo_tcp(h);
		if (h->role == TCP_ROLE_CONNECTED && h->name < 0)
			r = meet_publish(h->fd, &h->name) < 0 ? -1 : 0;
		else if (h->role == TCP_ROLE_CONNECTED)
			r = meet_collect(h->fd, &h->name, NULL, &h->seg);
		else if (!h->seg.wire)
			r = meet_offer(h->fd, NULL, &h->seg) < 0 ? -1 : 0;
		else
			r = meet_attached(h->fd, &h->seg);
	}
	if (r != 1) {
		fprintf(stderr, "hostile: the victim does not meet: %d\n", r);
		exit(1);
	}
	unsigned own =
		h->role == TCP_ROLE_CONNECTED ? WIRE_FROM_CONNECTOR : WIRE_FROM_ACCEPTOR;
	h->out = &h->seg.wire->dir[own];
	h->in = &h->seg.wire->dir[1 - own];
	h->out_data = (uint8_t *)h->seg.wire + wire_area_offset(own, 0);
	/* Else an attack between users would be none. */
	printf("attached %s\n", h->seg.far_bell < 0 ? "near" : "far");
}

/* Our direction goes up, and the victim's too when both: as honestly as it gets. */
static void raise_up(struct hostile *h, bool both)
{
	uint64_t written;
	char byte;

	for (int i = 0; atomic_load(&h->out->ready_epoch) != 1; i++) {
		if (i == LOOKS)
			die("hostile: the victim does not open its direction");
		echo_tcp(h);
	}
	if (both)
		atomic_store(&h->in->ready_epoch, 1);
	if (tcp_written(h->fd, h->role, &written) != 0)
		die("hostile: written");
	atomic_store(&h->out->up_at, written);
	atomic_store(&h->out->up_epoch, 1);
	say_ring(h, 1);
	if (!both && (recv(h->fd, &byte, 1, 0) != 1 || byte != 'r'))
		die("hostile: no echo of the ring");
	while (both && atomic_load(&h->in->produced) != 1)
		if (poll(&(struct pollfd){.fd = h->fd, .events = POLLRDHUP}, 1, 0) != 0)
			die("hostile: no echo in the ring");
	printf("raised\n");
}

static int open_connection(struct hostile *h, const char *how, int port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), listener;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	if (strcmp(how, "connect") == 0) {
		h->role = TCP_ROLE_CONNECTED;
		return connect(fd, (struct sockaddr *)&a, len) == 0 ? fd : -1;
	}
	h->role = TCP_ROLE_ACCEPTED;
	listener = fd;
	a.sin_port = 0;
	if (bind(listener, (struct sockaddr *)&a, len) != 0 || listen(listener, 4) != 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &len) != 0)
		return -1;
	h->announced = meet_announce(listener);
	printf("%d\n", ntohs(a.sin_port));
	return accept(listener, NULL, NULL);
}

/* attack NAME listen, or connect PORT */
static int attack(int argc, char **argv)
{
	struct hostile h = {.announced = -1, .name = -1, .seg = {.wire = NULL}};
	const struct attack *a = attacks;

	while (a->name && strcmp(a->name, argv[0]) != 0)
		a++;
	if (!a->name)
		return 2;
	h.fd = open_connection(&h, argv[1], argc > 2 ? atoi(argv[2]) : 0);
	if (h.fd < 0)
		die("hostile: connection");
	if (a->when >= ATTACHED)
		meet_victim(&h);
	if (a->when >= RAISED)
		raise_up(&h, a->when == BOTH);
	a->lie(&h);
	printf("lied\n");
	/* Without a word of farewell, as a process dies. */
	_exit(0);
}

static int list(void)
{
	static const char *const who[] = {"anybody", "own", "other"};

	for (const struct attack *a = attacks; a->name; a++)
		printf("%s %s %s\n", a->name, a->end, who[a->who]);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 2 && strcmp(argv[1], "list") == 0)
		return list();
	if (argc >= 4 && strcmp(argv[1], "attack") == 0)
		return attack(argc - 2, argv + 2);
	if (argc >= 5 && strcmp(argv[1], "victim") == 0)
		return victim(argc - 2, argv + 2);
	fprintf(stderr, "usage: hostile list | attack NAME listen|connect [PORT] |\n"
			"       victim block|poll|epoll listen COUNT|connect PORT...\n");
	return 2;
}
