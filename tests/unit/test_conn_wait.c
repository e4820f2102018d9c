/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking and not: who sleeps, who wakes whom, and what a call without a peer returns. */
#include "unit/cancelled.h"
#include "unit/test.h"

#include <sys/sendfile.h>

#include "ring/source.h"
#include "settings/config.h"
#include "unit/conn_pair.h"

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

STREAM_TEST(nonblocking)
{
	struct pair p = pair_open_up();
	static uint8_t buf[1 << 20];
	size_t put = 0, got = 0;
	ssize_t n;
	CHECK_EQ(st_recv(p.b, buf, 1, MSG_DONTWAIT), -EAGAIN);
	st_nonblock(p.a);
	st_nonblock(p.b);
	CHECK_EQ(st_recv(p.b, buf, 1, 0), -EAGAIN);
	CHECK(!(st_level(p.b) & EPOLLIN));
	CHECK(st_level(p.a) & EPOLLOUT);
	while ((n = st_send(p.a, buf, sizeof(buf), 0)) > 0)
		put += (size_t)n;
	CHECK_EQ(n, -EAGAIN);
	CHECK_EQ(put, pair_ring_bytes());
	CHECK(!(st_level(p.a) & EPOLLOUT));
	CHECK(st_level(p.b) & EPOLLIN);
	while ((n = st_recv(p.b, buf, sizeof(buf), 0)) > 0)
		got += (size_t)n;
	CHECK_EQ(n, -EAGAIN);
	CHECK_EQ(got, put);
	CHECK(st_level(p.a) & EPOLLOUT);
	pair_close(&p);
}

STREAM_TEST(peek_trunc_and_waitall)
{
	struct pair p = pair_open_up();
	uint8_t buf[100] = {0}, data[100];
	flow_fill(data, sizeof(data), 0, 1);
	CHECK_EQ(st_send(p.a, data, 100, 0), 100);
	CHECK_EQ(st_recv(p.b, buf, 10, MSG_PEEK), 10);
	CHECK(flow_is(buf, 10, 0, 1));
	CHECK_EQ(st_recv(p.b, buf, 100, MSG_PEEK), 100);
	CHECK(flow_is(buf, 100, 0, 1));
	memset(buf, 0, sizeof(buf));
	CHECK_EQ(st_recv(p.b, buf, 10, MSG_TRUNC), 10); /* thrown away */
	CHECK_EQ(buf[0], 0);
	CHECK_EQ(st_recv(p.b, NULL, 10, MSG_TRUNC), 10);
	CHECK_EQ(st_recv(p.b, buf, 80, MSG_WAITALL), 80);
	CHECK(flow_is(buf, 80, 20, 1));
	/* A receive of nothing waits as well. */
	CHECK_EQ(st_recv(p.b, buf, 0, MSG_DONTWAIT), -EAGAIN);
	CHECK_EQ(st_send(p.a, buf, 0, 0), 0);
	/* Waits for all, and takes what there is at the end. */
	struct call c = {.fd = p.b, .buf = buf, .len = 100, .flags = MSG_WAITALL};
	CHECK_EQ(st_send(p.a, data, 60, 0), 60);
	CHECK_EQ(st_recv(p.b, buf, 0, 0), 0);
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(st_send(p.a, data + 60, 40, 0), 40);
	CHECK_EQ(call_end(&c), 100);
	CHECK(flow_is(buf, 100, 0, 1));
	CHECK_EQ(st_send(p.a, data, 60, 0), 60);
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	CHECK_EQ(call_end(&c), 60);
	CHECK(flow_is(buf, 60, 0, 1));
	pair_close(&p);
}

STREAM_TEST(peek_waits_for_all)
{
	struct pair p = pair_open_up();
	uint8_t buf[100], data[100];
	struct call c = {
		.fd = p.b, .buf = buf, .len = 100, .flags = MSG_PEEK | MSG_WAITALL};
	flow_fill(data, sizeof(data), 0, 2);
	CHECK_EQ(st_send(p.a, data, 60, 0), 60);
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(st_send(p.a, data + 60, 40, 0), 40);
	CHECK_EQ(call_end(&c), 100);
	CHECK(flow_is(buf, 100, 0, 2));
	CHECK_EQ(st_recv(p.b, buf, 100, 0), 100);
	CHECK(flow_is(buf, 100, 0, 2));
	pair_close(&p);
}

/* Scatter and gather, with empty elements anywhere. */
STREAM_TEST(vectors)
{
	struct pair p = pair_open_up();
	static uint8_t data[70000], buf[70000];
	const size_t cuts[] = {0,     0,     1,	    100,   100,	 16383,
			       40000, 40000, 69999, 70000, 70000};
	enum { CUTS = sizeof(cuts) / sizeof(*cuts) };
	struct iovec out[CUTS], in[CUTS];
	flow_fill(data, sizeof(data), 0, 3);
	for (int i = 0; i < CUTS; i++) {
		size_t from = i ? cuts[i - 1] : 0;
		size_t back = i ? 70000 - cuts[CUTS - i] : 0;
		out[i] = (struct iovec){data + from, cuts[i] - from};
		in[i] = (struct iovec){buf + back, 70000 - cuts[CUTS - 1 - i] - back};
	}
	CHECK_EQ(st_sendv(p.a, out, CUTS, 0), 70000);
	CHECK_EQ(st_recvv(p.b, in, CUTS, MSG_WAITALL), 70000);
	CHECK(flow_is(buf, sizeof(buf), 0, 3));
	CHECK_EQ(st_recvv(p.b, in, 1, MSG_DONTWAIT), -EAGAIN); /* an empty vector */
	pair_close(&p);
}

STREAM_TEST(sendfile_through_the_ring)
{
	struct pair p = pair_open_up();
	enum { SIZE = 300000 };
	static uint8_t data[SIZE];
	int file = memfd_create("sendfile", MFD_CLOEXEC);
	off64_t offset = 100;
	flow_fill(data, SIZE, 0, 4);
	REQUIRE(write(file, data, SIZE) == SIZE);
	struct flow f = {.fd = p.b, .at = 100, .bytes = SIZE, .seed = 4};
	flow_start(&f, flow_recv);
	CHECK_EQ(tx_sendfile(fd_sock(p.a), p.a, file, &offset, SIZE * 2), SIZE - 100);
	CHECK_EQ(offset, SIZE);
	flow_join(&f);
	CHECK_EQ(f.at, SIZE);
	CHECK_EQ(tx_sendfile(fd_sock(p.a), p.a, file, &offset, 10), 0); /* its end */
	lseek(file, SIZE - 5, SEEK_SET);
	CHECK_EQ(tx_sendfile(fd_sock(p.a), p.a, file, NULL, 10), 5);
	f = (struct flow){.fd = p.b, .at = SIZE - 5, .bytes = SIZE, .seed = 4};
	flow_recv(&f);
	CHECK_EQ(f.at, SIZE);
	CHECK_EQ(tx_sendfile(fd_sock(p.a), p.a, -1, &offset, 10), -EBADF);
	close(file);
	pair_close(&p);
}

/* Of this thread, with its own; 0 where the kernel does not count them. */
static unsigned reads_made(void)
{
	char text[512] = "";
	int fd = open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	const char *at = strstr(text, "syscr: ");
	close(fd);
	return n > 0 && at ? (unsigned)strtoul(at + strlen("syscr: "), NULL, 10) : 0;
}

static unsigned reads_of(struct pair *p, int file, off64_t from, size_t bytes)
{
	unsigned before = reads_made();
	CHECK_EQ(tx_sendfile(fd_sock(p->a), p->a, file, &from, bytes), bytes);
	return reads_made() - before - 1;
}

/* Each piece of a file takes a call to the kernel. They are small as long as the peer waits for them. */
STREAM_TEST(files_take_fewer_reads_where_the_peer_is_behind)
{
	enum { SIZE = 1 << 20, SOME = 4 * SOURCE_PIECE_BYTES };
	static uint8_t data[SIZE];
	if (reads_made() == 0)
		SKIP("the kernel does not count reads");
	if (across_is_tested())
		SKIP("no ring to another host holds the file");
	struct pair p = pair_open_up();
	int file = memfd_create("sendfile", MFD_CLOEXEC);
	unsigned reads;
	flow_fill(data, SIZE, 0, 5);
	REQUIRE(write(file, data, SIZE) == SIZE);
	reads = reads_of(&p, file, 0, SIZE);
	CHECK(reads >= SIZE / SOURCE_FILE_BYTES && reads < SIZE / SOURCE_PIECE_BYTES / 2);
	struct flow f = {.fd = p.b, .bytes = SIZE, .seed = 5};
	flow_recv(&f);
	CHECK_EQ(f.at, SIZE);
	for (off64_t at = 0; at < SIZE; at += SOME) {
		CHECK(reads_of(&p, file, at, SOME) >= SOME / SOURCE_PIECE_BYTES);
		f = (struct flow){.fd = p.b,
				  .at = (uint64_t)at,
				  .bytes = (uint64_t)at + SOME,
				  .seed = 5};
		flow_recv(&f);
		CHECK_EQ(f.at, (uint64_t)at + SOME);
	}
	close(file);
	pair_close(&p);
}

STREAM_TEST(a_timeout_ends_a_receive)
{
	struct pair p = pair_open_up();
	uint8_t buf[10];
	st_timeout(p.b, SO_RCVTIMEO, 30);
	int64_t start = now_ms();
	CHECK_EQ(st_recv(p.b, buf, 1, 0), -EAGAIN);
	CHECK(now_ms() - start >= 29); /* never too early */
	CHECK_EQ(st_send(p.a, "four", 4, 0), 4);
	CHECK_EQ(st_recv(p.b, buf, 10, MSG_WAITALL), 4); /* what there was */
	pair_close(&p);
}

/* An accepted socket inherits its listener's options, and nobody sees them set. */
STREAM_TEST(a_timeout_from_before_the_upgrade)
{
	struct pair p = pair_open();
	struct timeval tv = {.tv_usec = 30000};
	char byte;
	REQUIRE(setsockopt(p.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	pair_up(&p);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -EAGAIN);
	pair_close(&p);
}

STREAM_TEST(a_timeout_ends_a_send)
{
	struct pair p = pair_open_up();
	static uint8_t buf[2 * WIRE_DIR_DATA_BYTES];
	st_timeout(p.a, SO_SNDTIMEO, 30);
	ssize_t n = st_send(p.a, buf, sizeof(buf), 0);
	CHECK_EQ(n, pair_ring_bytes());
	int64_t start = now_ms();
	CHECK_EQ(st_send(p.a, buf, 1, 0), -EAGAIN);
	CHECK(now_ms() - start >= 29);
	pair_close(&p);
}

STREAM_TEST(a_blocked_reader_is_woken)
{
	struct pair p = pair_open_up();
	char byte;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	for (int i = 0; i < 20; i++) {
		call_start(&c, call_recv);
		CHECK(!atomic_load(&c.done));
		CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
		CHECK_EQ(call_end(&c), 1);
	}
	call_start(&c, call_recv);
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	CHECK_EQ(call_end(&c), 0);
	pair_close(&p);
}

/* Whoever sleeps is woken once: by the FIN, unless there is more to be said. */
STREAM_TEST(a_close_does_not_ring)
{
	if (across_is_tested())
		return; /* all is told by notes */
	for (int held = 0; held < 2; held++) {
		struct pair p = pair_open_up();
		char byte = 'h';
		if (held)
			CHECK_EQ(st_send(p.a, &byte, 1, MSG_MORE), 1);
		uint64_t rung = atomic_load(&report_now.doorbells);
		sock_arm(fd_sock(p.b), EPOLLIN);
		st_close(p.a);
		CHECK_EQ(atomic_load(&report_now.doorbells) - rung, (uint64_t)held);
		sock_disarm(fd_sock(p.b), EPOLLIN);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), held);
		if (held)
			CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
		st_close(p.b);
	}
}

STREAM_TEST(a_blocked_reader_is_woken_by_own_shutdown)
{
	struct pair p = pair_open_up();
	char bytes[2];
	struct call c[2] = {{.fd = p.b, .buf = &bytes[0], .len = 1},
			    {.fd = p.b, .buf = &bytes[1], .len = 1}};
	for (int i = 0; i < 2; i++)
		call_start(&c[i], call_recv);
	CHECK_EQ(st_shutdown(p.b, SHUT_RD), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(call_end(&c[i]), 0);
	pair_close(&p);
}

static void fill(int fd)
{
	static uint8_t buf[1 << 20];
	ssize_t n;
	while ((n = st_send(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	CHECK_EQ(n, -EAGAIN);
}

STREAM_TEST(a_blocked_writer_is_woken_by_room)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES], data[100];
	struct pair p = pair_open_up();
	struct call c = {.fd = p.a, .buf = data, .len = 100};
	for (int i = 0; i < 5; i++) {
		fill(p.a);
		call_start(&c, call_send);
		CHECK(!atomic_load(&c.done));
		/* Little by little: some receive has to ring. */
		while (!atomic_load(&c.done))
			if (st_recv(p.b, sink, 3000, MSG_DONTWAIT) < 0)
				break;
		CHECK_EQ(call_end(&c), 100);
		while (st_recv(p.b, sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
	pair_close(&p);
}

STREAM_TEST(blocked_writers_are_woken_by_own_shutdown)
{
	for (int round = 0; round < 10; round++) {
		struct pair p = pair_open_up();
		char byte = 0;
		struct call c[3];
		fill(p.a);
		for (int i = 0; i < 3; i++) {
			c[i] = (struct call){
				.fd = p.a, .buf = &byte, .len = 1, .flags = MSG_NOSIGNAL};
			call_start(&c[i], call_send);
			CHECK(!atomic_load(&c[i].done));
		}
		CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
		for (int i = 0; i < 3; i++)
			CHECK_EQ(call_end(&c[i]), -EPIPE);
		pair_close(&p);
	}
}

/* The direction leaves the ring under the sleeper; the kernel has room. */
STREAM_TEST(a_blocked_writer_goes_on_over_tcp)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES + 1000], data[1000];
	struct pair p = pair_open_up();
	struct call c = {.fd = p.a, .buf = data, .len = 1000};
	fill(p.a);
	call_start(&c, call_send);
	CHECK(!atomic_load(&c.done));
	sock_bounce(fd_sock(p.a), p.a);
	CHECK_EQ(call_end(&c), 1000);
	size_t all = pair_ring_bytes() + 1000;
	CHECK_EQ(st_recv(p.b, sink, all, MSG_WAITALL), all);
	pair_close(&p);
}

#define TURNS 300

struct taker {
	int fd;
	_Atomic uint64_t *sum;
	_Atomic int *left;
	pthread_t thread;
};

static void *take_messages(void *arg)
{
	struct taker *t = arg;
	uint32_t message;
	/* Messages are whole: each send is below an area, each receive one message. */
	while (atomic_fetch_sub(t->left, 1) > 0) {
		REQUIRE(st_recv(t->fd, &message, sizeof(message), MSG_WAITALL) ==
			sizeof(message));
		atomic_fetch_add(t->sum, message);
	}
	return NULL;
}

struct giver {
	int fd;
	uint32_t from;
	pthread_t thread;
};

static void *give_messages(void *arg)
{
	struct giver *g = arg;
	for (uint32_t i = 0; i < TURNS; i++) {
		uint32_t message = g->from + i;
		REQUIRE(st_send(g->fd, &message, sizeof(message), 0) == sizeof(message));
		if (i % 16 == 0)
			usleep(200); /* so that the takers go to sleep again and again */
	}
	return NULL;
}

/* Two readers, two writers, one connection: nobody sleeps on while there is something. */
STREAM_TEST(several_readers_and_writers)
{
	struct pair p = pair_open_up();
	_Atomic uint64_t sum = 0;
	_Atomic int left = 2 * TURNS;
	uint64_t want = 0;
	struct taker t[3];
	struct giver g[2];
	for (int i = 0; i < 3; i++) {
		t[i] = (struct taker){.fd = p.b, .sum = &sum, .left = &left};
		REQUIRE(pthread_create(&t[i].thread, NULL, take_messages, &t[i]) == 0);
	}
	for (int i = 0; i < 2; i++) {
		g[i] = (struct giver){.fd = p.a, .from = (uint32_t)i * 100000};
		REQUIRE(pthread_create(&g[i].thread, NULL, give_messages, &g[i]) == 0);
		for (uint32_t k = 0; k < TURNS; k++)
			want += g[i].from + k;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(g[i].thread, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i].thread, NULL);
	CHECK_EQ(sum, want);
	pair_close(&p);
}

/* Both directions of one end sleep on one doorbell. */
STREAM_TEST(a_reader_and_a_writer_share_the_doorbell)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES], data[100];
	for (int round = 0; round < 6; round++) {
		struct pair p = pair_open_up();
		char byte;
		struct call r = {.fd = p.a, .buf = &byte, .len = 1},
			    w = {.fd = p.a, .buf = data, .len = 100};
		fill(p.a);
		call_start(&r, call_recv);
		call_start(&w, call_send);
		CHECK(!atomic_load(&r.done) && !atomic_load(&w.done));
		if (round % 2) {
			CHECK_EQ(st_send(p.b, "x", 1, 0), 1);
			CHECK_EQ(call_end(&r), 1);
			CHECK(!atomic_load(&w.done));
			while (st_recv(p.b, sink, sizeof(sink), MSG_DONTWAIT) > 0)
				;
			CHECK_EQ(call_end(&w), 100);
		} else {
			while (st_recv(p.b, sink, sizeof(sink), MSG_DONTWAIT) > 0)
				;
			CHECK_EQ(call_end(&w), 100);
			CHECK(!atomic_load(&r.done));
			CHECK_EQ(st_send(p.b, "x", 1, 0), 1);
			CHECK_EQ(call_end(&r), 1);
		}
		pair_close(&p);
	}
}

#define TINY_BYTES 600000u

static void *send_tiny(void *arg)
{
	struct flow *f = arg;
	for (; f->at < f->bytes; f->at++) {
		uint8_t byte = flow_byte(f->at, f->seed);
		REQUIRE(st_send(f->fd, &byte, 1, 0) == 1);
	}
	return NULL;
}

/* A receive that is faster than the sender sees an empty ring over and over. */
STREAM_TEST(tiny_messages_into_a_large_buffer)
{
	static uint8_t buf[TINY_BYTES];
	/* The thread sanitizer takes 50 us for each in the fake interconnect. */
	size_t bytes = across_is_tested() ? TINY_BYTES / 6 : TINY_BYTES, got = 0;
	struct pair p = pair_open_up();
	struct flow f = {.fd = p.a, .bytes = bytes, .seed = 9};
	flow_start(&f, send_tiny);
	while (got < bytes) {
		ssize_t n = st_recv(p.b, buf + got, bytes - got, 0);
		REQUIRE(n > 0);
		got += (size_t)n;
	}
	flow_join(&f);
	CHECK(flow_is(buf, bytes, 0, 9));
	pair_close(&p);
}

/* A thread that is cancelled in its sleep leaves nothing behind. */
STREAM_TEST(a_blocked_call_is_cancelled)
{
#ifdef __SANITIZE_ADDRESS__
	SKIP("frames left by cancellation stay poisoned");
#endif
	static char sink[WIRE_DIR_DATA_BYTES];
	struct pair p = pair_open_up();
	char byte = 0, data = 0;
	struct call r = {.fd = p.a, .buf = &byte, .len = 1},
		    w = {.fd = p.a, .buf = &data, .len = 1};
	struct sock *s = fd_sock(p.a);
	fill(p.a);
	call_start(&r, call_recv);
	call_start(&w, call_send);
	CHECK(!atomic_load(&r.done) && !atomic_load(&w.done));
	pthread_cancel(r.thread);
	pthread_cancel(w.thread);
	pthread_join(r.thread, NULL);
	pthread_join(w.thread, NULL);
	CHECK(!atomic_load(&r.done) && !atomic_load(&w.done));
	CHECK_EQ(atomic_load(&s->sleepers), 0);
	CHECK_EQ(atomic_load(&s->slot->sleepers_rx), 0);
	CHECK_EQ(atomic_load(&s->slot->sleepers_tx), 0);
	while (st_recv(p.b, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
	CHECK_EQ(st_send(p.b, "z", 1, 0), 1);
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'z');
	pair_close(&p);
}

/* The same, of a send that began in the ring and went on in the kernel. */
STREAM_TEST(a_send_is_cancelled_behind_the_boundary)
{
#ifdef __SANITIZE_ADDRESS__
	SKIP("frames left by cancellation stay poisoned");
#endif
	static char much[32 << 20];
	struct pair p = pair_open_up();
	struct call w = {.fd = p.a, .buf = much, .len = sizeof(much)};
	struct sock *s = fd_sock(p.a);
	call_start(&w, call_send);
	sock_bounce(s, p.a);
	while ((atomic_load(&s->slot->gate_tx) & GATE_COUNT_MASK) == 0 ||
	       !call_sleeps(&w))
		sched_yield();
	CHECK(!atomic_load(&w.done));
	pthread_cancel(w.thread);
	pthread_join(w.thread, NULL);
	CHECK(!atomic_load(&w.done));
	CHECK_EQ(atomic_load(&s->slot->gate_tx) & GATE_COUNT_MASK, 0);
	CHECK_EQ(atomic_load(&s->inside), 0);
	pair_close(&p);
}

static void on_signal(int sig)
{
	(void)sig;
}

STREAM_TEST(a_signal_interrupts_or_restarts)
{
	struct pair p = pair_open_up();
	struct sigaction act = {.sa_handler = on_signal}, old;
	char byte;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	sigaction(SIGUSR1, &act, &old);
	call_start(&c, call_recv);
	/* Until it is over: a handler that was installed past Viaduct is not counted, and one that
	 * runs while the thread is between two sleeps interrupts none. */
	while (!atomic_load(&c.done)) {
		pthread_kill(c.thread, SIGUSR1);
		usleep(1000);
	}
	CHECK_EQ(call_end(&c), -EINTR);
	act.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &act, NULL);
	call_start(&c, call_recv);
	pthread_kill(c.thread, SIGUSR1);
	usleep(5000);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
	CHECK_EQ(call_end(&c), 1);
	sigaction(SIGUSR1, &old, NULL);
	pair_close(&p);
}
