/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: runs a function of the test's before and after each question to the kernel. */
/*
 * What happens in the middle of a call happens there each time so. The questions are caught by the
 * kernel's dispatch to user space (prctl(2)), since a library may ask without the C library.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "kernel_action.h"

#define SEEN __attribute__((visibility("default")))

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH  59
#define PR_SYS_DISPATCH_ON	      1
#define SYSCALL_DISPATCH_FILTER_ALLOW 0
#define SYSCALL_DISPATCH_FILTER_BLOCK 1
#endif

/* What is called from in here is not caught. */
extern const char between_begin[], between_end[];
void between_restorer(void);
long between_call(long number, long a, long b, long c, long d, long e, long f);
__asm__(".text\n"
	".globl between_begin, between_end, between_restorer, between_call\n"
	".hidden between_begin, between_end, between_restorer, between_call\n"
	"between_begin:\n"
	"between_restorer:\n"
	"	mov $15, %eax\n"
	"	syscall\n"
	"between_call:\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	mov %rdx, %rsi\n"
	"	mov %rcx, %rdx\n"
	"	mov %r8, %r10\n"
	"	mov %r9, %r8\n"
	"	mov 8(%rsp), %r9\n"
	"	syscall\n"
	"	ret\n"
	"	nop\n"
	"between_end:\n");

static void (*run)(void);
static volatile char caught; /* SYSCALL_DISPATCH_FILTER_ */

static bool is_question(long number, long second)
{
	return number == SYS_poll || number == SYS_ppoll || number == SYS_epoll_wait ||
	       number == SYS_epoll_pwait || number == SYS_splice ||
	       (number == SYS_fcntl && second == F_GETPIPE_SZ);
}

static void on_call(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	bool question = is_question(r[REG_RAX], r[REG_RSI]);
	int err = errno;

	(void)sig;
	(void)info;
	caught = SYSCALL_DISPATCH_FILTER_ALLOW;
	if (question)
		run();
	r[REG_RAX] = between_call(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX],
				  r[REG_R10], r[REG_R8], r[REG_R9]);
	if (question)
		run();
	errno = err;
	caught = SYSCALL_DISPATCH_FILTER_BLOCK;
}

/* From now on, for calls of this thread; NULL ends it. 0 or -errno. */
SEEN long conform_between(void (*function)(void));
SEEN long conform_between(void (*function)(void))
{
	const struct kernel_action action = {.handler = on_call,
					     .flags = SA_SIGINFO | KERNEL_RESTORER,
					     .restorer = between_restorer};
	long rc;

	caught = SYSCALL_DISPATCH_FILTER_ALLOW;
	if (!function)
		return 0;
	run = function;
	/* Past every library: the program has no handler. */
	rc = between_call(SYS_rt_sigaction, SIGSYS, (long)&action, 0, 8, 0, 0);
	if (rc == 0)
		rc = between_call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH,
				  PR_SYS_DISPATCH_ON, (long)between_begin,
				  between_end - between_begin, (long)&caught, 0);
	if (rc == 0)
		caught = SYSCALL_DISPATCH_FILTER_BLOCK;
	return rc;
}
