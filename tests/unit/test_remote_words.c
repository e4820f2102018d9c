/* SPDX-License-Identifier: Apache-2.0 */
/* What an end tells its peer on another host with the stream's bytes, and what it keeps for later. */
#include "unit/test.h"

#include "base/real.h"

#include "unit/conn_pair.h"

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "11", 0);
}

/* ---- words ---- */

/* Those that one end writes: in the direction that it sends, or in the other. */
struct word {
	size_t at;
	bool is_out;
	uint32_t is_set; /* to that; 0: it counts up */
};

#define WORD(name, is_out, value)                                                        \
	{                                                                                \
		offsetof(struct wire_dir, name), is_out, value                           \
	}

static const struct word words[] = {
	WORD(closed, false, 1),	     WORD(want_down, false, WANT_BOUNCE),
	WORD(ready_epoch, false, 0), WORD(rx_bound, false, 4096),
	WORD(fin, true, 1),	     WORD(down_epoch, true, 0),
	WORD(up_epoch, true, 0),     WORD(held_at, true, 0), /* the low half */
};

static _Atomic uint32_t *word_of(struct wire_dir *d, const struct word *w)
{
	return (_Atomic uint32_t *)(void *)((char *)d + w->at);
}

/* Under the lock: the next byte of the stream, as a send leaves it that has not pushed yet. */
static void write_byte(struct sock *s, uint8_t byte)
{
	struct slot *sl = s->slot;
	uint8_t *to;

	ring_tx_room(&sl->tx, s->out, SIZE_MAX);
	to = ring_tx_glance(&sl->tx, s->out_data, 1);
	REQUIRE(to);
	*to = byte;
	ring_tx_commit(&sl->tx, s->out, 1, false);
}

/* It is sent with a byte, and as it was with the next one. */
static void goes_with_bytes(struct pair *p, const struct word *w)
{
	struct sock *a = fd_sock(p->a), *b = fd_sock(p->b);
	_Atomic uint32_t *own = word_of(w->is_out ? a->out : a->in, w);
	_Atomic uint32_t *there = word_of(w->is_out ? b->in : b->out, w);
	uint32_t old = load_relaxed(own),
		 values[2] = {w->is_set ? w->is_set : old + 1, old};

	CHECK_EQ(load_relaxed(there), old);
	for (int i = 0; i < 2; i++) {
		struct across_guard g = across_enter();
		uint64_t produced;

		store_release(own, values[i]);
		write_byte(a, (uint8_t)i);
		produced = load_relaxed(&a->out->produced);
		note_push(peer_of(a));
		across_leave(g);
		across_settle();
		CHECK_EQ(load_relaxed(there), values[i]);
		CHECK_EQ(load_relaxed(&b->in->produced), produced);
	}
}

STREAM_TEST(each_word_goes_with_the_next_bytes)
{
	struct pair p = pair_open_up();
	uint8_t bytes[2];

	put(p.a, 0, 10, 1);
	get(p.b, 0, 10, 1);
	across_settle();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		goes_with_bytes(&p, &words[i]);
		CHECK_EQ(st_recv(p.b, bytes, 2, MSG_WAITALL), 2);
		CHECK(bytes[0] == 0 && bytes[1] == 1);
	}
	/* And nothing of it stays. */
	put(p.a, 10, 100, 1);
	get(p.b, 10, 100, 1);
	put(p.b, 0, 100, 2);
	get(p.a, 0, 100, 2);
	pair_close(&p);
}

STREAM_TEST(since_when_bytes_are_held_goes_with_the_next_bytes)
{
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a), *b = fd_sock(p.b);
	uint8_t byte;

	across_settle();
	for (int i = 0; i < 2; i++) {
		struct across_guard g = across_enter();

		write_byte(a, 1);
		store_release(&a->out->held_since_ms, i ? 0 : clock_shared_ms());
		note_push(peer_of(a));
		across_leave(g);
		across_settle();
		CHECK_EQ(load_relaxed(&b->in->held_since_ms) != 0, i == 0);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), 1);
	}
	pair_close(&p);
}

/* ---- bytes ---- */

static void push_now(struct sock *s)
{
	struct across_guard g = across_enter();

	note_push(peer_of(s));
	across_leave(g);
	across_settle();
}

/* Several sends before one push, the last of which have begun again at the area's beginning. */
STREAM_TEST(bytes_in_two_parts_are_told_by_one_push)
{
	enum { EACH = 1000, LATE = 20 };
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a), *b = fd_sock(p.b);
	uint64_t end = WIRE_AREA0_BYTES - load_relaxed(&a->out->produced) - LATE / 2;
	uint8_t bytes[LATE];

	for (uint64_t at = 0, n; at < end; at += n) {
		n = end - at < EACH ? end - at : EACH;
		put(p.a, at, n, 1);
		get(p.b, at, n, 1);
	}
	CHECK_EQ(load_relaxed(&a->out->produced), WIRE_AREA0_BYTES - LATE / 2);
	across_settle();
	for (uint8_t i = 0; i < LATE; i++)
		write_byte(a, i);
	push_now(a);
	CHECK_EQ(load_relaxed(&b->in->produced), WIRE_AREA0_BYTES + LATE / 2);
	CHECK_EQ(st_recv(p.b, bytes, LATE, MSG_WAITALL), LATE);
	for (uint8_t i = 0; i < LATE; i++)
		CHECK_EQ(bytes[i], i);
	pair_close(&p);
}

/* Some were written, and what tells of them found no room: the next push tells of all. */
STREAM_TEST(bytes_that_were_written_before_are_told_with_the_next)
{
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a), *b = fd_sock(p.b);
	struct ring_span span;
	struct across_guard g;
	uint8_t bytes[2];

	put(p.a, 0, 10, 1);
	get(p.b, 0, 10, 1);
	across_settle();
	g = across_enter();
	write_byte(a, 7);
	CHECK_EQ(note_next_bytes(peer_of(a), &span), 1);
	across_in_data(peer_of(b))[span.data - across_out_data(peer_of(a))] = 7;
	ring_rx_skip(&peer_of(a)->reader, 1);
	write_byte(a, 8);
	across_leave(g);
	push_now(a);
	CHECK_EQ(load_relaxed(&b->in->produced), load_relaxed(&a->out->produced));
	CHECK_EQ(st_recv(p.b, bytes, 2, MSG_WAITALL), 2);
	CHECK(bytes[0] == 7 && bytes[1] == 8);
	pair_close(&p);
}

/* ---- room ---- */

static uint64_t immediates_of(int fd)
{
	struct across_guard g = across_enter();
	uint64_t n = link_immediates(peer_of(fd_sock(fd))->link->link);

	across_leave(g);
	return n;
}

/* It is told once it is a quarter of the area, and not before; a send tells of it at once. */
STREAM_TEST(room_is_told_when_it_is_much)
{
	enum { BYTES = 64, QUARTER = WIRE_AREA0_BYTES / 4 };
	struct pair p = pair_open_up();
	struct wire_dir *out = fd_sock(p.a)->out;
	uint64_t told, before, at = 0;

	put(p.b, 0, 1, 2);
	get(p.a, 0, 1, 2);
	across_settle();
	told = load_relaxed(&out->consumed);
	before = immediates_of(p.b);
	for (int round = 0; round < 3; round++) {
		while (load_relaxed(&fd_sock(p.b)->in->consumed) - told + BYTES <
		       QUARTER) {
			put(p.a, at, BYTES, 1);
			get(p.b, at, BYTES, 1);
			at += BYTES;
		}
		across_settle();
		CHECK_EQ(immediates_of(p.b), before);
		CHECK_EQ(load_relaxed(&out->consumed), told);
		put(p.a, at, BYTES, 1);
		get(p.b, at, BYTES, 1);
		at += BYTES;
		across_settle();
		CHECK_EQ(immediates_of(p.b), ++before);
		told = load_relaxed(&fd_sock(p.b)->in->consumed);
		CHECK_EQ(load_relaxed(&out->consumed), told);
	}
	put(p.a, at, BYTES, 1);
	get(p.b, at, BYTES, 1);
	put(p.b, 1, 1, 2);
	across_settle();
	CHECK_EQ(load_relaxed(&out->consumed), told + BYTES);
	get(p.a, 1, 1, 2);
	pair_close(&p);
}

/* ---- an end of a process ---- */

/* As the process of b does it, which has not got a. Its kernel then resets the connection. */
static void exits(const struct pair *p)
{
	struct sock *a = fd_sock(p->a);

	atomic_store(&fd_table[p->a], NULL);
	sock_report(true);
	sock_reset_unread();
	atomic_store(&fd_table[p->a], a);
	REAL(close)(p->b);
}

/* With bytes unread: what it has sent comes, and the error behind that. */
static void sends_and_exits(size_t bytes, bool shuts)
{
	struct pair p = pair_open_up();
	uint8_t byte;

	put(p.a, 0, 101, 1);
	across_settle();
	put(p.b, 0, bytes, 2);
	if (shuts)
		CHECK_EQ(sock_shutdown(fd_sock(p.b), p.b, SHUT_WR), 0);
	exits(&p);
	get(p.a, 0, bytes, 2);
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), shuts ? 0 : -ECONNRESET);
	fd_forget(p.b);
	st_close(p.a);
}

STREAM_TEST(what_is_sent_comes_before_an_exits_reset)
{
	for (size_t bytes = 1; bytes <= 1000; bytes *= 10) {
		sends_and_exits(bytes, false);
		sends_and_exits(bytes, true);
	}
}
