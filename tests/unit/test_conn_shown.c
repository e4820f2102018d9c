/* SPDX-License-Identifier: Apache-2.0 */
/* What a peek has shown is what is read, though the peer writes over it in between. */
#include "unit/test.h"

#include "conn/exec_carry.h"
#include "conn/promise.h"
#include "conn/shown.h"
#include "unit/hand_over.h"

/* The end a is hostile; to the end b it is another user's. */
static struct pair open_foreign(void)
{
	struct pair p = pair_open_up();

	seen_add(fd_sock(p.b)->slot, SEEN_FOREIGN);
	return p;
}

/* Over all that has been shown to b, and no more. */
static void scribble(const struct pair *p)
{
	struct sock *s = fd_sock(p->b);
	size_t n = shown_bytes(s);

	for (size_t done = 0; done < n;) {
		struct ring_span span;

		ring_rx_span(&s->slot->rx, s->in_data, done, &span);
		REQUIRE(span.len > 0);
		if (span.len > n - done)
			span.len = n - done;
		memset(span.data, 'E', span.len);
		done += span.len;
	}
}

static size_t peek(const struct pair *p, uint64_t at, size_t len, int flags)
{
	static uint8_t buf[6 << 20];
	ssize_t n = st_recv(p->b, buf, len, MSG_PEEK | MSG_DONTWAIT | flags);

	REQUIRE(n >= 0 && flow_is(buf, (size_t)n, at, SEED));
	return (size_t)n;
}

STREAM_TEST(in_parts)
{
	struct pair p = open_foreign();
	uint8_t buf[100], other[100];
	struct iovec iov[2] = {{buf, 30}, {other, 40}};

	put_bytes(p.a, 0, 1000);
	CHECK_EQ(peek(&p, 0, 200, 0), 200);
	CHECK_EQ(shown_bytes(fd_sock(p.b)), 200);
	scribble(&p);
	CHECK_EQ(peek(&p, 0, 50, 0), 50);
	get_bytes(p.b, 0, 10);
	CHECK_EQ(peek(&p, 10, 100, 0), 100);
	CHECK_EQ(st_recvv(p.b, iov, 2, 0), 70);
	CHECK(flow_is(buf, 30, 10, SEED) && flow_is(other, 40, 40, SEED));
	CHECK_EQ(st_recv(p.b, NULL, 20, MSG_TRUNC), 20);
	CHECK_EQ(st_recv(p.b, buf, 50, MSG_WAITALL), 50);
	CHECK(flow_is(buf, 50, 100, SEED));
	/* Over the end of what has been shown. */
	CHECK_EQ(peek(&p, 150, 250, 0), 250);
	scribble(&p);
	get_bytes(p.b, 150, 850);
	CHECK_EQ(shown_bytes(fd_sock(p.b)), 0);
	CHECK_EQ(st_recv(p.b, buf, 1, MSG_DONTWAIT), -EAGAIN);
	pair_close(&p);
}

/* Peeks and reads of any length, over the ends of areas, and from one into the next. */
STREAM_TEST(anywhere_in_the_ring)
{
	uint64_t state = 31;
	for (int i = 0; i < 30; i++) {
		struct pair p = open_foreign();
		uint64_t at = 0, took = 0;
		for (int k = 0; k < 40; k++) {
			size_t len =
				flow_random(&state) % (1u << flow_random(&state) % 18) +
				1;
			put_bytes(p.a, at, len);
			at += len;
			for (int n = 0; n < 2; n++) {
				len = flow_random(&state) % (at - took + 1) + 1;
				size_t want = len < at - took ? len : (size_t)(at - took);
				CHECK_EQ(peek(&p, took, len, 0), want);
				scribble(&p);
			}
			len = flow_random(&state) % (at - took + 1);
			if (at - took - len > 250000)
				len = (size_t)(at - took);
			get_bytes(p.b, took, len);
			took += len;
		}
		pair_close(&p);
	}
}

/* The whole of a ring, and small peeks that never come to the end of what there is. */
STREAM_TEST(much_and_long)
{
	struct pair p = open_foreign();
	size_t most = WIRE_DIR_DATA_BYTES - (64u << 10);
	uint64_t took = 0;
	put_bytes(p.a, 0, most);
	CHECK_EQ(peek(&p, 0, most, 0), most);
	scribble(&p);
	get_bytes(p.b, 0, most);
	CHECK_EQ(shown_bytes(fd_sock(p.b)), 0);
	pair_close(&p);
	p = open_foreign();
	put_bytes(p.a, 0, 10000);
	for (uint64_t at = 10000; took < (20u << 20); at += 6000) {
		put_bytes(p.a, at, 6000);
		CHECK_EQ(peek(&p, took, 9000, 0), 9000);
		scribble(&p);
		get_bytes(p.b, took, 6000);
		took += 6000;
	}
	pair_close(&p);
}

/* What one process has peeked at another reads. */
STREAM_TEST(by_a_child)
{
	for (int before = 0; before < 2; before++) {
		struct pair p = open_foreign();
		put_bytes(p.a, 0, 1000);
		if (before)
			CHECK_EQ(peek(&p, 0, 300, 0), 300);
		pid_t pid = st_fork();
		if (pid == 0) {
			CHECK_EQ(peek(&p, 0, 500, 0), 500);
			scribble(&p);
			st_exit();
		}
		st_reap(pid, 0);
		CHECK_EQ(shown_bytes(fd_sock(p.b)), 500);
		get_bytes(p.b, 0, 1000);
		pair_close(&p);
	}
}

/* Without memory a peek is refused, and nothing is lost. */
STREAM_TEST(without_memory)
{
	struct pair p = open_foreign();
	struct sock *s = fd_sock(p.b);
	REQUIRE(s != NULL);
	uint8_t byte;
	put_bytes(p.a, 0, 100);
	s->shown = NULL; /* as if none had ever peeked */
	s->is_copied = true;
	atomic_fetch_add(&s->slot->crowded, 1); /* somebody who has no such memory */
	CHECK_EQ(st_recv(p.b, &byte, 1, MSG_PEEK), -ENOMEM);
	get_bytes(p.b, 0, 50);
	atomic_fetch_sub(&s->slot->crowded, 1);
	CHECK_EQ(peek(&p, 50, 50, 0), 50);
	get_bytes(p.b, 50, 50);
	pair_close(&p);
}

/* ---- given away ---- */

/* The peer sends what is unread again: as it was shown, or the connection ends. */
STREAM_TEST(sent_again)
{
	for (int lies = 0; lies < 2; lies++) {
		struct pair p = open_foreign();
		uint8_t byte;
		put_bytes(p.a, 0, 3000);
		CHECK_EQ(peek(&p, 0, 2000, 0), 2000);
		if (lies)
			scribble(&p);
		ask(&p);
		answer(&p);
		sock_service(fd_sock(p.b), p.b);
		if (lies)
			CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
		else
			get_bytes(p.b, 0, 3000);
		CHECK_EQ(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_FINAL, !lies);
		pair_close(&p);
	}
}

/* Nothing is sent again, though the mark says so. */
STREAM_TEST(said_to_be_sent_again)
{
	struct pair p = open_foreign();
	struct wire_dir *d = fd_sock(p.a)->out;
	uint8_t byte;
	put_bytes(p.a, 0, 3000);
	CHECK_EQ(peek(&p, 0, 10, 0), 10);
	ask(&p);
	atomic_store(&d->down_at, atomic_load(&d->consumed));
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch));
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* More than can be compared stays in the ring. */
STREAM_TEST(too_much_to_be_sent_again)
{
	struct pair p = open_foreign();
	put_bytes(p.a, 0, 100000);
	CHECK_EQ(peek(&p, 0, 60000, 0), 60000);
	scribble(&p);
	ask(&p);
	answer(&p);
	sock_service(fd_sock(p.b), p.b);
	get_bytes(p.b, 0, 100000);
	sock_service(fd_sock(p.b), p.b);
	CHECK_EQ(gate_state(&fd_sock(p.b)->slot->gate_rx), GATE_FINAL);
	pair_close(&p);
}

/* The next image gets what was shown. */
STREAM_TEST(carried_along)
{
	struct pair p = open_foreign();
	uint64_t cookie;
	put_bytes(p.a, 0, 30000);
	CHECK_EQ(peek(&p, 0, 20000, 0), 20000);
	scribble(&p);
	ask(&p);
	int memfd = carry_out(fd_sock(p.b), p.b, &cookie);
	REQUIRE(memfd > 0);
	int fd = dup(p.b);
	REQUIRE(fd >= 0);
	fd_forget(p.b);
	close(p.b);
	p.b = fd;
	CHECK_EQ(carry_in(fd, memfd, cookie), 1);
	get_bytes(p.b, 0, 30000);
	pair_close(&p);
}

/* And so does a process that stands down. */
STREAM_TEST(left_in_memory)
{
	struct pair p = open_foreign();
	put_bytes(p.a, 0, 30000);
	CHECK_EQ(peek(&p, 0, 20000, 0), 20000);
	scribble(&p);
	ask(&p);
	CHECK(sock_abandon(fd_sock(p.b), p.b));
	get_bytes(p.b, 0, 30000);
	pair_close(&p);
}

/* ---- a peer that writes meanwhile ---- */

struct painter {
	uint8_t *data;
	_Atomic bool stop;
	pthread_t thread;
};

#ifdef __SANITIZE_THREAD__
/* The other thread is another process in truth. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:paint\n";
}
#endif

static void *paint(void *arg)
{
	struct painter *f = arg;
	for (uint8_t c = 0; !atomic_load(&f->stop); c++)
		memset(f->data, c, WIRE_AREA0_BYTES);
	return NULL;
}

STREAM_TEST(painted_over_meanwhile)
{
	static uint8_t seen[4096], got[4096];
	struct pair p = open_foreign();
	struct painter f = {.data = fd_sock(p.b)->in_data};
	uint64_t state = 5;
	REQUIRE(pthread_create(&f.thread, NULL, paint, &f) == 0);
	for (int i = 0; i < 2000; i++) {
		size_t n = flow_random(&state) % sizeof(seen) + 1;
		REQUIRE(st_send(p.a, seen, n, 0) == (ssize_t)n);
		size_t look = flow_random(&state) % n + 1;
		REQUIRE(st_recv(p.b, seen, look, MSG_PEEK) == (ssize_t)look);
		REQUIRE(st_recv(p.b, got, n, MSG_WAITALL) == (ssize_t)n);
		REQUIRE(memcmp(seen, got, look) == 0);
	}
	atomic_store(&f.stop, true);
	pthread_join(f.thread, NULL);
	pair_close(&p);
}
