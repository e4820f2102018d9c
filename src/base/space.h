/* SPDX-License-Identifier: Apache-2.0 */
/* Address space, where the program or the machine has a limit of it. */
#ifndef VD_BASE_SPACE_H
#define VD_BASE_SPACE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether Viaduct may map so many bytes more: half of RLIMIT_AS stays the program's, which would
 * otherwise run out of memory that it has without us. Reads a file of /proc where there is a
 * limit.
 */
bool space_is_left(size_t bytes);
/*
 * Whether Viaduct may make one more mapping, which is then counted: half of vm.max_map_count stays the program's, which
 * would otherwise get no thread, and no memory. What the program has is counted now and then.
 */
bool space_takes_mapping(void);
/*
 * Whether private memory counts that nobody touches: the program has a limit of its data
 * (RLIMIT_DATA), or the kernel promises no more memory than there is (vm.overcommit_memory, as it
 * was at the first call). Of what is mapped in advance Viaduct takes less then, or a file.
 */
bool space_is_counted(void);

#endif
