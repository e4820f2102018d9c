/* SPDX-License-Identifier: Apache-2.0 */
/* Statically linked programs, in Go or with a C library, that src/start has mapped in this process. */
#ifndef VD_PRELOAD_START_H
#define VD_PRELOAD_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/door.h"

/* What the loader has given us. */
extern struct door_start start_loader;
/* As struct door has it. */
int start_join(const struct door_start *from);

/* A call that may name /proc/self/exe, or look at a descriptor of ours. True when *result is its result; else the arguments may have
 * changed. */
bool start_own_file(long nr, long *a, long *result);
/* Which numbers concern us, those that start_own_file knows among them: into `size` bytes, at
 * least 512. */
size_t start_asks(uint8_t *to, size_t size);

#endif
