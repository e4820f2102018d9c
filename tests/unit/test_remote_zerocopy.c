/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that the device takes from the sender's program memory, between two hosts on the fake
 * interconnect: landed, in vain, and taken away in the middle of the call. */
#include "unit/cancelled.h"
#include "unit/test.h"

#include <sys/mman.h>

#include "rdma/fabric.h"
#include "unit/redirect_pair.h"

enum { BYTES = 4000 };

static uint64_t zero_copies(void)
{
	return atomic_load(&report_now.zero_copies);
}

/* Memory of its own, which may go. */
static uint8_t *memory(uint8_t seed)
{
	uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(at != MAP_FAILED);
	flow_fill(at, BYTES, 0, seed);
	return at;
}

/* This thread gives p.b's next bytes a place, and goes on. */
static void offer_here(const struct pair *p, uint8_t to[BYTES])
{
	const struct slot *sl = fd_sock(p->b)->slot;
	const struct across_room room = {.start = to,
					 .bytes = BYTES,
					 .least = LEAST,
					 .position = sl->rx.consumed,
					 .turn = sl->rx.turn_passed};

	REQUIRE(across_offer(handle(p->b), &room));
	while (grant_of(p->a) != GRANT_OPEN)
		across_settle();
}

/* The device may read the program's memory, for fd's end. */
static bool is_registered(int fd)
{
	struct across_guard g = across_enter();
	bool is = handle(fd)->lent.is_registered;

	across_leave(g);
	return is;
}

/* No completion of that end's comes. */
static void set_absent(const struct across_link *k, bool absent)
{
	struct across_guard g = across_enter();
	struct link_context *c = k->context->context;

	fake_leave(c, absent);
	across_watch(c, absent ? LINK_WATCH_MAX : ACROSS_WATCH_MS);
	across_leave(g);
}

/* A send that is under way from where it is, and cannot end before this thread ends its offer. */
static void lend_to(struct call *c, const struct pair *p, uint8_t to[BYTES],
		    void *(*fn)(void *))
{
	uint64_t before = zero_copies();

	offer_here(p, to);
	atomic_store(&c->tid, 0);
	atomic_store(&c->done, false);
	REQUIRE(pthread_create(&c->thread, NULL, fn, c) == 0);
	while (grant_of(p->a) != GRANT_USED || zero_copies() == before)
		usleep(100);
	across_settle();
	CHECK(!atomic_load(&c->done));
}

/* As the hooks have it, for copies from memory that is not there. */
static void faulted(int sig, siginfo_t *info, void *context)
{
	if (!crit_recover(sig, info, context))
		abort();
}

static void expect_faults(void)
{
	const struct sigaction act = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};

	REQUIRE(sigaction(SIGSEGV, &act, NULL) == 0);
}

static size_t take(const struct pair *p, uint8_t to[BYTES])
{
	struct wait w = {.s = fd_sock(p->b), .room = {to, BYTES}};

	return peer_ops->redirected(&w, true);
}

STREAM_TEST(landed)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	uint64_t before = redirects();
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	lend_to(&c, &p, to, call_send);
	CHECK_EQ(take(&p, to), BYTES);
	CHECK(flow_is(to, BYTES, 0, 2));
	CHECK_EQ(call_end(&c), BYTES);
	CHECK_EQ(redirects(), before + 2);
	CHECK(!is_registered(p.a));
	CHECK(handle(p.a)->link->bulk != NULL);
	munmap(c.buf, BYTES);
	put(p.a, 0, 100, 3);
	get(p.b, 0, 100, 3);
	pair_close(&p);
}

/* The ring gets them, before the call returns and its memory may change. */
STREAM_TEST(in_vain)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	lend_to(&c, &p, to, call_send);
	CHECK_EQ(across_offer_end(false), 0);
	CHECK_EQ(call_end(&c), BYTES);
	munmap(c.buf, BYTES);
	put(p.a, BYTES, 100, 2);
	get(p.b, 0, BYTES + 100, 2);
	pair_close(&p);
}

/* A send that has begun to wait for its bytes: from there on a cancellation finds what is to be undone. */
static _Atomic bool waits;
static const struct peer_ops *usual;

static void await_and_tell(struct peer *p, struct wait *w, uint32_t handlers)
{
	atomic_store(&waits, true);
	usual->await(p, w, handlers);
}

static void tell_of_waits(void)
{
	static struct peer_ops telling;

	if (peer_ops != &telling) { /* each pair sets the usual ones */
		usual = peer_ops;
		telling = *usual;
		telling.await = await_and_tell;
		peer_ops = &telling;
	}
	atomic_store(&waits, false);
}

static void *send_for_ever(void *arg)
{
	struct call *c = arg;
	int type;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	return call_send(c);
}

/* The verdict comes after the call, and 100 bytes of another thread's behind the call's. */
static void arrives_late(struct pair *p, uint8_t *to, bool lands)
{
	put(p->a, BYTES, 100, 2);
	if (lands) {
		CHECK_EQ(take(p, to), BYTES);
		CHECK(flow_is(to, BYTES, 0, 2));
		across_settle();
		get(p->b, BYTES, 100, 2);
	} else {
		CHECK_EQ(across_offer_end(false), 0);
		across_settle();
		get(p->b, 0, BYTES + 100, 2);
	}
	pair_close(p);
}

/*
 * Before a handler runs, or a thread ends, the device has let go, and the ring has the bytes as they
 * were: whatever the peer says later.
 */
static void withdrawn(bool by_cancel, bool lands)
{
	struct pair p = open_redirected();
	const struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	tell_of_waits();
	lend_to(&c, &p, to, by_cancel ? send_for_ever : call_send);
	while (!atomic_load(&waits) || !call_sleeps(&c))
		usleep(100);
	if (by_cancel)
		REQUIRE(pthread_cancel(c.thread) == 0);
	else
		REQUIRE(pthread_kill(c.thread, SIGUSR1) == 0);
	REQUIRE(pthread_join(c.thread, NULL) == 0);
	CHECK(by_cancel || c.result == BYTES);
	CHECK(!is_registered(p.a));
	CHECK_EQ(grant_of(p.a), GRANT_USED);
	munmap(c.buf, BYTES);
	arrives_late(&p, to, lands);
}

/* The peer is stopped, or hostile, and says nothing while the call lasts: it ends by itself. */
static void unanswered(int timeout_ms, bool lands)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	if (timeout_ms)
		st_timeout(p.a, SO_SNDTIMEO, timeout_ms);
	offer_here(&p, to);
	call_start(&c, call_send);
	CHECK_EQ(call_end(&c), BYTES);
	CHECK(!is_registered(p.a));
	CHECK_EQ(grant_of(p.a), GRANT_USED);
	munmap(c.buf, BYTES);
	arrives_late(&p, to, lands);
}

STREAM_TEST(a_peer_that_says_nothing_for_the_time_of_the_call)
{
	unanswered(30, false);
	unanswered(30, true);
}

STREAM_TEST(a_peer_that_says_nothing_for_long)
{
	unanswered(0, false);
	unanswered(0, true);
}

STREAM_TEST(a_handler_of_the_sender)
{
	withdrawn(false, false);
}

STREAM_TEST(a_handler_after_they_landed)
{
	withdrawn(false, true);
}

STREAM_TEST(a_cancelled_sender)
{
	withdrawn(true, false);
}

/* The device has not said yet that it has read them. */
STREAM_TEST(a_handler_before_they_are_read)
{
	struct pair p = open_redirected();
	const struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	struct across_link *k = handle(p.a)->link;
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	uint32_t turn = k->bulk_turn;

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	offer_here(&p, to);
	set_absent(k, true);
	call_start(&c, call_send);
	/* It may have slept for a lock. */
	while (!is_registered(p.a))
		usleep(100);
	REQUIRE(pthread_kill(c.thread, SIGUSR1) == 0);
	CHECK_EQ(call_end(&c), BYTES);
	CHECK(k->bulk == NULL || k->bulk->turn != turn);
	munmap(c.buf, BYTES);
	set_absent(k, false);
	CHECK_EQ(across_offer_end(false), 0);
	put(p.a, BYTES, 100, 2);
	get(p.b, 0, BYTES + 100, 2);
	pair_close(&p);
}

/* It waits for the lock between two hosts, and so until the send's own section ends: the send must
 * know then that it has run. What the peer says of the bytes may never come. */
STREAM_TEST(a_handler_before_the_wait)
{
	struct pair p = open_redirected();
	const struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	struct across_guard g;

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	offer_here(&p, to);
	g = across_enter();
	call_start(&c, call_send);
	REQUIRE(pthread_kill(c.thread, SIGUSR1) == 0);
	across_leave(g);
	CHECK_EQ(call_end(&c), BYTES);
	CHECK(!is_registered(p.a));
	munmap(c.buf, BYTES);
	CHECK_EQ(across_offer_end(false), 0);
	put(p.a, BYTES, 100, 2);
	get(p.b, 0, BYTES + 100, 2);
	pair_close(&p);
}

/* The last words wait for them. */
STREAM_TEST(shut_down_by_another_thread)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0}, byte;
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	lend_to(&c, &p, to, call_send);
	st_shutdown(p.a, SHUT_WR);
	across_settle();
	CHECK_EQ(across_offer_end(false), 0);
	CHECK_EQ(call_end(&c), BYTES);
	munmap(c.buf, BYTES);
	get(p.b, 0, BYTES, 2);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	pair_close(&p);
}

/* The link beside fails under it. */
STREAM_TEST(the_link_beside_fails)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	struct across_guard g;
	ssize_t landed;

	lend_to(&c, &p, to, call_send);
	g = across_enter();
	if (handle(p.a)->link->bulk)
		link_abort(handle(p.a)->link->bulk->link);
	across_leave(g);
	across_settle();
	landed = (ssize_t)take(&p, to);
	CHECK(landed == 0 || (landed == BYTES && flow_is(to, BYTES, 0, 2)));
	CHECK_EQ(call_end(&c), BYTES);
	munmap(c.buf, BYTES);
	put(p.a, BYTES, 100, 2);
	get(p.b, (uint64_t)landed, BYTES + 100 - (size_t)landed, 2);
	pair_close(&p);
}

/* And the link itself. */
STREAM_TEST(the_link_fails)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	struct across_guard g;

	lend_to(&c, &p, to, call_send);
	g = across_enter();
	link_abort(handle(p.a)->link->link);
	across_leave(g);
	across_settle();
	CHECK_EQ(call_end(&c), BYTES);
	munmap(c.buf, BYTES);
	across_offer_end(false);
	CHECK_EQ(st_recv(p.b, to, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* The program takes its memory away before it is known that the bytes must go by the ring: where they
 * were nobody knows any more, and the connection ends. */
STREAM_TEST(memory_that_goes)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};

	expect_faults();
	lend_to(&c, &p, to, call_send);
	munmap(c.buf, BYTES);
	across_offer_end(false);
	call_end(&c);
	across_given_up(handle(p.a), handle(p.b));
	CHECK_EQ(st_recv(p.b, to, 1, 0), -ECONNRESET);
	CHECK_EQ(st_recv(p.a, to, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* What lies in pieces is gathered in the ring, and so is what more is to follow. */
STREAM_TEST(not_lent)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0}, *from = memory(2);
	uint64_t before = zero_copies();
	struct iovec parts[] = {{from, BYTES / 2}, {from + BYTES / 2, BYTES / 2}};
	struct call c = {.fd = p.b, .buf = to, .len = BYTES, .flags = MSG_WAITALL};

	offer(&c, p.a);
	CHECK_EQ(tx_send(fd_sock(p.a), p.a, parts, 2, 0), BYTES);
	CHECK_EQ(call_end(&c), BYTES);
	CHECK(flow_is(to, BYTES, 0, 2));
	offer(&c, p.a);
	CHECK_EQ(st_send(p.a, from, BYTES / 2, MSG_MORE), BYTES / 2);
	CHECK_EQ(st_send(p.a, from + BYTES / 2, BYTES / 2, 0), BYTES / 2);
	CHECK_EQ(call_end(&c), BYTES);
	CHECK(flow_is(to, BYTES, 0, 2));
	CHECK_EQ(zero_copies(), before);
	munmap(from, BYTES);
	pair_close(&p);
}

/* Of more than is offered, than a device can write at once, or than the ring has room for, so much. */
static void lent_in_part(uint32_t offered, uint32_t write_max, size_t bytes, size_t part)
{
	static uint8_t to[3 * WIRE_DIR_DATA_BYTES], from[3 * WIRE_DIR_DATA_BYTES];
	struct pair p = open_redirected();
	const struct slot *rx = fd_sock(p.b)->slot;
	const struct across_room room = {.start = to,
					 .bytes = offered,
					 .least = LEAST,
					 .position = rx->rx.consumed,
					 .turn = rx->rx.turn_passed};
	struct slot *sl = fd_sock(p.a)->slot;
	struct peer *a = handle(p.a);
	uint32_t n;

	flow_fill(from, bytes, 0, 4);
	a->link->bulk->link->write_max = write_max;
	REQUIRE(across_offer(handle(p.b), &room));
	while (grant_of(p.a) != GRANT_OPEN)
		across_settle();
	across_hold(a);
	n = across_lend(a, &sl->tx, from, bytes);
	CHECK_EQ(n, part);
	across_release(a);
	while (handle(p.b)->offer.state == OFFER_OPEN)
		across_settle();
	CHECK_EQ(across_offer_end(true), n);
	CHECK(flow_is(to, n, 0, 4));
	across_settle();
	across_lend_end();
	pair_close(&p);
}

STREAM_TEST(lent_no_more_than_there_is_room_for)
{
	lent_in_part(BYTES, 1 << 20, BYTES, BYTES);
	lent_in_part(BYTES, 1 << 20, BYTES + 1000, BYTES);
	lent_in_part(BYTES, 1500, BYTES, 1500);
	lent_in_part(2 * WIRE_DIR_DATA_BYTES, 1 << 30, 2 * WIRE_DIR_DATA_BYTES,
		     wire_area_bytes(0));
}

/* A process that shares the connection says that more has been taken than was sent. */
STREAM_TEST(a_cursor_that_lies)
{
	const size_t bytes = 2 * WIRE_AREA0_BYTES, all = UINT32_MAX;
	struct pair p = open_redirected();
	struct peer *a = handle(p.a);
	uint8_t to[BYTES];
	/* Whatever is made of a room below zero, nothing but that refuses it. */
	uint8_t *from = mmap(NULL, all, PROT_READ,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	REQUIRE(from != MAP_FAILED);
	a->link->bulk->link->write_max = UINT32_MAX;
	offer_here(&p, to);
	a->grant.offer.bytes = (uint32_t)bytes;
	across_hold(a);
	atomic_store(&a->out->consumed, fd_sock(p.a)->slot->tx.produced + 5);
	CHECK_EQ(across_lend(a, &fd_sock(p.a)->slot->tx, from, bytes), 0);
	across_release(a);
	across_offer_end(false);
	pair_close(&p);
	munmap(from, all);
}

/* What another thread sends behind them stays as it is, also where it has been looked at. */
STREAM_TEST(in_vain_amid_others)
{
	struct pair p = open_redirected();
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	struct across_guard g;

	lend_to(&c, &p, to, call_send);
	put(p.a, BYTES, 100, 2);
	g = across_enter();
	CHECK_EQ(ring_rx_avail(&handle(p.a)->reader, handle(p.a)->out, SIZE_MAX),
		 BYTES + 100);
	across_leave(g);
	CHECK_EQ(across_offer_end(false), 0);
	CHECK_EQ(call_end(&c), BYTES);
	munmap(c.buf, BYTES);
	get(p.b, 0, BYTES + 100, 2);
	pair_close(&p);
}

/* A process that shares the connection says that nothing is there to be filled: it ends. */
STREAM_TEST(a_ring_that_has_no_room_for_them)
{
	struct pair p = open_redirected();
	struct peer *a = handle(p.a);
	uint8_t to[BYTES] = {0};
	struct call c = {.fd = p.a, .buf = memory(2), .len = BYTES};
	struct across_guard g;

	lend_to(&c, &p, to, call_send);
	g = across_enter();
	a->reader.seen = a->reader.consumed;
	across_leave(g);
	across_offer_end(false);
	call_end(&c);
	munmap(c.buf, BYTES);
	across_given_up(handle(p.a), handle(p.b));
	CHECK_EQ(st_recv(p.b, to, 1, 0), -ECONNRESET);
	pair_close(&p);
}
