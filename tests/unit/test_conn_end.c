/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a connection: FIN, half close, reset and death, in every phase of the switch. */
#include "unit/test.h"

#include "unit/conn_pair.h"

enum phase { ON_TCP, IN_READY, IN_RING, AFTER_DOWN, PHASES };

static const char *const phase_name[] = {"tcp", "ready", "ring", "down"};

/* a pair whose direction from a to b is in that phase; the other one is in the ring. */
static struct pair pair_in(enum phase phase)
{
	struct pair p = pair_open();
	if (phase == ON_TCP) {
		sock_refuse(fd_sock(p.a), p.a, VD_REASON_OPTION);
		return p;
	}
	pair_up(&p);
	if (phase == AFTER_DOWN || phase == IN_READY)
		sock_bounce(fd_sock(p.a), p.a);
	if (phase == IN_READY) {
		/* b opens its direction; nothing has been sent since. */
		sock_service(fd_sock(p.b), p.b);
		sock_service(fd_sock(p.a), p.a);
		rx_open(fd_sock(p.b), p.b);
		REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_READY);
	}
	return p;
}

/* Reads to the end; the bytes must be those of the stream, and end like this. */
static void check_rest(int fd, uint64_t from, uint64_t to, uint8_t seed, ssize_t end)
{
	struct flow f = {.fd = fd, .at = from, .bytes = UINT64_MAX, .seed = seed};
	flow_recv(&f);
	CHECK_EQ(f.at, to);
	CHECK_EQ(f.result, end);
}

/* What is sent behind a half close of the peer's goes over TCP, and is more than there is room for at once. */
STREAM_TEST(an_end_that_was_seen_lies_behind_bytes_over_tcp)
{
	struct pair p = pair_open_up();
	static char bytes[60000];
	uint64_t sent = 10000, got = 0;
	ssize_t n;
	CHECK_EQ(st_send(p.b, bytes, 10000, 0), 10000);
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	CHECK_EQ(st_recv(p.b, bytes, 1, 0), 0);
	for (int i = 0;
	     i < 20 && (n = st_send(p.b, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0; i++)
		sent += (uint64_t)n;
	CHECK_EQ(st_shutdown(p.b, SHUT_WR), 0);
	across_settle();
	st_level(p.a);
	while ((n = st_recv(p.a, bytes, 10000, 0)) > 0)
		got += (uint64_t)n;
	CHECK_EQ(n, 0);
	CHECK_EQ(got, sent);
	pair_close(&p);
}

/* Another thread notes it between this one's look at the kernel and that at the ring. */
STREAM_TEST(an_end_is_told_whole)
{
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a);
	const uint32_t end = EPOLLIN | EPOLLRDHUP;
	CHECK_EQ(sock_level(a, p.a) & end, 0);
	seen_add(a->slot, SEEN_FIN);
	CHECK_EQ(sock_level(a, p.a) & end, end);
	pair_close(&p);
}

STREAM_TEST(a_half_close_in_every_phase)
{
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct pair p = pair_in(phase);
		put(p.a, 0, 5000, 1);
		CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
		CHECK_EQ(st_send(p.a, "x", 1, MSG_NOSIGNAL), -EPIPE);
		check_rest(p.b, 0, 5000, 1, 0);
		CHECK_EQ(st_recv(p.b, (char[1]){0}, 1, 0), 0); /* the end stays */
		CHECK(st_level(p.b) & EPOLLRDHUP);
		CHECK(st_level(p.b) & EPOLLIN);
		CHECK(!(st_level(p.b) & (EPOLLHUP | EPOLLERR)));
		CHECK(st_level(p.b) & EPOLLOUT);
		/* The other direction lives on. */
		struct flow f[2] = {{.fd = p.b, .bytes = 3 << 20, .seed = 2},
				    {.fd = p.a, .bytes = 3 << 20, .seed = 2}};
		flow_start(&f[0], flow_send);
		flow_recv(&f[1]);
		flow_join(&f[0]);
		CHECK_EQ(f[1].at, 3 << 20);
		CHECK_EQ(st_shutdown(p.b, SHUT_WR), 0);
		CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, 0), 0);
		CHECK(st_level(p.a) & EPOLLHUP);
		CHECK(!(st_level(p.a) & EPOLLERR));
		pair_close(&p);
		if (atomic_load(&test_failures)) {
			fprintf(stderr, "in phase %s\n", phase_name[phase]);
			return;
		}
	}
}

/* The kernel's FIN is there before there is a ring: the other direction may still get one. */
STREAM_TEST(a_half_close_before_the_upgrade)
{
	for (int end = 0; end < 2; end++) {
		struct pair p = pair_open();
		int from = end ? p.b : p.a, to = end ? p.a : p.b;
		put(from, 0, 100, 14);
		CHECK_EQ(st_shutdown(from, SHUT_WR), 0);
		struct flow f[2] = {
			{.fd = to, .bytes = 1 << 20, .seed = 15, .most = 5000},
			{.fd = from, .bytes = 1 << 20, .seed = 15}};
		flow_start(&f[0], flow_send);
		flow_recv(&f[1]);
		flow_join(&f[0]);
		CHECK_EQ(f[1].at, 1 << 20);
		check_rest(to, 0, 100, 14, 0);
		CHECK_EQ(st_send(from, "x", 1, MSG_NOSIGNAL), -EPIPE);
		st_close(to);
		CHECK_EQ(st_recv(from, (char[1]){0}, 1, 0), 0);
		st_close(from);
	}
}

STREAM_TEST(a_close_in_every_phase)
{
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct pair p = pair_in(phase);
		put(p.a, 0, 5000, 3);
		st_close(p.a);
		p.a = -1;
		check_rest(p.b, 0, 5000, 3, 0);
		CHECK_EQ(st_recv(p.b, (char[1]){0}, 1, 0), 0);
		/* Nobody is there: the first write finds that out, the second is told. */
		ssize_t n = st_send(p.b, "x", 1, MSG_NOSIGNAL);
		CHECK_EQ(n, 1);
		REQUIRE(poll(&(struct pollfd){.fd = p.b}, 1, -1) == 1);
		n = st_send(p.b, "x", 1, MSG_NOSIGNAL);
		CHECK(n == -EPIPE || n == -ECONNRESET);
		pair_close(&p);
		if (atomic_load(&test_failures)) {
			fprintf(stderr, "in phase %s\n", phase_name[phase]);
			return;
		}
	}
}

/* TCP answers a close that leaves bytes unread with a reset. */
STREAM_TEST(a_close_with_unread_bytes_in_every_phase)
{
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct pair p = pair_in(phase);
		put(p.a, 0, 100, 4); /* b will not read them */
		put(p.b, 0, 100, 5);
		pair_arrived(p.a, p.b);
		pair_arrived(p.b, p.a);
		st_close(p.b);
		p.b = -1;
		check_rest(p.a, 0, 100, 5, -ECONNRESET);
		CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, 0), 0); /* told once */
		CHECK_EQ(st_send(p.a, "x", 1, MSG_NOSIGNAL), -EPIPE);
		pair_close(&p);
		if (atomic_load(&test_failures)) {
			fprintf(stderr, "in phase %s\n", phase_name[phase]);
			return;
		}
	}
}

STREAM_TEST(a_linger_of_zero_resets)
{
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct linger now = {1, 0};
		struct pair p = pair_in(phase);
		put(p.b, 0, 100, 6);
		pair_arrived(p.b, p.a);
		setsockopt(p.b, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		st_close(p.b);
		p.b = -1;
		check_rest(p.a, 0, 100, 6, -ECONNRESET);
		pair_close(&p);
		if (atomic_load(&test_failures)) {
			fprintf(stderr, "in phase %s\n", phase_name[phase]);
			return;
		}
	}
}

/* A reset that comes while bytes before the mark are still to be read. */
STREAM_TEST(a_reset_at_the_mark)
{
	struct pair p = pair_in(IN_READY);
	struct linger now = {1, 0};
	uint8_t buf[100];
	REQUIRE(tx_enter(fd_sock(p.a), p.a) == SOCK_DIRECT);
	/* It went up at once: down again, 50 bytes on TCP, up, 50 in the ring. */
	sock_bounce(fd_sock(p.a), p.a);
	sock_service(fd_sock(p.b), p.b);
	sock_service(fd_sock(p.a), p.a);
	flow_fill(buf, 100, 0, 7);
	REQUIRE(tx_enter(fd_sock(p.a), p.a) == SOCK_COUNTED);
	crit_leave();
	REQUIRE(send(p.a, buf, 50, 0) == 50);
	tx_leave(fd_sock(p.a), 50);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
	rx_open(fd_sock(p.b), p.b);
	REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_READY);
	REQUIRE(st_send(p.a, buf + 50, 50, 0) == 50);
	REQUIRE(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_RING);
	setsockopt(p.a, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	st_close(p.a);
	p.a = -1;
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLRDHUP}, 1, -1) == 1);
	check_rest(p.b, 0, 100, 7, -ECONNRESET);
	CHECK_EQ(st_recv(p.b, buf, 1, 0), 0);
	pair_close(&p);
}

STREAM_TEST(shutdown_for_reading)
{
	for (enum phase phase = 0; phase < PHASES; phase++) {
		struct pair p = pair_in(phase);
		uint8_t buf[10];
		put(p.b, 0, 10, 8); /* what b has not got yet is no reset */
		CHECK_EQ(st_shutdown(p.b, SHUT_RD), 0);
		CHECK_EQ(st_recv(p.b, buf, 1, 0), 0);
		CHECK(!(st_level(p.b) & (EPOLLERR | EPOLLHUP)));
		CHECK(st_level(p.b) & EPOLLIN);
		CHECK(st_level(p.b) & EPOLLRDHUP);
		CHECK_EQ(sock_take_error(fd_sock(p.b)), 0);
		put(p.b, 10, 10, 8); /* it may go on writing */
		CHECK_EQ(st_recv(p.a, buf, 10, MSG_WAITALL), 10);
		CHECK(flow_is(buf, 10, 0, 8));
		CHECK_EQ(st_recv(p.a, buf, 10, MSG_WAITALL), 10);
		CHECK(flow_is(buf, 10, 10, 8));
		/* As in the kernel, what arrives can still be read. */
		put(p.a, 0, 10, 9);
		while (st_recv(p.b, buf, 10, MSG_PEEK) == 0)
			sched_yield();
		CHECK_EQ(st_recv(p.b, buf, 10, MSG_WAITALL), 10);
		CHECK(flow_is(buf, 10, 0, 9));
		pair_close(&p);
		if (atomic_load(&test_failures)) {
			fprintf(stderr, "in phase %s\n", phase_name[phase]);
			return;
		}
	}
}

/* The kernel tells of the end first, and the bytes are still in the ring. */
STREAM_TEST(bytes_before_the_end)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 60000, 10);
	st_close(p.a);
	p.a = -1;
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLRDHUP}, 1, -1) == 1);
	CHECK(st_level(p.b) & EPOLLRDHUP);
	CHECK(st_level(p.b) & EPOLLIN);
	check_rest(p.b, 0, 60000, 10, 0);
	pair_close(&p);
}

/* Ring, way down, TCP, FIN: all before the receiver looks. */
STREAM_TEST(everything_before_the_receiver_looks)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 1000, 11);
	sock_bounce(fd_sock(p.a), p.a);
	put(p.a, 1000, 1000, 11);
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLRDHUP}, 1, -1) == 1);
	check_rest(p.b, 0, 2000, 11, 0);
	pair_close(&p);
}

/* ---- the peer is another process, and dies ---- */

struct death {
	struct pair p;
	pid_t pid;
};

/* The child keeps the accepted end, does `act`, and waits to be killed. */
static struct death start_victim(void (*act)(const struct pair *p))
{
	struct death d = {.p = pair_open()};
	int ready[2];
	char byte = 0, last = 1;
	REQUIRE(pipe(ready) == 0);
	d.pid = st_fork();
	if (d.pid == 0) {
		st_close(d.p.a);
		close(ready[0]);
		do { /* each alone, in its process: now they meet */
			REQUIRE(st_recv(d.p.b, &byte, 1, 0) == 1);
			REQUIRE(st_send(d.p.b, &byte, 1, 0) == 1);
		} while (byte != last);
		act(&d.p);
		REQUIRE(write(ready[1], &byte, 1) == 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	st_close(d.p.b);
	d.p.b = -1;
	struct slot *a = fd_sock(d.p.a)->slot;
	for (;;) {
		bool up = gate_state(&a->gate_tx) == GATE_RING &&
			  gate_state(&a->gate_rx) == GATE_RING;
		REQUIRE(phase_of(a) != SLOT_FINAL);
		REQUIRE(st_send(d.p.a, up ? &last : &byte, 1, 0) == 1);
		REQUIRE(st_recv(d.p.a, &byte, 1, 0) == 1);
		if (up)
			break;
	}
	REQUIRE(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	return d;
}

static void end_victim(struct death *d)
{
	kill(d->pid, SIGKILL);
	st_reap(d->pid, 128 + SIGKILL);
}

static void act_nothing(const struct pair *p)
{
	(void)p;
}

static void act_send(const struct pair *p)
{
	put(p->b, 0, 5000, 12);
}

STREAM_TEST(a_killed_peer_ends_the_stream)
{
	if (across_is_tested())
		return; /* both ends would be in both processes */
	struct death d = start_victim(act_send);
	end_victim(&d);
	check_rest(d.p.a, 0, 5000, 12, 0);
	CHECK(st_level(d.p.a) & EPOLLRDHUP);
	pair_close(&d.p);
}

STREAM_TEST(a_killed_peer_that_had_not_read_resets)
{
	if (across_is_tested())
		return; /* both ends would be in both processes */
	struct death d = start_victim(act_send);
	put(d.p.a, 0, 10, 13);
	end_victim(&d);
	check_rest(d.p.a, 0, 5000, 12, -ECONNRESET);
	CHECK_EQ(st_recv(d.p.a, (char[1]){0}, 1, 0), 0);
	pair_close(&d.p);
}

STREAM_TEST(a_blocked_reader_is_woken_by_death)
{
	if (across_is_tested())
		return; /* both ends would be in both processes */
	struct death d = start_victim(act_nothing);
	char byte;
	struct call c = {.fd = d.p.a, .buf = &byte, .len = 1};
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	end_victim(&d);
	CHECK_EQ(call_end(&c), 0);
	pair_close(&d.p);
}

STREAM_TEST(a_blocked_writer_is_woken_by_death)
{
	if (across_is_tested())
		return; /* both ends would be in both processes */
	static uint8_t buf[8 << 20];
	struct death d = start_victim(act_nothing);
	struct call c = {.fd = d.p.a, .buf = buf, .len = sizeof(buf)};
	call_start(&c, call_send);
	CHECK(!atomic_load(&c.done));
	end_victim(&d);
	ssize_t n = call_end(&c);
	CHECK(n == -EPIPE || n == -ECONNRESET || (n > 0 && n < (ssize_t)sizeof(buf)));
	n = st_send(d.p.a, "x", 1, MSG_NOSIGNAL);
	CHECK(n == -EPIPE || n == -ECONNRESET);
	pair_close(&d.p);
}

/* In READY the kernel's end of file is then our own doing: the peer may live on, with bytes of
 * its own still on TCP, and with bytes of ours unread. */
STREAM_TEST(shutdown_for_reading_before_the_mark)
{
	for (int announced = 0; announced < 2; announced++) {
		struct pair p = pair_in(IN_READY);
		struct sock *a = fd_sock(p.a);
		put(p.b, 0, 1000, 2);
		if (announced) { /* as if a part of them were on the way */
			REQUIRE(tx_up(a, p.a));
			atomic_fetch_add(&a->out->up_at, 1000);
		}
		CHECK_EQ(st_shutdown(p.b, SHUT_RD), 0);
		CHECK_EQ(st_recv(p.b, (char[1]){0}, 1, 0), 0);
		CHECK_EQ(seen_of(fd_sock(p.b)->slot) & ~SEEN_FOREIGN, SEEN_SHUT_RD);
		put(p.b, 1000, 1000, 2);
		CHECK_EQ(st_shutdown(p.b, SHUT_WR), 0);
		check_rest(p.a, 0, 2000, 2, 0);
		pair_close(&p);
	}
}
