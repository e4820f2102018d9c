/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose loader cannot take this library. */
#ifndef VD_PRELOAD_FOREIGN_H
#define VD_PRELOAD_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/program.h"
#include "preload/exec_room.h"

/*
 * How much memory the environment takes with which this program is to be started in the place
 * of envp; 0: envp is well. `path` as execveat takes it with `dir`; search: as execvp does. *swaps: the
 * library for the other C library stands in the place of this one.
 * Blocks on the disk only; no heap. Keeps errno.
 */
size_t foreign_room(int dir, const char *path, bool search, char *const envp[],
		    bool *swaps);
/* That environment, which points into envp and into `room`. */
char *const *foreign_environment(char *const envp[], bool swaps, void *room);
/* There is a library for programs of this kind. Blocks on the disk only; no heap. */
bool foreign_takes(enum program_kind kind);

/* In a function that says EXEC_ROOMS. */
#define FOREIGN_ENVIRONMENT(dir, path, search, envp)                                     \
	__extension__({                                                                  \
		char *const *envp_ = (envp);                                             \
		bool swaps_ = false;                                                     \
		size_t room_ = foreign_room(dir, path, search, envp_, &swaps_);          \
		void *memory_ = room_ ? EXEC_ROOM(room_) : NULL;                         \
		memory_ ? foreign_environment(envp_, swaps_, memory_) : envp_;           \
	})

#endif
