/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of processes that ended without a close: the table does not grow with each. */
#include "unit/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "conn/slot.h"

#define SLOTS  8192u
#define LIVE   300u
#define ROUNDS 20000

TEST(the_dead_make_room_for_the_living)
{
	uint32_t highest = 0;
	int status;
	REQUIRE(slot_table_init(SLOTS, 2) == 0);
	fflush(NULL);
	pid_t dead = fork();
	if (dead == 0)
		_exit(0);
	REQUIRE(waitpid(dead, &status, 0) == dead);
	for (uint32_t i = 0; i < LIVE; i++)
		REQUIRE(slot_alloc());
	for (int i = 0; i < ROUNDS; i++) {
		struct slot *sl = slot_alloc();
		REQUIRE(sl);
		if (slot_index(sl) > highest)
			highest = slot_index(sl);
		atomic_store(&sl->holders[0], dead);
	}
	CHECK(highest < 2 * LIVE);
}
