/* SPDX-License-Identifier: Apache-2.0 */
/* Rings that have grown and lie still: their memory goes back, their stream goes on. */
#include "unit/test.h"

#include "ring/source.h"
#include "unit/conn_pair.h"

#define PAGE 4096u

/* Pages of the segment that exist, whoever has touched them. */
static unsigned pages_of(int fd)
{
	static unsigned char there[WIRE_TOTAL_BYTES / PAGE];
	unsigned n = 0;
	REQUIRE(mincore(fd_sock(fd)->wire, WIRE_TOTAL_BYTES, there) == 0);
	for (size_t i = 0; i < sizeof(there); i++)
		n += there[i] & 1;
	return n;
}

/* One page of cursors, and the smallest areas. */
#define IDLE_PAGES (1 + 2 * WIRE_AREA0_BYTES / PAGE)

static uint8_t buffer[WIRE_DIR_DATA_BYTES];

/* As much as fits: the ring grows to its largest area. */
static uint64_t fill(int fd, uint64_t at)
{
	uint64_t from = at;
	for (;;) {
		flow_fill(buffer, PAGE, at, 1);
		ssize_t n = st_send(fd, buffer, PAGE, MSG_DONTWAIT);
		if (n == -EAGAIN)
			return at - from;
		REQUIRE(n > 0);
		at += (uint64_t)n;
	}
}

static void take(int fd, uint64_t at, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = st_recv(fd, buffer, len - done, 0);
		REQUIRE(n > 0);
		REQUIRE(flow_is(buffer, (size_t)n, at + done, 1));
		done += (size_t)n;
	}
}

/* A sleeper comes round often enough to do it: the alarm is the only bound. */
static void sleep_until_small(int fd)
{
	st_timeout(fd, SO_RCVTIMEO, 300);
	while (pages_of(fd) > IDLE_PAGES)
		CHECK_EQ(st_recv(fd, buffer, 1, 0), -EAGAIN);
	st_timeout(fd, SO_RCVTIMEO, 0);
}

STREAM_TEST(idle_rings_give_their_memory_back)
{
	struct pair p = pair_open_up();
	uint64_t forth = 0, back = 0;
	for (int round = 0; round < 2; round++) {
		uint64_t n = fill(p.a, forth), m = fill(p.b, back);
		CHECK(n > WIRE_AREA2_BYTES && m > WIRE_AREA2_BYTES);
		take(p.b, forth, n);
		take(p.a, back, m);
		forth += n;
		back += m;
		CHECK(pages_of(p.a) > 2 * WIRE_AREA2_BYTES / PAGE);
		sleep_until_small(round ? p.a : p.b);
		CHECK(pair_is_up(&p));
	}
	CHECK_EQ(sock_settle(), UINT64_MAX); /* and nobody is woken for it any more */
	pair_close(&p);
}

#define ANSWER (1u << 20)

/* One by one, each sent before it is read: what holds one holds all. */
STREAM_TEST(answers_touch_the_memory_of_one)
{
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a);
	for (unsigned round = 0; round < 6; round++) {
		for (size_t done = 0; done < ANSWER;) {
			/* As if the reader were on another processor. */
			atomic_store(&a->out->rx_cpu, 0);
			flow_fill(buffer, ANSWER, (uint64_t)round * ANSWER, 1);
			ssize_t n =
				st_send(p.a, buffer + done, ANSWER - done, MSG_DONTWAIT);
			REQUIRE(n > 0);
			done += (size_t)n;
		}
		take(p.b, (uint64_t)round * ANSWER, ANSWER);
	}
	CHECK(pages_of(p.a) <= IDLE_PAGES + (WIRE_AREA1_BYTES + ANSWER + 65536) / PAGE);
	pair_close(&p);
}

STREAM_TEST(unread_bytes_keep_their_memory)
{
	struct pair p = pair_open_up();
	uint64_t n = fill(p.a, 0);
	take(p.b, 0, n - PAGE);
	st_timeout(p.a, SO_RCVTIMEO, 1200);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(st_recv(p.a, buffer, 1, 0), -EAGAIN);
	CHECK(pages_of(p.a) > WIRE_AREA2_BYTES / PAGE);
	CHECK(sock_settle() != UINT64_MAX);
	take(p.b, n - PAGE, PAGE);
	sleep_until_small(p.b);
	pair_close(&p);
}

/* Messages that would fit the smallest area, to a reader on another processor. */
STREAM_TEST(wide_rings_give_their_memory_back)
{
	struct pair p = pair_open_up();
	uint64_t at = 0;
	while (pages_of(p.a) <= IDLE_PAGES + 2 * WIRE_AREA1_BYTES / PAGE) {
		REQUIRE(at < 512u << 20);
		for (int i = 0; i < 64; i++, at += WIRE_AREA0_BYTES) {
			flow_fill(buffer, WIRE_AREA0_BYTES, at, 1);
			/* As long as it is not told which it is. */
			atomic_store(&fd_sock(p.a)->out->rx_cpu, 0);
			CHECK_EQ(st_send(p.a, buffer, WIRE_AREA0_BYTES, 0),
				 WIRE_AREA0_BYTES);
			take(p.b, at, WIRE_AREA0_BYTES);
		}
	}
	sleep_until_small(p.b);
	CHECK_EQ(sock_settle(), UINT64_MAX);
	pair_close(&p);
}

/* Small messages that never stop: what is above the area that they need goes back. */
STREAM_TEST(calm_rings_give_their_memory_back)
{
	struct pair p = pair_open_up();
	uint64_t at = fill(p.a, 0);
	take(p.b, 0, at);
	st_timeout(p.b, SO_RCVTIMEO, 2);
	while (pages_of(p.a) > IDLE_PAGES) {
		for (int i = 0; i < 1000; i++, at += 1000) {
			flow_fill(buffer, 1000, at, 1);
			CHECK_EQ(st_send(p.a, buffer, 1000, 0), 1000);
			take(p.b, at, 1000);
		}
		CHECK_EQ(st_recv(p.b, buffer, 1, 0), -EAGAIN);
	}
	pair_close(&p);
}

/* A new page costs more than the copy: only what goes where something has been is judged. */
STREAM_TEST(copies_to_new_pages_are_not_judged)
{
	enum { PIECE = SOURCE_PIECE_BYTES };
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.a);
	lock_take(&s->slot->tx_lock);
	for (unsigned i = 0; i < 10; i++)
		room_used(s, s->out_data + i * PIECE, PIECE, PIECE);
	CHECK_EQ(s->past.bytes, 0);
	for (unsigned i = 0; i < 10; i++)
		room_used(s, s->out_data + i * PIECE, PIECE, PIECE);
	CHECK_EQ(s->past.bytes, 10 * PIECE);
	lock_drop(&s->slot->tx_lock);
	pair_close(&p);
}

/* Past the caches, from and to any place in a line: what arrives is what was sent. */
STREAM_TEST(bulk_past_the_caches_arrives)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.a);
	uint64_t at = 0;
	for (size_t i = 0; i < 400; i++) {
		size_t len = RING_BULK_BYTES + i * 17 % 8000;
		flow_fill(buffer + i % 64, len, at, 1);
		atomic_store(&s->out->rx_cpu, 0); /* not told: another processor */
		s->past.rest = UINT64_MAX;
		s->past.is_on = true;
		/* Nor does a calm time, or a move to another area, end it. */
		s->slot->tx.bulk = 0;
		s->past.area = 2;
		CHECK_EQ(st_send(p.a, buffer + i % 64, len, 0), len);
		CHECK(s->past.is_on);
		take(p.b, at, len);
		at += len;
	}
	CHECK(pair_is_up(&p));
	pair_close(&p);
}

/* A file's, too, by way of lines that are nobody else's; and while another thread has these. */
STREAM_TEST(files_past_the_caches_arrive)
{
	enum { SIZE = 300001 };
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.a);
	uint8_t *over = source_stopover;
	struct lock *lock = &source_stopover_lock;
	int file = memfd_create("past", MFD_CLOEXEC);
	flow_fill(buffer, SIZE, 0, 1);
	REQUIRE(file >= 0 && write(file, buffer, SIZE) == SIZE);
	unsigned used = 0;
	for (size_t i = 0; i < 12; i++) {
		off64_t from = 0;
		bool taken = i % 3 == 2;
		REQUIRE(lseek(file, 0, SEEK_SET) == 0);
		atomic_store(&s->out->rx_cpu, 0);
		s->past.rest = UINT64_MAX;
		s->past.is_on = true;
		memset(over, 0, sizeof(source_stopover));
		if (taken)
			lock_take(lock);
		CHECK_EQ(tx_sendfile(s, p.a, file, i & 1 ? &from : NULL, SIZE + 1), SIZE);
		CHECK_EQ(atomic_load(&lock->word) != 0, taken);
		if (taken)
			lock_drop(lock);
		bool is_used = memcmp(over, over + 1, 1000) != 0;
		/* Not while the ring moves to another area. */
		CHECK_EQ(is_used, s->past.is_on && !taken);
		used += is_used;
		take(p.b, 0, SIZE);
		CHECK_EQ(from, i & 1 ? SIZE : 0);
	}
	CHECK(used > 0);
	CHECK(pair_is_up(&p));
	close(file);
	pair_close(&p);
}
