/* SPDX-License-Identifier: Apache-2.0 */
/* Room for what jumps in a program's code lead to. */
#include "preload/jump_room.h"

#include <sys/mman.h>

#define STEP  (64ull << 10)
#define REACH (1ull << 30)

unsigned char *jump_room(uint64_t text, size_t bytes)
{
	uint64_t at = text & ~(STEP - 1);
	uint64_t step = (bytes + STEP - 1) & ~(STEP - 1);

	for (uint64_t down = step; down < REACH && down + STEP < at; down += STEP) {
		void *want = (void *)(at - down);
		void *got =
			mmap(want, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (got == want)
			return got;
		if (got != MAP_FAILED)
			munmap(got, bytes);
	}
	return NULL;
}
