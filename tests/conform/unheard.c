/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a peer that does not read, and options by which TCP gives it up, or does not. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { BULK = 20000000 };

static void give_up_after(int fd, int ms)
{
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) == 0);
}

static void say_events(int fd)
{
	struct pollfd f = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	NEED(poll(&f, 1, 0) >= 0);
	say("events %s", poll_names(f.revents));
}

static void say_so_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;
	NEED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	say("error %s", errno_name(error));
}

/* The other end reads what there is, and learns of the rest. */
static void say_peer(int fd)
{
	ssize_t n;
	say_events(fd);
	do
		n = recv(fd, bulk_room(), BULK, 0);
	while (n > 0);
	say_result("ends with", n);
	say_result("and then", recv(fd, bulk_room(), 1, 0));
	say_result("or", send(fd, bulk_room(), 1, MSG_NOSIGNAL));
}

static void say_all(struct pair p)
{
	say_events(p.c);
	say_result("write", write(p.c, bulk_room(), 10));
	say_events(p.c);
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_result("write", send(p.c, bulk_room(), 10, MSG_NOSIGNAL));
	say_so_error(p.c);
	say_peer(p.s);
}

static void write_unheard(struct pair p)
{
	send_all(p.s, "hello", 5);
	ssize_t n = write(p.c, bulk_room(), BULK);
	say("part %d", n > 0 && n < BULK);
	say_all(p);
	pair_close(p);
}

CASE(unheard_write, DIRECT)
{
	struct pair p = pair_open();
	signal(SIGPIPE, SIG_IGN);
	give_up_after(p.c, 500);
	pair_warm(p);
	write_unheard(p);
}

CASE(unheard_write_upgraded, DIRECT)
{
	struct pair p = pair_warm_open();
	signal(SIGPIPE, SIG_IGN);
	give_up_after(p.c, 500);
	write_unheard(p);
}

/* The option comes when the write is under way. */
static void write_all(void *arg)
{
	struct pair *p = arg;
	ssize_t n = write(p->c, bulk_room(), BULK);
	say("part %d", n > 0 && n < BULK);
}

CASE(unheard_write_underway, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker t;
	signal(SIGPIPE, SIG_IGN);
	send_all(p.s, "hello", 5);
	worker_start(&t, write_all, &p);
	wait_crowd_asleep(&t.tid, 1);
	give_up_after(p.c, 500);
	worker_join(&t);
	say_all(p);
	pair_close(p);
}

CASE(unheard_inherited, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	struct pair p;
	signal(SIGPIPE, SIG_IGN);
	give_up_after(listener, 500);
	p.s = connect_to(AF_INET, port);
	p.c = accept(listener, NULL, NULL);
	NEED(p.c >= 0);
	close(listener);
	pair_warm(p);
	write_unheard(p);
}

/* A peer that reads, but seldom, is kept; then the ring is in use again. */
static void read_seldom(int fd, void *arg)
{
	(void)arg;
	for (size_t off = 0; off < BULK; off += BULK / 20) {
		usleep(50000);
		recv_pattern(fd, off, BULK / 20);
	}
	for (int i = 0; i < 300; i++) {
		char byte;
		NEED(recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, 0) == 1);
	}
}

CASE(unheard_seldom, DIRECT)
{
	pid_t pid;
	int fd = peer_start(read_seldom, NULL, &pid);
	give_up_after(fd, 500);
	send_pattern(fd, 0, BULK);
	for (int i = 0; i < 300; i++) {
		char byte = 0;
		NEED(send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1);
	}
	say("all");
	say_so_error(fd);
	close(fd);
	NEED(waitpid(pid, NULL, 0) == pid);
}

CASE(unheard_nonblocking, DIRECT)
{
	struct pair p = pair_warm_open();
	struct pollfd f = {p.c, POLLIN, 0};
	give_up_after(p.c, 500);
	while (send(p.c, bulk_room(), BULK, MSG_DONTWAIT) > 0)
		;
	say_result("poll", poll(&f, 1, -1));
	say("events %s", poll_names(f.revents));
	say_so_error(p.c);
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_result("write", send(p.c, bulk_room(), 10, MSG_NOSIGNAL));
	say_peer(p.s);
	pair_close(p);
}

CASE(unheard_reader, DIRECT)
{
	struct pair p = pair_warm_open();
	give_up_after(p.c, 500);
	while (send(p.c, bulk_room(), BULK, MSG_DONTWAIT) > 0)
		;
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_result("recv", recv(p.c, bulk_room(), 3, 0));
	say_peer(p.s);
	pair_close(p);
}

/* A value that the kernel refuses, and none. */
CASE(unheard_wrong, STAYS)
{
	struct pair p = pair_warm_open();
	int ms = -1;
	say_result("negative",
		   setsockopt(p.c, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms));
	give_up_after(p.c, 0);
	pair_warm(p);
	pair_close(p);
}

/* The peer's kernel answers: nothing is given up. */
CASE(unheard_kept_alive, STAYS)
{
	struct pair p = pair_warm_open();
	struct pollfd f = {p.c, POLLIN | POLLRDHUP, 0};
	int one = 1;
	NEED(setsockopt(p.c, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0);
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one) == 0);
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one) == 0);
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_KEEPCNT, &one, sizeof one) == 0);
	while (send(p.c, bulk_room(), BULK, MSG_DONTWAIT) > 0)
		;
	say_result("poll", poll(&f, 1, 3500));
	pair_close(p);
}
