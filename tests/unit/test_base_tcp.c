/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's counts against known byte counts, in every state a connection can be in.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#include "base/tcp.h"
#include "unit/test.h"

enum { ESTABLISHED = 1, FIN_WAIT1 = 4, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT };
enum { LAST_ACK = 9, LISTENING, CLOSING };
enum { CHUNK = 16384 };

/* One end, and what the test knows of it. */
struct end {
	int fd;
	enum tcp_role role;
	uint64_t written, consumed;
};

static char buffer[1 << 20], zeros[1 << 20];

static void pair_open(int family, struct end *c, struct end *a)
{
	struct sockaddr_storage addr = {.ss_family = (sa_family_t)family};
	socklen_t len = sizeof(addr);
	int l = socket(family, SOCK_STREAM, 0);

	if (family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
	REQUIRE(bind(l, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	REQUIRE(listen(l, 1) == 0);
	REQUIRE(getsockname(l, (struct sockaddr *)&addr, &len) == 0);
	*c = (struct end){.fd = socket(family, SOCK_STREAM, 0),
			  .role = TCP_ROLE_CONNECTED};
	REQUIRE(connect(c->fd, (struct sockaddr *)&addr, len) == 0);
	*a = (struct end){.fd = accept(l, NULL, NULL), .role = TCP_ROLE_ACCEPTED};
	REQUIRE(a->fd >= 0);
	close(l);
	REQUIRE(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0);
	REQUIRE(fcntl(a->fd, F_SETFL, O_NONBLOCK) == 0);
}

static void pair_close(struct end *c, struct end *a)
{
	close(c->fd);
	close(a->fd);
}

#define CHECK_END(end) check_end(__LINE__, (end))

/* The counts are exact at any moment; what is acknowledged lies below what is written. */
static void check_end(int line, struct end *e)
{
	uint64_t written = 0, consumed = 0, received = 0;
	struct tcp_counts c = {0};
	int errors = tcp_written(e->fd, e->role, &written) |
		     tcp_consumed(e->fd, &consumed) | tcp_received(e->fd, &received) |
		     tcp_counts(e->fd, e->role, &c);

	if (!errors && written == e->written && consumed == e->consumed &&
	    received >= consumed && c.acked <= written && c.written == written &&
	    c.received >= received)
		return;
	test_fail(__FILE__, line, "CHECK_END");
	fprintf(stderr,
		"role %d: written %llu of %llu, consumed %llu of %llu, "
		"received %llu, acked %llu, errors %d\n",
		e->role, (unsigned long long)written, (unsigned long long)e->written,
		(unsigned long long)consumed, (unsigned long long)e->consumed,
		(unsigned long long)received, (unsigned long long)c.acked, errors);
}

static ssize_t put(struct end *e, size_t n)
{
	ssize_t done = send(e->fd, zeros, n, MSG_NOSIGNAL);

	if (done > 0)
		e->written += (uint64_t)done;
	return done;
}

static ssize_t take(struct end *e, size_t n)
{
	ssize_t done = recv(e->fd, buffer, n, 0);

	if (done > 0)
		e->consumed += (uint64_t)done;
	return done;
}

static void fill(struct end *e)
{
	while (put(e, sizeof(zeros)) > 0)
		CHECK_END(e);
	CHECK_EQ(errno, EAGAIN);
}

static void wait_for(struct end *e, short events)
{
	struct pollfd p = {.fd = e->fd, .events = events};

	REQUIRE(poll(&p, 1, 20000) == 1);
}

/* Reads all that `from` has written; the counts are right after each step. */
static void drain(struct end *e, const struct end *from)
{
	while (e->consumed < from->written) {
		wait_for(e, POLLIN);
		REQUIRE(take(e, CHUNK) > 0);
		CHECK_END(e);
	}
}

/* The kernel passes packets on in its own time, but without any help of ours. */
static void wait_state(struct end *e, int want)
{
	int state = 0;

	for (int i = 0; i < 10000000; i++) {
		REQUIRE(tcp_state(e->fd, &state) == 0);
		if (state == want)
			return;
		sched_yield();
	}
	CHECK_EQ(state, want);
}

static void wait_acked(struct end *e)
{
	struct tcp_counts c = {0};

	for (int i = 0; i < 10000000 && c.acked != e->written; i++) {
		REQUIRE(tcp_counts(e->fd, e->role, &c) == 0);
		sched_yield();
	}
	CHECK_EQ(c.acked, e->written);
}

static void wait_received(struct end *e, uint64_t want)
{
	uint64_t received = 0;

	for (int i = 0; i < 10000000 && received != want; i++) {
		REQUIRE(tcp_received(e->fd, &received) == 0);
		sched_yield();
	}
	CHECK_EQ(received, want);
}

#define CHECK_BOTH(c, a)                                                                 \
	do {                                                                             \
		CHECK_END(c);                                                            \
		CHECK_END(a);                                                            \
	} while (0)

static void established(int family)
{
	struct end c, a;

	pair_open(family, &c, &a);
	CHECK_BOTH(&c, &a);
	put(&c, 1000);
	CHECK_BOTH(&c, &a);
	put(&a, 777);
	CHECK_BOTH(&c, &a);
	wait_received(&a, 1000);
	wait_received(&c, 777);
	take(&a, 300);
	CHECK_EQ(a.consumed, 300);
	CHECK_BOTH(&c, &a);
	CHECK_EQ(recv(a.fd, buffer, 100, MSG_PEEK), 100);
	CHECK_BOTH(&c, &a);
	drain(&a, &c);
	drain(&c, &a);
	CHECK_BOTH(&c, &a);
	wait_acked(&a);
	wait_acked(&c);
	pair_close(&c, &a);
}

TEST(established_ipv4)
{
	established(AF_INET);
}

TEST(established_ipv6)
{
	established(AF_INET6);
}

TEST(full_buffers)
{
	struct end c, a;

	pair_open(AF_INET, &c, &a);
	for (int round = 0; round < 3; round++) {
		fill(&c);
		fill(&a);
		CHECK_BOTH(&c, &a);
		wait_for(&a, POLLIN);
		take(&a, 12345);
		CHECK_BOTH(&c, &a);
		drain(&c, &a);
		CHECK_BOTH(&c, &a);
	}
	drain(&a, &c);
	CHECK_BOTH(&c, &a);
	wait_acked(&c);
	pair_close(&c, &a);
}

/* x shuts down, then y: FIN_WAIT2 and CLOSE_WAIT, then CLOSE on both sides. */
static void orderly(struct end *x, struct end *y, bool unread)
{
	put(x, 5000);
	put(y, 3000);
	if (!unread) {
		drain(y, x);
		drain(x, y);
	}
	CHECK_EQ(shutdown(x->fd, SHUT_WR), 0);
	CHECK_BOTH(x, y);
	wait_state(x, FIN_WAIT2);
	wait_state(y, CLOSE_WAIT);
	CHECK_BOTH(x, y);
	wait_acked(x);
	wait_received(y, 5000);
	drain(y, x);
	CHECK_EQ(take(y, 1), 0);
	CHECK_BOTH(x, y);
	put(y, 200);
	CHECK_BOTH(x, y);
	CHECK_EQ(shutdown(y->fd, SHUT_WR), 0);
	wait_state(x, CLOSE);
	wait_state(y, CLOSE);
	CHECK_BOTH(x, y);
	wait_acked(y);
	wait_received(x, 3200);
	drain(x, y);
	CHECK_BOTH(x, y);
	CHECK_EQ(take(x, 1), 0);
	CHECK_BOTH(x, y);
}

TEST(orderly_end)
{
	for (int i = 0; i < 4; i++) {
		struct end c, a;
		pair_open(i == 3 ? AF_INET6 : AF_INET, &c, &a);
		orderly(i & 1 ? &a : &c, i & 1 ? &c : &a, i & 2);
		pair_close(&c, &a);
	}
}

/* The FIN waits behind data: FIN_WAIT1 here, ESTABLISHED there. */
static void fin_behind_data(struct end *x, struct end *y)
{
	fill(x);
	CHECK_EQ(shutdown(x->fd, SHUT_WR), 0);
	wait_state(x, FIN_WAIT1);
	wait_state(y, ESTABLISHED);
	CHECK_BOTH(x, y);
	put(y, 4000);
	CHECK_BOTH(x, y);
	drain(y, x);
	wait_state(y, CLOSE_WAIT);
	wait_state(x, FIN_WAIT2);
	CHECK_BOTH(x, y);
	CHECK_EQ(take(y, 1), 0);
	CHECK_BOTH(x, y);
	/* And the second FIN too: LAST_ACK there, FIN_WAIT2 here. */
	fill(y);
	CHECK_EQ(shutdown(y->fd, SHUT_WR), 0);
	wait_state(y, LAST_ACK);
	wait_state(x, FIN_WAIT2);
	CHECK_BOTH(x, y);
	drain(x, y);
	wait_state(x, CLOSE);
	wait_state(y, CLOSE);
	CHECK_BOTH(x, y);
	wait_acked(y);
	CHECK_EQ(take(x, 1), 0);
	CHECK_BOTH(x, y);
}

TEST(fin_waits_behind_data)
{
	for (int i = 0; i < 2; i++) {
		struct end c, a;
		pair_open(AF_INET, &c, &a);
		fin_behind_data(i ? &a : &c, i ? &c : &a);
		pair_close(&c, &a);
	}
}

/* Both FINs under way at once: FIN_WAIT1 twice, then CLOSING on one side. */
static void simultaneous(struct end *x, struct end *y)
{
	fill(x);
	fill(y);
	CHECK_EQ(shutdown(x->fd, SHUT_WR), 0);
	CHECK_EQ(shutdown(y->fd, SHUT_WR), 0);
	wait_state(x, FIN_WAIT1);
	wait_state(y, FIN_WAIT1);
	CHECK_BOTH(x, y);
	drain(y, x);
	wait_state(y, CLOSING);
	wait_state(x, FIN_WAIT2);
	CHECK_BOTH(x, y);
	CHECK_EQ(take(y, 1), 0);
	CHECK_BOTH(x, y);
	drain(x, y);
	wait_state(x, CLOSE);
	wait_state(y, CLOSE);
	CHECK_BOTH(x, y);
}

TEST(simultaneous_end)
{
	for (int i = 0; i < 2; i++) {
		struct end c, a;
		pair_open(AF_INET, &c, &a);
		simultaneous(i ? &a : &c, i ? &c : &a);
		pair_close(&c, &a);
	}
}

TEST(shut_for_reading)
{
	struct end c, a;

	pair_open(AF_INET, &c, &a);
	put(&c, 100);
	wait_received(&a, 100);
	CHECK_EQ(shutdown(a.fd, SHUT_RD), 0);
	CHECK_BOTH(&c, &a);
	take(&a, 40);
	CHECK_EQ(a.consumed, 40);
	CHECK_BOTH(&c, &a);
	pair_close(&c, &a);
}

TEST(reset_is_not_counted)
{
	struct linger linger = {.l_onoff = 1};
	struct tcp_counts counts = {77, 77, 77};
	uint64_t bytes = 77;
	struct end c, a;

	pair_open(AF_INET, &c, &a);
	put(&c, 100);
	wait_received(&a, 100);
	CHECK_EQ(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	close(c.fd);
	wait_state(&a, CLOSE);
	CHECK_EQ(tcp_consumed(a.fd, &bytes), -ENOTCONN);
	CHECK_EQ(tcp_received(a.fd, &bytes), -ENOTCONN);
	CHECK_EQ(tcp_written(a.fd, a.role, &bytes), -ENOTCONN);
	CHECK_EQ(tcp_counts(a.fd, a.role, &counts), -ENOTCONN);
	CHECK(bytes == 77 && counts.acked == 77 && counts.received == 77);
	/* The question takes nothing away: neither data nor error. */
	CHECK_EQ(recv(a.fd, buffer, 200, 0), 100);
	CHECK_EQ(recv(a.fd, buffer, 200, 0), -1);
	CHECK_EQ(errno, ECONNRESET);
	close(a.fd);
}

static void check_no_counts(int fd, int want)
{
	uint64_t bytes = 77;

	CHECK_EQ(tcp_written(fd, TCP_ROLE_CONNECTED, &bytes), want);
	CHECK_EQ(tcp_written(fd, TCP_ROLE_ACCEPTED, &bytes), want);
	CHECK_EQ(tcp_consumed(fd, &bytes), want);
	CHECK_EQ(bytes, 77);
}

TEST(unconnected)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	socklen_t len = sizeof(addr);
	int s = socket(AF_INET, SOCK_STREAM, 0), l = socket(AF_INET, SOCK_STREAM, 0);
	int first = socket(AF_INET, SOCK_STREAM, 0);
	int udp = socket(AF_INET, SOCK_DGRAM, 0);
	uint64_t bytes;

	check_no_counts(s, -ENOTCONN);
	CHECK(tcp_written(udp, TCP_ROLE_CONNECTED, &bytes) < 0);
	CHECK_EQ(tcp_consumed(-1, &bytes), -EBADF);
	CHECK_EQ(tcp_written(s, TCP_ROLE_UNKNOWN, &bytes), -EINVAL);
	/* SYN_SENT: the queue of the listener is full, and stays so. */
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	REQUIRE(bind(l, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	REQUIRE(listen(l, 0) == 0);
	REQUIRE(getsockname(l, (struct sockaddr *)&addr, &len) == 0);
	REQUIRE(connect(first, (struct sockaddr *)&addr, len) == 0);
	fcntl(s, F_SETFL, O_NONBLOCK);
	CHECK_EQ(connect(s, (struct sockaddr *)&addr, len), -1);
	CHECK_EQ(errno, EINPROGRESS);
	check_no_counts(s, -ENOTCONN);
	CHECK(tcp_written(l, TCP_ROLE_ACCEPTED, &bytes) < 0);
	CHECK(tcp_consumed(l, &bytes) < 0);
	close(s);
	close(l);
	close(first);
	close(udp);
}

static void *stream(void *arg)
{
	struct end *e = arg;

	while (e->written < 64 << 20) {
		struct pollfd p = {.fd = e->fd, .events = POLLOUT};
		uint64_t written = 0;
		if (put(e, CHUNK + 1) < 0)
			poll(&p, 1, 20000);
		CHECK_EQ(tcp_written(e->fd, e->role, &written), 0);
		CHECK_EQ(written, e->written);
	}
	return NULL;
}

TEST(exact_while_data_flows)
{
	struct end c, a;
	pthread_t thread;

	pair_open(AF_INET, &c, &a);
	REQUIRE(!pthread_create(&thread, NULL, stream, &c));
	while (a.consumed < 64 << 20) {
		uint64_t consumed = 0;
		wait_for(&a, POLLIN);
		REQUIRE(take(&a, CHUNK) > 0);
		CHECK_EQ(tcp_consumed(a.fd, &consumed), 0);
		CHECK_EQ(consumed, a.consumed);
	}
	pthread_join(thread, NULL);
	pair_close(&c, &a);
}

static int get_option(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	CHECK_EQ(getsockopt(fd, IPPROTO_TCP, option, &value, &len), 0);
	return value;
}

static unsigned unsent(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info.tcpi_notsent_bytes;
}

/* Sends so that the kernel holds the bytes back. It does so for a fifth of a second only,
 * so a test that was stopped just then tries again. */
static void put_held(struct end *e, int flags)
{
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(send(e->fd, zeros, 100, flags), 100);
		e->written += 100;
		if (unsent(e->fd) > 0)
			return;
	}
	CHECK(!"the kernel held the bytes back");
}

/* What the program holds back stays: it is not due. */
static void push(int cork, int nodelay)
{
	struct end c, a;

	pair_open(AF_INET, &c, &a);
	CHECK_EQ(setsockopt(c.fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof(cork)), 0);
	CHECK_EQ(setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay)),
		 0);
	for (int tries = 0, held = 0; !held; tries++) {
		put_held(&c, cork ? 0 : MSG_MORE);
		CHECK_BOTH(&c, &a);
		/* The kernel lets go of it after a fifth of a second. */
		held = tcp_push(c.fd, cork) == -EAGAIN && unsent(c.fd) > 0;
		CHECK(held || tries < 50);
	}
	CHECK_EQ(get_option(c.fd, TCP_NODELAY), nodelay);
	CHECK_EQ(get_option(c.fd, TCP_CORK), cork);
	wait_received(&a, c.written);
	drain(&a, &c);
	CHECK_EQ(tcp_push(c.fd, cork), 0); /* nothing is left */
	CHECK_BOTH(&c, &a);
	pair_close(&c, &a);
}

TEST(push_past_cork)
{
	push(1, 0);
	push(1, 1);
}

TEST(push_past_msg_more)
{
	push(0, 0);
	push(0, 1);
}

/* Bytes are on their way, and the peer does not acknowledge them at once. */
TEST(push_past_nagle)
{
	struct end c, a;
	int off = 0;

	pair_open(AF_INET, &c, &a);
	CHECK_EQ(setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off)), 0);
	CHECK_EQ(setsockopt(a.fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off)), 0);
	put_held(&c, 0);
	CHECK_BOTH(&c, &a);
	CHECK_EQ(tcp_push(c.fd, false), 0);
	CHECK_EQ(unsent(c.fd), 0);
	CHECK_EQ(get_option(c.fd, TCP_NODELAY), 0);
	wait_received(&a, c.written);
	drain(&a, &c);
	pair_close(&c, &a);
}

TEST(cookies)
{
	struct end c, a;
	uint64_t one = 0, two = 0, again = 0;
	int p[2], copy;

	pair_open(AF_INET, &c, &a);
	copy = dup(c.fd);
	CHECK_EQ(tcp_cookie(c.fd, &one), 0);
	CHECK_EQ(tcp_cookie(a.fd, &two), 0);
	CHECK_EQ(tcp_cookie(copy, &again), 0);
	CHECK(one != 0 && two != 0 && one != two);
	CHECK_EQ(one, again);
	CHECK_EQ(tcp_netns_cookie(c.fd, &one), 0);
	CHECK_EQ(tcp_netns_cookie(a.fd, &two), 0);
	CHECK(one != 0);
	CHECK_EQ(one, two);
	REQUIRE(pipe(p) == 0);
	one = 77;
	CHECK_EQ(tcp_cookie(p[0], &one), -ENOTSOCK);
	CHECK_EQ(one, 77);
	close(p[0]);
	close(p[1]);
	close(copy);
	pair_close(&c, &a);
}
