/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one call that is too much for the stack of a coroutine. */
#include "base/atomic.h"
#include "base/scratch.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/pages.h"

/* Calls at one time; those beyond have theirs from elsewhere. Pages that were never used cost nothing. */
#define BLOCKS 64u

static struct block {
	_Alignas(SCRATCH_BYTES) uint8_t byte[SCRATCH_BYTES];
} blocks[BLOCKS];
/* A fork copies what other threads have taken: the child has fewer. */
static _Atomic uint8_t taken[BLOCKS];

static bool take(uint32_t i)
{
	/* Relaxed: what is in the way already. Acquire: what its last owner read he has read. */
	return !load_relaxed(&taken[i]) && !exchange_acquire(&taken[i], 1);
}

static void give(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		store_release(&taken[i], 0);
}

static size_t blocks_of(size_t bytes)
{
	return (bytes + SCRATCH_BYTES - 1) / SCRATCH_BYTES;
}

/* So many side by side, where no memory can be mapped. */
static void *take_row(size_t count)
{
	uint32_t has = 0;

	for (uint32_t i = 0; count <= BLOCKS && i < BLOCKS; i++) {
		if (!take(i)) {
			give(i - has, has);
			has = 0;
		} else if (++has == count) {
			return blocks[i + 1 - has].byte;
		}
	}
	give(BLOCKS - has, has);
	return NULL;
}

void *scratch_take(size_t bytes)
{
	uint32_t first = lock_self();
	void *memory;

	for (uint32_t i = 0; bytes <= SCRATCH_BYTES && i < BLOCKS; i++)
		if (take((first + i) % BLOCKS))
			return blocks[(first + i) % BLOCKS].byte;
	memory = pages_take(bytes);
	return memory ? memory : take_row(blocks_of(bytes));
}

void scratch_give(void *memory, size_t bytes)
{
	struct block *block = memory;

	if (block >= blocks && block < blocks + BLOCKS)
		give((uint32_t)(block - blocks), (uint32_t)blocks_of(bytes));
	else
		pages_give(memory, bytes);
}
