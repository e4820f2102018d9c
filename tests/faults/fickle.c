/* SPDX-License-Identifier: Apache-2.0 */
/* A peer of another user that takes back what it has shown in the memory that it shares. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/wire.h"

/*
 * fickle WAY USER: the server, which asks by WAY whether there is something to read, and then reads
 * with a blocking descriptor. It says how its connections ended. It executes
 * fickle WAY USER PORT FD, which becomes that user, connects, and lies. A byte to FD says that this is
 * done, where the server waits for it.
 */
#define CONNECTIONS 4
#define ATTEMPTS    400
#define ASK_MS	    5
#define WARM_UP	    100
/* No judgement of speed: a bound on a receive that would never end. */
#define HANG_S 30

static void die(const char *what)
{
	perror(what);
	_exit(2);
}

/* ---- the ways ---- */

static bool by_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ASK_MS) == 1;
}

static bool by_select(int fd)
{
	struct timeval t = {.tv_usec = ASK_MS * 1000};
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, &t) == 1;
}

static int instance_of(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events};
	int ep = epoll_create1(EPOLL_CLOEXEC);

	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		die("epoll");
	return ep;
}

static int instance = -1, outer = -1;

static bool by_instance(int fd, uint32_t events)
{
	struct epoll_event ev;

	if (instance < 0)
		instance = instance_of(fd, events);
	return epoll_wait(instance, &ev, 1, ASK_MS) == 1;
}

static bool by_epoll(int fd)
{
	return by_instance(fd, EPOLLIN);
}

static bool by_edge(int fd)
{
	return by_instance(fd, EPOLLIN | EPOLLET);
}

static bool by_nested(int fd)
{
	struct epoll_event ev;

	if (instance < 0)
		instance = instance_of(fd, EPOLLIN);
	if (outer < 0)
		outer = instance_of(instance, EPOLLIN);
	return epoll_wait(outer, &ev, 1, ASK_MS) == 1 &&
	       epoll_wait(instance, &ev, 1, 0) == 1;
}

static void forget_instances(void)
{
	close(outer);
	close(instance);
	outer = instance = -1;
}

static const struct {
	const char *name;
	bool (*ask)(int fd);
} ways[] = {{"poll", by_poll}, {"select", by_select}, {"epoll", by_epoll},
	    {"edge", by_edge}, {"nested", by_nested}, {"peek", NULL}};

/* ---- the server ---- */

static void pass(int fd, bool first)
{
	char c = 'x';

	for (int i = 0; i < WARM_UP; i++) {
		if (first && send(fd, &c, 1, MSG_NOSIGNAL) != 1)
			die("send");
		if (recv(fd, &c, 1, 0) != 1)
			die("recv");
		if (!first && send(fd, &c, 1, MSG_NOSIGNAL) != 1)
			die("send");
	}
}

static void hung(int signal)
{
	static const char said[] = "hung\n";

	(void)signal;
	_exit(write(1, said, sizeof(said) - 1) > 0 ? 3 : 2);
}

static const char *read_what_is_told(int fd, bool (*ask)(int fd))
{
	char c;

	for (int i = 0; i < ATTEMPTS; i++) {
		ssize_t n;

		if (send(fd, "g", 1, MSG_NOSIGNAL) != 1)
			return "reset";
		if (!ask(fd))
			continue;
		alarm(HANG_S);
		n = recv(fd, &c, 1, 0);
		alarm(0);
		if (n != 1)
			return n == 0 ? "eof" : errno == ECONNRESET ? "reset" : "error";
	}
	return "read";
}

static const char *read_what_is_shown(int fd, int done)
{
	char first[8], then[8];

	if (send(fd, "g", 1, MSG_NOSIGNAL) != 1 ||
	    recv(fd, first, 8, MSG_PEEK | MSG_WAITALL) != 8 ||
	    send(fd, "p", 1, MSG_NOSIGNAL) != 1 || read(done, then, 1) != 1)
		return "error";
	if (recv(fd, then, 8, MSG_WAITALL) != 8)
		return "reset";
	return memcmp(first, then, 8) == 0 ? "same" : "other";
}

static void serve(char **argv, bool (*ask)(int fd), int listener)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char port[16], done[16];
	int pair[2], fd, status;

	if (getsockname(listener, (struct sockaddr *)&at, &len) != 0 || pipe(pair) != 0)
		die("pipe");
	snprintf(port, sizeof(port), "%d", ntohs(at.sin_port));
	snprintf(done, sizeof(done), "%d", pair[1]);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", argv[0], argv[1], argv[2], port, done, NULL);
		die("exec");
	}
	close(pair[1]);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	pass(fd, false);
	puts(ask ? read_what_is_told(fd, ask) : read_what_is_shown(fd, pair[0]));
	fflush(stdout);
	forget_instances();
	close(fd);
	close(pair[0]);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("the peer has not lied");
}

/* ---- the peer ---- */

static struct wire *segment(void)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");
	struct wire *w = NULL;

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long from;

		if (strstr(line, "/memfd:viaduct ") && sscanf(line, "%lx", &from) == 1 &&
		    *(const uint64_t *)from == WIRE_MAGIC)
			w = (struct wire *)from;
	}
	if (f)
		fclose(f);
	return w;
}

static void flip(int fd, struct wire_dir *d)
{
	char c;

	do {
		uint64_t at = d->consumed;

		d->produced = at + 1;
		for (int i = rand() % 400; i > 0; i--)
			__builtin_ia32_pause();
		d->produced = d->consumed == at ? at : d->consumed;
	} while (recv(fd, &c, 1, 0) == 1);
}

static void write_over(int fd, struct wire_dir *d, uint8_t *data, int done)
{
	uint64_t at = d->produced;
	char c;

	if (send(fd, "GOODGOOD", 8, 0) != 8 || recv(fd, &c, 1, 0) != 1)
		die("peer: send");
	for (int i = 0; i < 8; i++)
		data[(at + (uint64_t)i) % WIRE_AREA0_BYTES] = 'E';
	if (write(done, "d", 1) != 1)
		die("peer: write");
}

static int lie(char **argv, bool peek)
{
	int fd, one = 1;
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(argv[3])),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct wire *w;
	char c;

	if (setgid((gid_t)atoi(argv[2])) != 0 || setuid((uid_t)atoi(argv[2])) != 0)
		die("setuid");
	fd = socket(AF_INET, SOCK_STREAM, 0); /* that user's */
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
		die("connect");
	pass(fd, true);
	w = segment();
	if (!w) {
		fprintf(stderr, "no memory is shared\n");
		return 1;
	}
	if (recv(fd, &c, 1, 0) != 1)
		die("peer: recv");
	if (peek)
		write_over(fd, &w->dir[WIRE_FROM_CONNECTOR],
			   (uint8_t *)w + wire_area_offset(WIRE_FROM_CONNECTOR, 0),
			   atoi(argv[4]));
	else
		flip(fd, &w->dir[WIRE_FROM_CONNECTOR]);
	return 0;
}

int main(int argc, char **argv)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	unsigned way = 0;

	while (argc > 2 && way < sizeof(ways) / sizeof(*ways) &&
	       strcmp(argv[1], ways[way].name) != 0)
		way++;
	if (argc < 3 || way == sizeof(ways) / sizeof(*ways))
		return 2;
	if (argc > 4)
		return lie(argv, !ways[way].ask);
	signal(SIGALRM, hung);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    listen(listener, 8) != 0)
		die("listen");
	for (int i = 0; i < (ways[way].ask ? CONNECTIONS : 1); i++)
		serve(argv, ways[way].ask, listener);
	return 0;
}
