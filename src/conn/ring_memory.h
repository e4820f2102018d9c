/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory rings may grow into, where the control group has a limit. */
#ifndef VD_CONN_RING_MEMORY_H
#define VD_CONN_RING_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether a ring of this family of processes may grow by so many bytes: what all have grown into
 * stays below an eighth of the group's limit. Beyond, a full ring is full, as a buffer is.
 */
bool ring_memory_is_left(uint64_t bytes);
/* One has. */
void ring_memory_taken(uint64_t bytes);

#endif
