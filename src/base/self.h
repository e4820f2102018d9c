/* SPDX-License-Identifier: Apache-2.0 */
/* This process's id, without a system call. */
#ifndef VD_BASE_SELF_H
#define VD_BASE_SELF_H

#include <stdbool.h>
#include <sys/types.h>

/* Once, before threads. Without it, or where the kernel is too old, each call asks. */
void self_init(void);
/* In a forked child that is told: spares the first to ask a look in vain. */
void self_forked(void);
/* As getpid, in every kind of forked child too; a child of vfork gets its parent's. */
pid_t self_pid(void);
/*
 * False when that process is known to have left, by exec or its end, the program image
 * that this one and its forks share. True in doubt, as when it is another user's. About
 * 10 us.
 */
bool self_shares_image(pid_t pid);
/* True when that process is known to have ended, and only its parent is yet to hear of
 * it. As above. */
bool self_has_ended(pid_t pid);

#endif
