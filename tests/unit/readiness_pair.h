/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of readiness: attached connections with both ends in this process. */
#ifndef VD_TESTS_UNIT_READINESS_PAIR_H
#define VD_TESTS_UNIT_READINESS_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn/sock.h"
#include "readiness/ready.h"
#include "rendezvous/rendezvous.h"
#include "unit/announced.h"

#define SOCK_FN __attribute__((unused)) static

struct sock_pair {
	int c, s;
};

/* What the hooks make of send and recv. */
SOCK_FN ssize_t pair_send(int fd, const void *buf, size_t len, int flags)
{
	const struct iovec iov = {(void *)buf, len};
	struct sock *s = fd_sock(fd);
	enum sock_way way = tx_enter(s, fd);
	ssize_t n = SOCK_KERNEL;

	if (way == SOCK_DIRECT)
		n = tx_send(s, fd, &iov, 1, flags);
	if (n != SOCK_KERNEL)
		return n;
	if (way == SOCK_COUNTED)
		crit_leave();
	n = send(fd, buf, len, flags);
	if (way == SOCK_COUNTED)
		tx_leave(s, n);
	return n < 0 ? -errno : n;
}

SOCK_FN ssize_t pair_recv(int fd, void *buf, size_t len, int flags)
{
	const struct iovec iov = {buf, len};
	struct sock *s = fd_sock(fd);
	enum sock_way way = rx_enter(s, fd);
	ssize_t n = SOCK_KERNEL;

	if (way == SOCK_DIRECT)
		n = rx_recv(s, fd, &iov, 1, flags);
	if (n != SOCK_KERNEL)
		return n;
	if (way == SOCK_COUNTED)
		crit_leave();
	n = recv(fd, buf, len, flags);
	if (way == SOCK_COUNTED)
		rx_leave(s, n);
	return n < 0 ? -errno : n;
}

SOCK_FN void pair_pass(int from, int to)
{
	char buf[16] = "0123456789abcde";

	REQUIRE(pair_send(from, buf, sizeof(buf), 0) == sizeof(buf));
	for (size_t got = 0; got < sizeof(buf);) {
		ssize_t n = pair_recv(to, buf, sizeof(buf) - got, 0);

		REQUIRE(n > 0);
		got += (size_t)n;
	}
}

SOCK_FN bool pair_in_ring(int fd)
{
	struct slot *sl = fd_sock(fd)->slot;

	return gate_state(&sl->gate_rx) == GATE_RING &&
	       gate_state(&sl->gate_tx) == GATE_RING;
}

SOCK_FN struct sock_pair pair_open(void)
{
	struct sockaddr_in a;
	int announced, l = listen_announced(&announced, &a);
	struct sock_pair p;

	p.c = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(fd_open_socket(p.c, false) != NULL);
	fd_connecting(fd_sock(p.c), p.c);
	REQUIRE(connect(p.c, (struct sockaddr *)&a, sizeof(a)) == 0);
	p.s = accept(l, NULL, NULL);
	REQUIRE(p.s >= 0 && fd_open_accepted(p.s, false));
	/* The hint is asked for at the first operation. */
	pair_pass(p.c, p.s);
	meet_unannounce(announced);
	close(l);
	return p;
}

/* Until all four directions are in the ring. */
SOCK_FN void pair_raise(struct sock_pair p)
{
	int i;

	for (i = 0; i < 200 && !(pair_in_ring(p.c) && pair_in_ring(p.s)); i++) {
		pair_pass(p.c, p.s);
		pair_pass(p.s, p.c);
	}
	REQUIRE(pair_in_ring(p.c) && pair_in_ring(p.s));
	/* As if the two ends were different users'. */
	if (getenv("VD_TEST_FOREIGN")) {
		atomic_fetch_or(&fd_sock(p.c)->slot->seen, SEEN_FOREIGN);
		atomic_fetch_or(&fd_sock(p.s)->slot->seen, SEEN_FOREIGN);
	}
}

SOCK_FN void pair_close_fd(int fd)
{
	ready_closing(fd);
	if (fd_closing(fd))
		close(fd);
}

SOCK_FN void pair_close(struct sock_pair p)
{
	pair_close_fd(p.c);
	pair_close_fd(p.s);
}

/* First thing in a test. The first pair of a program also opens what the layer below keeps
 * open. */
SOCK_FN void sock_pair_init(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	setenv("VIADUCT_UPGRADE_AFTER", "0", 1);
	REQUIRE(fd_table_init() == 0);
	ready_init();
	pair_close(pair_open());
	FDS_SETTLED();
}

SOCK_FN struct sock_pair pair_make(void)
{
	sock_pair_init();
	return pair_open();
}

SOCK_FN struct sock_pair pair_raised(void)
{
	struct sock_pair p = pair_make();

	pair_raise(p);
	return p;
}

#endif
