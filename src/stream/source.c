/* SPDX-License-Identifier: Apache-2.0 */
/* The one thing that the sources of sends have in common. */
#include "stream/source.h"

struct stopover source_stopover;

void source_forked_child(void)
{
	/* Another thread of the parent may have had it. A store would copy the page. */
	if (atomic_load_explicit(&source_stopover.lock.word, memory_order_relaxed))
		atomic_store_explicit(&source_stopover.lock.word, 0,
				      memory_order_relaxed);
}
