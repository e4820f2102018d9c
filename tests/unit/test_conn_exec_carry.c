/* SPDX-License-Identifier: Apache-2.0 */
/* From image to image: what is put by, what still comes, and an exec that fails. */
#include "unit/test.h"

#include <pthread.h>

#include "base/fds.h"
#include "conn/exec_carry.h"
#include "conn/gate_move.h"
#include "unit/hand_over.h"

/* As by a thread that had looked at requests before there was one. */
static void put_late(int fd, uint64_t at, size_t len)
{
	struct sock *s = fd_sock(fd);
	struct ring_span span;
	while (len > 0) {
		REQUIRE(ring_tx_span(&s->slot->tx, s->out, s->out_data, len, &span) == 0);
		REQUIRE(span.len > 0 || ring_tx_grow(&s->slot->tx, s->out));
		size_t n = len < span.len ? len : span.len;
		flow_fill(span.data, n, at, SEED);
		ring_tx_commit(&s->slot->tx, s->out, n, false);
		at += n;
		len -= n;
	}
}

static int out(const struct pair *p, uint64_t *cookie)
{
	ask(p);
	return carry_out(fd_sock(p->b), p->b, cookie);
}

/* The end b as another image finds it, under another number. */
static void exec_b(struct pair *p, int memfd, uint64_t cookie)
{
	int fd = dup(p->b);
	REQUIRE(fd >= 0);
	fd_forget(p->b);
	close(p->b);
	p->b = fd;
	CHECK_EQ(carry_in(fd, memfd, cookie), 1);
	REQUIRE(fd_sock(fd));
}

STREAM_TEST(unread_bytes_go_along_and_late_ones_follow)
{
	uint64_t state = 177, cookie;
	for (int i = 0; i < 40; i++) {
		struct pair p = pair_open_up();
		uint64_t at = 0, took = walk(&p, &state, &at, i % 9);
		size_t late = i % 3 ? flow_random(&state) % 20000 : 0;
		if (took == at)
			put_bytes(p.a, at++, 1);
		int memfd = out(&p, &cookie);
		REQUIRE(memfd > 0);
		put_late(p.a, at, late);
		if (i % 2)
			answer(&p);
		exec_b(&p, memfd, cookie);
		put_bytes(p.a, at + late, 1000);
		get_bytes(p.b, took, (size_t)(at - took) + late + 1000);
		CHECK_EQ(st_send(p.b, "x", 1, 0), 1);
		char byte;
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
		st_close(p.a);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
		st_close(p.b);
	}
}

/* From image to image to image, a part read in each. */
STREAM_TEST(again_and_again)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	put_bytes(p.a, 0, 400000);
	for (int i = 0; i < 4; i++) {
		int memfd = out(&p, &cookie);
		REQUIRE(memfd > 0);
		exec_b(&p, memfd, cookie);
		get_bytes(p.b, (uint64_t)i * 100000, 100000);
	}
	CHECK_EQ(out(&p, &cookie), 0); /* it is the kernel's */
	put_bytes(p.a, 400000, 1000);
	get_bytes(p.b, 400000, 1000);
	pair_close(&p);
}

/* One direction in the ring behind 5000 bytes of TCP, which are not read yet. */
static struct pair pair_open_ready(void)
{
	struct pair p = pair_open();
	struct slot *a, *b;
	uint8_t buf[5000];
	do {
		pair_ping(&p);
		a = fd_sock(p.a)->slot;
		b = fd_sock(p.b)->slot;
	} while (phase_of(a) != SLOT_ATTACHED || phase_of(b) != SLOT_ATTACHED);
	rx_open(fd_sock(p.b), p.b);
	REQUIRE(gate_state(&b->gate_rx) == GATE_READY);
	REQUIRE(gate_state(&a->gate_tx) == GATE_TCP);
	flow_fill(buf, sizeof(buf), 0, SEED);
	REQUIRE(send(p.a, buf, sizeof(buf), 0) == (ssize_t)sizeof(buf));
	return p;
}

enum end { UNANSWERED, ANSWERED, DIED /* before its cursors went back */ };

static void end_answer(const struct pair *p, enum end end, size_t late)
{
	struct sock *a = fd_sock(p->a);
	if (end != UNANSWERED)
		answer(p);
	if (end != DIED)
		return;
	a->slot->tx.produced += late;
	a->slot->tx.pushed += late;
	atomic_fetch_add(&a->out->produced, late);
	atomic_store(&a->out->rewind, REWIND_TAKING);
}

static void failed(bool ready, size_t late, bool looked, enum end end, bool again)
{
	struct pair p = ready ? pair_open_ready() : pair_open_up();
	uint64_t cookie, at = ready ? 5000 : 0;
	int queued;
	put_bytes(p.a, at, 30000);
	int memfd = out(&p, &cookie);
	REQUIRE(memfd > 0);
	put_late(p.a, at + 30000, late);
	if (looked)
		CHECK_EQ(sock_inq(fd_sock(p.b), p.b, &queued), 0);
	end_answer(&p, end, late);
	carry_undo(fd_sock(p.b), p.b, memfd);
	if (end == DIED) /* what another process of the peer would do */
		sock_down(fd_sock(p.a), p.a, VD_REASON_OPTION);
	if (again) {
		memfd = out(&p, &cookie);
		REQUIRE(memfd > 0);
		exec_b(&p, memfd, cookie);
	}
	put_bytes(p.a, at + 30000 + late, 1000);
	get_bytes(p.b, 0, at + 31000 + late);
	pair_close(&p);
}

STREAM_TEST(exec_fails)
{
	for (int i = 0; i < 48; i++)
		failed(i & 1, i & 2 ? 500 : 0, i & 4, (enum end)(i / 8 % 3), i >= 24);
}

struct last_send {
	pthread_t thread;
	int fd;
	size_t len;
};

static void *send_once(void *arg)
{
	struct last_send *l = arg;
	put_bytes(l->fd, 0, l->len);
	return NULL;
}

/* The sender makes no call after the one during which the bytes are put by. */
STREAM_TEST(exec_in_the_middle_of_the_last_send)
{
	uint64_t state = 4711;
	for (int i = 0; i < 300; i++) {
		struct pair p = pair_open_up();
		struct last_send l = {.fd = p.a,
				      .len = i % 2 ? FLOW_MOST
						   : flow_random(&state) % 16000 + 1};
		uint64_t cookie;
		size_t before = flow_random(&state) % l.len;
		REQUIRE(pthread_create(&l.thread, NULL, send_once, &l) == 0);
		while (ring_unread(fd_sock(p.b)->in) < before)
			;
		int memfd = out(&p, &cookie);
		REQUIRE(pthread_join(l.thread, NULL) == 0);
		if (memfd > 0) {
			exec_b(&p, memfd, cookie);
			get_bytes(p.b, 0, l.len);
		}
		pair_close(&p);
	}
}

/* Another holder gets all of it, though a part was once put by. */
STREAM_TEST(exec_fails_and_it_is_handed_over)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	uint8_t buf[30000];
	put_bytes(p.a, 0, sizeof(buf));
	int memfd = out(&p, &cookie);
	REQUIRE(memfd > 0);
	fds_close(memfd);
	/* As if its thread had ended before it undid it. */
	atomic_store(&fd_sock(p.b)->slot->rewinding, REWINDING_ASKED);
	ask(&p);
	answer(&p);
	REQUIRE(recv(p.b, buf, sizeof(buf), MSG_WAITALL) == (ssize_t)sizeof(buf));
	CHECK(flow_is(buf, sizeof(buf), 0, SEED));
	pair_close(&p);
}

/* What was answered before is TCP's. */
STREAM_TEST(nothing_left_to_carry)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	put_bytes(p.a, 0, 30000);
	ask(&p);
	answer(&p);
	CHECK_EQ(carry_out(fd_sock(p.b), p.b, &cookie), 0);
	get_bytes(p.b, 0, 30000);
	pair_close(&p);
}

STREAM_TEST(refused_bytes_go_along)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	char byte;
	put_bytes(p.a, 0, 30000);
	REQUIRE(st_shutdown(p.a, SHUT_WR) == 0);
	ask(&p);
	answer(&p);
	int memfd = carry_out(fd_sock(p.b), p.b, &cookie);
	REQUIRE(memfd > 0);
	exec_b(&p, memfd, cookie);
	get_bytes(p.b, 0, 30000);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	pair_close(&p);
}

/* Late bytes that cannot be sent again: an error behind the others. */
STREAM_TEST(late_bytes_that_are_refused)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	int size = 4608;
	char byte;
	REQUIRE(setsockopt(p.a, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	put_bytes(p.a, 0, 10000);
	int memfd = out(&p, &cookie);
	REQUIRE(memfd > 0);
	put_late(p.a, 10000, 200000);
	answer(&p);
	exec_b(&p, memfd, cookie);
	get_bytes(p.b, 0, 10000);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* TCP bytes are to be read before the mark is passed. */
STREAM_TEST(before_the_mark)
{
	for (int answered = 0; answered < 2; answered++) {
		struct pair p = pair_open_ready();
		uint64_t cookie;
		put_bytes(p.a, 5000, 7000);
		REQUIRE(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_RING);
		int memfd = out(&p, &cookie);
		REQUIRE(memfd > 0);
		put_late(p.a, 12000, 300);
		if (answered)
			answer(&p);
		exec_b(&p, memfd, cookie);
		put_bytes(p.a, 12300, 100);
		get_bytes(p.b, 0, 12400);
		pair_close(&p);
	}
}

/* A sender believes no more of it than that it lies among what is unread. */
STREAM_TEST(a_lie_about_what_is_kept)
{
	static const uint64_t lies[] = {1, 999, 21001, UINT64_MAX, UINT64_MAX / 2};
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		struct pair p = pair_open_up();
		struct sock *b = fd_sock(p.b);
		uint8_t buf[20000];
		uint64_t start = b->slot->rx.consumed;
		put_bytes(p.a, 0, 1000);
		get_bytes(p.b, 0, 1000);
		put_bytes(p.a, 1000, sizeof(buf));
		ask(&p);
		atomic_store(&b->in->kept, start + lies[i]);
		answer(&p);
		REQUIRE(recv(p.b, buf, sizeof(buf), MSG_WAITALL) == (ssize_t)sizeof(buf));
		CHECK(flow_is(buf, sizeof(buf), 1000, SEED));
		pair_close(&p);
	}
}

/* Another connection, and memory that is none of ours. */
STREAM_TEST(what_does_not_belong_together)
{
	struct pair p = pair_open_up();
	uint64_t cookie;
	char byte;
	put_bytes(p.a, 0, 1000);
	int memfd = out(&p, &cookie);
	REQUIRE(memfd > 0);
	CHECK_EQ(carry_in(p.a, memfd, cookie), 0);
	CHECK_EQ(carry_in(memfd, memfd, cookie), 0);
	int fd = dup(p.b), none = open("/dev/zero", O_RDWR | O_CLOEXEC);
	fd_forget(p.b);
	close(p.b);
	CHECK_EQ(carry_in(fd, none, cookie), 1);
	CHECK(!fd_sock(fd));
	CHECK(recv(fd, &byte, 1, 0) < 0);
	close(fd);
	close(none);
	close(memfd);
	st_close(p.a);
}

/* ---- the last one closes, with a request for somebody else ---- */

static struct closer {
	struct pair p;
	bool found_mark;
	_Atomic bool done;
} closer;

static void *close_as_last(void *arg)
{
	struct sock *s = fd_sock(closer.p.b);
	(void)arg;
	rewind_closing(s);
	closer.found_mark = rx_is_down(s);
	closer.done = true;
	return NULL;
}

/* The sender obeys a request that was withdrawn, and comes by no more to see the next one. */
STREAM_TEST(a_mark_on_its_way_is_waited_for)
{
	struct pair p = pair_open_up();
	struct sock *from = fd_sock(p.a), *to = fd_sock(p.b);
	pthread_t thread;
	uint64_t end;
	put_bytes(p.a, 0, 1000);
	closer = (struct closer){.p = p};
	atomic_store(&to->in->want_down, WANT_FINAL);
	lock_take(&from->slot->tx_lock);
	REQUIRE(rewind_answer(from, p.a, 0, &end));
	atomic_store(&to->slot->rewinding, REWINDING_ASKED);
	atomic_store(&to->in->want_down, WANT_REWIND);
	REQUIRE(pthread_create(&thread, NULL, close_as_last, NULL) == 0);
	for (int naps = 0; naps < 100 && !closer.done; naps++)
		usleep(1000);
	from->out->down_at = end;
	store_release(&from->out->down_epoch, from->out->up_epoch);
	gate_set(&from->slot->gate_tx, GATE_FINAL);
	rewind_answered(from);
	lock_drop(&from->slot->tx_lock);
	REQUIRE(pthread_join(thread, NULL) == 0);
	CHECK(closer.found_mark);
	get_bytes(p.b, 0, 1000);
	pair_close(&p);
}
