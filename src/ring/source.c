/* SPDX-License-Identifier: Apache-2.0 */
/* The one thing that the sources of sends have in common. */
#include "base/atomic.h"
#include "ring/source.h"

#include "base/sections.h"

uint8_t source_stopover[SOURCE_PIECE_BYTES] __attribute__((aligned(CRIT_LINE_BYTES)));
struct lock source_stopover_lock FORK_DATA;

FORK_CODE void source_forked_child(void)
{
	/* Another thread of the parent may have had it. A store would copy the page. */
	if (load_relaxed(&source_stopover_lock.word))
		store_relaxed(&source_stopover_lock.word, 0);
}
