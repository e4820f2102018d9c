/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the bytes of the instruction `syscall` in memory. */
#ifndef VD_BASE_FIND_CALL_H
#define VD_BASE_FIND_CALL_H

/* The first `0f 05` that lies in front of `end`, whatever it is part of; or NULL. */
const void *find_call(const void *from, const void *end);

#endif
