/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of Viaduct's that is not locked when the program locks all of its own, nor dumped. */
#ifndef VD_BASE_PAGEABLE_H
#define VD_BASE_PAGEABLE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Most of what Viaduct maps is address space of which little is ever touched: tables for all the
 * sockets that there could be, and 8.5 MB for each connection. mlockall would fill all of that with
 * memory, or fail where the program alone is within its limit. A core file would have each page,
 * present or not: those of shared memory are made for it.
 */

/* As mmap, readable and writable, never locked, and not in a core file. MAP_FAILED, with ENOMEM
 * where the limit of locked memory stands against it. What is replaced with MAP_FIXED is so in one
 * step. */
void *pageable_map(void *at, size_t bytes, int flags, int fd);
/* What pageable_map gave without MAP_FIXED. */
void pageable_unmap(void *at, size_t bytes);
/* A file, shared and only to be read. */
void *pageable_map_read(size_t bytes, int fd);
/* Moves what pageable_map gave to the place of something else of ours, in one step; `to` NULL: to
 * a new place. MAP_FAILED: nothing has moved. */
void *pageable_move(void *at, size_t bytes, void *to);
/* Maps what is shared there once more, elsewhere. MAP_FAILED without memory. */
void *pageable_again(void *at, size_t bytes);
/* Unmaps the first part of it. */
void pageable_unmap_front(void *at, size_t front, size_t bytes);

/* The program wants locked what is mapped from now on. */
void pageable_expect(bool locks);
bool pageable_expects(void);
/* What mlockall would answer the program alone: 0, -EPERM or, `now`, -ENOMEM. */
int pageable_may_lock(bool now);
/* Locks all that is mapped, but for what is Viaduct's. False where that cannot be read, as without
 * /proc: nothing is locked. */
bool pageable_lock_others(bool on_fault);

#endif
