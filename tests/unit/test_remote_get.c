/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of memory that is exported, between two hosts on the fake interconnect: what has come is what was
 * there, nothing comes from memory that is not open, and nothing comes late. */
#include "unit/test.h"

#include "unit/redirect_pair.h"

enum { BYTES = 60000, GUARD = 64, SETTLES = 200 };

static uint8_t theirs[BYTES]; /* of p.b's program */
static uint8_t memory[BYTES + 2 * GUARD], *const ours = memory + GUARD;

static uint32_t pick(uint32_t below)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % below;
}

static void settle_all(void)
{
	for (int i = 0; i < SETTLES; i++)
		across_settle();
}

static struct across_key open_key(const struct pair *p, uint32_t may, uint64_t *id)
{
	struct across_key key;

	REQUIRE(across_reach(handle(p->b), fd_sock(p->b), theirs, BYTES, may, &key, id) ==
		0);
	return key;
}

static struct across_span span_of(uint32_t at, size_t bytes)
{
	return (struct across_span){.at = ours + at, .bytes = bytes, .is_get = true};
}

/* From an offset there to the same offset here. */
static int get_it(const struct pair *p, const struct across_key *key, uint32_t offset,
		  size_t bytes)
{
	struct across_span span = span_of(offset, bytes);

	return across_move(handle(p->a), fd_sock(p->a), key, offset, &span);
}

static void check_all(uint8_t byte)
{
	for (size_t i = 0; i < sizeof(memory); i++)
		REQUIRE(memory[i] == byte);
}

/* The streams have lost nothing, and it works again. */
static void check_sound(const struct pair *p)
{
	struct across_key key;
	uint64_t id;
	int r = -EAGAIN;

	CHECK(!handle(p->a)->moves);
	put(p->a, 0, 3000, 3);
	get(p->b, 0, 3000, 3);
	key = open_key(p, ACROSS_MAY_READ, &id);
	flow_fill(theirs, BYTES, 0, 9);
	while (r == -EAGAIN || r == -EIO) {
		until_beside(p);
		r = get_it(p, &key, 0, BYTES);
	}
	CHECK_EQ(r, 0);
	CHECK(flow_is(ours, BYTES, 0, 9));
	across_unreach(id);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
}

STREAM_TEST(here_when_it_returns)
{
	struct pair p = open_beside();
	static uint8_t model[sizeof(memory)];
	uint64_t id;
	struct across_key key = open_key(&p, ACROSS_MAY_READ, &id);

	memset(memory, 0xee, sizeof(memory));
	memset(model, 0xee, sizeof(model));
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t offset = pick(BYTES), len = 1 + pick(BYTES - offset);

		flow_fill(theirs, BYTES, i * 7, (uint8_t)i);
		memcpy(model + GUARD + offset, theirs + offset, len);
		REQUIRE(get_it(&p, &key, offset, len) == 0);
		REQUIRE(memcmp(memory, model, sizeof(memory)) == 0);
	}
	across_unreach(id);
	check_sound(&p);
	pair_close(&p);
}

STREAM_TEST(a_long_one)
{
	const size_t bytes = (20u << 20) + 12345;
	struct pair p = open_beside();
	uint8_t *from = malloc(bytes), *to = calloc(1, bytes);
	struct across_span span = {.at = to, .bytes = bytes, .is_get = true};
	struct across_key key;
	uint64_t id;

	REQUIRE(from && to);
	flow_fill(from, bytes, 5, 6);
	REQUIRE(across_reach(handle(p.b), fd_sock(p.b), from, bytes, ACROSS_MAY_READ,
			     &key, &id) == 0);
	CHECK_EQ(across_move(handle(p.a), fd_sock(p.a), &key, 0, &span), 0);
	CHECK(memcmp(from, to, bytes) == 0);
	across_unreach(id);
	across_forget(to, bytes);
	free(from);
	free(to);
	pair_close(&p);
}

/* Nothing but what is open, at its rights, for as long as it is. */
STREAM_TEST(what_is_not_open)
{
	struct pair p = open_beside();
	uint64_t id, writable;
	struct across_key key = open_key(&p, ACROSS_MAY_READ, &id), wrong = key;
	struct across_span span = span_of(0, BYTES);

	memset(memory, 0xee, sizeof(memory));
	memset(theirs, 0xbb, BYTES);
	CHECK_EQ(get_it(&p, &key, 1, BYTES), -EIO);
	until_beside(&p);
	wrong.key++;
	CHECK_EQ(get_it(&p, &wrong, 0, BYTES), -EIO);
	wrong = key;
	wrong.address -= 4096;
	until_beside(&p);
	CHECK_EQ(get_it(&p, &wrong, 0, BYTES), -EIO);
	wrong = key;
	wrong.token++;
	CHECK_EQ(get_it(&p, &wrong, 0, BYTES), -ESTALE);
	/* What may be read may not be written, nor the reverse. */
	until_beside(&p);
	span.is_get = false;
	CHECK_EQ(across_move(handle(p.a), fd_sock(p.a), &key, 0, &span), -EIO);
	for (int i = 0; i < BYTES; i++)
		REQUIRE(theirs[i] == 0xbb);
	wrong = open_key(&p, ACROSS_MAY_WRITE, &writable);
	until_beside(&p);
	CHECK_EQ(get_it(&p, &wrong, 0, BYTES), -EIO);
	until_beside(&p);
	across_unreach(id);
	across_unreach(writable);
	CHECK_EQ(get_it(&p, &key, 0, BYTES), -EIO);
	settle_all();
	check_all(0xee);
	check_sound(&p);
	pair_close(&p);
}

/*
 * At any moment of a get the owner voids the key, this end gives up, or its link beside fails; once it
 * has ended its memory does not change any more.
 */
static uint32_t interrupted(const struct pair *p, uint32_t round)
{
	static uint8_t seen[sizeof(memory)];
	struct across_span span = span_of(0, BYTES);
	uint64_t id, move;
	struct across_key key = open_key(p, ACROSS_MAY_READ, &id);
	int r, how = (int)pick(3);

	flow_fill(theirs, BYTES, round, 1);
	until_beside(p);
	r = across_move_begin(handle(p->a), fd_sock(p->a), &key, 0, &span, &move);
	REQUIRE(r == 0 || r == -EAGAIN);
	for (uint32_t n = pick(8); n > 0 && r == 0; n--)
		r = across_move_step(handle(p->a), move);
	if (r == 0) {
		struct across_guard g = across_enter();

		if (how == 0)
			bulk_give_up(handle(p->a)->link);
		else if (how == 1)
			fake_break(handle(p->a)->link->bulk->link, 1, LINK_PEER_DEAD);
		across_leave(g);
		if (how == 2)
			across_unreach(id);
	}
	while (r == 0)
		r = across_move_step(handle(p->a), move);
	REQUIRE(r == 1 || r == -EIO || r == -EAGAIN);
	if (r == 1)
		REQUIRE(flow_is(ours, BYTES, round, 1));
	memset(memory, 0xcc, sizeof(memory)); /* the program's again */
	memcpy(seen, memory, sizeof(seen));
	memset(theirs, 0x55, BYTES);
	for (int i = 0; i < 20; i++)
		across_settle();
	REQUIRE(memcmp(seen, memory, sizeof(seen)) == 0);
	across_unreach(id);
	return r == -EIO;
}

STREAM_TEST(interrupted_at_any_moment)
{
	struct pair p = open_beside();
	uint32_t vain = 0;

	fake_linger(across_world, true);
	for (uint32_t i = 0; i < 200; i++)
		vain += interrupted(&p, i);
	CHECK(vain > 10);
	check_sound(&p);
	fake_linger(across_world, false);
	pair_close(&p);
}

STREAM_TEST(its_handle_ends)
{
	for (int i = 0; i < 40; i++) {
		struct pair p = open_beside(), other = open_beside();
		struct across_span span = span_of(0, BYTES);
		uint64_t id, move;
		struct across_key key = open_key(&p, ACROSS_MAY_READ, &id);
		struct peer *a = handle(p.a);
		int r = across_move_begin(a, fd_sock(p.a), &key, 0, &span, &move);

		memset(theirs, 1, BYTES);
		for (uint32_t n = pick(4); n > 0 && r == 0; n--)
			r = across_move_step(a, move);
		st_close(p.a);
		memset(memory, 2, sizeof(memory));
		settle_all();
		check_all(2);
		CHECK(r != 0 || across_move_step(a, move) == -EIO);
		across_unreach(id);
		st_close(p.b);
		check_sound(&other);
		pair_close(&other);
	}
}

/* A fork ends a get of the parent's, whose pages the child may share; later ones work. */
STREAM_TEST(a_fork)
{
	for (int i = 0; i < 10; i++) {
		struct pair p = open_beside();
		struct across_span span = span_of(0, BYTES);
		uint64_t id, move;
		struct across_key key = open_key(&p, ACROSS_MAY_READ, &id);
		int r = across_move_begin(handle(p.a), fd_sock(p.a), &key, 0, &span,
					  &move);
		pid_t pid;

		REQUIRE(r == 0 || r == -EAGAIN);
		pid = st_fork();
		if (pid == 0)
			st_exit();
		memset(memory, 3, sizeof(memory));
		settle_all();
		check_all(3);
		if (r == 0)
			CHECK_EQ(across_move_step(handle(p.a), move), -EIO);
		st_reap(pid, 0);
		across_unreach(id);
		pair_close(&p);
	}
}

/* In the mode that looks for it: the device has brought the bytes to pages that the program has no more. */
STREAM_TEST(to_pages_that_have_gone)
{
	struct pair p = open_beside();
	uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct across_span span = {.at = at, .bytes = BYTES, .is_get = true};
	uint64_t id, move;
	int r;
	struct across_key key = open_key(&p, ACROSS_MAY_READ, &id);
	struct config *config = (struct config *)(uintptr_t)config_get();

	REQUIRE(at != MAP_FAILED);
	config->registration = CONFIG_REGISTER_CHECK;
	memset(at, 0, BYTES);
	flow_fill(theirs, BYTES, 1, 2);
	CHECK_EQ(across_move(handle(p.a), fd_sock(p.a), &key, 0, &span), 0);
	CHECK(flow_is(at, BYTES, 1, 2));
	REQUIRE(madvise(at, BYTES, MADV_DONTNEED) == 0);
	memset(at, 9, BYTES);
	CHECK_EQ(across_move(handle(p.a), fd_sock(p.a), &key, 0, &span), 0);
	CHECK_EQ(span.broken, 1);
	CHECK(flow_is(at, BYTES, 1, 2));
	/* While the device is at it. */
	r = across_move_begin(handle(p.a), fd_sock(p.a), &key, 0, &span, &move);
	REQUIRE(r == 0);
	REQUIRE(madvise(at, BYTES, MADV_DONTNEED) == 0);
	memset(at, 9, BYTES);
	settle_all();
	memset(at, 8, BYTES); /* the device is elsewhere */
	while (r == 0)
		r = across_move_step(handle(p.a), move);
	CHECK_EQ(r, -EFAULT);
	CHECK_EQ(cache_pinned(), 0);
	config->registration = CONFIG_REGISTER_KEEP;
	across_unreach(id);
	across_forget(at, BYTES);
	munmap(at, BYTES);
	pair_close(&p);
}

/* Any call of the device's fails, at either end: a get says so, or is here. */
static void with_error(uint32_t nth, int end)
{
	struct pair p = open_beside();
	struct across_guard g;
	struct across_key key;
	uint64_t id = 0;
	int r;

	flow_fill(theirs, BYTES, nth, 4);
	g = across_enter();
	fake_inject(across_contexts[end].context, nth);
	across_leave(g);
	r = across_reach(handle(p.b), fd_sock(p.b), theirs, BYTES, ACROSS_MAY_READ, &key,
			 &id);
	if (r == 0)
		r = get_it(&p, &key, 0, BYTES);
	across_unreach(id);
	CHECK(r <= 0);
	if (r == 0)
		CHECK(flow_is(ours, BYTES, nth, 4));
	g = across_enter();
	fake_inject(across_contexts[end].context, 0);
	across_leave(g);
	CHECK(!handle(p.a) || !handle(p.a)->moves);
	pair_close(&p);
}

STREAM_TEST(errors_of_the_device)
{
	for (uint32_t n = 1; n < 20; n++) {
		with_error(n, 0);
		with_error(n, 1);
	}
}

/* The owner's process dies: the get ends in bounded time. The last test: nobody lives there any more. */
STREAM_TEST(its_owner_dies)
{
	struct pair p = open_beside();
	struct across_span span = span_of(0, BYTES);
	struct across_guard g;
	struct across_key key;
	uint64_t id, move;
	int r;

	key = open_key(&p, ACROSS_MAY_READ, &id);
	r = across_move_begin(handle(p.a), fd_sock(p.a), &key, 0, &span, &move);
	g = across_enter();
	fake_die(across_contexts[1].context);
	across_leave(g);
	while (r == 0)
		r = across_move_step(handle(p.a), move);
	CHECK(r == -EIO || r == 1);
	while (get_it(&p, &key, 0, BYTES) == -EIO)
		;
	pair_close(&p);
}
