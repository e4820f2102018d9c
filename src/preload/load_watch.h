/* SPDX-License-Identifier: Apache-2.0 */
/* The moment at which the loader has bound a library and has not yet run its code. */
#ifndef VD_PRELOAD_LOAD_WATCH_H
#define VD_PRELOAD_LOAD_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Until load_watch_end, this thread's loader calls `seen` before it makes memory read-only, as it does
 * with an object's RELRO part once the object is bound. False from it ends that: the loader is not held
 * up any more. It may not call the loader's functions, except dl_iterate_phdr, nor allocate memory.
 * Returns false where this cannot be had: the process has had threads, has a handler for SIGSYS, or the
 * kernel does not offer it. Nothing has changed then.
 */
bool load_watch_begin(bool (*seen)(void *arg, uintptr_t begin, size_t len), void *arg);
void load_watch_end(void);

#endif
