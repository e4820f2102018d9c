/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the rendezvous: TCP connections over loopback, and what they leave. */
#ifndef VD_TESTS_UNIT_RENDEZVOUS_PAIR_H
#define VD_TESTS_UNIT_RENDEZVOUS_PAIR_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/endpoint.h"
#include "base/fds.h"
#include "rendezvous/hello.h"
#include "rendezvous/name.h"
#include "rendezvous/rendezvous.h"
#include "unit/announced.h"

#define PAIR_FN __attribute__((unused)) static

struct pair {
	int listener, announced, client, server;
	uint16_t port;
};

union pair_addr {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* text: an address; NULL: any of the family. */
PAIR_FN socklen_t pair_address(union pair_addr *a, int family, const char *text, int port)
{
	memset(a, 0, sizeof(*a));
	a->any.sa_family = (sa_family_t)family;
	if (family == AF_INET) {
		a->in.sin_port = htons((uint16_t)port);
		if (text)
			REQUIRE(inet_pton(family, text, &a->in.sin_addr) == 1);
		return sizeof(a->in);
	}
	a->in6.sin6_port = htons((uint16_t)port);
	if (text)
		REQUIRE(inet_pton(family, text, &a->in6.sin6_addr) == 1);
	return sizeof(a->in6);
}

PAIR_FN uint16_t pair_local_port(int fd)
{
	union pair_addr a;
	socklen_t len = sizeof(a);

	REQUIRE(getsockname(fd, &a.any, &len) == 0);
	return ntohs(a.any.sa_family == AF_INET ? a.in.sin_port : a.in6.sin6_port);
}

PAIR_FN int pair_listen(int family, const char *text, int port)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	union pair_addr a;
	socklen_t len = pair_address(&a, family, text, port);

	REQUIRE(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	REQUIRE(bind(fd, &a.any, len) == 0);
	REQUIRE(listen(fd, 64) == 0);
	return fd;
}

/* A blocking connect. own_port: 0 for any; -1 for one that the socket keeps even after its
 * connection is over; else that one. */
PAIR_FN int pair_connect(int family, const char *text, int port, int own_port)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	union pair_addr a;
	socklen_t len;

	REQUIRE(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (own_port) {
		len = pair_address(&a, family, text, own_port > 0 ? own_port : 0);
		REQUIRE(bind(fd, &a.any, len) == 0);
	}
	len = pair_address(&a, family, text, port);
	if (connect(fd, &a.any, len) != 0) {
		perror("connect");
		exit(1);
	}
	return fd;
}

PAIR_FN void pair_open_as(struct pair *p, int server_family, const char *server_text,
			  int client_family, const char *client_text)
{
	p->announced = -1;
	for (int i = 0; i < ANNOUNCED_TRIES && p->announced < 0; i++) {
		if (i)
			close(p->listener);
		p->listener = pair_listen(server_family, server_text, 0);
		p->port = pair_local_port(p->listener);
		p->announced = meet_announce(p->listener);
	}
	CHECK(p->announced >= 0);
	p->client = pair_connect(client_family, client_text, p->port, -1);
	p->server = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(p->server >= 0);
}

PAIR_FN void pair_open(struct pair *p)
{
	pair_open_as(p, AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
}

PAIR_FN void pair_close(struct pair *p)
{
	/* The client ends it by RST: no port is left in TIME_WAIT by thousands of tests.
	 */
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	setsockopt(p->client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(p->client);
	close(p->server);
	close(p->listener);
	meet_unannounce(p->announced);
}

/* n bytes each way, through to the other program's hands. */
PAIR_FN void pair_talk(const struct pair *p, size_t n)
{
	char buf[512];

	REQUIRE(n <= sizeof(buf));
	memset(buf, 'x', sizeof(buf));
	CHECK_EQ(write(p->client, buf, n), n);
	CHECK_EQ(recv(p->server, buf, n, MSG_WAITALL), n);
	CHECK_EQ(write(p->server, buf, n / 2), n / 2);
	CHECK_EQ(recv(p->client, buf, n / 2, MSG_WAITALL), n / 2);
}

/* Addresses for a segment, with something there. */
PAIR_FN uint8_t *pair_place(void)
{
	uint8_t *place = mmap(NULL, WIRE_TOTAL_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	REQUIRE(place != MAP_FAILED);
	place[0] = place[WIRE_TOTAL_BYTES - 1] = 'p';
	return place;
}

/* The whole rendezvous, step by step. */
PAIR_FN void pair_meet(const struct pair *p, struct meet_segment *c,
		       struct meet_segment *s)
{
	int name = -1;

	CHECK_EQ(meet_publish(p->client, &name), 1);
	CHECK_EQ(meet_collect(p->client, &name, NULL, c), 0);
	CHECK_EQ(meet_offer(p->server, NULL, s), 1);
	CHECK_EQ(meet_attached(p->server, s), 0);
	CHECK_EQ(meet_collect(p->client, &name, NULL, c), 1);
	CHECK_EQ(name, -1);
	CHECK_EQ(meet_attached(p->server, s), 1);
}

/* Sends msg as a visitor of the connection's name would. */
PAIR_FN int pair_visit(const struct pair *p)
{
	struct name_tuple t;
	struct sockaddr_un name;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0);
	REQUIRE(name_of_connection(p->server, TCP_ROLE_ACCEPTED, &t) == 0);
	len = name_address(&t, &name);
	if (connect(fd, (struct sockaddr *)&name, len) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- what is left behind ---- */

struct leftovers {
	int fds, maps;
};

PAIR_FN struct leftovers leftovers_count(void)
{
	struct leftovers l = {.fds = 0, .maps = 0};
	FILE *maps = fopen("/proc/self/maps", "re");
	DIR *dir = opendir("/proc/self/fd");
	char line[1024];

	REQUIRE(maps && dir);
	while (fgets(line, sizeof(line), maps))
		l.maps += strstr(line, "/memfd:") != NULL;
	fclose(maps);
	while (readdir(dir))
		l.fds++;
	closedir(dir);
	return l;
}

/* Makes the meeting code open the sockets that it keeps for good. */
PAIR_FN struct leftovers leftovers_settle(void)
{
	struct meet_segment none;
	struct pair p;
	int name = -1;

	pair_open(&p);
	CHECK_EQ(meet_offer(p.server, NULL, &none), 0);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	fds_close(name);
	pair_close(&p);
	return leftovers_count();
}

/* A test that meets: leaves neither descriptors nor mappings. */
#define MEET_TEST(id)                                                                    \
	static void meet_test_##id(void);                                                \
	TEST(id)                                                                         \
	{                                                                                \
		struct leftovers before = leftovers_settle(), after;                     \
		meet_test_##id();                                                        \
		after = leftovers_settle();                                              \
		CHECK_EQ(after.fds, before.fds);                                         \
		CHECK_EQ(after.maps, before.maps);                                       \
		FDS_SETTLED();                                                           \
	}                                                                                \
	static void meet_test_##id(void)

/* Runs fn in a child; its failed checks are the child's exit status, and checked here. */
PAIR_FN pid_t child_start(void (*fn)(void *), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		fn(arg);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	return pid;
}

PAIR_FN int child_wait(pid_t pid)
{
	int status;

	REQUIRE(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- namespaces ---- */

PAIR_FN void try_unshare(void *arg)
{
	if (unshare(*(int *)arg) != 0)
		_exit(1);
}

#define NEED_UNSHARE(flag)                                                               \
	do {                                                                             \
		int flags = (flag);                                                      \
		if (child_wait(child_start(try_unshare, &flags)) != 0)                   \
			SKIP("no such namespace to be had");                             \
	} while (0)

#endif
