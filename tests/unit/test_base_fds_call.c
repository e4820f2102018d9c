/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child has none of the numbers that calls of its parent's threads have. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/fds_call.h"
#include "unit/child.h"

static int number;
static atomic_int step;

static void *have_one(void *arg)
{
	number = fds_call_take(0);
	atomic_store(&step, 1);
	while (atomic_load(&step) < 2)
		usleep(100);
	fds_call_give(number);
	return arg;
}

/* As the handlers of a fork do. */
static void is_closed_here(void *arg)
{
	fds_forked_child();
	fds_calls_forked_child();
	CHECK(fcntl(*(int *)arg, F_GETFD) < 0);
	CHECK(!fds_is_ours(*(int *)arg));
}

static void fork_between(void (*amid)(void))
{
	fds_calls_forking();
	fds_forking();
	amid();
	CHILD(is_closed_here, &number);
	fds_forked_parent();
}

static void nothing(void)
{
}

/* It may wait for the fork's lock by the time of the fork, or not have begun. */
static void give_it(void)
{
	atomic_store(&step, 2);
	usleep(50000);
}

static void one_thread(void (*amid)(void))
{
	pthread_t t;

	atomic_store(&step, 0);
	REQUIRE(pthread_create(&t, NULL, have_one, NULL) == 0);
	while (atomic_load(&step) < 1)
		usleep(100);
	REQUIRE(number >= 0);
	fork_between(amid);
	atomic_store(&step, 2);
	pthread_join(t, NULL);
	CHECK(fcntl(number, F_GETFD) < 0);
}

TEST(a_child_closes_what_a_call_has)
{
	one_thread(nothing);
}

TEST(a_child_closes_what_a_call_gives_back)
{
	one_thread(give_it);
}

/* Also where the thread that forks has taken it. */
TEST(a_child_closes_what_is_no_call)
{
	number = fds_call_take_needed(0);
	REQUIRE(number >= 0);
	fork_between(nothing);
	CHECK(fcntl(number, F_GETFD) >= 0);
	fds_call_give(number);
	CHECK(fcntl(number, F_GETFD) < 0);
}
