/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between two hosts that go past the ring, on the fake interconnect: taken whole, in part and
 * not at all, withdrawn while they are on their way, and by peers that cheat. */
#include <setjmp.h>

#include "unit/cancelled.h"
#include "unit/test.h"

#include "rdma/fabric.h"
#include "unit/redirect_pair.h"

/* One receive of `room` bytes, for which `bytes` come; how many times they were redirected. */
static uint64_t one(const struct pair *p, size_t room, size_t bytes, uint8_t seed)
{
	static uint8_t buf[FLOW_MOST];
	struct call c = {.fd = p->b, .buf = buf, .len = room};
	uint64_t before;
	size_t got;

	offer(&c, p->a);
	before = redirects();
	memset(buf, 0, sizeof(buf));
	put(p->a, 0, bytes, seed);
	got = (size_t)call_end(&c);
	CHECK_EQ(got, bytes < room ? bytes : room);
	CHECK(flow_is(buf, got, 0, seed));
	for (size_t i = got; i < room; i++)
		CHECK_EQ(buf[i], 0);
	if (got < bytes)
		get(p->b, got, bytes - got, seed);
	across_settle();
	return redirects() - before;
}

STREAM_TEST(whole_in_part_and_not_at_all)
{
	struct pair p = open_redirected();
	uint64_t direct = atomic_load(&report_now.rx_tcp_bytes);

	/* Both ends count it, and are one process here. */
	CHECK_EQ(one(&p, 4000, 4000, 2), 2);
	CHECK_EQ(one(&p, 4000, 2000, 3), 2);
	CHECK_EQ(one(&p, 2000, 4000, 4), 2);
	CHECK_EQ(one(&p, 4000, LEAST - 1, 5), 0);
	CHECK_EQ(one(&p, 4000, 4000, 6), 2);
	CHECK_EQ(atomic_load(&report_now.rx_tcp_bytes), direct);
	pair_close(&p);
}

/* A ring's end lies in the middle of what is sent; and the ring moves to a larger area. */
STREAM_TEST(over_the_end_of_an_area)
{
	struct pair p = open_redirected();
	static uint8_t buf[100000];
	uint64_t before = redirects();

	for (uint8_t i = 0; i < 100; i++) {
		size_t bytes = i % 2 ? 60000 : 9999;
		struct call c = {
			.fd = p.b, .buf = buf, .len = bytes, .flags = MSG_WAITALL};

		offer(&c, p.a);
		put(p.a, 0, bytes, i);
		CHECK_EQ(call_end(&c), bytes);
		CHECK(flow_is(buf, bytes, 0, i));
	}
	CHECK(redirects() - before >= 100);
	pair_close(&p);
}

STREAM_TEST(a_timeout_withdraws)
{
	struct pair p = open_redirected();
	uint8_t buf[4000] = {0};
	struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};
	uint64_t before = redirects();

	st_timeout(p.b, SO_RCVTIMEO, 30);
	offer(&c, p.a);
	CHECK_EQ(call_end(&c), -EAGAIN);
	put(p.a, 0, 4000, 7);
	across_settle();
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK_EQ(buf[i], 0);
	get(p.b, 0, 4000, 7);
	CHECK_EQ(redirects(), before);
	pair_close(&p);
}

/* Less than is told by itself; what is told later goes by it. */
STREAM_TEST(a_verdict_tells_what_was_read)
{
	struct pair p = open_redirected();
	uint8_t buf[4000];

	st_timeout(p.b, SO_RCVTIMEO, 5);
	for (size_t i = 0; i < 20; i++) {
		struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};

		put(p.a, 0, 700 * (i % 5), 1);
		get(p.b, 0, 700 * (i % 5), 1);
		offer(&c, p.a);
		CHECK_EQ(call_end(&c), -EAGAIN);
		across_settle();
		CHECK_EQ(handle(p.b)->sent.consumed, handle(p.a)->came.consumed);
		CHECK_EQ(fd_sock(p.b)->slot->rx.consumed, handle(p.a)->came.consumed);
	}
	pair_close(&p);
}

static void *recv_for_ever(void *arg)
{
	struct call *c = arg;

	atomic_store(&c->tid, gettid());
	c->result = rx_recv(fd_sock(c->fd), c->fd, &(struct iovec){c->buf, c->len}, 1, 0);
	atomic_store(&c->done, true);
	return NULL;
}

STREAM_TEST(a_cancelled_thread_withdraws)
{
	struct pair p = open_redirected();
	uint8_t buf[4000] = {0};
	struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};

	REQUIRE(pthread_create(&c.thread, NULL, recv_for_ever, &c) == 0);
	while (grant_of(p.a) != GRANT_OPEN || !call_sleeps(&c))
		across_settle();
	REQUIRE(pthread_cancel(c.thread) == 0);
	REQUIRE(pthread_join(c.thread, NULL) == 0);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(handle(p.b)->offer.state, OFFER_NONE);
	put(p.a, 0, 4000, 8);
	across_settle();
	CHECK_EQ(buf[0], 0);
	get(p.b, 0, 4000, 8);
	pair_close(&p);
}

STREAM_TEST(a_handler_withdraws)
{
	struct pair p = open_redirected();
	const struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	uint8_t buf[4000] = {0};
	struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	offer(&c, p.a);
	while (!call_sleeps(&c))
		usleep(100);
	REQUIRE(pthread_kill(c.thread, SIGUSR1) == 0);
	CHECK_EQ(call_end(&c), -EINTR);
	put(p.a, 0, 4000, 9);
	across_settle();
	CHECK_EQ(buf[0], 0);
	get(p.b, 0, 4000, 9);
	pair_close(&p);
}

STREAM_TEST(a_close_withdraws)
{
	struct pair p = open_redirected();
	struct peer *a = handle(p.b);
	uint8_t buf[4000] = {0};
	struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};

	offer(&c, p.a);
	while (!call_sleeps(&c))
		usleep(100);
	CHECK(st_send(p.b, "bye", 3, 0) == 3);
	st_shutdown(p.b, SHUT_RDWR);
	CHECK_EQ(call_end(&c), 0);
	CHECK_EQ(a->offer.state, OFFER_NONE);
	pair_close(&p);
	across_settle();
}

/* The link beside the first fails, at either end, with an offer open: the ring takes over, and a
 * new one is made. */
STREAM_TEST(a_link_beside_may_fail)
{
	for (int end = 0; end < 2; end++) {
		struct pair p = open_redirected();
		uint8_t buf[4000];
		struct call c = {.fd = p.b, .buf = buf, .len = sizeof(buf)};
		struct across_link *k = handle(end ? p.b : p.a)->link;
		uint32_t turn = k->bulk_turn;
		struct across_guard g;

		offer(&c, p.a);
		g = across_enter();
		REQUIRE(k->bulk);
		link_abort(k->bulk->link);
		across_leave(g);
		put(p.a, 0, 4000, 10);
		CHECK_EQ(call_end(&c), 4000);
		CHECK(flow_is(buf, 4000, 0, 10));
		pair_close(&p);
		p = open_redirected();
		CHECK(handle(p.a)->link->bulk_turn > turn);
		CHECK(!handle(p.a)->link->failed);
		pair_close(&p);
	}
}

static void cheat(int fd, struct note *n)
{
	struct peer *a = handle(fd);
	struct across_guard g = across_enter();

	n->place = (uint8_t)a->peer_place;
	n->generation = a->peer_generation;
	CHECK_EQ(note_post(a->link, n, sizeof(*n), 0), 0);
	across_leave(g);
	across_settle();
}

STREAM_TEST(peers_that_cheat)
{
	for (int way = 0; way < 4; way++) {
		struct pair p = open_redirected();
		struct peer *a = handle(p.a), *b = handle(p.b);
		struct note n = {.kind = NOTE_VERDICT};
		int cheats = p.b;
		char byte;

		across_settle();
		if (way == 0) { /* of an offer that was not made */
			n.verdict.number = b->offer.number + 1;
		} else if (way == 1) { /* more than was sent */
			n.verdict.number = b->offer.number;
			n.verdict.position = b->offer.position + 1;
		} else if (way == 2) { /* room for nothing */
			n.kind = NOTE_OFFER;
			n.offer.number = b->offer.number + 1;
		} else { /* a link beside, by an end that does not make them */
			n.kind = NOTE_BULK;
			n.bulk.what = a->link->is_first ? BULK_WANTED : 77;
			if (!a->link->is_first)
				n.bulk.what = BULK_GONE + 1;
		}
		if (way == 3 && a->link->is_first)
			cheats = p.a;
		cheat(cheats, &n);
		across_given_up(cheats == p.a ? b : a, cheats == p.a ? a : b);
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), -ECONNRESET);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
		pair_close(&p);
	}
}

/* Each link beside costs a queue pair: a peer that ends them, and asks for more, gets no more. */
STREAM_TEST(a_peer_that_wants_one_after_another)
{
	struct pair p = open_redirected();
	bool is_first = handle(p.a)->link->is_first;
	int first = is_first ? p.a : p.b, second = is_first ? p.b : p.a;
	struct across_link *makes = handle(first)->link, *takes = handle(second)->link;
	uint32_t turn = makes->bulk_turn;
	struct note n = {.kind = NOTE_BULK};

	bulk_retry_ms = 60000;
	for (uint32_t i = 1; i < 10; i++) {
		n.bulk.what = BULK_GONE;
		n.bulk.turn = turn;
		cheat(second, &n);
		n.bulk.what = BULK_WANTED;
		cheat(second, &n);
		n.bulk.what = BULK_HELLO;
		n.bulk.turn = turn + i;
		cheat(first, &n);
	}
	CHECK_EQ(makes->bulk_turn, turn);
	CHECK_EQ(takes->bulk_turn, turn);
	CHECK(!makes->failed && !takes->failed);
	bulk_retry_ms = 2;
	makes->bulk_not_before_ms = takes->bulk_not_before_ms = takes->bulk_hello_ms = 0;
	put(p.a, 0, 4000, 1);
	get(p.b, 0, 4000, 1);
	pair_close(&p);
	p = open_redirected();
	pair_close(&p);
}

/* More bytes than were offered room is what the device refuses; a lie about them we do. */
STREAM_TEST(more_than_was_offered)
{
	struct pair p = open_redirected();
	struct peer *a = handle(p.a);
	uint8_t buf[4000];
	struct call c = {.fd = p.b, .buf = buf, .len = 2000};
	struct across_guard g;

	offer(&c, p.a);
	g = across_enter();
	a->grant.offer.bytes = 4000;
	across_leave(g);
	put(p.a, 0, 4000, 11);
	CHECK_EQ(call_end(&c), 2000);
	CHECK(flow_is(buf, 2000, 0, 11));
	get(p.b, 2000, 2000, 11);
	pair_close(&p);
}

/* What a device cannot say of an offer, or a peer twice. */
STREAM_TEST(numbers_that_do_not_fit)
{
	struct pair p = open_redirected();
	struct peer *a = handle(p.a), *b = handle(p.b);
	uint8_t buf[4000];
	struct call c = {.fd = p.b, .buf = buf, .len = 2000};
	struct across_guard g;
	struct note n = {.kind = NOTE_VERDICT};

	offer(&c, p.a);
	g = across_enter();
	CHECK(!redirect_landed(b, b->offer.number & 0xff, 2001));
	CHECK(!redirect_landed(b, b->offer.number & 0xff, 0));
	/* Withdrawn, as far as it knows: the verdict says so. */
	CHECK(redirect_landed(b, (b->offer.number + 1) & 0xff, 2001));
	CHECK_EQ(b->offer.landed, 0);
	/* One that was judged is judged alike once more. */
	n.verdict = a->grant.judged;
	a->grant.offer.number = n.verdict.number;
	CHECK(redirect_take_verdict(a, &n.verdict));
	n.verdict.position++;
	CHECK(!redirect_take_verdict(a, &n.verdict));
	a->grant.offer.number = b->offer.number;
	/* All that was written has landed, or nothing; and nothing if nothing was written. */
	n.verdict.number = a->grant.offer.number;
	a->grant.bytes = 100;
	n.verdict.position = a->grant.offer.position + 100;
	CHECK(!redirect_take_verdict(a, &n.verdict));
	a->grant.state = GRANT_USED;
	for (int by = -1; by <= 1; by += 2) {
		n.verdict.position = a->grant.offer.position + 100 + (uint64_t)by;
		CHECK(!redirect_take_verdict(a, &n.verdict));
	}
	a->grant.state = GRANT_OPEN;
	/* None without a number; and none more while bytes are on their way to the last. */
	n = (struct note){.kind = NOTE_OFFER, .offer = a->grant.offer};
	n.offer.number = 0;
	CHECK(!redirect_take(a, &n));
	n.offer.number = a->grant.offer.number + 1;
	a->grant.state = GRANT_USED;
	CHECK(!redirect_take(a, &n));
	a->grant.state = GRANT_OPEN;
	/* None before there is a connection. */
	a->heard = false;
	CHECK(!redirect_take(a, &n));
	a->heard = true;
	across_leave(g);
	put(p.a, 0, 2000, 12);
	CHECK_EQ(call_end(&c), 2000);
	CHECK(flow_is(buf, 2000, 0, 12));
	pair_close(&p);
}

/* A device that cannot write so much at once: the ring has the rest. */
STREAM_TEST(more_than_a_device_can_write)
{
	struct pair p = open_redirected();
	uint8_t buf[4000];
	struct call c = {.fd = p.b, .buf = buf, .len = 4000};
	struct across_link *k = handle(p.a)->link;
	struct across_guard g = across_enter();
	uint32_t turn = k->bulk_turn;
	uint64_t before = redirects();
	size_t got;

	k->link->write_max = k->bulk->link->write_max = 1500;
	across_leave(g);
	offer(&c, p.a);
	put(p.a, 0, 4000, 13);
	got = (size_t)call_end(&c);
	CHECK_EQ(got, 1500);
	CHECK(flow_is(buf, got, 0, 13));
	get(p.b, got, 4000 - got, 13);
	CHECK_EQ(redirects(), before + 2);
	CHECK_EQ(k->bulk_turn, turn);
	pair_close(&p);
}

/* Bytes from two places, which are gathered in the ring, of which `part` go to the offer. */
static void gathered(uint32_t offered, uint32_t write_max, uint32_t turns, size_t part)
{
	struct pair p = open_redirected();
	struct across_link *k = handle(p.a)->link;
	uint8_t to[4000], from[4000];
	const struct iovec parts[] = {{from, 2000}, {from + 2000, 2000}};
	struct call c = {.fd = p.b, .buf = to, .len = offered};
	struct across_guard g = across_enter();
	uint32_t turn = k->bulk_turn;
	uint64_t before = redirects();
	size_t got;

	k->link->write_max = k->bulk->link->write_max = write_max;
	across_leave(g);
	flow_fill(from, sizeof(from), 0, 14);
	offer(&c, p.a);
	g = across_enter();
	handle(p.a)->grant.offer.turn += turns;
	across_leave(g);
	CHECK_EQ(tx_send(fd_sock(p.a), p.a, parts, 2, 0), sizeof(from));
	got = (size_t)call_end(&c);
	CHECK_EQ(got, part ? part : offered);
	CHECK(flow_is(to, got, 0, 14));
	CHECK_EQ(redirects(), before + (part ? 2 : 0));
	CHECK_EQ(k->bulk_turn, turn);
	if (got < sizeof(from))
		get(p.b, got, sizeof(from) - got, 14);
	pair_close(&p);
}

STREAM_TEST(gathered_no_more_than_there_is_room_for)
{
	gathered(4000, 1 << 20, 0, 4000);
	gathered(2000, 1 << 20, 0, 2000);
	gathered(4000, 1500, 0, 1500);
}

/* An offer at another place of the ring's moves is not for these bytes. */
STREAM_TEST(gathered_of_another_turn)
{
	gathered(4000, 1 << 20, 1, 0);
}

/* ---- at random ---- */

enum { BUFFERS = 4 };

/* Receives into one buffer after the other, and sees to it that nobody writes to those that are not
 * given away. */
static void *receive_at_random(void *arg)
{
	static _Thread_local uint8_t buf[BUFFERS][FLOW_MOST], was[BUFFERS][FLOW_MOST];
	struct flow *f = arg;
	uint64_t state = 0x51ed270b + f->seed;

	for (unsigned i = 0; f->at < f->bytes; i++) {
		uint8_t *to = buf[i % BUFFERS];
		size_t len = flow_random(&state) % FLOW_MOST + 1;
		int flags = flow_random(&state) % 3 ? 0 : MSG_WAITALL;

		if (len > f->bytes - f->at)
			len = (size_t)(f->bytes - f->at);
		f->result = rx_recv(fd_sock(f->fd), f->fd, &(struct iovec){to, len}, 1,
				    flags);
		memcpy(was[i % BUFFERS], to, FLOW_MOST);
		for (unsigned j = 0; j < BUFFERS; j++)
			REQUIRE(!memcmp(was[j], buf[j], FLOW_MOST));
		if (f->result == -EAGAIN || f->result == -EINTR)
			continue;
		if (f->result <= 0)
			break;
		REQUIRE(flow_is(to, (size_t)f->result, f->at, f->seed));
		f->at += (uint64_t)f->result;
	}
	atomic_store(&f->done, true);
	return NULL;
}

static void *send_at_random(void *arg)
{
	static _Thread_local uint8_t buf[FLOW_MOST];
	struct flow *f = arg;
	uint64_t state = 0x2545f491 + f->seed;

	while (f->at < f->bytes) {
		size_t len = flow_random(&state) % FLOW_MOST + 1;

		if (len > f->bytes - f->at)
			len = (size_t)(f->bytes - f->at);
		flow_fill(buf, len, f->at, f->seed);
		f->result =
			tx_send(fd_sock(f->fd), f->fd, &(struct iovec){buf, len}, 1, 0);
		if (f->result == -EINTR)
			continue;
		if (f->result <= 0)
			break;
		f->at += (uint64_t)f->result;
		if (flow_random(&state) % 4 == 0)
			usleep((unsigned)flow_random(&state) % 3000);
	}
	atomic_store(&f->done, true);
	return NULL;
}

/* Two directions, up to there, with a signal to one thread after the other. */
static void all_ways(struct flow f[4], uint64_t end, unsigned signals_us)
{
	for (int i = 0; i < 4; i++) {
		f[i].bytes = end;
		atomic_store(&f[i].done, false);
		flow_start(&f[i], i % 2 ? receive_at_random : send_at_random);
	}
	for (int i = 0; !atomic_load(&f[1].done) || !atomic_load(&f[3].done); i++) {
		usleep(signals_us);
		if (!atomic_load(&f[i % 4].done))
			pthread_kill(f[i % 4].thread, SIGUSR1);
	}
	for (int i = 0; i < 4; i++) {
		flow_join(&f[i]);
		CHECK_EQ(f[i].at, end);
	}
}

STREAM_TEST(both_ways_with_timeouts_and_signals)
{
	enum { BYTES = 6 << 20 };
	const struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	uint64_t before = redirects();
	struct pair p = open_redirected();
	struct across_link *k = handle(p.a)->link;
	uint32_t turn = k->bulk_turn;
	struct flow f[4] = {{.fd = p.a, .seed = 1},
			    {.fd = p.b, .seed = 1},
			    {.fd = p.b, .seed = 2},
			    {.fd = p.a, .seed = 2}};

	bulk_retry_ms = 2;
#ifdef __SANITIZE_THREAD__
	const int slowness = 30;
#else
	const int slowness = 1;
#endif
	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	st_timeout(p.a, SO_RCVTIMEO, 2 * slowness);
	st_timeout(p.b, SO_RCVTIMEO, 1 * slowness);
	/* How many of them there is room for between two interruptions is up to the machine: until
	 * there are more than the beginning has. The alarm is the only bound. */
	for (uint64_t end = BYTES; end == BYTES || redirects() - before <= 2;
	     end += BYTES)
		all_ways(f, end, (unsigned)slowness * 700);
	printf("%llu redirects, %u links beside\n",
	       (unsigned long long)(redirects() - before), k->bulk_turn - turn);
	pair_close(&p);
}

static sigjmp_buf away;

static void jump_away(int sig, siginfo_t *info, void *context)
{
	if (!crit_defer(sig, info, context))
		siglongjmp(away, 1);
}

/* A handler that had to wait for the lock finds the thread as the program has it, and may keep it so. */
STREAM_TEST(a_handler_that_waits_for_the_lock_and_jumps_away)
{
	const struct sigaction act = {.sa_sigaction = jump_away, .sa_flags = SA_SIGINFO};
	int state = -1;

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	if (sigsetjmp(away, 1) == 0) {
		struct across_guard g = across_enter();

		REQUIRE(raise(SIGUSR1) == 0);
		across_leave(g);
		CHECK(!"the handler has come back");
	}
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
	across_catch_up();
}
