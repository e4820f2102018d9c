/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that find the C library's functions before ours. */
#include <dlfcn.h>

#include "base/real.h"
#include "preload/hook.h"

__attribute__((used)) void *hook_dlopen_begin(int mode);

/*
 * PHP loads its extensions so: what they read of a connection that has bytes in the ring is
 * TCP's part alone. Before the load, since constructors may call.
 */
void *hook_dlopen_begin(int mode)
{
	if (mode & RTLD_DEEPBIND)
		hook_refuse_all(VD_REASON_DEEPBIND);
	return (void *)REAL(dlopen);
}

/* A jump: libc searches the paths of the library that it returns to. */
__asm__(".pushsection .text\n"
	".globl dlopen\n"
	".type dlopen, @function\n"
	".balign 16\n"
	"dlopen:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movl %esi, %edi\n"
	"	call hook_dlopen_begin\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size dlopen, . - dlopen\n"
	".popsection\n");
