/* SPDX-License-Identifier: Apache-2.0 */
/* The switch between TCP and ring: up, down and up again, with bytes under way. */
#include "unit/test.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "base/real.h"
#include "conn/rx_give.h"
#include "unit/conn_pair.h"

#ifdef __SANITIZE_THREAD__
#define FLOW_BYTES (8ull << 20)
#else
#define FLOW_BYTES (48ull << 20)
#endif

static uint64_t count(_Atomic uint64_t *counter)
{
	return atomic_load(counter);
}

STREAM_TEST(a_connection_is_upgraded_and_counted)
{
	uint64_t upgraded = count(&report_now.upgraded),
		 connections = count(&report_now.connections);
	struct pair p = pair_open_up();
	char buf[100] = "through the rings", got[100] = "";
	uint64_t tx, rx, tcp = count(&report_now.tx_tcp_bytes);
	CHECK_EQ(count(&report_now.upgraded) - upgraded, 2);
	CHECK_EQ(count(&report_now.connections) - connections, 2);
	/* And what the pings were, which are added at the end. */
	tx = count(&report_now.tx_direct_bytes) + fd_sock(p.a)->tx_bytes +
	     fd_sock(p.b)->tx_bytes;
	rx = count(&report_now.rx_direct_bytes) + fd_sock(p.a)->rx_bytes +
	     fd_sock(p.b)->rx_bytes;
	CHECK_EQ(st_send(p.a, buf, sizeof(buf), 0), sizeof(buf));
	CHECK_EQ(st_recv(p.b, got, sizeof(got), 0), sizeof(buf));
	CHECK_STR(got, buf);
	pair_close(&p);
	CHECK_EQ(count(&report_now.tx_direct_bytes) - tx, sizeof(buf));
	CHECK_EQ(count(&report_now.rx_direct_bytes) - rx, sizeof(buf));
	CHECK_EQ(count(&report_now.tx_tcp_bytes), tcp);
}

#define SPINS 100000

/* Its patience, a matter of time and not of operations, ends at `end_ms`. */
static void spin_until(int fd, uint64_t end_ms)
{
	char byte;
	fd_sock(fd)->look_end_ms = end_ms;
	for (int i = 0; i < SPINS; i++)
		REQUIRE(st_recv(fd, &byte, 1, MSG_DONTWAIT) == -EAGAIN);
}

static void spin_patiently(int fd)
{
	spin_until(fd, UINT64_MAX);
}

static void spin_impatiently(int fd)
{
	spin_until(fd, 1);
}

/* As of a thread whose connection was closed amid its call, and whose number and sock are another one's by now. */
static void opens_late(int fd)
{
	REQUIRE(fd_sock(fd)->in != NULL);
	rx_open(fd_sock(fd), fd);
	CHECK_EQ(gate_state(&fd_sock(fd)->slot->gate_rx), GATE_TCP);
}

STREAM_TEST(a_connection_without_a_ring_opens_none)
{
	struct pair p = pair_open_with(opens_late);
	pair_up(&p);
	pair_close(&p);
}

/* A program that never sleeps makes many operations until its peer makes the first. */
STREAM_TEST(a_spinning_end_waits_for_its_peer)
{
	struct pair p = pair_open_with(spin_patiently);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->slot->reason),
		 across_is_tested() ? VD_REASON_NONE : VD_REASON_PLAIN_PEER);
	/* It looks ever more rarely. */
	for (int i = 0; i < SPINS && !pair_is_up(&p); i++)
		pair_ping(&p);
	CHECK(pair_is_up(&p));
	CHECK_EQ(atomic_load(&fd_sock(p.b)->slot->reason), VD_REASON_NONE);
	pair_close(&p);
}

/* Only once its time is over, too. */
STREAM_TEST(a_spinning_end_takes_its_peer_for_plain_in_the_end)
{
	struct pair p = pair_open_with(spin_impatiently);
	struct slot *sl = fd_sock(p.b)->slot;
	if (!across_is_tested()) {
		CHECK_EQ(phase_of(sl), SLOT_FINAL);
		CHECK_EQ(atomic_load(&sl->reason), VD_REASON_PLAIN_PEER);
		pair_ping(&p);
	}
	pair_close(&p);
}

/* No operation on it is counted any more; and the record's next connection is another one. */
STREAM_TEST(a_connection_whose_peer_is_plain_is_marked)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = pair_socket(), peer = pair_socket(), fd;
	struct sock *s;
	if (!fd_table_size)
		REQUIRE(fd_table_init() == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	REQUIRE(bind(listener, (struct sockaddr *)&at, len) == 0 &&
		listen(listener, 1) == 0);
	REQUIRE(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	REQUIRE(connect(peer, (struct sockaddr *)&at, len) == 0);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	s = fd_open_accepted(fd, false);
	REQUIRE(s);
	spin_patiently(fd);
	CHECK(phase_of(s->slot) != SLOT_FINAL && !atomic_load(&s->is_plain));
	spin_impatiently(fd);
	CHECK_EQ(phase_of(s->slot), SLOT_FINAL);
	CHECK(atomic_load(&s->is_plain));
	CHECK_EQ(atomic_load(&s->slot->reason), VD_REASON_PLAIN_PEER);
	fd_closing(fd);
	close(fd);
	s = fd_open_socket(listener, false); /* takes what is free */
	REQUIRE(s && !atomic_load(&s->is_plain));
	fd_closing(listener);
	close(listener);
	close(peer);
}

/* Else a peer that is not up yet has its next request held back for want of it. */
STREAM_TEST(who_goes_up_acknowledges_without_an_answer)
{
	struct pair p = pair_open();
	int ends[] = {p.a, p.b}, delay = 0, at_once = -1, ups = 0;
	socklen_t len = sizeof(at_once);
	for (int i = 0; i < 64 && ups < 2; i++) {
		int from = ends[i % 2], to = ends[(i + 1) % 2];
		_Atomic uint32_t *gate = &fd_sock(from)->slot->gate_tx;
		bool was_up = gate_state(gate) == GATE_RING;
		char byte = 'x';
		setsockopt(from, IPPROTO_TCP, TCP_QUICKACK, &delay, sizeof(delay));
		REQUIRE(st_send(from, &byte, 1, 0) == 1);
		REQUIRE(st_recv(to, &byte, 1, 0) == 1);
		if (was_up || gate_state(gate) != GATE_RING)
			continue;
		REQUIRE(getsockopt(from, IPPROTO_TCP, TCP_QUICKACK, &at_once, &len) == 0);
		CHECK_EQ(at_once, 1);
		ups++;
	}
	CHECK_EQ(ups, 2);
	pair_close(&p);
}

/* Both ways at once, and a third thread that throws both directions back all the time. */
static void bounce_under_load(int end)
{
	struct pair p = pair_open_up();
	struct flow f[4] = {
		{.fd = p.a, .bytes = FLOW_BYTES, .seed = 1},
		{.fd = p.b, .bytes = FLOW_BYTES, .seed = 1},
		{.fd = p.b, .bytes = FLOW_BYTES, .seed = 2},
		{.fd = p.a, .bytes = FLOW_BYTES, .seed = 2},
	};
	unsigned bounces = 0;
	for (int i = 0; i < 4; i++)
		flow_start(&f[i], i % 2 ? flow_recv : flow_send);
	while (!atomic_load(&f[1].done) || !atomic_load(&f[3].done)) {
		int fd = end == 2 ? (bounces & 1 ? p.a : p.b) : end ? p.b : p.a;
		sock_bounce(fd_sock(fd), fd);
		bounces++;
		usleep(bounces % 8 ? 300 : 3000);
	}
	for (int i = 0; i < 4; i++) {
		flow_join(&f[i]);
		CHECK_EQ(f[i].at, FLOW_BYTES);
	}
	CHECK(bounces > 2);
	struct slot *a = fd_sock(p.a)->slot;
	/* On a loaded machine the flows may be over before it has come up again: it does. */
	for (uint8_t byte = 0; a->rx_epoch < 2;) {
		REQUIRE(st_send(p.b, &byte, 1, 0) == 1 && st_recv(p.a, &byte, 1, 0) == 1);
		REQUIRE(st_send(p.a, &byte, 1, 0) == 1 && st_recv(p.b, &byte, 1, 0) == 1);
	}
	pair_close(&p);
}

STREAM_TEST(bounced_by_the_connector)
{
	bounce_under_load(0);
}

STREAM_TEST(bounced_by_the_acceptor)
{
	bounce_under_load(1);
}

STREAM_TEST(bounced_by_both)
{
	bounce_under_load(2);
}

static size_t fill_ring(int fd, uint8_t seed)
{
	static uint8_t buf[FLOW_MOST];
	size_t at = 0;
	for (;;) {
		flow_fill(buf, sizeof(buf), at, seed);
		ssize_t n = st_send(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n <= 0) {
			CHECK_EQ(n, -EAGAIN);
			return at;
		}
		at += (size_t)n;
	}
}

static void drain(int fd, size_t from, size_t to, uint8_t seed)
{
	struct flow f = {.fd = fd, .at = from, .bytes = to, .seed = seed, .most = 50000};
	flow_recv(&f);
	CHECK_EQ(f.at, to);
}

STREAM_TEST(the_sender_goes_down_with_a_full_ring)
{
	struct pair p = pair_open_up();
	size_t ring = fill_ring(p.a, 3);
	CHECK(ring >= WIRE_AREA1_BYTES);
	sock_bounce(fd_sock(p.a), p.a);
	CHECK(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_TCP);
	/* The rest goes through TCP, which takes what its buffers hold. */
	struct flow f = {
		.fd = p.a, .at = ring, .bytes = ring + FLOW_BYTES / 4, .seed = 3};
	flow_start(&f, flow_send);
	drain(p.b, 0, ring + FLOW_BYTES / 4, 3);
	flow_join(&f);
	CHECK_EQ(f.at, ring + FLOW_BYTES / 4);
	pair_up(&p);
	pair_close(&p);
}

STREAM_TEST(for_good_with_a_full_ring_both_ways)
{
	struct pair p = pair_open_up();
	size_t ab = fill_ring(p.a, 4), ba = fill_ring(p.b, 5);
	struct slot *a = fd_sock(p.a)->slot, *b = fd_sock(p.b)->slot;
	sock_down(fd_sock(p.b), p.b, VD_REASON_OPTION);
	CHECK(gate_state(&b->gate_tx) == GATE_FINAL);
	CHECK(gate_state(&a->gate_rx) == GATE_RING); /* there is something to read */
	drain(p.a, 0, ba, 5);
	drain(p.b, 0, ab, 4);
	for (int i = 0; i < 3; i++)
		pair_ping(&p);
	sock_service(fd_sock(p.a), p.a);
	sock_service(fd_sock(p.b), p.b);
	CHECK_EQ(phase_of(a), SLOT_FINAL);
	CHECK_EQ(phase_of(b), SLOT_FINAL);
	CHECK_EQ(atomic_load(&b->reason), VD_REASON_OPTION);
	CHECK_EQ(atomic_load(&a->reason), VD_REASON_PEER_ASKED);
	CHECK_EQ(rx_enter(fd_sock(p.a), p.a), SOCK_PLAIN);
	CHECK_EQ(tx_enter(fd_sock(p.a), p.a), SOCK_PLAIN);
	pair_close(&p);
}

/* As by a thread that finds both directions down, while another one closes the connection. */
STREAM_TEST(a_closed_connection_is_not_ended_twice)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.b);
	uint32_t numbers = atomic_load(&s->fds);
	atomic_store(&s->fds, 0);
	sock_down(s, p.b, VD_REASON_OPTION);
	for (int i = 0; i < 3; i++)
		pair_ping(&p);
	sock_service(s, p.b);
	CHECK(gate_state(&s->slot->gate_tx) == GATE_FINAL);
	CHECK(gate_state(&s->slot->gate_rx) == GATE_FINAL);
	CHECK_EQ(phase_of(s->slot), SLOT_LEAVING);
	atomic_store(&s->fds, numbers);
	sock_service(s, p.b);
	CHECK_EQ(phase_of(s->slot), SLOT_FINAL);
	pair_close(&p);
}

/* The receiver wants down while the sender sends and never looks back by itself. */
STREAM_TEST(the_receiver_wants_down_under_load)
{
	struct pair p = pair_open_up();
	struct flow f[2] = {{.fd = p.a, .bytes = FLOW_BYTES / 2, .seed = 6},
			    {.fd = p.b, .bytes = FLOW_BYTES / 2, .seed = 6}};
	flow_start(&f[0], flow_send);
	flow_start(&f[1], flow_recv);
	usleep(2000);
	sock_down(fd_sock(p.b), p.b, VD_REASON_OPTION);
	for (int i = 0; i < 2; i++) {
		flow_join(&f[i]);
		CHECK_EQ(f[i].at, FLOW_BYTES / 2);
	}
	/* On a busy machine all may have been sent before: then the next send finds it. */
	for (int i = 0; i < 3; i++)
		pair_ping(&p);
	CHECK(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_FINAL);
	CHECK(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_FINAL);
	pair_close(&p);
}

STREAM_TEST(down_wait_tells_what_is_stranded)
{
	struct pair p = pair_open_up();
	char buf[64] = "left in the ring";
	CHECK_EQ(st_send(p.a, buf, sizeof(buf), 0), sizeof(buf));
	sock_down(fd_sock(p.a), p.a, VD_REASON_OPTION);
	CHECK_EQ(sock_down_wait(fd_sock(p.b), p.b, VD_REASON_OPTION, 1000), sizeof(buf));
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), 0), sizeof(buf));
	CHECK_STR(buf, "left in the ring");
	CHECK_EQ(sock_down_wait(fd_sock(p.b), p.b, VD_REASON_OPTION, 1000), 0);
	CHECK_EQ(sock_down_wait(fd_sock(p.a), p.a, VD_REASON_OPTION, 1000), 0);
	pair_ping(&p);
	pair_close(&p);
}

/* READY, with TCP bytes before the mark and ring bytes behind it. */
static struct pair pair_at_the_mark(size_t tcp, size_t ring, uint8_t seed)
{
	struct pair p = pair_open_up();
	uint8_t buf[1024];
	struct slot *a = fd_sock(p.a)->slot, *b = fd_sock(p.b)->slot;
	sock_bounce(fd_sock(p.a), p.a);
	sock_service(fd_sock(p.b), p.b);
	sock_service(fd_sock(p.a), p.a);
	/* b has to open its direction again while a still sends through TCP. */
	flow_fill(buf, tcp, 0, seed);
	REQUIRE(tx_enter(fd_sock(p.a), p.a) == SOCK_COUNTED);
	crit_leave();
	REQUIRE(send(p.a, buf, tcp, 0) == (ssize_t)tcp);
	tx_leave(fd_sock(p.a), (ssize_t)tcp);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
	CHECK(st_level(p.b) & EPOLLIN);
	if (gate_state(&b->gate_rx) == GATE_TCP)
		rx_open(fd_sock(p.b), p.b);
	REQUIRE(gate_state(&b->gate_rx) == GATE_READY);
	flow_fill(buf, ring, tcp, seed);
	REQUIRE(st_send(p.a, buf, ring, 0) == (ssize_t)ring);
	REQUIRE(gate_state(&a->gate_tx) == GATE_RING);
	return p;
}

static unsigned kernel_asked;

static int counted_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	va_start(args, request);
	void *to = va_arg(args, void *);
	va_end(args);
	kernel_asked++;
	return ioctl(fd, request, to);
}

/* Programs ask before or after each of their reads. */
STREAM_TEST(what_lies_in_the_ring_is_counted_there)
{
	struct pair p = pair_open_up();
	uint8_t buf[100] = "";
	int queued = -1;
	REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_RING);
	CHECK_EQ(st_send(p.a, buf, 100, 0), 100);
	kernel_asked = 0;
	real_table.ioctl = counted_ioctl;
	CHECK_EQ(sock_inq(fd_sock(p.b), p.b, &queued), 0);
	CHECK_EQ(queued, 100);
	CHECK_EQ(st_recv(p.b, buf, 100, 0), 100);
	CHECK_EQ(sock_inq(fd_sock(p.b), p.b, &queued), 0);
	CHECK_EQ(queued, 0);
	real_table.ioctl = ioctl;
	CHECK_EQ(kernel_asked, 0);
	pair_close(&p);
}

STREAM_TEST(a_receive_at_the_mark)
{
	struct pair p = pair_at_the_mark(10, 90, 7);
	uint8_t buf[200];
	int queued = 0;
	CHECK_EQ(sock_inq(fd_sock(p.b), p.b, &queued), 0);
	CHECK_EQ(queued, 100);
	CHECK(st_level(p.b) & EPOLLIN);
	CHECK_EQ(st_recv(p.b, buf, 100, MSG_WAITALL), 100);
	CHECK(flow_is(buf, 100, 0, 7));
	CHECK_EQ(st_recv(p.b, buf, 1, MSG_DONTWAIT), -EAGAIN);
	pair_close(&p);
}

/* A program that peeks until its header is complete must get there. */
STREAM_TEST(a_peek_over_the_mark)
{
	struct pair p = pair_at_the_mark(10, 90, 8);
	uint8_t buf[200];
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), MSG_PEEK), 100);
	CHECK(flow_is(buf, 100, 0, 8));
	CHECK_EQ(st_recv(p.b, buf, 5, MSG_PEEK), 5);
	CHECK(flow_is(buf, 5, 0, 8));
	CHECK_EQ(st_recv(p.b, buf, 3, 0), 3);
	CHECK_EQ(st_recv(p.b, buf, 97, MSG_PEEK | MSG_WAITALL), 97);
	CHECK(flow_is(buf, 97, 3, 8));
	CHECK_EQ(st_recv(p.b, buf, 97, MSG_WAITALL), 97);
	CHECK(flow_is(buf, 97, 3, 8));
	pair_close(&p);
}

/* The mark is known while TCP bytes are to come; then a receive asks for exactly these. */
STREAM_TEST(the_last_byte_before_the_mark_opens_the_ring)
{
	struct pair p = pair_at_the_mark(10, 90, 11);
	struct sock *s = fd_sock(p.b);
	uint8_t buf[100];
	sock_service(s, p.b);
	REQUIRE(atomic_load(&s->slot->rx_marked));
	CHECK_EQ(st_recv(p.b, buf, 10, 0), 10);
	CHECK(flow_is(buf, 10, 0, 11));
	/* Nothing moves on TCP any more: memory alone has to tell of the rest. */
	CHECK(wait_hint(s, EPOLLIN));
	CHECK(sock_level_quick(s, EPOLLIN) & (EPOLLIN | SOCK_LOOK));
	CHECK_EQ(st_recv(p.b, buf, 90, 0), 90);
	CHECK(flow_is(buf, 90, 10, 11));
	pair_close(&p);
}

/* Ring bytes first, then TCP bytes behind the way down. */
static struct pair pair_at_the_way_down(size_t ring, size_t tcp, uint8_t seed)
{
	struct pair p = pair_open_up();
	uint8_t buf[1024];
	flow_fill(buf, ring + tcp, 0, seed);
	REQUIRE(st_send(p.a, buf, ring, 0) == (ssize_t)ring);
	sock_bounce(fd_sock(p.a), p.a);
	REQUIRE(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_TCP);
	REQUIRE(st_send(p.a, buf + ring, tcp, 0) == (ssize_t)tcp);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
	return p;
}

STREAM_TEST(a_peek_over_the_way_down)
{
	struct pair p = pair_at_the_way_down(10, 90, 9);
	uint8_t buf[200];
	int queued = 0;
	CHECK_EQ(sock_inq(fd_sock(p.b), p.b, &queued), 0);
	CHECK_EQ(queued, 100);
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), MSG_PEEK), 100);
	CHECK(flow_is(buf, 100, 0, 9));
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), MSG_WAITALL | MSG_DONTWAIT), 100);
	CHECK(flow_is(buf, 100, 0, 9));
	pair_close(&p);
}

/* Behind the way down another thread may read without a lock: a pipe gets what is before it. */
STREAM_TEST(a_pipe_is_given_what_is_before_the_way_down)
{
	struct pair p = pair_at_the_way_down(10, 90, 12);
	uint8_t page[200], buf[200];
	int ends[2];
	REQUIRE(pipe(ends) == 0);
	CHECK_EQ(rx_give(fd_sock(p.b), p.b, page, sizeof(page), ends[1]), 10);
	CHECK_EQ(st_recv(p.b, buf, 90, MSG_WAITALL), 90);
	CHECK(flow_is(buf, 90, 10, 12));
	CHECK_EQ(read(ends[0], buf, sizeof(buf)), 10);
	CHECK(flow_is(buf, 10, 0, 12));
	close(ends[0]);
	close(ends[1]);
	pair_close(&p);
}

STREAM_TEST(waitall_over_the_way_down)
{
	struct pair p = pair_at_the_way_down(10, 90, 10);
	uint8_t buf[200];
	CHECK_EQ(st_recv(p.b, buf, 100, MSG_WAITALL), 100);
	CHECK(flow_is(buf, 100, 0, 10));
	pair_ping(&p);
	pair_close(&p);
}

/* A child that the kernel holds in a send from before keeps the direction on TCP. */
STREAM_TEST(nobody_goes_up_past_a_send_inside_the_kernel)
{
	struct pair p = pair_open();
	struct slot *a = fd_sock(p.a)->slot;
	char byte = 0;
	REQUIRE(tx_enter(fd_sock(p.a), p.a) == SOCK_COUNTED); /* stays inside */
	crit_leave();
	for (int i = 0; i < 40; i++)
		pair_ping(&p);
	CHECK(gate_state(&a->gate_tx) == GATE_TCP);
	CHECK(gate_state(&a->gate_rx) == GATE_RING);
	REQUIRE(send(p.a, &byte, 1, 0) == 1);
	tx_leave(fd_sock(p.a), 1);
	REQUIRE(st_recv(p.b, &byte, 1, 0) == 1);
	pair_up(&p);
	pair_close(&p);
}
