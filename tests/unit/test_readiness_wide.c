/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for many events of the kernel's: whose it is in a forked child. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "unit/test.h"

#include "readiness/epoll_call.h"

static struct instance in;
static struct wide *taken;

static void *take(void *arg)
{
	(void)arg;
	taken = wide_take(&in);
	return NULL;
}

static void take_elsewhere(void)
{
	pthread_t t;

	REQUIRE(pthread_create(&t, NULL, take, NULL) == 0);
	pthread_join(t, NULL);
	REQUIRE(taken != NULL);
}

static bool is_mapped(const struct wide *w)
{
	unsigned char page;

	return mincore((void *)(uintptr_t)w, 1, &page) == 0 || errno != ENOMEM;
}

/* What a child exits with. */
static int in_child(int (*does)(void))
{
	pid_t child = fork();
	int status = -1;

	REQUIRE(child >= 0);
	if (child == 0) {
		wide_forked(&in);
		_exit(does());
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int take_again(void)
{
	if (wide_take(&in) != taken)
		return 1;
	wide_give(&in, taken);
	wide_drop(&in);
	return is_mapped(taken) ? 2 : 0;
}

static int take_other(void)
{
	struct wide *none = wide_take(&in);

	wide_give(&in, taken);
	if (none || wide_take(&in) != taken)
		return 1;
	wide_give(&in, taken);
	wide_drop(&in);
	return is_mapped(taken) ? 2 : 0;
}

TEST(a_call_of_another_thread_leaves_it_to_a_child)
{
	instance_widen(&in, 64);
	take_elsewhere();
	CHECK_EQ(in_child(take_again), 0);
	CHECK(wide_take(&in) == NULL);
	wide_give(&in, taken);
	CHECK(wide_take(&in) == taken);
	wide_give(&in, taken);
	CHECK_EQ(in_child(take_again), 0);
	wide_drop(&in);
	CHECK(!is_mapped(taken));
}

/* A handler amid a call forks. */
TEST(the_own_call_goes_on_with_it_in_a_child)
{
	instance_widen(&in, 64);
	REQUIRE(taken = wide_take(&in));
	CHECK_EQ(in_child(take_other), 0);
	wide_give(&in, taken);
	CHECK_EQ(in_child(take_again), 0);
	wide_drop(&in);
	CHECK(!is_mapped(taken));
}

TEST(there_may_be_more_room_later)
{
	instance_widen(&in, 64);
	REQUIRE(taken = wide_take(&in));
	uint32_t room = taken->room;
	wide_give(&in, taken);
	instance_widen(&in, room);
	REQUIRE(taken = wide_take(&in));
	CHECK_EQ(taken->room, 2 * room);
	/* The record becomes another instance's meanwhile. */
	wide_drop(&in);
	CHECK(is_mapped(taken));
	wide_give(&in, taken);
	wide_drop(&in);
	CHECK(!is_mapped(taken));
}
