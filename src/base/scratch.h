/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one call that is too much for the stack of a coroutine. */
#ifndef VD_BASE_SCRATCH_H
#define VD_BASE_SCRATCH_H

#include <stddef.h>

/* Programs call us on stacks of 4 KiB. */
#define SCRATCH_BYTES 4096

/*
 * Not zeroed. NULL: there is no memory. Without the heap (base/pages.h), which the program may be in the middle of where
 * a signal handler of its calls us. Where no more can be mapped there are 64 * SCRATCH_BYTES for all calls.
 */
void *scratch_take(size_t bytes);
/* bytes: as they were asked for. */
void scratch_give(void *memory, size_t bytes);

#endif
