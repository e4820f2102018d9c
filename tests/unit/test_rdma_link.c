/* SPDX-License-Identifier: Apache-2.0 */
/* A link on the fake interconnect: bytes and order, credits, drain, sleep, close. */
#include <errno.h>
#include <poll.h>

#include "unit/rdma_rig.h"

enum { SEEDS = 150, MESSAGES = 300 };

static struct link_limits limits_of(uint32_t seed)
{
	return (struct link_limits){.links = 2,
				    .credits = LINK_CREDITS_MIN + seed % 13,
				    .sends = LINK_SENDS_MIN + seed * 7 % 29};
}

TEST(messages_both_ways_come_whole_and_in_order)
{
	uint32_t too_early = 0;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct rig *r = rig_create(seed, limits_of(seed));
		int polls = 0;

		rig_up(r);
		while ((r->a.got < MESSAGES || r->b.got < MESSAGES) &&
		       polls++ < RIG_POLLS) {
			if (r->a.sent < MESSAGES)
				rig_send(&r->a);
			if (r->b.sent < MESSAGES && seed % 3)
				rig_send(&r->b);
			if (seed % 3 == 0)
				r->a.got = MESSAGES; /* one way */
			if (polls % (1 + seed % 4) == 0)
				rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
		}
		CHECK_EQ(r->b.got, MESSAGES);
		CHECK(!r->a.failed && !r->b.failed);
		too_early += fake_counts(r->world)->too_early;
		rig_destroy(r);
	}
	/* Else this says little. */
	CHECK(too_early > SEEDS);
}

/* Neither side polls: what may be under way is bounded, and nobody finds no receive. */
TEST(credits_are_never_overrun)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct link_limits limits = limits_of(seed);
		struct rig *r;
		uint32_t b_had;
		int polls = 0;

		limits.sends = 64;
		r = rig_create(seed, limits);
		rig_up(r);
		while (rig_send(&r->a) == 0 && r->a.sent < 1000)
			;
		while (rig_send(&r->b) == 0 && r->b.sent < 1000)
			;
		for (int i = 0; i < 3000; i++)
			fake_step(r->world);
		CHECK_EQ(r->a.sent, limits.credits);
		CHECK_EQ(r->b.sent, limits.credits);
		CHECK_EQ(rig_send(&r->a), -EAGAIN);

		/* A hears and sends on, B only sends: A's grants come to B unpolled. */
		while (r->a.got < r->b.sent && polls++ < RIG_POLLS)
			rig_poll(&r->a, &r->b);
		CHECK_EQ(r->a.got, r->b.sent);
		CHECK_EQ(r->a.sent, limits.credits);
		CHECK_EQ(r->a.rooms, 0);
		b_had = r->b.sent;
		CHECK_EQ(rig_send(&r->b), -EAGAIN);

		/* B polls: it hears of room, and A does. */
		while ((!r->b.rooms || !r->a.rooms) && polls++ < RIG_POLLS) {
			rig_poll(&r->b, &r->a);
			rig_poll(&r->a, &r->b);
		}
		CHECK_EQ(rig_send(&r->b), 0);
		CHECK_EQ(rig_send(&r->a), 0);
		CHECK_EQ(r->b.sent, b_had + 1);
		rig_destroy(r);
	}
}

/* Writes without immediates are bounded by the send queue; a drain ends them. */
TEST(a_drain_means_that_all_has_arrived)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct rig *r = rig_create(seed, limits_of(seed));
		uint32_t posted = 0, wanted = 1 + seed % 50;
		int polls = 0, done = 0;

		rig_up(r);
		while (posted < wanted && polls++ < RIG_POLLS) {
			struct link_write w = {.from = r->a.source + posted,
					       .bytes = 1,
					       .memory = &r->a.memory,
					       .at = posted};

			r->a.source[posted] = rig_byte(r->a.seed, posted, 0);
			if (link_post(r->a.link, &w) == 0)
				posted++;
			else
				rig_poll(&r->a, &r->b);
		}
		while ((done = link_drain(r->a.link)) == 0 && polls++ < RIG_POLLS)
			rig_poll(&r->a, &r->b);
		CHECK_EQ(done, 1);
		CHECK_EQ(link_completed(r->a.link), link_posted(r->a.link));
		for (uint32_t i = 0; i < wanted; i++)
			CHECK_EQ(r->b.window[i], rig_byte(r->a.seed, i, 0));
		rig_destroy(r);
	}
}

/* Asks again at events only. */
static void drained_by_events(struct rig *r, uint32_t wanted)
{
	struct link_write w = {.from = r->a.source, .bytes = 8, .memory = &r->a.memory};
	int polls = 0, done;

	for (uint32_t posted = 0; posted < wanted && polls++ < RIG_POLLS;) {
		w.flags = posted == wanted / 2 ? LINK_SIGNAL : 0;
		if (link_post(r->a.link, &w) == 0)
			posted++;
		else
			rig_poll(&r->a, &r->b);
	}
	while ((done = link_drain(r->a.link)) == 0 && polls < RIG_POLLS)
		while (rig_poll(&r->a, &r->b) == 0 && polls++ < RIG_POLLS)
			;
	CHECK_EQ(done, 1);
}

TEST(a_drain_and_a_close_tell_when_to_ask_again)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct rig *r = rig_create(seed, limits_of(seed));
		int done, polls = 0;

		rig_up(r);
		for (uint32_t i = 0; i < 20; i++)
			drained_by_events(r, i);
		CHECK(r->a.dones >= 19);
		link_close(r->b.link);
		while ((done = link_close(r->a.link)) == 0 && polls < RIG_POLLS)
			while (rig_poll(&r->a, &r->b) == 0 && polls++ < RIG_POLLS)
				rig_poll(&r->b, &r->a);
		CHECK_EQ(done, 1);
		rig_destroy(r);
	}
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* Armed, polled until nothing is left: then whatever comes makes the descriptor readable. */
TEST(whoever_sleeps_armed_is_woken)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct rig *r = rig_create(seed, limits_of(seed));
		struct rig_end *b = &r->b;
		bool brief = seed % 2;

		rig_up(r);
		while (b->got < 100) {
			int steps = 0;

			CHECK_EQ(link_arm(b->context), 0);
			if (rig_poll(b, &r->a) == RIG_EVENTS) {
				link_answer(b->context, brief);
				continue;
			}
			while (!is_readable(link_fd(b->context)) && steps++ < RIG_POLLS)
				if (steps % 8)
					fake_step(r->world);
				else if (rig_send(&r->a) < 0)
					rig_poll(&r->a, b);
			REQUIRE(steps < RIG_POLLS);
			CHECK_EQ(link_answer(b->context, brief), 0);
			CHECK(brief || !is_readable(link_fd(b->context)));
		}
		rig_destroy(r);
	}
}

/* Whoever closes first: nothing is lost, and both hear of it. */
TEST(close_comes_after_everything)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct rig *r = rig_create(seed, limits_of(seed));
		int a = 0, b = 0, polls = 0;

		rig_up(r);
		while (r->a.sent < 20 && polls++ < RIG_POLLS) {
			rig_send(&r->a);
			rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
		}
		if (seed % 2)
			while (link_drain(r->a.link) == 0 && polls++ < RIG_POLLS)
				rig_poll(&r->a, &r->b);
		while ((a == 0 || b == 0) && polls++ < RIG_POLLS) {
			a = link_close(r->a.link);
			CHECK_EQ(rig_send(&r->a), -EPIPE);
			rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
			if (r->b.closed || seed % 3 == 0)
				b = link_close(r->b.link);
		}
		CHECK_EQ(a, 1);
		CHECK_EQ(b, 1);
		CHECK_EQ(r->b.got, 20);
		CHECK(r->b.closed && !r->b.failed && !r->a.failed);
		rig_destroy(r);
	}
}

/* A has heard B's close and is gone; B need not be heard by anybody. */
TEST(an_answer_that_is_lost_to_a_close_is_no_death)
{
	struct rig *r = rig_create(5, limits_of(5));
	int polls = 0;

	rig_up(r);
	link_close(r->a.link);
	while (!r->b.closed && polls++ < RIG_POLLS)
		rig_poll(&r->b, &r->a);
	CHECK_EQ(rig_send(&r->b), -EPIPE);
	fake_die(r->a.context);
	CHECK_EQ(link_close(r->b.link), 0);
	while (!r->b.failed && polls++ < RIG_POLLS)
		rig_poll(&r->b, &r->a);
	CHECK_EQ(link_error(r->b.link), LINK_PEER_CLOSED);
	CHECK_EQ(link_close(r->b.link), 1);
	rig_destroy(r);
}

TEST(what_cannot_be_posted_is_refused)
{
	struct rig *r = rig_create(3, (struct link_limits){0});
	struct link_write w = {.from = r->a.source, .bytes = 16, .memory = &r->a.memory};
	struct link *other;

	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &other), 0);
	CHECK_EQ(link_post(other, &w), -ENOTCONN);
	CHECK_EQ(link_close(other), -ENOTCONN);
	link_destroy(other);
	CHECK_EQ(rig_connect(r), 0);
	CHECK_EQ(link_state(r->b.link), LINK_WAITING);
	CHECK_EQ(link_post(r->b.link, &w), -ENOTCONN);
	CHECK_EQ(link_peer_window(r->a.link), sizeof(r->b.window));
	w.at = sizeof(r->b.window) - 15;
	CHECK_EQ(link_post(r->a.link, &w), -EFAULT);
	w.at = UINT64_MAX - 3;
	CHECK_EQ(link_post(r->a.link, &w), -EFAULT);
	w.at = 0;
	w.from = r->a.source + sizeof(r->a.source) - 15;
	CHECK_EQ(link_post(r->a.link, &w), -EFAULT);
	w.from = r->a.source - 1;
	CHECK_EQ(link_post(r->a.link, &w), -EFAULT);
	w.from = r->a.source;
	w.memory = NULL;
	w.bytes = link_inline_max(r->a.link) + 1;
	CHECK_EQ(link_post(r->a.link, &w), -EFAULT);
	w.memory = &r->a.memory;
	w.bytes = link_write_max(r->a.link) + 1;
	CHECK_EQ(link_post(r->a.link, &w), -EMSGSIZE);
	w.bytes = 16;
	w.at = sizeof(r->b.window) - 16;
	CHECK_EQ(link_post(r->a.link, &w), 0);
	rig_destroy(r);
}

TEST(limits_of_a_context)
{
	struct link_limits wrong[] = {{.links = LINK_LINKS_MAX + 1},
				      {.credits = LINK_CREDITS_MIN - 1},
				      {.credits = LINK_CREDITS_MAX + 1},
				      {.sends = LINK_SENDS_MIN - 1},
				      {.sends = LINK_SENDS_MAX + 1}};
	struct rig *r = rig_create(3, (struct link_limits){.links = 2});
	struct link *one, *two, *three;
	struct link_context *c;
	struct link_event e;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_EQ(fake_open(r->world, &wrong[i], &c), -EINVAL);
	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &one), 0);
	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &two), 0);
	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &three), -ENOSPC);
	link_destroy(one);
	/* Its completions may still take room. */
	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &three), -EAGAIN);
	CHECK_EQ(link_poll(r->a.context, &e, 1), 0);
	CHECK_EQ(link_create(r->a.context, r->a.window, 16, &three), 0);
	link_destroy(two);
	link_destroy(three);
	rig_destroy(r);
}

TEST(each_error_has_a_sentence)
{
	for (int e = 0; e < LINK_ERRORS; e++)
		CHECK(link_error_text((enum link_error)e) != NULL);
	CHECK_STR(link_error_text(LINK_ERRORS), "an unknown error");
}

/* Words that are put there for want of credit, and no grant found after that: they are read. */
TEST(a_read_comes_after_the_grant)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct link_limits limits = limits_of(seed);
		struct link_event e[8];
		bool has_read = false, has_room = false;
		const struct link_read words = {.to = 0, .from = 8, .bytes = 8};
		struct rig *r;

		limits.sends = 64;
		r = rig_create(seed, limits);
		rig_up(r);
		while (rig_send(&r->a) == 0 && r->a.sent < 10000)
			;
		while (r->b.got < r->a.sent)
			rig_poll(&r->b, &r->a);
		CHECK_EQ(link_credit(r->a.link), 0);
		memset(r->b.window, 0, 8);
		/* B asks; A puts its words there at some time, and looks for a grant after that. */
		while (link_grant(r->b.link) == -EAGAIN ||
		       link_read(r->b.link, &words) == -EAGAIN)
			link_poll(r->b.context, e, 8);
		for (uint32_t i = 0; i < seed % 64; i++)
			fake_step(r->world);
		memcpy(r->a.window + 8, "in time", 8);
		link_poll(r->a.context, e, 8);
		has_room = link_credit(r->a.link) > 0;
		while (!has_read) {
			int n = link_poll(r->b.context, e, 8);

			for (int i = 0; i < n; i++)
				has_read = has_read || e[i].type == LINK_EVENT_READ;
		}
		CHECK(has_room || memcmp(r->b.window, "in time", 8) == 0);
		rig_destroy(r);
	}
}
