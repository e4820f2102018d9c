/* SPDX-License-Identifier: Apache-2.0 */
/* The program that is attacked: it echoes what it is sent, and says how it ended. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"

static void wait_by_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (poll(&p, 1, -1) < 0)
		die("victim: poll");
}

static int registered = -1;

static void wait_by_epoll(int fd)
{
	static int instance = -1;
	struct epoll_event e = {.events = EPOLLIN};

	if (instance < 0)
		instance = epoll_create1(EPOLL_CLOEXEC);
	if (registered != fd && epoll_ctl(instance, EPOLL_CTL_ADD, fd, &e) != 0)
		die("victim: epoll_ctl");
	registered = fd;
	if (epoll_wait(instance, &e, 1, -1) < 0)
		die("victim: epoll_wait");
}

static int send_all(int fd, const char *data, ssize_t n)
{
	while (n > 0) {
		ssize_t sent = send(fd, data, (size_t)n, MSG_NOSIGNAL);
		if (sent < 0)
			return errno;
		data += sent;
		n -= sent;
	}
	return 0;
}

/* Returns 0 at the end of the stream, or the error that ended it. */
static int echo(int fd, void (*wait)(int))
{
	char buf[4096];

	for (;;) {
		ssize_t n;
		int err;

		if (wait)
			wait(fd);
		n = recv(fd, buf, sizeof(buf), 0);
		if (n <= 0)
			return n < 0 ? errno : 0;
		err = send_all(fd, buf, n);
		if (err)
			return err;
	}
}

static void serve(int fd, void (*wait)(int))
{
	int err = echo(fd, wait);

	if (err == 0)
		printf("eof\n");
	else if (err == ECONNRESET || err == EPIPE)
		printf("reset\n");
	else
		printf("error %s\n", strerror(err));
	close(fd);
	registered = -1;
}

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void victim_listens(int count, void (*wait)(int))
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct sockaddr_in a = loopback(0);
	socklen_t len = sizeof(a);

	if (bind(listener, (struct sockaddr *)&a, len) != 0 || listen(listener, 4) != 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &len) != 0)
		die("victim: listen");
	printf("%d\n", ntohs(a.sin_port));
	while (count-- > 0) {
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			die("victim: accept");
		serve(fd, wait);
	}
}

static void victim_connects(int port, void (*wait)(int))
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = loopback(port);

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		die("victim: connect");
	serve(fd, wait);
}

/* victim block|poll|epoll listen COUNT, or connect PORT... */
int victim(int argc, char **argv)
{
	void (*wait)(int) = NULL;

	if (argc < 3)
		return 2;
	if (strcmp(argv[0], "poll") == 0)
		wait = wait_by_poll;
	else if (strcmp(argv[0], "epoll") == 0)
		wait = wait_by_epoll;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (strcmp(argv[1], "listen") == 0)
		victim_listens(atoi(argv[2]), wait);
	else
		for (int i = 2; i < argc; i++)
			victim_connects(atoi(argv[i]), wait);
	return 0;
}
