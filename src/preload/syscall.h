/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind syscall() share. */
#ifndef VD_PRELOAD_SYSCALL_H
#define VD_PRELOAD_SYSCALL_H

/* Returned by no call: the kernel is to be asked. */
#define HOOK_NOT_MINE (-4096L)

/* Calls that wait, by their number and six arguments. As syscall(), or HOOK_NOT_MINE:
 * then for the arguments as they are now. */
long syscall_wait(long nr, long *a);

#endif
