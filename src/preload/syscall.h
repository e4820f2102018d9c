/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind syscall() share. */
#ifndef VD_PRELOAD_SYSCALL_H
#define VD_PRELOAD_SYSCALL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers below that count which are not for the kernel alone: not 0. */
extern const uint8_t hook_kinds[];
extern const uint64_t hook_kinds_count;

/* As syscall(): called by its entry, and by those of Go programs. */
long hook_syscall(long nr, long a, long b, long c, long d, long e, long f);
/* No thread that comes there is ever cancelled: of the host's C library the program knows nothing. */
extern bool hook_has_no_cancel;
/* Of such a result: as the instruction has it, a value or -errno. */
static inline long hook_answer(long result)
{
	return result == -1 ? -errno : result;
}
/* Before a clone or vfork. Not 0 when the child will run in our memory, perhaps on our very stack:
 * then the caller makes the call itself. In the lower half is what hook_vfork_born is to be told, or 0. */
long hook_syscall_shares(long nr, unsigned long a, size_t b);
#define HOOK_SHARES (1l << 32)

/* Returned by no call: the kernel is to be asked. */
#define HOOK_NOT_MINE (-4096L)

/* Calls that wait, by their number and six arguments. As syscall(), or HOOK_NOT_MINE:
 * then for the arguments as they are now. */
long syscall_wait(long nr, long *a);

#endif
