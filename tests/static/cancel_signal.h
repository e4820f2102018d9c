/* SPDX-License-Identifier: Apache-2.0 */
/* A handler of one's own for the signal by which the C library cancels threads, which it gives to nobody. */
#ifndef VD_TESTS_STATIC_CANCEL_SIGNAL_H
#define VD_TESTS_STATIC_CANCEL_SIGNAL_H

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "edges.h"

void restores(void);
__asm__(".text\n"
	"restores:\n"
	"	movl $15, %eax\n"
	"	syscall\n");

static inline void set_cancel(void (*handler)(int))
{
	const struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} act = {handler, 0x14000000 /* SA_RESTART, SA_RESTORER */, restores, 0};

	CHECK(syscall(SYS_rt_sigaction, 32, &act, NULL, 8) == 0);
}

#endif
