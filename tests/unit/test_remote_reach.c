/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to memory that is exported, between two hosts on the fake interconnect: all there when they are
 * said to be, and nothing there once the key is void, whatever fails, and when. */
#include "unit/test.h"

#include "unit/redirect_pair.h"

enum { BYTES = 60000, GUARD = 64, SETTLES = 200 };

/* Memory of p.b's program, with a fence of bytes around it. */
static uint8_t *there(void)
{
	static uint8_t memory[BYTES + 2 * GUARD];

	memset(memory, 0xee, sizeof(memory));
	return memory + GUARD;
}

static void check_guards(const uint8_t *at)
{
	for (int i = 1; i <= GUARD; i++) {
		REQUIRE(at[-i] == 0xee);
		REQUIRE(at[BYTES + i - 1] == 0xee);
	}
}

static uint32_t pick(uint32_t below)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % below;
}

/* What p.b's peer may write to. */
static struct across_key open_key(const struct pair *p, uint8_t *at, uint64_t *id)
{
	struct across_key key;

	REQUIRE(across_reach(handle(p->b), fd_sock(p->b), at, BYTES, ACROSS_MAY_WRITE,
			     &key, id) == 0);
	return key;
}

static struct across_span span_of(const void *at, size_t bytes)
{
	return (struct across_span){.at = (void *)(uintptr_t)at, .bytes = bytes};
}

static int put_there(const struct pair *p, const struct across_key *key, uint64_t offset,
		     const void *from, size_t bytes)
{
	struct across_span span = span_of(from, bytes);

	return across_move(handle(p->a), fd_sock(p->a), key, offset, &span);
}

static int begin(const struct pair *p, const struct across_key *key, const void *from,
		 uint64_t *id)
{
	struct across_span span = span_of(from, BYTES);

	return across_move_begin(handle(p->a), fd_sock(p->a), key, 0, &span, id);
}

/* So much that all that can still come has come. */
static void settle_all(void)
{
	for (int i = 0; i < SETTLES; i++)
		across_settle();
}

static bool is_putting(int fd)
{
	struct across_guard g = across_enter();
	bool is = handle(fd)->moves != NULL;

	across_leave(g);
	return is;
}

/* A link beside that was to fail, and has not been written to so often: the next test's connections have the same. */
static void break_no_more(const struct pair *p)
{
	struct across_guard g = across_enter();

	if (handle(p->a)->link->bulk)
		fake_break(handle(p->a)->link->bulk->link, 0, LINK_PEER_DEAD);
	across_leave(g);
}

/* The streams have lost nothing, and it works again. */
static void check_sound(const struct pair *p)
{
	static uint8_t from[BYTES];
	uint8_t *at = there();
	struct across_key key;
	uint64_t id;
	int r = -EAGAIN;

	CHECK(!is_putting(p->a));
	break_no_more(p);
	put(p->a, 0, 3000, 3);
	get(p->b, 0, 3000, 3);
	key = open_key(p, at, &id);
	flow_fill(from, BYTES, 0, 9);
	while (r == -EAGAIN || r == -EIO) { /* late bytes can fail it once more */
		until_beside(p);
		r = put_there(p, &key, 0, from, BYTES);
	}
	CHECK_EQ(r, 0);
	CHECK(flow_is(at, BYTES, 0, 9));
	check_guards(at);
	across_unreach(id);
}

/* A peer whose hello says that nothing can be read there, behind what was written. */
STREAM_TEST(a_window_without_room_for_the_fence)
{
	struct pair p = open_beside();
	static uint8_t from[BYTES];
	uint8_t *at = there();
	uint64_t id;
	struct across_key key = open_key(&p, at, &id);
	struct across_guard g = across_enter();

	handle(p.a)->link->bulk->link->peer.window_bytes = 4;
	across_leave(g);
	CHECK_EQ(put_there(&p, &key, 0, from, BYTES), -EIO);
	across_unreach(id);
	check_sound(&p);
	pair_close(&p);
}

/* Each is there, whole, the moment that the call returns: also where it is put over another. */
STREAM_TEST(there_when_it_returns)
{
	struct pair p = open_beside();
	static uint8_t model[BYTES], from[BYTES];
	uint8_t *at = there();
	uint64_t id;
	struct across_key key = open_key(&p, at, &id);

	memset(model, 0xee, BYTES);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t offset = pick(BYTES), len = 1 + pick(BYTES - offset);

		flow_fill(from, len, i * 7, (uint8_t)i);
		memcpy(model + offset, from, len);
		REQUIRE(put_there(&p, &key, offset, from, len) == 0);
		memset(from, 0xaa, len);
		REQUIRE(memcmp(at, model, BYTES) == 0);
	}
	check_guards(at);
	CHECK(handle(p.a)->link->bulk != NULL);
	across_unreach(id);
	check_sound(&p);
	pair_close(&p);
}

/* More than one write, and more than is registered at a time. */
STREAM_TEST(a_long_one)
{
	const size_t bytes = (20u << 20) + 12345;
	struct pair p = open_beside();
	uint8_t *from = malloc(bytes), *to = calloc(1, bytes);
	struct across_key key;
	uint64_t id;

	REQUIRE(from && to);
	flow_fill(from, bytes, 5, 6);
	REQUIRE(across_reach(handle(p.b), fd_sock(p.b), to, bytes, ACROSS_MAY_WRITE, &key,
			     &id) == 0);
	CHECK_EQ(put_there(&p, &key, 0, from, bytes), 0);
	CHECK(memcmp(from, to, bytes) == 0);
	across_unreach(id);
	across_forget(from, bytes);
	free(from);
	free(to);
	pair_close(&p);
}

/* Nothing but its memory, and nothing that is not open. */
STREAM_TEST(a_peer_that_lies)
{
	struct pair p = open_beside();
	static uint8_t from[BYTES];
	uint8_t *at = there();
	uint64_t id;
	struct across_key key = open_key(&p, at, &id), wrong = key;
	struct across_span span;

	memset(from, 0xbb, BYTES);
	CHECK_EQ(put_there(&p, &key, 1, from, BYTES), -EIO);
	settle_all();
	check_guards(at);
	until_beside(&p);
	wrong.key++;
	CHECK_EQ(put_there(&p, &wrong, 0, from, BYTES), -EIO);
	wrong = key;
	wrong.token++;
	CHECK_EQ(put_there(&p, &wrong, 0, from, BYTES), -ESTALE);
	until_beside(&p);
	across_unreach(id);
	across_unreach(id);
	memset(at, 0xee, BYTES);
	CHECK_EQ(put_there(&p, &key, 0, from, BYTES), -EIO);
	settle_all();
	for (int i = 0; i < BYTES; i++)
		REQUIRE(at[i] == 0xee);
	span = span_of(from, BYTES);
	CHECK_EQ(across_move(handle(p.a), fd_sock(p.b), &key, 0, &span), -EAGAIN);
	check_sound(&p);
	pair_close(&p);
}

/*
 * At any moment of a put the owner voids the key, the writer gives up, or the writer's link beside fails;
 * then what is there does not change any more once the key is void, although packets wander.
 */
static void interrupted(const struct pair *p, uint32_t round)
{
	static uint8_t from[BYTES], seen[BYTES];
	uint8_t *at = there();
	uint64_t id, put;
	struct across_key key = open_key(p, at, &id);
	int r, how = (int)pick(3);

	flow_fill(from, BYTES, round, 1);
	until_beside(p);
	r = begin(p, &key, from, &put);
	REQUIRE(r == 0 || r == -EAGAIN);
	for (uint32_t n = pick(12); n > 0 && r == 0; n--)
		r = across_move_step(handle(p->a), put);
	if (r == 0) {
		struct across_guard g = across_enter();

		if (how == 0)
			bulk_give_up(handle(p->a)->link);
		else if (how == 1)
			fake_break(handle(p->a)->link->bulk->link, 1 + pick(3),
				   LINK_PEER_DEAD);
		across_leave(g);
	}
	if (how == 2 && r == 0)
		across_unreach(id);
	else
		while (r == 0)
			r = across_move_step(handle(p->a), put);
	across_unreach(id);
	memcpy(seen, at, BYTES);
	while (r == 0)
		r = across_move_step(handle(p->a), put);
	REQUIRE(r == 1 || r == -EIO || r == -EAGAIN);
	memset(from, 0xcc, BYTES); /* the program's again */
	if (r == 1)
		REQUIRE(flow_is(at, BYTES, round, 1));
	for (int i = 0; i < 20; i++)
		across_settle();
	REQUIRE(memcmp(seen, at, BYTES) == 0);
	check_guards(at);
}

STREAM_TEST(interrupted_at_any_moment)
{
	struct pair p = open_beside();

	fake_linger(across_world, true);
	for (uint32_t i = 0; i < 200 || fake_counts(across_world)->strays == 0; i++)
		interrupted(&p, i);
	check_sound(&p);
	fake_linger(across_world, false);
	pair_close(&p);
}

/* The handle ends while another thread puts by it: from then on nothing is read from its memory. */
STREAM_TEST(its_handle_ends)
{
	for (int i = 0; i < 40; i++) {
		struct pair p = open_beside(), other = open_beside();
		static uint8_t from[BYTES];
		uint64_t id, put;
		uint8_t *at = there();
		struct across_key key = open_key(&p, at, &id);
		struct peer *a = handle(p.a);
		struct across_span span;
		int r;

		memset(from, 1, BYTES);
		r = begin(&p, &key, from, &put);
		for (uint32_t n = pick(4); n > 0 && r == 0; n--)
			r = across_move_step(a, put);
		st_close(p.a);
		memset(from, 2, BYTES);
		settle_all();
		CHECK(memchr(at, 2, BYTES) == NULL);
		CHECK(r != 0 || across_move_step(a, put) == -EIO);
		span = span_of(from, BYTES);
		CHECK_EQ(across_move(a, fd_sock(other.a), &key, 0, &span), -EAGAIN);
		across_unreach(id);
		st_close(p.b);
		check_sound(&other);
		pair_close(&other);
	}
}

/* ---- several under way ---- */

struct several {
	uint64_t id;
	uint32_t offset, bytes;
	int result; /* of the last look */
	uint8_t from[BYTES];
};
static struct several several[ACROSS_MOVES_MOST];

static int begin_one(const struct pair *p, const struct across_key *key, uint32_t i)
{
	struct several *m = &several[i];
	struct across_span span;

	m->offset = i * (BYTES / ACROSS_MOVES_MOST);
	m->bytes = 1 + pick(BYTES / ACROSS_MOVES_MOST);
	span = span_of(m->from, m->bytes);
	memset(m->from, (int)i + 1, BYTES);
	m->result = across_move_begin(handle(p->a), fd_sock(p->a), key, m->offset, &span,
				      &m->id);
	return m->result;
}

static bool has_landed(const uint8_t *at, uint32_t i)
{
	uint32_t n = several[i].offset, end = n + several[i].bytes;

	while (n < end && at[n] == i + 1)
		n++;
	return n == end;
}

static void disturb(const struct pair *p, uint64_t id, uint32_t how)
{
	struct across_guard g = across_enter();

	if (how == 0)
		bulk_give_up(handle(p->a)->link);
	else if (how == 1 && handle(p->a)->link->bulk)
		fake_break(handle(p->a)->link->bulk->link, 1 + pick(6), LINK_PEER_DEAD);
	across_leave(g);
	if (how == 2)
		across_unreach(id);
}

/* In their order, whichever of them is asked about; with one all that are under way are lost, and nothing is begun
 * before the last of these has been told of. Returns how many were there. */
static uint32_t put_several(const struct pair *p)
{
	static uint8_t seen[BYTES];
	uint8_t *at = there();
	uint32_t count = 0, most = 1 + pick(ACROSS_MOVES_MOST), left, arrived = 0,
		 how = pick(6), when = pick(2 * most);
	bool is_lost = false;
	uint64_t id;
	struct across_key key = open_key(p, at, &id);

	until_beside(p);
	while (count < most && begin_one(p, &key, count) == 0)
		if (++count == when)
			disturb(p, id, how);
	for (left = count; left > 0;) {
		uint32_t i = pick(count);
		struct several *m = &several[i];

		if (m->result != 0)
			continue;
		m->result = pick(3) ? across_move_step(handle(p->a), m->id)
				    : across_move_look(handle(p->a), m->id, false);
		if (m->result == 0 && pick(40) == 0)
			m->result = across_move_look(handle(p->a), m->id, true);
		if (count + left == when)
			disturb(p, id, how);
		if (m->result == 0)
			continue;
		left--;
		arrived += m->result == 1;
		REQUIRE(m->result == -EIO || m->result == 1);
		REQUIRE(m->result == -EIO || !is_lost);
		/* With it all before it are. */
		for (uint32_t k = 0; m->result == 1 && k <= i; k++)
			REQUIRE(has_landed(at, k));
		is_lost |= m->result == -EIO;
		memset(m->from, 0xcc, BYTES); /* the program's again */
		if (is_lost && left > 0 && (until_beside(p), true)) {
			struct across_span span = span_of(m->from, 1);
			uint64_t other;

			REQUIRE(across_move_begin(handle(p->a), fd_sock(p->a), &key, 0,
						  &span, &other) == -EAGAIN);
		}
	}
	REQUIRE(!is_putting(p->a));
	across_unreach(id);
	memcpy(seen, at, BYTES);
	for (int i = 0; i < 20; i++)
		across_settle();
	REQUIRE(memcmp(seen, at, BYTES) == 0 && memchr(at, 0xcc, BYTES) == NULL);
	check_guards(at);
	return arrived;
}

STREAM_TEST(several_at_once)
{
	struct pair p = open_beside();
	uint32_t arrived = 0;

	fake_linger(across_world, true);
	for (uint32_t i = 0; i < 300; i++)
		arrived += put_several(&p);
	CHECK(arrived > 1000);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
	check_sound(&p);
	fake_linger(across_world, false);
	pair_close(&p);
}

/* No more of one connection; two of them want more writes than the queue has room for. */
STREAM_TEST(as_many_as_there_may_be)
{
	const size_t bytes = ACROSS_STEP_BYTES, all = bytes * ACROSS_MOVES_MOST;
	struct pair pairs[2] = {open_beside(), open_beside()};
	uint8_t *from = malloc(bytes), *to = calloc(2, all);
	uint64_t id[2], last[2] = {0, 0}, more;
	struct across_key key[2];
	struct across_span span;

	REQUIRE(from && to);
	REQUIRE(handle(pairs[0].a)->link == handle(pairs[1].a)->link);
	/* On a busy machine so many bytes take long. */
	across_watch_all(LINK_WATCH_MAX);
	flow_fill(from, bytes, 1, 2);
	for (int k = 0; k < 2; k++)
		REQUIRE(across_reach(handle(pairs[k].b), fd_sock(pairs[k].b),
				     to + all * (size_t)k, all, ACROSS_MAY_WRITE, &key[k],
				     &id[k]) == 0);
	for (uint32_t i = 0; i < 2 * ACROSS_MOVES_MOST; i++) {
		const struct pair *p = &pairs[i % 2];
		int r;

		span = span_of(from, bytes);
		do
			r = across_move_begin(handle(p->a), fd_sock(p->a), &key[i % 2],
					      i / 2 * bytes, &span, &last[i % 2]);
		while (r == -EAGAIN && (across_settle(), true));
		REQUIRE(r == 0);
	}
	CHECK_EQ(across_move_begin(handle(pairs[0].a), fd_sock(pairs[0].a), &key[0], 0,
				   &span, &more),
		 -EAGAIN);
	for (int k = 0; k < 2; k++) {
		int r = 0;

		while (r == 0)
			r = across_move_step(handle(pairs[k].a), last[k]);
		CHECK_EQ(r, 1);
		for (size_t i = 0; i < ACROSS_MOVES_MOST; i++)
			CHECK(memcmp(from, to + all * (size_t)k + i * bytes, bytes) == 0);
		across_unreach(id[k]);
		pair_close(&pairs[k]);
	}
	across_watch_all(ACROSS_WATCH_MS);
	across_forget(from, bytes);
	free(from);
	free(to);
}

/* Keys are void after a fork of their owner, in both. */
STREAM_TEST(a_fork)
{
	struct pair p = open_beside();
	static uint8_t from[BYTES];
	uint8_t *at = there();
	uint64_t id;
	struct across_key key = open_key(&p, at, &id);
	pid_t pid;

	CHECK_EQ(put_there(&p, &key, 0, from, BYTES), 0);
	memset(at, 0xee, BYTES);
	pid = st_fork();
	if (pid == 0) {
		across_unreach(id);
		st_exit();
	}
	st_reap(pid, 0);
	until_beside(&p);
	CHECK_EQ(put_there(&p, &key, 0, from, BYTES), -EIO);
	settle_all();
	for (int i = 0; i < BYTES; i++)
		REQUIRE(at[i] == 0xee);
	across_unreach(id);
	pair_close(&p);
}

/* Any call of the device's fails, at either end: a put says so, or is there. */
static void with_error(uint32_t nth, int end)
{
	struct pair p = open_beside();
	static uint8_t from[BYTES];
	uint8_t *at = there();
	struct across_guard g;
	struct across_key key;
	uint64_t id = 0;
	int r;

	flow_fill(from, BYTES, nth, 4);
	g = across_enter();
	fake_inject(across_contexts[end].context, nth);
	across_leave(g);
	r = across_reach(handle(p.b), fd_sock(p.b), at, BYTES, ACROSS_MAY_WRITE, &key,
			 &id);
	if (r == 0)
		r = put_there(&p, &key, 0, from, BYTES);
	across_unreach(id);
	CHECK(r <= 0);
	if (r == 0)
		CHECK(flow_is(at, BYTES, nth, 4));
	check_guards(at);
	/* Where nothing has called it so often. */
	g = across_enter();
	fake_inject(across_contexts[end].context, 0);
	across_leave(g);
	CHECK(!handle(p.a) || !is_putting(p.a));
	pair_close(&p);
}

STREAM_TEST(errors_of_the_device)
{
	for (uint32_t n = 1; n < 30; n++) {
		with_error(n, 0);
		with_error(n, 1);
	}
}

/* The owner's process dies: the put ends in bounded time. The last test: nobody lives there any more. */
STREAM_TEST(its_owner_dies)
{
	struct pair p = open_beside();
	static uint8_t from[BYTES];
	uint8_t *at = there();
	struct across_guard g;
	struct across_key key;
	uint64_t id, put;
	int r;

	key = open_key(&p, at, &id);
	r = begin(&p, &key, from, &put);
	g = across_enter();
	fake_die(across_contexts[1].context);
	across_leave(g);
	while (r == 0)
		r = across_move_step(handle(p.a), put);
	CHECK(r == -EIO || r == 1);
	CHECK(!is_putting(p.a));
	while (put_there(&p, &key, 0, from, BYTES) == -EIO)
		;
	pair_close(&p);
}
