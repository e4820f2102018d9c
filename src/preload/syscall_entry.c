/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of syscall(): numbers that make a child in our memory pass without a trace. */
#include <linux/sched.h>
#include <sys/syscall.h>

#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/syscall.h"

__attribute__((used)) long hook_syscall_shares(long nr, unsigned long a, size_t b)
{
	unsigned long flags;
	pid_t mark = 0;

	/* Then a pointer that is bad would end the program. */
	if (!hook_active)
		return HOOK_SHARES;
	if (nr == SYS_vfork)
		flags = CLONE_VM | CLONE_VFORK;
	else if (nr == SYS_clone)
		flags = a;
	else if (b < sizeof(flags) ||
		 crit_copy(&flags, (const void *)a, sizeof(flags)) < 0)
		return HOOK_SHARES; /* fails in the kernel */
	if (hook_clone_parts(flags))
		hook_parting();
	/* Without CLONE_VM it is a fork, whose parent does not come by hook_vfork_end. */
	if ((flags & CLONE_VM) && (flags & CLONE_VFORK) && !(flags & CLONE_SETTLS)) {
		mark = hook_vfork_mark();
		crit_lend();
	}
	return flags & CLONE_VM ? HOOK_SHARES | (unsigned)mark : 0;
}

long hook_syscall_failed(int error);
__attribute__((used)) long hook_syscall_failed(int error)
{
	return ret_errno(-error);
}

/*
 * A child that shares our memory must find nothing of ours on the stack: such calls are
 * made here, in the frame of the caller. 56 is clone, 58 vfork, 435 clone3.
 */
_Static_assert(SYS_clone == 56 && SYS_vfork == 58 && SYS_clone3 == 435, "numbers");

__asm__(".pushsection .text\n"
	".globl syscall\n"
	".type syscall, @function\n"
	".balign 16\n"
	"syscall:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	cmpq $56, %rdi\n"
	"	je 1f\n"
	"	cmpq $58, %rdi\n"
	"	je 1f\n"
	"	cmpq $435, %rdi\n"
	"	je 1f\n"
	"	jmp hook_syscall\n"
	"1:	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	pushq %rcx\n"
	"	pushq %r8\n"
	"	pushq %r9\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 56\n"
	"	call hook_syscall_shares\n"
	"	addq $8, %rsp\n"
	"	popq %r9\n"
	"	popq %r8\n"
	"	popq %rcx\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -56\n"
	"	testq %rax, %rax\n"
	"	jz hook_syscall\n"
	"	movl %eax, %r11d\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	movq %rdx, %rsi\n"
	"	movq %rcx, %rdx\n"
	"	movq %r8, %r10\n"
	"	movq %r9, %r8\n"
	"	movl %r11d, %r9d\n" /* the mark: none of these has a sixth argument */
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jz 3f\n"
	"	pushq %rax\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call hook_vfork_end\n"
	"	popq %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	cmpq $-4095, %rax\n"
	"	jae 2f\n"
	"	ret\n"
	"3:	testl %r9d, %r9d\n"
	"	jz 4f\n"
	"	pushq %rax\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movl %r9d, %edi\n"
	"	call hook_vfork_born\n"
	"	popq %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"4:	ret\n"
	"2:	negl %eax\n"
	"	movl %eax, %edi\n"
	"	jmp hook_syscall_failed\n"
	"	.cfi_endproc\n"
	".size syscall, . - syscall\n"
	".popsection\n");
