/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of a statically linked program, on a stack of the thread's own.
 *
 * The entry stands for the instruction `syscall`: rax, rcx and r11 change, and nothing else: no vector
 * register either, since compilers count on that.
 */
#include "preload/static.h"

#include <pthread.h>
#include <stddef.h>

#include "conn/quick.h"
#include "conn/slot.h"
#include "conn/sock.h"

STATIC_TLS struct static_self static_self;
const struct static_self static_nobody = {.odd = STATIC_NOBODY};
/* What the processor needs for the registers below. */
uint64_t static_vector_bytes;
/*
 * XMM0 to 7 are kept by the entry, and are all that conn/quick.c changes. Before anything else the rest is
 * kept by static_keep. XSAVE and XRSTOR take longer than all else of a call. So where the processor says which
 * parts are in use (XGETBV), and the upper halves of YMM0 to 15 are not, as between functions of C, the others are kept
 * one by one: XMM8 to 15, MXCSR, and, once the program or we have used them, ZMM16 to 31 and the masks (0xa0). x87 is left alone: no
 * code of ours uses it.
 */
bool static_use_is_known;
_Static_assert(offsetof(struct static_self, next) == 0 &&
		       offsetof(struct static_self, bottom) == 8 &&
		       offsetof(struct static_self, bytes) == 16 &&
		       offsetof(struct static_self, host_fs) == 24 &&
		       offsetof(struct static_self, program_fs) == 32 &&
		       offsetof(struct static_self, home) == 40 &&
		       offsetof(struct static_self, top) == 48 &&
		       offsetof(struct static_self, calls) == 56 &&
		       offsetof(struct static_self, cancel_frame) == 64 &&
		       offsetof(struct static_self, vforked) == 72 &&
		       offsetof(struct static_self, odd) == 80 &&
		       offsetof(struct static_self, self) == 88 &&
		       offsetof(struct static_self, is_disarmed) == 144 &&
		       STATIC_READS_FS == 1,
	       "as in the assembly");
_Static_assert(offsetof(struct sock, slot) == 0 &&
		       offsetof(struct sock, is_plain) == 55 &&
		       offsetof(struct slot, nonblock) == 76,
	       "as in the assembly");
_Static_assert(sizeof(struct static_stash) == 320 &&
		       offsetof(struct static_stash, kept) == 264,
	       "as in the assembly");
_Static_assert(offsetof(struct static_frame, fs) == 24 &&
		       offsetof(struct static_frame, flags) == 136 &&
		       offsetof(struct static_frame, tail) == 144 &&
		       sizeof(struct static_frame) == 160,
	       "as in the assembly");

static inline void set_gs(const void *to)
{
	__asm__ __volatile__("wrgsbase %0" : : "r"(to));
}

void static_adopt(uint64_t bottom, uint64_t top)
{
	struct static_self *self = &static_self;

	*self = (struct static_self){.next = top & ~63ull,
				     .top = top & ~63ull,
				     .bottom = bottom,
				     .bytes = top - bottom,
				     .host_fs = (uint64_t)pthread_self(),
				     .vforked = 1};
	self->self = self;
	quick_begin(&self->quick);
	set_gs(self);
}

#if QUICK_IS_THERE
#define KEEPS_FIRST
#else
#define KEEPS_FIRST                                                                      \
	"	movq %rbx, %rdi\n"                                                             \
	"	movq %rbp, %rsi\n"                                                             \
	"	call static_keep\n"
#endif

/* clang-format off */
__asm__(".pushsection .text\n"
	".macro STATIC_BEGIN name\n"
	"	.globl \\name\n"
	"	.hidden \\name\n"
	"	.type \\name, @function\n"
	"	.balign 16\n"
	"\\name:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	".endm\n"
	".macro STATIC_END name\n"
	"	.cfi_endproc\n"
	"	.size \\name, . - \\name\n"
	".endm\n"

	".macro STATIC_ARGUMENTS\n"
	"	popq %r9\n"
	"	popq %r8\n"
	"	popq %r10\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	".endm\n"
	/* Of a frame from the tail on. r11: where the next call begins. */
	".macro STATIC_LEAVE\n"
	"	popq %rcx\n"
	"	popq %rsp\n"
	"	movq %r11, %gs:0\n"
	"	jmp *%rcx\n"
	".endm\n"
	/* rsp: a frame. Its part of the own stack is free behind it. */
	".macro STATIC_BACK\n"
	"	movq 16(%rsp), %r11\n"
	"	addq $24, %rsp\n"
	"	popq %rcx\n"
	"	wrfsbase %rcx\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbp\n"
	"	popq %rbx\n"
	"	STATIC_ARGUMENTS\n"
	"	popq %rax\n"
	/* Of the direction and of alignment, as few have them. What compares set has been lost before. */
	"	testl $0x40400, (%rsp)\n"
	"	jnz .Lflags\\@\n"
	"	leaq 8(%rsp), %rsp\n"
	"	jmp .Lback\\@\n"
	".Lflags\\@:\n"
	"	popfq\n"
	".Lback\\@:\n"
	"	STATIC_LEAVE\n"
	".endm\n"

	/* The stash is in `base`. */
	".macro movaps_out reg, at, base\n"
	"	movaps %xmm\\reg, \\at(\\base)\n"
	".endm\n"
	".macro movaps_in reg, at, base\n"
	"	movaps \\at(\\base), %xmm\\reg\n"
	".endm\n"
	".macro STATIC_FEW move, base\n"
	"	\\move 0, 0, \\base\n"
	"	\\move 1, 16, \\base\n"
	"	\\move 2, 32, \\base\n"
	"	\\move 3, 48, \\base\n"
	"	\\move 4, 64, \\base\n"
	"	\\move 5, 80, \\base\n"
	"	\\move 6, 96, \\base\n"
	"	\\move 7, 112, \\base\n"
	".endm\n"
	".macro STATIC_REST move, base\n"
	"	\\move 8, 128, \\base\n"
	"	\\move 9, 144, \\base\n"
	"	\\move 10, 160, \\base\n"
	"	\\move 11, 176, \\base\n"
	"	\\move 12, 192, \\base\n"
	"	\\move 13, 208, \\base\n"
	"	\\move 14, 224, \\base\n"
	"	\\move 15, 240, \\base\n"
	".endm\n"

	".macro STATIC_MORE to\n"
	".irp i, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	move_zmm_\\to \\i\n"
	".endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n"
	"	move_mask_\\to \\i\n"
	".endr\n"
	".endm\n"
	/* Of the memory below a stash, in rdi. */
	".macro move_zmm_out reg\n"
	"	vmovdqa64 %zmm\\reg, (64 * (\\reg - 16) + 512)(%rdi)\n"
	".endm\n"
	".macro move_zmm_in reg\n"
	"	vmovdqa64 (64 * (\\reg - 16) + 512)(%rdi), %zmm\\reg\n"
	".endm\n"
	".macro move_zmm_zero reg\n"
	"	vpxord %zmm\\reg, %zmm\\reg, %zmm\\reg\n"
	".endm\n"
	".macro move_mask_out reg\n"
	"	kmovq %k\\reg, (8 * \\reg + 1536)(%rdi)\n"
	".endm\n"
	".macro move_mask_in reg\n"
	"	kmovq (8 * \\reg + 1536)(%rdi), %k\\reg\n"
	".endm\n"
	".macro move_mask_zero reg\n"
	"	kxorq %k\\reg, %k\\reg, %k\\reg\n"
	".endm\n"

	/*
	 * A read, write, sendto or recvfrom of a connection that stays with TCP for good, and that does not block, is made as
	 * it is, where no other call is under way, nothing is to be put right, and no thread has been cancelled
	 * yet. One that may wait is not, either: it has to end when another thread does that. What another thread does to the
	 * number just now is as in go_entry.c. Only r11 and the flags are changed.
	 */
	"STATIC_BEGIN static_entry\n"
	"	leal -44(%rax), %r11d\n"
	"	cmpl $1, %r11d\n"
	"	jbe 20f\n"
	"	cmpl $1, %eax\n"
	"	ja 21f\n"
	"20:	movl %edi, %r11d\n"
	"	cmpl fd_table_size(%rip), %r11d\n"
	"	jae 21f\n"
	"	shlq $3, %r11\n"
	"	addq fd_table(%rip), %r11\n"
	"	movq (%r11), %r11\n"
	"	testq %r11, %r11\n"
	"	jz 21f\n"
	"	cmpb $0, 55(%r11)\n"
	"	je 21f\n"
	"	movq (%r11), %r11\n"
	"	cmpl $0, 76(%r11)\n"
	"	je 21f\n"
	"	cmpq $0, %gs:56\n"
	"	jne 21f\n"
	"	cmpl $0, hook_refuse_reason(%rip)\n"
	"	jne 21f\n"
	"	cmpb $0, %gs:144\n"
	"	je .Lstatic_as_it_is\n"
	"21:	cmpq $0, %gs:80\n"
	"	jne 3f\n"
	"19:	movq %rsp, %r11\n"
	"	subq %gs:8, %r11\n"
	"	cmpq %gs:16, %r11\n"
	"	jb 1f\n"
	"4:	movq %gs:0, %r11\n"
	"2:	movq %r11, %gs:0\n"
	"	subq $131072, %gs:0\n"
	/* Up to here a handler's entry has it begin once more. */
	"	.globl static_entry_takes\n"
	"	.hidden static_entry_takes\n"
	"static_entry_takes:\n"
	"	xchgq %r11, %rsp\n"
	"	pushq %r11\n"
	"	pushq %rcx\n"
	"	leaq -8(%rsp), %rsp\n" /* static_keep's, for the flags */
	"	pushq %rax\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	pushq %r10\n"
	"	pushq %r8\n"
	"	pushq %r9\n"
	"	pushq %rbx\n"
	"	pushq %rbp\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	pushq %gs:32\n"
	"	subq $24, %rsp\n"
	"	movq %rsp, %rbp\n"
	"	.globl static_entry_has_frame\n"
	"	.hidden static_entry_has_frame\n"
	"static_entry_has_frame:\n"
	"5:	subq $320, %rsp\n"
	"	andq $-64, %rsp\n"
	"	movq %rsp, %rbx\n"
	"	STATIC_FEW movaps_out, %rbx\n"
	"	movq $0, 264(%rbx)\n"
	"	subq static_vector_bytes(%rip), %rsp\n"
	KEEPS_FIRST
	"	movq %rbp, %rcx\n"
	"	movq %rbx, %r8\n"
	"	movq %gs:88, %r9\n"
	"	call static_call\n"
	"	movq 264(%rbx), %rcx\n"
	"	testl %ecx, %ecx\n"
	"	jnz 8f\n"
	"	STATIC_FEW movaps_in, %rbx\n"
	/* C has kept the others, and no other call is under way. */
	"	leaq 80(%rbp), %rsp\n"
	"	leaq 160(%rbp), %r11\n"
	"	movq 72(%rbp), %rbx\n"
	"	movq 64(%rbp), %rbp\n"
	"	STATIC_ARGUMENTS\n"
	"	leaq 16(%rsp), %rsp\n"
	"	STATIC_LEAVE\n"
	/* It has begun below its place: once more, with the registers that static_call expects and leaves. */
	"16:	movq %r12, %rsp\n"
	"	movq %r12, %rbp\n"
	"	subq $131072 - 160, %r12\n"
	"	movq %r12, %gs:0\n"
	"	testl $0x40400, 136(%rbp)\n"
	"	jz 14f\n"
	"	pushq 136(%rbp)\n"
	"	popfq\n"
	"14:"
	"	movq 56(%rbp), %r12\n"
	"	movq 24(%rbp), %rcx\n"
	"	wrfsbase %rcx\n"
	"	movq 104(%rbp), %rdx\n"
	"	movq 112(%rbp), %rsi\n"
	"	movq 120(%rbp), %rdi\n"
	"	jmp 5b\n"
	/* A handler that runs on our stack: below its red zone, or where it has left calls behind, below those. */
	"1:	leaq -128(%rsp), %r11\n"
	"	andq $-64, %r11\n"
	"	cmpq %rsp, %gs:56\n"
	"	jae 2b\n"
	"	cmpq %gs:0, %r11\n"
	"	jbe 2b\n"
	"	jmp 4b\n"
	/* By what static_keep has done. */
	"8:	movq %rax, %r12\n"
	"	movq %rsp, %rdi\n"
	"	cmpl $3, %ecx\n"
	"	je 10f\n"
	"	vzeroupper\n"
	"	cmpl $2, %ecx\n"
	"	je 11f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	testl $0xa0, %eax\n"
	"	jz 12f\n"
	"	STATIC_MORE zero\n"
	"	jmp 12f\n"
	"11:	STATIC_MORE in\n"
	"12:	stmxcsr 260(%rbx)\n"
	"	movl 256(%rbx), %eax\n"
	"	cmpl 260(%rbx), %eax\n"
	"	je 13f\n"
	"	ldmxcsr 256(%rbx)\n"
	"13:	STATIC_FEW movaps_in, %rbx\n"
	"	STATIC_REST movaps_in, %rbx\n"
	"	movq %rbp, %rsp\n"
	"	testq %r12, %r12\n"
	"	jnz 16b\n"
	"	STATIC_BACK\n"
	"10:	movl $0xe7, %eax\n"
	"	xorl %edx, %edx\n"
	"	xrstor64 (%rdi)\n"
	"	jmp 13b\n"
	"3:	cmpl $1, %gs:80\n"
	"	jne 4f\n"
	"	rdfsbase %r11\n"
	"	movq %r11, %gs:32\n"
	"	jmp 19b\n"
	/* Nobody: the `syscall` before the tail is made as it is. */
	"4:\n"
	".Lstatic_as_it_is:\n"
	"	leaq -2(%rcx), %rcx\n"
	"	jmp *%rcx\n"
	"	.globl static_entry_ends\n"
	"	.hidden static_entry_ends\n"
	"static_entry_ends:\n"
	"STATIC_END static_entry\n"

	/* rdi: the stash. Says there what it has kept. rsi: the frame. */
	"STATIC_BEGIN static_keep\n"
	"	cmpq $0, 264(%rdi)\n"
	"	jne 3f\n"
	"	pushfq\n"
	"	popq %rcx\n"
	"	movq %rcx, 136(%rsi)\n"
	"	testl $0x40400, %ecx\n"
	"	jnz 4f\n"
	"5:	movq %gs:24, %rcx\n"
	"	wrfsbase %rcx\n"
	"	STATIC_REST movaps_out, %rdi\n"
	"	movq %rdi, %rsi\n"
	"	subq static_vector_bytes(%rip), %rdi\n"
	"	cmpb $0, static_use_is_known(%rip)\n"
	"	je 2f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	testl $0x44, %eax\n"
	"	jnz 2f\n"
	"	stmxcsr 256(%rsi)\n"
	"	testl $0xa0, %eax\n"
	"	jnz 1f\n"
	"	movq $1, 264(%rsi)\n"
	"	ret\n"
	"1:	STATIC_MORE out\n"
	"	movq $2, 264(%rsi)\n"
	"	ret\n"
	"2:	xorl %edx, %edx\n"
	"	movq %rdx, 512(%rdi)\n"
	"	movq %rdx, 520(%rdi)\n"
	"	movq %rdx, 528(%rdi)\n"
	"	movq %rdx, 536(%rdi)\n"
	"	movq %rdx, 544(%rdi)\n"
	"	movq %rdx, 552(%rdi)\n"
	"	movq %rdx, 560(%rdi)\n"
	"	movq %rdx, 568(%rdi)\n"
	"	movl $0xe7, %eax\n"
	"	xsavec64 (%rdi)\n"
	"	movq $3, 264(%rsi)\n"
	"3:	ret\n"
	/* AC: our code is not aligned everywhere. And the direction. */
	"4:	andl $~0x40400, %ecx\n"
	"	pushq %rcx\n"
	"	popfq\n"
	"	jmp 5b\n"
	"STATIC_END static_keep\n"

	/* Its frame is copied to where the thread's own stack begins. */
	"STATIC_BEGIN static_thread_enter\n"
	"	pushq %rbx\n"
	"	pushq %rbp\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, 40(%rsi)\n"
	"	movq %rsi, %rdx\n"
	"	movq %rdi, %rsi\n"
	"	leaq -256(%rsp), %rsp\n"
	"	andq $-64, %rsp\n"
	"	movq %rsp, %rdi\n"
	"	movq %rsp, (%rdx)\n"
	"	movq %rsp, 48(%rdx)\n"
	"	subq $192, %rsp\n"
	"	movq %rsp, %rdi\n"
	"	movl $20, %ecx\n"
	"	cld\n"
	"	rep movsq\n"
	"	movq (%rdx), %rax\n"
	"	movq %rax, 16(%rsp)\n"
	"	STATIC_BACK\n"
	"STATIC_END static_thread_enter\n"

	"STATIC_BEGIN static_thread_leave\n"
	"	movq %rdi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbp\n"
	"	popq %rbx\n"
	"	ret\n"
	"STATIC_END static_thread_leave\n"

	/* The child has the program's registers from its first instruction on, and nothing on its stack. */
	"STATIC_BEGIN static_stray\n"
	"	pushq %rbx\n"
	"	pushq %rbp\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq 24(%rdi), %rcx\n"
	"	wrfsbase %rcx\n"
	"	movq 32(%rdi), %r15\n"
	"	movq 40(%rdi), %r14\n"
	"	movq 48(%rdi), %r13\n"
	"	movq 56(%rdi), %r12\n"
	"	movq 64(%rdi), %rbp\n"
	"	movq 72(%rdi), %rbx\n"
	"	movq 80(%rdi), %r9\n"
	"	movq 88(%rdi), %r8\n"
	"	movq 96(%rdi), %r10\n"
	"	movq 104(%rdi), %rdx\n"
	"	movq 112(%rdi), %rsi\n"
	"	movq 128(%rdi), %rax\n"
	"	movq 144(%rdi), %xmm0\n"
	"	movq 120(%rdi), %rdi\n"
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	movq %gs:24, %rcx\n"
	"	wrfsbase %rcx\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbp\n"
	"	popq %rbx\n"
	"	ret\n"
	"1:	leaq static_nobody(%rip), %rcx\n"
	"	wrgsbase %rcx\n"
	"	movq %xmm0, %rcx\n"
	"	jmp *%rcx\n"
	"STATIC_END static_stray\n"
	".popsection\n");
/* clang-format on */
