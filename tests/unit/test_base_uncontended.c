/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on counters, with others about and without. */
#include "unit/test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "base/uncontended.h"

enum {
	STEPS = 20000000,
	THREADS = 4,
	THREAD_STEPS = 100000,
	TICK_US = 50,
	TICKS_LEAST = 20
};

TEST(both_kinds_count_alike)
{
	for (int alone = 0; alone < 2; alone++) {
		_Atomic uint32_t small = 5;
		_Atomic uint64_t large = UINT32_MAX;
		single_add32(&small, 7, alone);
		single_add32(&small, -2u, alone);
		CHECK_EQ(small, 10);
		single_add64(&large, 1, alone);
		single_add64(&large, 1ull << 40, alone);
		CHECK_EQ(large, (1ull << 32) + (1ull << 40));
	}
}

TEST(an_exchange_tells_what_was_there)
{
	for (int alone = 0; alone < 2; alone++) {
		_Atomic uint32_t word = 3;
		uint32_t expect = 4;
		CHECK(!single_exchange32(&word, &expect, 9, alone));
		CHECK_EQ(expect, 3);
		CHECK_EQ(word, 3);
		CHECK(single_exchange32(&word, &expect, 9, alone));
		CHECK_EQ(word, 9);
	}
}

TEST(what_is_taken_was_there)
{
	for (int alone = 0; alone < 2; alone++) {
		_Atomic uint32_t word = 3;
		int thing = 0;
		void *_Atomic place = &thing;
		CHECK_EQ(single_take32(&word, 1, alone), 3);
		CHECK_EQ(single_take32(&word, 2, alone), 2);
		CHECK_EQ(word, 0);
		CHECK(single_take_pointer(&place, alone) == &thing);
		CHECK(atomic_load(&place) == NULL);
		CHECK(single_take_pointer(&place, alone) == NULL);
	}
}

static _Atomic uint32_t counted32, exchanged;
static _Atomic uint64_t counted64;
static _Atomic uint32_t ticks;

static void swap_up(void)
{
	uint32_t now = atomic_load(&exchanged);
	while (!single_exchange32(&exchanged, &now, now + 1, true))
		;
}

static void on_tick(int sig)
{
	(void)sig;
	single_add32(&counted32, 1, true);
	single_add64(&counted64, 1, true);
	swap_up();
	ticks++;
}

/* What a handler counts between two steps is not lost. */
TEST(a_handler_may_count_as_well)
{
	const struct sigaction action = {.sa_handler = on_tick};
	const struct itimerval often = {{0, TICK_US}, {0, TICK_US}},
			       never = {{0, 0}, {0, 0}};
	uint32_t steps = 0;
	REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
	REQUIRE(setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (steps < STEPS || ticks < TICKS_LEAST) {
		single_add32(&counted32, 1, true);
		single_add64(&counted64, 1, true);
		swap_up();
		steps++;
	}
	REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK_EQ(counted32, steps + ticks);
	CHECK_EQ(counted64, steps + ticks);
	CHECK_EQ(exchanged, steps + ticks);
}

static void *count(void *arg)
{
	_Atomic uint32_t *word = arg;
	for (int i = 0; i < THREAD_STEPS; i++)
		single_add32(word, 1, false);
	return NULL;
}

TEST(threads_may_count_where_nobody_is_alone)
{
	_Atomic uint32_t word = 0;
	pthread_t thread[THREADS];
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&thread[i], NULL, count, &word) == 0);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_join(thread[i], NULL) == 0);
	CHECK_EQ(word, THREADS * THREAD_STEPS);
}
