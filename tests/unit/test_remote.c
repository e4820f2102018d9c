/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between two hosts on the fake interconnect: ends, deaths, and places that come
 * back. The tests of the stream run on it as well: see meson.build. */
#include <sys/resource.h>

#include "unit/test.h"

#include "rdma/fabric.h"
#include "unit/conn_pair.h"

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
}

/* The peer's host, or its process, is gone without a word; then its kernel closes. */
static void die(int fd)
{
	struct across_guard g = across_enter();
	struct peer *a = peer_of(fd_sock(fd));

	link_abort(a->link->link);
	across_leave(g);
	shutdown(fd, SHUT_RDWR);
}

/* As a process that is killed does it: the kernel closes, and nobody says anything. */
static void kernel_ends(int fd)
{
	shutdown(fd, SHUT_WR);
}

static uint64_t direct(void)
{
	return atomic_load(&report_now.tx_direct_bytes);
}

STREAM_TEST(bytes_go_by_the_link)
{
	struct pair p = pair_open_up();
	uint64_t before = direct(), tcp = atomic_load(&report_now.tx_tcp_bytes);
	uint64_t sent = atomic_load(&report_now.tx_rdma_bytes);
	uint64_t came = atomic_load(&report_now.rx_rdma_bytes);
	uint32_t seq = fd_sock(p.a)->slot->across;
	CHECK_EQ(seq, 1);
	put(p.a, 0, 5000, 1);
	get(p.b, 0, 5000, 1);
	pair_close(&p);
	CHECK(direct() - before >= 5000);
	CHECK_EQ(atomic_load(&report_now.tx_tcp_bytes), tcp);
	CHECK(atomic_load(&report_now.tx_rdma_bytes) - sent >= 5000);
	CHECK(atomic_load(&report_now.rx_rdma_bytes) - came >= 5000);
}

/* A send is one write, which tells of itself and of what has been read the other way. */
static void turns(struct pair *p, size_t bytes)
{
	enum { TURNS = 200 };
	struct across_link *k[2] = {peer_of(fd_sock(p->a))->link,
				    peer_of(fd_sock(p->b))->link};
	struct wire_dir *out = fd_sock(p->a)->out;
	uint64_t notes[2], posted[2], start = load_relaxed(&out->produced);
	for (size_t i = 0; i < 2 * TURNS; i++) {
		put(p->a, i * bytes, bytes, 1);
		get(p->b, i * bytes, bytes, 1);
		CHECK_EQ(load_relaxed(&out->consumed), start + i * bytes);
		put(p->b, i * bytes, bytes, 2);
		get(p->a, i * bytes, bytes, 2);
		for (int j = 0; i == TURNS - 1 && j < 2; j++) {
			notes[j] = k[j]->notes_sent;
			posted[j] = link_posted(k[j]->link);
		}
	}
	for (int j = 0; j < 2; j++) {
		/* Where the ring begins again a send is two, with a note. */
		CHECK(k[j]->notes_sent - notes[j] <=
		      TURNS * bytes / WIRE_AREA0_BYTES + 2);
		/* Beside them what the link says for itself. */
		CHECK(link_posted(k[j]->link) - posted[j] < TURNS + TURNS / 4);
	}
}

STREAM_TEST(one_write_for_a_send)
{
	static const size_t bytes[] = {1, 64, 1000};
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		struct pair p = pair_open_up();
		turns(&p, bytes[i]);
		pair_close(&p);
	}
}

/* What was not read is no clean end, nor is what may not have come. */
STREAM_TEST(a_link_that_fails_is_a_reset)
{
	struct pair p = pair_open_up();
	char byte;
	put(p.a, 0, 1000, 2);
	get(p.b, 0, 500, 2);
	die(p.a);
	across_settle();
	get(p.b, 500, 500, 2); /* what has come */
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	CHECK(st_level(p.b) & EPOLLIN);
	CHECK_EQ(st_send(p.b, &byte, 1, MSG_NOSIGNAL), -ECONNRESET);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->slot->reason), VD_REASON_LINK);
	pair_close(&p);
}

/* A peer that tells of bytes of another connection than this one is not believed in anything. */
STREAM_TEST(bytes_for_nobody_fail_the_link)
{
	struct pair p = pair_open_up();
	struct peer *a = peer_of(fd_sock(p.a));
	struct link_write w = {.flags = LINK_IMMEDIATE};
	struct across_guard g = across_enter();
	char byte;
	w.immediate = link_immediate(a->peer_place, a->peer_generation + 1u, TELLS_BYTES);
	CHECK_EQ(link_post(a->link->link, &w), 0);
	across_leave(g);
	across_given_up(peer_of(fd_sock(p.b)), a);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* The kernel's end without the peer's words says nothing, until the link has failed. */
STREAM_TEST(an_end_without_words_is_none)
{
	struct pair p = pair_open_up();
	char buf[100];
	put(p.a, 0, 100, 3);
	kernel_ends(p.a);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLRDHUP}, 1, -1) == 1);
	CHECK(!(st_level(p.b) & (EPOLLRDHUP | EPOLLHUP)));
	get(p.b, 0, 100, 3);
	CHECK_EQ(st_recv(p.b, buf, 1, MSG_DONTWAIT), -EAGAIN);
	CHECK(!(st_level(p.b) & EPOLLIN));
	struct call c = {.fd = p.b, .buf = buf, .len = 1};
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	die(p.a);
	CHECK_EQ(call_end(&c), -ECONNRESET);
	pair_close(&p);
}

/* The peer's host goes while it holds bytes unread, and nothing else is under way. */
STREAM_TEST(unread_bytes_keep_an_eye_on_the_peer)
{
	struct pair p = pair_open_up();
	struct across_link *own = peer_of(fd_sock(p.a))->link;
	struct across_link *k = peer_of(fd_sock(p.b))->link;
	struct across_guard g;
	char byte;
	put(p.a, 0, 1000, 3);
	for (bool quiet = false; !quiet; usleep(1000)) {
		across_settle();
		g = across_enter();
		quiet = link_posted(own->link) == link_completed(own->link);
		across_leave(g);
	}
	struct call c = {.fd = p.a, .buf = &byte, .len = 1};
	call_start(&c, call_recv);
	g = across_enter();
	link_abort(k->link);
	across_leave(g);
	CHECK_EQ(call_end(&c), -ECONNRESET);
	pair_close(&p);
}

/* An orderly close, after which the process ends: its words were there first. */
STREAM_TEST(a_close_before_the_link_fails_is_an_end)
{
	struct pair p = pair_open_up();
	char byte;
	struct across_guard g;
	struct across_link *k = peer_of(fd_sock(p.a))->link;
	put(p.a, 0, 3000, 4);
	st_close(p.a);
	p.a = -1;
	g = across_enter();
	link_abort(k->link);
	across_leave(g);
	across_settle();
	get(p.b, 0, 3000, 4);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	pair_close(&p);
}

/* The peer's last words to an end that was closed with a waiter's mark left in place. */
STREAM_TEST(words_for_a_closed_end_ring_nobody)
{
	struct pair p = pair_open_up();
	struct peer *a = peer_of(fd_sock(p.a));
	across_settle();
	st_close(p.a);
	p.a = -1;
	REQUIRE(a->state == ACROSS_ENDED && !a->last_came);
	atomic_store(&a->in->rx_armed, a->rung_rx + 1);
	pair_close(&p);
	across_settle();
	CHECK(a->last_came);
}

/* Nothing was under way where both directions are the kernel's. */
STREAM_TEST(on_tcp_a_failed_link_is_nothing)
{
	struct pair p = pair_open_up();
	sock_down(fd_sock(p.a), p.a, VD_REASON_OPTION);
	sock_service(fd_sock(p.b), p.b);
	sock_service(fd_sock(p.a), p.a);
	CHECK_EQ(phase_of(fd_sock(p.a)->slot), SLOT_FINAL);
	CHECK_EQ(phase_of(fd_sock(p.b)->slot), SLOT_FINAL);
	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_guard g = across_enter();
		if (across_links[i].link)
			link_abort(across_links[i].link);
		across_leave(g);
	}
	across_settle();
	put(p.a, 0, 1000, 5);
	get(p.b, 0, 1000, 5);
	pair_close(&p);
}

/* A link that fails before the first note has been heard has carried nothing. */
STREAM_TEST(a_link_that_fails_at_once_leaves_tcp)
{
	struct pair p = pair_open();
	struct across_link *k = peer_of(fd_sock(p.a))->link;
	struct across_guard g = across_enter();
	link_abort(k->link);
	across_leave(g);
	across_settle();
	for (int i = 0; i < 20; i++) {
		put(p.a, (size_t)i * 100, 100, 6);
		get(p.b, (size_t)i * 100, 100, 6);
	}
	CHECK(!pair_is_up(&p));
	pair_close(&p);
}

/* Only one way through: what one end says would be heard, and nothing could be known then. */
STREAM_TEST(a_link_that_works_one_way_leaves_tcp)
{
	for (int deaf = 0; deaf < 2; deaf++) {
		struct across_link *k[2];
		struct pair p;
		struct across_guard g;
		across_world_begin();
		g = across_enter();
		for (int i = 0; i < ACROSS_LINKS; i++) /* no older one is used */
			if (across_links[i].link)
				link_abort(across_links[i].link);
		hub_poll();
		across_link_pair(k);
		fake_deafen(k[deaf]->link);
		across_leave(g);
		p = pair_open();
		for (int i = 0; i < 40; i++) {
			put(p.a, (size_t)i * 100, 100, 6);
			get(p.b, (size_t)i * 100, 100, 6);
			put(p.b, (size_t)i * 100, 100, 7);
			get(p.a, (size_t)i * 100, 100, 7);
			across_settle();
		}
		CHECK(k[0]->failed || !k[0]->link);
		CHECK(!pair_is_up(&p));
		pair_close(&p);
	}
}

STREAM_TEST(a_half_close_ends_one_direction)
{
	struct pair p = pair_open_up();
	char byte;
	put(p.a, 0, 2000, 7);
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	get(p.b, 0, 2000, 7);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	put(p.b, 0, 2000, 8);
	get(p.a, 0, 2000, 8);
	pair_close(&p);
}

static int count_links(void)
{
	int n = 0;
	for (int i = 0; i < ACROSS_LINKS; i++)
		n += across_links[i].link != NULL;
	return n;
}

STREAM_TEST(places_come_back)
{
	int links = count_links();
	for (int i = 0; i < 300; i++) {
		struct pair p = pair_open_up();
		put(p.a, 0, 100, (uint8_t)i);
		if (i % 3 == 0)
			get(p.b, 0, 100, (uint8_t)i);
		st_close(i % 2 ? p.a : p.b);
		st_close(i % 2 ? p.b : p.a);
	}
	/* One that had failed before may be gone. */
	CHECK(count_links() <= links);
}

/* A device has one error for a machine without memory and for a user who may not pin so much. */
STREAM_TEST(what_may_not_be_pinned_has_a_reason)
{
	struct pair p = pair_open_up();
	struct rlimit before, low;
	struct across_guard g = across_enter();
	struct across_link *k;
	struct link *links[ACROSS_LINKS];
	for (int i = 0; i < ACROSS_LINKS; i++)
		links[i] = across_links[i].link;
	REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
	low = (struct rlimit){.rlim_cur = ACROSS_WINDOW_BYTES,
			      .rlim_max = before.rlim_max};
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
	fake_inject(across_contexts[0].context, 1);
	CHECK_EQ(hub_create(&across_contexts[0], &k), -EDQUOT);
	low.rlim_cur = low.rlim_max = RLIM_INFINITY;
	if (setrlimit(RLIMIT_MEMLOCK, &low) == 0) { /* as root */
		fake_inject(across_contexts[0].context, 1);
		CHECK_EQ(hub_create(&across_contexts[0], &k), -ENOMEM);
		CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
	}
	/* None is new. One that was of no use may be gone. */
	for (int i = 0; i < ACROSS_LINKS; i++)
		CHECK(!across_links[i].link || across_links[i].link == links[i]);
	across_leave(g);
	pair_close(&p);
}

/* So many immediates may be under way from now on: the next one takes the last credit, and then all
 * are granted. */
static void leave_credit(int fd, int peer, uint32_t credits)
{
	struct link *l = peer_of(fd_sock(fd))->link->link;

	for (bool done = false; !done;) {
		struct across_guard g = across_enter();

		done = l->sent - l->granted < credits;
		l->peer.credits = done ? credits : (uint32_t)(l->sent - l->granted) + 1;
		across_leave(g);
		put(fd, 0, 10, 1);
		get(peer, 0, 10, 1);
		across_settle();
	}
}

/* As if this had just been read; `again`: there is to be another look. */
static void read_words(struct peer *b, const struct told *t, bool again)
{
	struct across_link *k = b->link;
	memcpy(k->window + ACROSS_HEARD_AT + b->place * sizeof(*t), t, sizeof(*t));
	k->pull.must_look = false;
	k->pull.state = PULL_WORDS;
	pull_take(k);
	CHECK_EQ(k->pull.state, PULL_IDLE);
	CHECK_EQ(k->pull.must_look, again);
}

/* Words are believed at their time: not before all that was sent before them, and once. */
STREAM_TEST(words_that_are_read)
{
	struct pair p = pair_open_up();
	struct peer *a = peer_of(fd_sock(p.a));
	struct peer *b = peer_of(fd_sock(p.b));
	struct across_guard g;
	struct told t, bad;
	across_settle();
	g = across_enter();
	atomic_store(&a->in->rx_bound, 4711);
	aside_push(a);
	t = ((const struct told *)(const void *)(a->link->window +
						 ACROSS_TOLD_AT))[a->peer_place];
	CHECK(t.number != 0 && t.number == a->told.number);
	bad = t;
	bad.words.rx_bound++;
	read_words(b, &bad, true); /* amid a change */
	/* Amid one that never ends: something must come before the next look. */
	for (int i = 1; i < PULL_VAIN_MOST - 1; i++)
		read_words(b, &bad, true);
	read_words(b, &bad, false);
	CHECK(b->link->pull.waits);
	pull_came(b->link);
	CHECK(b->link->pull.must_look);
	read_words(b, &bad, true);
	bad = (struct told){0};
	read_words(b, &bad, false); /* nothing */
	b->link->immediates_came--;
	read_words(b, &t, true);
	b->heard = false; /* the first note, too, is still to come */
	read_words(b, &t, true);
	b->heard = true;
	b->link->immediates_came++;
	b->generation++;
	read_words(b, &t, false);
	b->generation--;
	CHECK_EQ(atomic_load(&b->out->rx_bound), 0);
	b->link->immediates_came++; /* another connection's */
	read_words(b, &t, true);
	b->link->immediates_came--;
	CHECK_EQ(atomic_load(&b->out->rx_bound), 4711);
	atomic_store(&b->out->rx_bound, 0);
	read_words(b, &t, false);
	CHECK_EQ(atomic_load(&b->out->rx_bound), 0);
	/* Something new each time: as amid a change that never ends. */
	pull_came(b->link);
	bad = t;
	for (int i = 1; i <= PULL_VAIN_MOST; i++) {
		bad.number++;
		bad.check = aside_check(&bad);
		read_words(b, &bad, i < PULL_VAIN_MOST);
		CHECK_EQ(b->link->pull.heard[b->place], bad.number);
	}
	CHECK(b->link->pull.waits);
	pull_came(b->link);
	CHECK(b->link->pull.must_look);
	atomic_store(&b->out->rx_bound, 0);
	across_leave(g);
	put(p.a, 0, 1000, 1);
	get(p.b, 0, 1000, 1);
	/* And notes go on where that ended. */
	for (bool done = false; !done;) {
		across_settle();
		put(p.a, 0, 10, 1);
		get(p.b, 0, 10, 1);
		g = across_enter();
		done = a->told.number == 0;
		across_leave(g);
	}
	pair_close(&p);
}

/* Nearly each message takes the last credit, and has the peer read what follows it. */
STREAM_TEST(words_without_credit_are_read)
{
	for (uint32_t credits = 2; credits < 5; credits++) {
		struct pair p = pair_open_up();
		struct flow f[4] = {
			{.fd = p.a, .bytes = 300000, .most = 2000, .seed = 1},
			{.fd = p.b, .bytes = 300000, .most = 2000, .seed = 1},
			{.fd = p.b, .bytes = 300000, .most = 2000, .seed = 2},
			{.fd = p.a, .bytes = 300000, .most = 2000, .seed = 2}};
		struct across_link *k = peer_of(fd_sock(p.a))->link;

		leave_credit(p.a, p.b, credits);
		leave_credit(p.b, p.a, credits);
		for (int i = 0; i < 4; i++)
			flow_start(&f[i], i % 2 ? flow_recv : flow_send);
		for (int i = 0; i < 4; i++) {
			flow_join(&f[i]);
			CHECK_EQ(f[i].at, 300000);
		}
		struct across_guard g = across_enter();
		CHECK(!k->failed);
		link_abort(k->link); /* nobody else is to have it so */
		across_leave(g);
		pair_close(&p);
	}
}

/* One way; what is behind `at` has not been sent, or not been received. */
struct aside_way {
	int from, to;
	uint64_t sent, got;
	uint8_t seed;
	uint32_t small; /* of four messages, so many */
};

static uint32_t any(uint32_t *state, uint32_t below)
{
	*state = *state * 1103515245 + 12345;
	return (*state >> 16) % below;
}

static void send_some(struct aside_way *w, uint32_t *random)
{
	uint8_t buf[3000];
	size_t n = 1 + any(random, any(random, 4) < w->small ? 40 : sizeof(buf));
	ssize_t r;
	for (size_t i = 0; i < n; i++)
		buf[i] = flow_byte(w->sent + i, w->seed);
	r = st_send(w->from, buf, n, MSG_DONTWAIT);
	REQUIRE(r > 0 || r == -EAGAIN);
	w->sent += r > 0 ? (uint64_t)r : 0;
}

static void get_some(struct aside_way *w, uint32_t *random)
{
	uint8_t buf[8000];
	ssize_t r = st_recv(w->to, buf, 1 + any(random, sizeof(buf)), MSG_DONTWAIT);
	REQUIRE(r > 0 || r == -EAGAIN);
	if (r > 0)
		REQUIRE(flow_is(buf, (size_t)r, w->got, w->seed));
	w->got += r > 0 ? (uint64_t)r : 0;
}

static void watch_both(struct link_context *c[2], uint32_t ms)
{
	struct across_guard g = across_enter();

	across_watch(c[0], ms);
	across_watch(c[1], ms);
	across_leave(g);
}

/* One end is in a call, the other one is in none as often as not. Time passes. */
static void in_call(struct link_context *c[2], int end, uint32_t *random)
{
	struct across_guard g = across_enter();
	fake_leave(c[end], false);
	fake_leave(c[1 - end], any(random, 4) > 0);
	for (uint32_t i = any(random, 20); i; i--)
		fake_step(across_world);
	across_leave(g);
}

/* As between two programs that send, and then are in no call for long. */
STREAM_TEST(bytes_without_credit_are_read)
{
	for (uint32_t round = 0; round < 12; round++) {
		struct pair p = pair_open_up();
		struct aside_way w[2] = {{p.a, p.b, 0, 0, 1, round % 4},
					 {p.b, p.a, 0, 0, 2, round % 3}};
		struct across_link *k = peer_of(fd_sock(p.a))->link;
		struct across_link *l = peer_of(fd_sock(p.b))->link;
		struct link_context *c[2] = {k->context->context, l->context->context};
		uint32_t random = round + 1, told;
		leave_credit(p.a, p.b, 2 + round % 4);
		leave_credit(p.b, p.a, 2 + round / 4);
		told = k->told;
		across_is_hasty = true;
		watch_both(c, LINK_WATCH_MAX);
		for (int step = 0; step < 1000; step++) {
			int end = (int)any(&random, 2);
			in_call(c, end, &random);
			for (uint32_t i = any(&random, 6); i; i--)
				send_some(&w[end], &random);
			if (any(&random, 3) == 0)
				get_some(&w[1 - end], &random);
		}
		/* Who is in no call has told all. */
		for (int end = 0; end < 2; end++) {
			fake_leave(c[end], false);
			fake_leave(c[1 - end], true);
			while (w[1 - end].got < w[1 - end].sent)
				get_some(&w[1 - end], &random);
		}
		across_is_hasty = false;
		CHECK(k->told - told > 100);
		watch_both(c, ACROSS_WATCH_MS);
		fake_leave(c[0], false);
		struct across_guard g = across_enter();
		CHECK(!k->failed && !l->failed);
		link_abort(k->link); /* nobody else is to have it so */
		across_leave(g);
		pair_close(&p);
	}
}

/* Both ways at once on more connections than a link has places. */
STREAM_TEST(many_share_a_link)
{
	enum { PAIRS = 12 };
	struct pair p[PAIRS];
	struct flow f[4 * PAIRS];
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_open_up();
	for (int i = 0; i < PAIRS; i++) {
		f[4 * i] = (struct flow){.fd = p[i].a, .bytes = 1 << 20, .seed = 1};
		f[4 * i + 1] = (struct flow){.fd = p[i].b, .bytes = 1 << 20, .seed = 1};
		f[4 * i + 2] = (struct flow){.fd = p[i].b, .bytes = 1 << 20, .seed = 2};
		f[4 * i + 3] = (struct flow){.fd = p[i].a, .bytes = 1 << 20, .seed = 2};
	}
	for (int i = 0; i < 4 * PAIRS; i++)
		flow_start(&f[i], i % 2 ? flow_recv : flow_send);
	for (int i = 0; i < 4 * PAIRS; i++) {
		flow_join(&f[i]);
		CHECK_EQ(f[i].at, 1 << 20);
	}
	for (int i = 0; i < PAIRS; i++)
		pair_close(&p[i]);
}
