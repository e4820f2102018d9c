/* SPDX-License-Identifier: Apache-2.0 */
/* A link on the fake interconnect: deaths, errors, and peers that do not keep to the rules. */
#include <errno.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/clock.h"
#include "rdma/fabric.h"
#include "unit/rdma_rig.h"

static const struct link_limits small = {.links = 1, .credits = 7, .sends = 9};

/* The survivor goes on sending, until it knows. */
static void notice(struct rig_end *e, const struct rig_end *dead)
{
	for (int i = 0; i < RIG_POLLS && !e->failed; i++) {
		if (rig_send(e) == -EAGAIN)
			link_probe(e->link);
		rig_poll(e, dead);
	}
	CHECK(e->failed);
	CHECK_EQ(link_state(e->link), LINK_FAILED);
	CHECK_EQ(rig_send(e), -EPIPE);
	CHECK_EQ(link_drain(e->link), -EPIPE);
	CHECK_EQ(link_probe(e->link), -EPIPE);
}

/* Nothing is written to a window any more, and no event comes. */
static void is_quiet(struct rig *r, struct rig_end *e, const struct rig_end *other)
{
	static uint8_t before[sizeof(e->window)];

	memcpy(before, e->window, sizeof(before));
	for (int i = 0; i < 500; i++) {
		fake_step(r->world);
		CHECK_EQ(rig_poll(e, other), 0);
	}
	CHECK(memcmp(before, e->window, sizeof(before)) == 0);
}

/* Traffic both ways for so many steps, from before the link is up. */
static void run(struct rig *r, int steps)
{
	for (int i = 0; i < steps; i++) {
		rig_send(&r->a);
		if (r->b.up)
			rig_send(&r->b);
		rig_poll(i % 2 ? &r->a : &r->b, i % 2 ? &r->b : &r->a);
		fake_step(r->world);
	}
}

TEST(death_at_every_step)
{
	for (int step = 0; step < 600; step++) {
		struct rig *r = rig_create((uint64_t)step + 1, small);
		struct rig_end *dies = step % 2 ? &r->a : &r->b;
		struct rig_end *lives = step % 2 ? &r->b : &r->a;

		CHECK_EQ(rig_connect(r), 0);
		run(r, step / 2);
		fake_die(dies->context);
		/* What waits for its first word has to be told of the death by others. */
		if (lives == &r->b && !r->b.up)
			for (int i = 0; i < 1000; i++)
				rig_poll(lives, dies);
		if (lives == &r->a || r->b.up) {
			notice(lives, dies);
			CHECK_EQ(link_error(lives->link), LINK_PEER_DEAD);
			is_quiet(r, lives, dies);
		}
		CHECK(lives->got <= dies->sent);
		rig_destroy(r);
	}
}

TEST(an_idle_end_hears_nothing_and_a_mute_death_is_given_up)
{
	struct rig *r = rig_create(9, small);
	int left = 0;

	rig_up(r);
	fake_mute(r->world);
	fake_die(r->b.context);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(rig_poll(&r->a, &r->b), 0);
	CHECK_EQ(rig_send(&r->a), 0);
	for (int i = 0; i < 2000; i++)
		left += rig_poll(&r->a, &r->b);
	CHECK_EQ(left, 0);
	CHECK_EQ(link_drain(r->a.link), 0);
	link_abort(r->a.link);
	CHECK_EQ(rig_send(&r->a), -EPIPE);
	for (int i = 0; i < RIG_POLLS && !r->a.failed; i++)
		rig_poll(&r->a, &r->b);
	CHECK(r->a.failed);
	CHECK_EQ(link_error(r->a.link), LINK_ABORTED);
	is_quiet(r, &r->a, &r->b);
	rig_destroy(r);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Until the descriptor says that there is something to look at; false: it does not. */
static bool is_woken(struct rig_end *e)
{
	struct pollfd pfd = {.fd = link_fd(e->context), .events = POLLIN};

	return poll(&pfd, 1, 1000) == 1;
}

/* A device that lets a write go, and says nothing of it any more (seen with rxe, whose netdev went
 * down and came back): who sleeps is woken, and who polls needs not be. */
TEST(a_device_that_says_nothing_is_given_up)
{
	for (int sleeps = 0; sleeps < 2; sleeps++) {
		struct link_limits limits = small;
		struct rig *r;
		uint64_t since;

		limits.watch_ms = 5;
		r = rig_create(9, limits);
		rig_up(r);
		fake_mute(r->world);
		fake_die(r->b.context);
		since = now_ms();
		CHECK_EQ(rig_send(&r->a), 0);
		while (!r->a.failed && now_ms() - since < 10000) {
			if (sleeps) {
				REQUIRE(is_woken(&r->a));
				link_answer(r->a.context, true);
			}
			rig_poll(&r->a, &r->b);
		}
		CHECK(r->a.failed);
		CHECK_EQ(link_error(r->a.link), LINK_PEER_DEAD);
		CHECK(now_ms() - since >= (uint64_t)limits.watch_ms * 10);
		rig_destroy(r);
	}
}

static struct timespec coarse_stands_at;

/* The coarse clock of a machine whose processor for that does not run. */
static int read_behind(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_MONOTONIC_COARSE)
		return clock_gettime(clock, t);
	*t = coarse_stands_at;
	return 0;
}

/* The descriptor will wake who sleeps. */
static bool is_to_wake(const struct link_context *c)
{
	struct itimerspec left = {0};
	struct pollfd pfd = {.fd = c->timer, .events = POLLIN};

	REQUIRE(timerfd_gettime(c->timer, &left) == 0);
	return left.it_value.tv_sec || left.it_value.tv_nsec || poll(&pfd, 1, 0) == 1;
}

/* The timer wakes who sleeps once: the look is made then, also by a coarse clock that is behind. */
TEST(a_clock_that_is_behind_keeps_no_look_away)
{
	struct link_limits limits = small;
	struct rig *r;

	limits.watch_ms = 5;
	r = rig_create(14, limits);
	rig_up(r);
	fake_mute(r->world);
	fake_die(r->b.context);
	REQUIRE(clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse_stands_at) == 0);
	clock_read = read_behind;
	CHECK_EQ(rig_send(&r->a), 0);
	while (!r->a.failed && is_to_wake(r->a.context)) {
		struct pollfd pfd = {.fd = link_fd(r->a.context), .events = POLLIN};

		REQUIRE(poll(&pfd, 1, -1) == 1);
		link_answer(r->a.context, true);
		rig_poll(&r->a, &r->b);
	}
	clock_read = clock_gettime;
	CHECK(r->a.failed);
	CHECK_EQ(link_error(r->a.link), LINK_PEER_DEAD);
	rig_destroy(r);
}

static bool expects(const struct link *l)
{
	return l->completed > 0;
}

/* All is complete when the peer dies, but there is something to come of it. */
TEST(a_peer_of_whom_something_is_expected_is_asked)
{
	struct link_limits limits = small;
	struct rig *r;
	uint64_t since = now_ms();

	limits.watch_ms = 5;
	r = rig_create(12, limits);
	rig_up(r);
	link_expect(r->a.context, expects);
	CHECK_EQ(rig_send(&r->a), 0);
	while (link_completed(r->a.link) < link_posted(r->a.link) || r->b.got == 0) {
		rig_poll(&r->b, &r->a);
		rig_poll(&r->a, &r->b);
		link_drain(r->a.link);
	}
	fake_die(r->b.context);
	while (!r->a.failed && now_ms() - since < 10000)
		rig_poll(&r->a, &r->b);
	CHECK(r->a.failed);
	CHECK_EQ(link_error(r->a.link), LINK_PEER_DEAD);
	rig_destroy(r);
}

/* A look behind each write adds none of its own: the next write tells of its completion. */
TEST(a_busy_end_is_asked_by_its_writes)
{
	static const struct link_write byte = {.from = "x", .bytes = 1};
	struct link_limits limits = {.links = 1, .credits = 8, .sends = 64};
	const struct timespec nap = {.tv_nsec = 30000000};
	uint64_t before, since = now_ms();
	struct rig *r;

	limits.watch_ms = 5;
	r = rig_create(13, limits);
	rig_up(r);
	before = link_posted(r->a.link);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(link_post(r->a.link, &byte), 0);
		nanosleep(&nap, NULL);
		rig_poll(&r->a, &r->b); /* one look at most */
	}
	CHECK_EQ(link_posted(r->a.link) - before, 10);
	while (link_completed(r->a.link) < before + 9 && now_ms() - since < 10000) {
		rig_poll(&r->b, &r->a);
		rig_poll(&r->a, &r->b);
	}
	CHECK(link_completed(r->a.link) >= before + 9);
	CHECK(!r->a.failed);
	rig_destroy(r);
}

/* What is complete is not waited for: two looks after the last write, and another after the mark. */
TEST(an_idle_end_is_left_alone)
{
	struct link_limits limits = small;
	struct rig *r;

	limits.watch_ms = 5;
	r = rig_create(11, limits);
	rig_up(r);
	CHECK_EQ(rig_send(&r->a), 0);
	for (int i = 0; i < 4; i++) {
		struct timespec nap = {.tv_nsec = 30000000};

		nanosleep(&nap, NULL);
		for (int j = 0; j < 200; j++) {
			rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
		}
		link_answer(r->a.context, false);
	}
	CHECK_EQ(link_completed(r->a.link), link_posted(r->a.link));
	CHECK(!r->a.context->is_watched && !r->a.failed && !r->b.failed);
	CHECK_EQ(poll(&(struct pollfd){.fd = link_fd(r->a.context), .events = POLLIN}, 1,
		      50),
		 0);
	rig_destroy(r);
}

/* Each call that the interconnect may refuse is refused once. */
TEST(a_failure_at_every_call)
{
	bool is_over = false;
	uint32_t nth, lost = 0;

	for (nth = 1; !is_over && nth < 10000; nth++) {
		struct rig *r = rig_create(nth, small);
		int connected;

		fake_inject(r->a.context, nth);
		connected = rig_connect(r);
		if (connected == 0)
			run(r, 200);
		is_over = !fake_injected(r->a.context);
		if (!is_over && r->a.link && link_state(r->a.link) == LINK_FAILED) {
			for (int i = 0; i < RIG_POLLS && !r->a.failed; i++)
				rig_poll(&r->a, &r->b);
			CHECK(r->a.failed);
			CHECK(link_error(r->a.link) == LINK_LOCAL_FAULT ||
			      link_error(r->a.link) == LINK_DEVICE_LOST);
			lost += link_error(r->a.link) == LINK_DEVICE_LOST;
			is_quiet(r, &r->a, &r->b);
		} else if (!is_over) {
			CHECK_EQ(connected, -ENOMEM);
		}
		if (!is_over && connected == 0 && r->b.up)
			notice(&r->b, &r->a);
		rig_destroy(r);
	}
	CHECK(nth > 100 && lost > 10);
}

TEST(an_error_at_every_write)
{
	static const enum link_error errors[] = {LINK_PEER_DEAD, LINK_PEER_REFUSED,
						 LINK_PEER_WRONG, LINK_LOCAL_FAULT};

	for (uint32_t nth = 1; nth < 200; nth++) {
		enum link_error error = errors[nth % 4];
		struct rig *r = rig_create(nth, small);

		rig_up(r);
		fake_break(r->a.link, nth, error);
		for (int i = 0; i < RIG_POLLS && !r->a.failed; i++) {
			rig_send(&r->a);
			rig_send(&r->b);
			rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
		}
		CHECK(r->a.failed);
		CHECK_EQ(link_error(r->a.link), error);
		is_quiet(r, &r->a, &r->b);
		notice(&r->b, &r->a);
		CHECK_EQ(link_error(r->b.link), LINK_PEER_DEAD);
		rig_destroy(r);
	}
}

/* A completion that comes after its link has been destroyed means nobody. */
TEST(late_completions_of_a_link_that_is_gone)
{
	for (uint32_t seed = 1; seed < 100; seed++) {
		struct rig *r = rig_create(
			seed, (struct link_limits){.links = 2, .credits = 7, .sends = 9});
		struct link *gone = NULL;

		rig_up(r);
		gone = r->a.link;
		run(r, (int)seed);
		for (int i = 0; i < 50; i++)
			fake_step(r->world);
		/* Its slot is taken anew at once. */
		link_destroy(gone);
		CHECK_EQ(link_create(r->a.context, r->a.window, 64, &r->a.link), 0);
		for (int i = 0; i < 200; i++)
			CHECK_EQ(rig_poll(&r->a, &r->b), 0);
		CHECK_EQ(link_state(r->a.link), LINK_OPEN);
		notice(&r->b, &r->a);
		CHECK_EQ(link_error(r->b.link), LINK_PEER_DEAD);
		rig_destroy(r);
	}
}

/* Says a word to the peer that the link itself would not. */
static void forge(struct link *l, uint32_t word)
{
	struct fabric_work w = {.is_inline = true,
				.with_immediate = true,
				.to = l->peer.window,
				.to_key = l->peer.key,
				.immediate = word};

	CHECK_EQ(l->context->ops->post(l, &w), 0);
}

TEST(a_peer_that_does_not_keep_to_the_rules)
{
	static const uint32_t words[] = {
		0x80000000,		    /* no control */
		CONTROL_BIT | 4u << 24,	    /* an unknown one */
		CONTROL_BIT | 0x7fu << 24,  /* another */
		CONTROL_BIT | 1u << 24,	    /* READY, again */
		CONTROL_BIT | 2u << 24 | 6, /* a grant of what was never sent */
		CONTROL_BIT | 2u << 24 | 0xffffff,
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct rig *r = rig_create(i + 1, small);

		rig_up(r);
		forge(r->a.link, words[i]);
		for (int n = 0; n < RIG_POLLS && !r->b.failed; n++)
			rig_poll(&r->b, &r->a);
		CHECK_EQ(link_error(r->b.link), LINK_PEER_WRONG);
		is_quiet(r, &r->b, &r->a);
		rig_destroy(r);
	}
}

/* Its key for the other's window is not the one that it was given. */
TEST(a_peer_that_writes_where_it_may_not)
{
	struct rig *r = rig_create(8, small);

	rig_up(r);
	r->a.link->peer.key++;
	for (int n = 0; n < RIG_POLLS && !(r->a.failed && r->b.failed); n++) {
		rig_send(&r->a);
		rig_poll(&r->a, &r->b);
		rig_poll(&r->b, &r->a);
	}
	CHECK_EQ(link_error(r->a.link), LINK_PEER_REFUSED);
	CHECK_EQ(link_error(r->b.link), LINK_BROKEN);
	CHECK_EQ(r->b.got, 0);
	is_quiet(r, &r->b, &r->a);
	rig_destroy(r);
}

TEST(a_peer_that_uses_what_it_was_not_granted)
{
	struct rig *r = rig_create(4, small);

	rig_up(r);
	/* The reserve is for other words. */
	for (uint32_t i = 0; i < small.credits + 1; i++)
		forge(r->a.link, 0);
	for (int i = 0; i < 1000; i++)
		fake_step(r->world);
	for (int n = 0; n < RIG_POLLS && !r->b.failed; n++) {
		struct link_event e[64];
		int got = link_poll(r->b.context, e, 64);

		for (int i = 0; i < got; i++)
			r->b.failed |= e[i].type == LINK_EVENT_FAILED;
	}
	CHECK_EQ(link_error(r->b.link), LINK_PEER_WRONG);
	rig_destroy(r);
}

TEST(data_before_ready_or_after_close)
{
	for (int after = 0; after < 2; after++) {
		struct rig *r = rig_create(6, small);

		CHECK_EQ(rig_connect(r), 0);
		if (after) {
			link_close(r->a.link);
			forge(r->a.link, 0);
		} else {
			/* B's own READY would be A's first word: A is up, and takes none. */
			forge(r->b.link, link_control_word(CONTROL_READY, 0));
		}
		for (int n = 0; n < RIG_POLLS && !(after ? r->b.failed : r->a.failed);
		     n++) {
			rig_poll(&r->a, &r->b);
			rig_poll(&r->b, &r->a);
		}
		CHECK_EQ(link_error(after ? r->b.link : r->a.link), LINK_PEER_WRONG);
		rig_destroy(r);
	}
}
