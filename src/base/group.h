/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups that this process is in. */
#ifndef VD_BASE_GROUP_H
#define VD_BASE_GROUP_H

#include <stdint.h>

/*
 * The smallest limit of memory, in bytes, of the group and of those above it, as far as they
 * can be seen; of either version. UINT64_MAX: there is none. Reads some files.
 */
uint64_t group_memory_limit(void);

#endif
