/* SPDX-License-Identifier: Apache-2.0 */
/* rt_sigaction of programs that make their system calls themselves. */
#ifndef VD_PRELOAD_KERNEL_ACTION_H
#define VD_PRELOAD_KERNEL_ACTION_H

#include <signal.h>
#include <stdint.h>

/* The kernel's. */
struct kernel_action {
	void (*handler)(int);
	uint64_t flags;
	void *restorer;
	uint64_t mask;
};

/* As rt_sigaction, by the table of handlers (signal.c). */
long kernel_action_change(long sig, long set, long old, long size);

#endif
