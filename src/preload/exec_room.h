/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the environment of an exec: the heap may be a parent's, and the stack a short one. */
#ifndef VD_PRELOAD_EXEC_ROOM_H
#define VD_PRELOAD_EXEC_ROOM_H

#include <stddef.h>

/* More is not taken from the stack of the caller. */
#define EXEC_ROOM_STACK 16384

/* NULL: there is none. Until the function that said EXEC_ROOMS returns. */
#define EXEC_ROOM(bytes)                                                                 \
	__extension__({                                                                  \
		size_t bytes_ = (bytes);                                                 \
		bytes_ <= EXEC_ROOM_STACK ? __builtin_alloca(bytes_)                     \
					  : exec_room_take(bytes_);                      \
	})
/* At the begin of a function that uses them. */
#define EXEC_ROOMS                                                                       \
	__attribute__((cleanup(exec_room_end), unused)) struct exec_room *rooms_ =       \
		exec_room_begin()

struct exec_room;
/* What children of vfork have left in this memory, in which they ran, is given back. No call below
 * changes errno. */
struct exec_room *exec_room_begin(void);
void *exec_room_take(size_t bytes);
void exec_room_end(struct exec_room **since);

#endif
