/* SPDX-License-Identifier: Apache-2.0 */
/* Room for what jumps in a program's code lead to. */
#ifndef VD_PRELOAD_JUMP_ROOM_H
#define VD_PRELOAD_JUMP_ROOM_H

#include <stddef.h>
#include <stdint.h>

/* Memory below the code, where its jumps of five bytes reach; or NULL. */
unsigned char *jump_room(uint64_t text, size_t bytes);

#endif
