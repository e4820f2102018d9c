/* SPDX-License-Identifier: Apache-2.0 */
/* The variables by which a program runs under Viaduct go along where all others are replaced. */
#ifndef VD_PRELOAD_EXEC_KEPT_H
#define VD_PRELOAD_EXEC_KEPT_H

#include <stddef.h>

#include "preload/exec_room.h"

/* Once, at the start of the program. */
void kept_init(void);
/* 0: the environment goes as it is. */
size_t kept_room(char *const envp[]);
char *const *kept_environment(char *const envp[], void *room);

/* In a function that says EXEC_ROOMS. */
#define KEPT_ENVIRONMENT(envp)                                                           \
	__extension__({                                                                  \
		char *const *given_ = (envp);                                            \
		size_t size_ = kept_room(given_);                                        \
		void *kept_ = size_ ? EXEC_ROOM(size_) : NULL;                           \
		kept_ ? kept_environment(given_, kept_) : given_;                        \
	})

#endif
