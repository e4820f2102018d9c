/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one call that is too much for the stack of a coroutine. */
#include "base/atomic.h"
#include "base/scratch.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/lock.h"

/* Calls at one time; those beyond pay for a mapping. Pages that were never used cost nothing. */
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

void *scratch_take(size_t bytes)
{
	uint32_t first = lock_self();
	void *memory;

	if (bytes > SCRATCH_BYTES)
		return malloc(bytes);
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (take((first + i) % BLOCKS))
			return blocks[(first + i) % BLOCKS].byte;
	memory = mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

void scratch_give(void *memory, size_t bytes)
{
	struct block *block = memory;

	if (bytes > SCRATCH_BYTES)
		free(memory);
	else if (block >= blocks && block < blocks + BLOCKS)
		store_release(&taken[block - blocks], 0);
	else
		munmap(memory, SCRATCH_BYTES);
}
