/* SPDX-License-Identifier: Apache-2.0 */
/* When an upgrade is earned: by turns, by what follows its like, by bytes, and by what came of
 * those before. */
#include "unit/test.h"

#include <sched.h>
#include <sys/wait.h>

#include "unit/earning.h"

/* Turns until it is enough. */
static unsigned turns(int fd)
{
	for (unsigned n = 1; n < 10000; n++)
		if (is_enough(fd_sock(fd), fd, n % 2))
			return n;
	return 0;
}

struct run {
	int cpu;	/* from where its bytes come */
	uint64_t trips; /* on the ring */
	unsigned slept,
		rang; /* times that it slept until one came, and that the other had to be woken */
	unsigned turn_ns,
		upgrade_ns; /* time of this processor for a turn on TCP, and until it is attached */
	uint64_t ring_ns; /* and from then on */
};

/* A connection that was upgraded as soon as it had earned that: the turns that it took to earn it. */
static unsigned upgraded_as(int listener, const struct sockaddr_in *at, struct run run)
{
	struct ends e = connection(listener, at);
	struct sock *s = fd_sock(e.b);
	struct slot *sl = s->slot;
	unsigned n = 1;
	set_sender_cpu(e.b, run.cpu);
	clock_read = test_clock;
	while (n < 10000 && !is_enough(s, e.b, n % 2)) {
		own_ns += run.turn_ns;
		n++;
	}
	own_ns += run.upgrade_ns;
	if (run.upgrade_ns)
		earn_attached(s);
	own_ns += run.ring_ns;
	atomic_store(&sl->phase, SLOT_ATTACHED);
	sl->rx_messages = sl->tx_messages = run.trips;
	atomic_store(&sl->rx_arm, run.slept);
	atomic_store(&sl->doorbells, run.rang);
	earn_judge(s);
	earn_judge(s); /* once is enough */
	clock_read = clock_gettime;
	atomic_store(&sl->phase, SLOT_EARNING);
	sl->rx_messages = sl->tx_messages = 0; /* as who has not met leaves them */
	atomic_store(&sl->rx_arm, 0);
	atomic_store(&sl->doorbells, 0);
	ended(e);
	return n;
}

static unsigned upgraded(int listener, const struct sockaddr_in *at, uint64_t trips)
{
	return upgraded_as(listener, at,
			   (struct run){.cpu = NO_CPU_OF_OURS, .trips = trips});
}

/* Before all others: some of them fork. */
TEST(a_connection_that_ends_early_goes_at_once)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	struct sock *s = fd_sock(e.b);
	_Atomic uint32_t *const hindrances[] = {&s->sleepers, &s->inside, &s->slot->ops,
						&s->slot->ctl.word};
	for (size_t i = 0; i < sizeof(hindrances) / sizeof(hindrances[0]); i++) {
		atomic_store(hindrances[i], 1);
		CHECK(!fd_closing_short(e.b) && fd_sock(e.b) == s);
		atomic_store(hindrances[i], 0);
	}
	atomic_store(&s->slot->phase, SLOT_MEETING);
	CHECK(!fd_closing_short(e.b));
	atomic_store(&s->slot->phase, SLOT_EARNING);
	atomic_store(&s->is_copied, true);
	CHECK(!fd_closing_short(e.b));
	atomic_store(&s->is_copied, false);
	atomic_store(&s->fds, 2);
	CHECK(!fd_closing_short(e.b));
	atomic_store(&s->fds, 1);
	CHECK_EQ(atomic_load(&sock_awaited), 1);
	CHECK(fd_closing_short(e.b) && !fd_sock(e.b) && !atomic_load(&s->slot->used));
	CHECK_EQ(atomic_load(&sock_awaited), 0);
	CHECK(!fd_closing_short(e.b));
	ended(e);
	close(listener);
}

TEST(turns_are_operations)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1);
	CHECK_EQ(turns(e.b), OPERATIONS + 1);
	ended(e);
	close(listener);
}

/* What is due is asked for when it is reached. */
TEST(most_operations_are_only_counted)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1); /* the process's first has asked */
	ended(e);
	e = connection(listener, &at);
	asked = 0;
	CHECK_EQ(turns(e.a), OPERATIONS + 1);
	CHECK_EQ(asked, 2); /* and half-way, from where on it is timed */
	/* Where the port has taught more, there as well. */
	CHECK_EQ(upgraded(listener, &at, 5), OPERATIONS + 1);
	asked = 0;
	CHECK_EQ(upgraded(listener, &at, 5), 2 * OPERATIONS + 1);
	CHECK_EQ(asked, 3);
	/* Not in a phase of another kind, and not where all is earned from the start. */
	atomic_store(&fd_sock(e.b)->slot->phase, SLOT_IDLE);
	atomic_store(&fd_sock(e.b)->slot->earn_due, UINT64_MAX);
	CHECK(!earn_goes_on(fd_sock(e.b)->slot, true));
	CHECK_EQ(atomic_load(&fd_sock(e.b)->slot->earned), 0);
	ended(e);
	close(listener);
}

TEST(what_follows_its_like_is_a_sixteenth)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	unsigned n = 1;
	while (n < 10000 && !is_enough(fd_sock(e.a), e.a, true))
		n++;
	CHECK_EQ(n, 1 + 16 * (OPERATIONS - 1) + 1);
	ended(e);
	close(listener);
}

TEST(bytes_count)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	struct sock *s = fd_sock(e.a);
	CHECK(!is_enough(s, e.a, false));
	earn_bytes(s, (16 * (OPERATIONS - 1) - 1) << EARN_UNIT_SHIFT);
	CHECK(!is_enough(s, e.a, false));
	earn_bytes(s, 1 << EARN_UNIT_SHIFT);
	CHECK(is_enough(s, e.a, false));
	ended(e);
	close(listener);
}

TEST(a_port_of_short_connections_waits_longer)
{
	struct sockaddr_in at, other;
	int listener = first_listening(&at);
	unsigned want = OPERATIONS, others = 0;
	/* Half the price and more: a step; less: two. */
	for (int i = 0; i < DOUBLINGS; i += 3, want *= 8) {
		CHECK_EQ(upgraded(listener, &at, 5), want + 1);
		CHECK_EQ(upgraded(listener, &at, 3), 2 * want + 1);
	}
	CHECK_EQ(upgraded(listener, &at, 3), want + 1); /* and no longer */
	/* Two ports may share a place, but not many. */
	for (int i = 0; i < 4 && others != OPERATIONS + 1; i++) {
		int second = listening(&other);
		others = upgraded(second, &other, 3);
		close(second);
	}
	CHECK_EQ(others, OPERATIONS + 1);
	/* The price paid back: a step; four times: two; far more: all. */
	CHECK_EQ(upgraded(listener, &at, 8), want + 1);
	CHECK_EQ(upgraded(listener, &at, 40), want / 2 + 1);
	CHECK_EQ(upgraded(listener, &at, 1000), want / 8 + 1);
	CHECK_EQ(upgraded(listener, &at, 1000), OPERATIONS + 1);
	close(listener);
}

/* Who closes first, of a parent and its child, knows the end of nothing. */
TEST(only_the_last_holder_judges)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	struct slot *sl = fd_sock(e.b)->slot;
	CHECK_EQ(turns(e.b), OPERATIONS + 1);
	atomic_store(&sl->phase, SLOT_ATTACHED);
	slot_hold_foreign(sl);
	earn_judge(fd_sock(e.b));
	atomic_store(&sl->crowded, 0);
	CHECK_EQ(upgraded(listener, &at, 5), OPERATIONS + 1);
	earn_judge(fd_sock(e.b));
	CHECK_EQ(upgraded(listener, &at, 5), 8 * OPERATIONS + 1);
	atomic_store(&sl->phase, SLOT_EARNING);
	ended(e);
	close(listener);
}

TEST(a_name_that_nobody_came_to_was_no_gain)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1);
	atomic_store(&fd_sock(e.a)->slot->phase, SLOT_MEETING);
	earn_judge(fd_sock(e.a));
	atomic_store(&fd_sock(e.a)->slot->phase, SLOT_EARNING);
	CHECK_EQ(turns(e.b), OPERATIONS + 1); /* the other end knows nothing of it */
	ended(e);
	e = connection(listener, &at);
	CHECK_EQ(turns(e.a), 2 * OPERATIONS + 1);
	CHECK_EQ(turns(e.b), OPERATIONS + 1);
	ended(e);
	close(listener);
}

TEST(what_was_not_tried_teaches_nothing)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1); /* looked for nobody yet */
	ended(e);
	e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1);
	atomic_store(&fd_sock(e.a)->slot->phase, SLOT_FINAL);
	ended(e);
	e = connection(listener, &at);
	CHECK_EQ(turns(e.a), OPERATIONS + 1);
	ended(e);
	close(listener);
}

/* With both ends on one processor a turn over TCP is so quick that twice as many are needed before the
 * upgrade. */
TEST(turns_on_one_processor_save_less)
{
	struct sockaddr_in at;
	int listener = first_listening(&at), cpu = sched_getcpu();
	struct run run = {.cpu = cpu, .trips = 8};
	cpu_set_t before, one;
	REQUIRE(cpu >= 0 && sched_getaffinity(0, sizeof(before), &before) == 0);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK_EQ(upgraded_as(listener, &at, run), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 8), OPERATIONS + 1);
	REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
	close(listener);
}

/* Of a turn that one of both slept for an eighth is saved. */
TEST(turns_that_somebody_slept_for_save_less)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct run run = {.cpu = NO_CPU_OF_OURS, .trips = 63, .slept = 63, .rang = 63};
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	run.trips = run.slept = run.rang = 64;
	CHECK_EQ(upgraded_as(listener, &at, run), 2 * OPERATIONS + 1);
	/* More armed than came: as many as came. */
	run.slept = 1000;
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	run.rang = 1000;
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	run.trips = 31;
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	/* One end alone. */
	run = (struct run){.cpu = NO_CPU_OF_OURS, .trips = 15, .rang = 15};
	CHECK_EQ(upgraded_as(listener, &at, run), 4 * OPERATIONS + 1);
	run.trips = 14;
	CHECK_EQ(upgraded_as(listener, &at, run), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded_as(listener, &at, run), 4 * OPERATIONS + 1);
	close(listener);
}

/* There the kernel brings ends that stay on TCP together: only what saves eight prices has paid. */
TEST(in_a_crowd_an_upgrade_has_to_save_more)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	CHECK_EQ(upgraded(listener, &at, 63), OPERATIONS + 1);
	others_want_it = true;
	CHECK_EQ(upgraded(listener, &at, 63), OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 31), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 64), 8 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 64), 4 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 64), 2 * OPERATIONS + 1);
	others_want_it = false;
	CHECK_EQ(upgraded(listener, &at, 8), OPERATIONS + 1);
	close(listener);
}

/* A server that is busy for a second loses its processor now and then, with nobody else there. */
TEST(a_processor_lost_once_is_no_crowd)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct run run = {.cpu = NO_CPU_OF_OURS, .trips = 31, .ring_ns = 1000000000};
	others_want_it = true;
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	run.ring_ns = 1000000; /* the earlier two have paid; this is a crowd */
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	others_want_it = false;
	CHECK_EQ(upgraded(listener, &at, 8), 4 * OPERATIONS + 1);
	close(listener);
}

/* What an upgrade and a turn on TCP take of this processor says how many turns pay for it. */
TEST(the_price_is_measured)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	/* 40 times a turn until it is attached are 70 in all. */
	struct run run = {
		.cpu = NO_CPU_OF_OURS, .trips = 35, .turn_ns = 1000, .upgrade_ns = 41000};
	CHECK_EQ(upgraded_as(listener, &at, run), OPERATIONS + 1);
	CHECK_EQ(atomic_load(&slot_costs()->turn_ns), 1000);
	CHECK_EQ(atomic_load(&slot_costs()->upgrade_ns), 41000);
	run.trips = 36; /* 41 times: 71.75 */
	CHECK_EQ(upgraded_as(listener, &at, run), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 35), OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 17), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 17), 8 * OPERATIONS + 1);
	close(listener);
}

/* One that is far off moves what is known by a part, and never below or above what is sane. */
TEST(one_measurement_says_little)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct run run = {.cpu = NO_CPU_OF_OURS,
			  .trips = 1000,
			  .turn_ns = 1600,
			  .upgrade_ns = 160000};
	upgraded_as(listener, &at, run);
	run.turn_ns = 1;
	upgraded_as(listener, &at, run);
	CHECK_EQ(atomic_load(&slot_costs()->turn_ns), 1200);
	run.turn_ns = 4000000;
	run.upgrade_ns = 4000000000;
	upgraded_as(listener, &at, run);
	CHECK_EQ(atomic_load(&slot_costs()->turn_ns), 1238);
	/* Whatever was measured, 16 turns are too few and 256 are enough. */
	atomic_store(&slot_costs()->turn_ns, UINT32_MAX);
	CHECK_EQ(upgraded(listener, &at, 7), OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 8), 2 * OPERATIONS + 1);
	atomic_store(&slot_costs()->turn_ns, 1);
	atomic_store(&slot_costs()->upgrade_ns, UINT32_MAX);
	CHECK_EQ(upgraded(listener, &at, 127), OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 128), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 128), OPERATIONS + 1);
	close(listener);
}

/* Of several connections in turn nobody knows whose time it was. */
TEST(only_one_connection_is_timed)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	clock_read = test_clock;
	for (unsigned n = 1; n <= OPERATIONS + 1; n++) {
		is_enough(fd_sock(e.a), e.a, n % 2);
		is_enough(fd_sock(e.b), e.b, n % 2);
		own_ns += 1000;
	}
	CHECK_EQ(atomic_load(&slot_costs()->turn_ns), 0);
	earn_attached(fd_sock(e.a));
	CHECK_EQ(atomic_load(&slot_costs()->upgrade_ns), 0);
	clock_read = clock_gettime;
	ended(e);
	close(listener);
}

static const char unspun[] = "without_spinning_turns_save_less";

/* In an image of its own, whose settings are others. */
TEST(without_spinning_turns_save_less)
{
	struct sockaddr_in at;
	int listener, status = -1;
	pid_t pid;
	if (!getenv("VIADUCT_SPIN")) {
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			setenv("VIADUCT_SPIN", "0", 1);
			execl("/proc/self/exe", unspun, unspun, (char *)NULL);
			_exit(127);
		}
		REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK_EQ(status, 0);
		return;
	}
	listener = first_listening(&at);
	CHECK_EQ(upgraded(listener, &at, 7), 2 * OPERATIONS + 1);
	CHECK_EQ(upgraded(listener, &at, 3000), 4 * OPERATIONS + 1);
	close(listener);
}

/* Each process of a family writes both, also a worker that has given up its rights. */
TEST(what_others_write_is_bounded)
{
	struct sockaddr_in at;
	int listener = first_listening(&at);
	struct ends e = connection(listener, &at);
	struct slot *sl = fd_sock(e.b)->slot;
	CHECK_EQ(turns(e.b), OPERATIONS + 1);
	atomic_store(&slot_records()[0x12345677 % SLOT_RECORDS], 255);
	atomic_store(&sl->record, 0x12345678);
	atomic_store(&sl->phase, SLOT_ATTACHED);
	earn_judge(fd_sock(e.b));
	CHECK_EQ(atomic_load(&slot_records()[0x12345677 % SLOT_RECORDS]), DOUBLINGS);
	atomic_store(&sl->phase, SLOT_EARNING);
	ended(e);
	close(listener);
}
