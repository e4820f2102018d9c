/* SPDX-License-Identifier: Apache-2.0 */
/* Between two hosts, too, what a peek has shown is what is read: the peer's device writes over it in our
 * window in between. */
#include "unit/test.h"

#include "conn/promise.h"
#include "conn/shown.h"
#include "unit/conn_pair.h"

enum { SEED = 21 };

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
}

/* The end a is hostile, on another host than b. */
static struct pair open_remote(void)
{
	struct pair p = pair_open_up();

	REQUIRE(peer_of(fd_sock(p.b)) && is_foreign(fd_sock(p.b)));
	return p;
}

/* By its device, at the place of those bytes. */
static void write_there(struct peer *peer, uint64_t at, size_t bytes)
{
	uint8_t *from = peer->link->staging + place_offset(peer->place);
	struct across_guard g = across_enter();

	for (size_t done = 0; done < bytes;) {
		size_t n = bytes - done < 4096 ? bytes - done : 4096;
		const struct link_write w = {.from = from,
					     .bytes = (uint32_t)n,
					     .memory = &peer->link->memory,
					     .at = at + done};

		memset(from, 'E', n);
		REQUIRE(link_post(peer->link->link, &w) == 0);
		done += n;
		across_leave(g);
		across_settle();
		g = across_enter();
	}
	across_leave(g);
}

/* Over all that has been shown to b. */
static void write_over(const struct pair *p)
{
	struct sock *s = fd_sock(p->b);
	struct peer *peer = peer_of(fd_sock(p->a));
	const uint8_t *place = across_in_data(peer_of(s));
	size_t n = shown_bytes(s);

	REQUIRE(n > 0);
	for (size_t done = 0; done < n;) {
		struct ring_span span;

		ring_rx_span(&s->slot->rx, s->in_data, done, &span);
		if (span.len > n - done)
			span.len = n - done;
		write_there(peer,
			    place_offset(peer->peer_place) +
				    (uint64_t)(span.data - place),
			    span.len);
		REQUIRE(span.data[0] == 'E' && span.data[span.len - 1] == 'E');
		done += span.len;
	}
}

static void peek(const struct pair *p, uint64_t at, size_t len)
{
	uint8_t buf[FLOW_MOST];

	REQUIRE(st_recv(p->b, buf, len, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)len);
	REQUIRE(flow_is(buf, len, at, SEED));
}

STREAM_TEST(what_was_peeked_at_is_read)
{
	struct pair p = open_remote();
	uint8_t buf[200];
	struct iovec iov[2] = {{buf, 30}, {buf + 30, 40}};

	put(p.a, 0, 1000, SEED);
	peek(&p, 0, 200);
	write_over(&p);
	peek(&p, 0, 100);
	get(p.b, 0, 10, SEED);
	peek(&p, 10, 190);
	CHECK_EQ(st_recvv(p.b, iov, 2, 0), 70);
	CHECK(flow_is(buf, 70, 10, SEED));
	CHECK_EQ(st_recv(p.b, NULL, 20, MSG_TRUNC), 20);
	/* Over the end of what has been shown: that is what had come. */
	get(p.b, 100, 900, SEED);
	CHECK_EQ(st_recv(p.b, buf, 1, MSG_DONTWAIT), -EAGAIN);
	pair_close(&p);
}

/* Again and again over the ends of the place. */
STREAM_TEST(all_round_the_place)
{
	struct pair p = open_remote();
	uint64_t at = 0, state = 7;

	while (at < 4 * (uint64_t)ACROSS_PLACE_BYTES) {
		size_t len = flow_random(&state) % 9000 + 1, part;

		put(p.a, at, len, SEED);
		across_settle();
		part = flow_random(&state) % len + 1;
		peek(&p, at, part);
		write_over(&p);
		peek(&p, at, part);
		get(p.b, at, len, SEED);
		at += len;
	}
	pair_close(&p);
}

/* At a fork they are put where both processes have them. */
STREAM_TEST(before_a_fork)
{
	for (int by_child = 0; by_child < 2; by_child++) {
		struct pair p = open_remote();
		pid_t pid;

		put(p.a, 0, 1000, SEED);
		peek(&p, 0, 500);
		write_over(&p);
		pid = st_fork();
		if (pid == 0) {
			if (by_child)
				get(p.b, 0, 1000, SEED);
			st_exit();
		}
		st_reap(pid, 0);
		if (!by_child)
			get(p.b, 0, 1000, SEED);
		pair_close(&p);
	}
}

/* The link fails when they have been shown, and with it the connection: no other bytes are given. */
STREAM_TEST(before_the_link_fails)
{
	struct pair p = open_remote();
	struct peer *a = peer_of(fd_sock(p.a));
	struct across_guard g;
	uint8_t buf[500];
	ssize_t n;

	put(p.a, 0, 500, SEED);
	peek(&p, 0, 500);
	write_over(&p);
	g = across_enter();
	link_abort(a->link->link);
	across_leave(g);
	across_settle();
	n = st_recv(p.b, buf, sizeof(buf), MSG_DONTWAIT);
	CHECK(n == -ECONNRESET || (n == 500 && flow_is(buf, 500, 0, SEED)));
	pair_close(&p);
}
