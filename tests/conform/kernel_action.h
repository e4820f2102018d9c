/* SPDX-License-Identifier: Apache-2.0 */
/* A handler as the kernel itself takes it, for tests that set one past every library. */
#ifndef VD_TESTS_CONFORM_KERNEL_ACTION_H
#define VD_TESTS_CONFORM_KERNEL_ACTION_H

#include <signal.h>

#define KERNEL_RESTORER 0x04000000ul /* SA_RESTORER */

/* As rt_sigaction takes it. */
struct kernel_action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

#endif
