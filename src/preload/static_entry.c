/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of a statically linked program, on a stack of the thread's own.
 *
 * The entry stands for the instruction `syscall`: rax, rcx and r11 change, and nothing else: no vector
 * register either, since compilers count on that.
 */
#include "preload/static.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/start.h"
#include "preload/syscall.h"

#include <asm/prctl.h>

STATIC_TLS struct static_self static_self;
const struct static_self static_nobody = {.odd = STATIC_NOBODY};
/* What the processor needs for the registers below. */
uint64_t static_vector_bytes;
/*
 * XSAVE and XRSTOR take longer than all else of a call. So where the processor says which parts are in use
 * (XGETBV), and the upper halves of YMM0 to 15 are not, as between functions of C, the others are moved
 * one by one: XMM0 to 15, and, once the program or we have used them, ZMM16 to 31 and the masks (0xa0).
 * x87 is left alone: no code of ours uses it.
 */
bool static_use_is_known;
/* A call keeps so much from its first instruction on: 131072 in the assembly. */
#define KEPT_BYTES (128ull << 10)

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
		       offsetof(struct static_self, odd) == 80 && STATIC_READS_FS == 1,
	       "as in the assembly");
_Static_assert(offsetof(struct static_frame, fs) == 24 &&
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
	set_gs(self);
}

/* The innermost of what the C library's list of cleanups holds. */
static struct _pthread_cleanup_buffer *innermost(void)
{
	struct _pthread_cleanup_buffer probe;

	_pthread_cleanup_push(&probe, NULL, NULL);
	_pthread_cleanup_pop(&probe, 0);
	return probe.__prev;
}

static void clean_up(uint64_t below, uint64_t above)
{
	struct _pthread_cleanup_buffer *b;

	while ((b = innermost()) && (uint64_t)b > below && (uint64_t)b < above)
		_pthread_cleanup_pop(b, 1);
}

/*
 * Handlers run on the thread's own stack where they have interrupted a call, or on the alternate one. So
 * a call from anywhere else has no other one under way; one from our own stack has those above it;
 * and while one that comes from an alternate stack is under way, no handler runs there.
 */
static bool is_left(const struct static_self *self, uint64_t rsp)
{
	if (static_is_own(self, rsp))
		return (uint64_t)self->calls < rsp;
	return static_alternate_at(self, self->calls->rsp) >=
	       static_alternate_at(self, rsp);
}

struct static_frame *static_settle(struct static_self *self, uint64_t rsp, uint64_t below)
{
	struct static_frame *last = NULL;

	/* A handler that leaves in the middle would leave half of it. */
	crit_enter();
	while (self->calls && is_left(self, rsp)) {
		last = self->calls;
		self->calls = last->outer;
	}
	if (last)
		clean_up(below, (uint64_t)last);
	crit_leave();
	return last;
}

/* Where the call has its place: it has begun at `start`, which is below what handlers have left. */
static uint64_t place_of(struct static_self *self, struct static_frame *f, uint64_t start)
{
	struct static_frame *last = static_settle(self, f->rsp, (uint64_t)f);
	int on = static_alternate_at(self, f->rsp);

	if (static_is_own(self, f->rsp))
		return (f->rsp - 128) & ~63ull;
	/* Handlers on those given up later have been left. */
	if (on < (int)self->given_up_count)
		self->given_up_count = (unsigned)(on + 1);
	if (on >= 0)
		return last ? last->place : start;
	if (self->is_disarmed)
		static_rearm(self);
	return self->top;
}

static long set_base(struct static_self *self, struct static_frame *f)
{
	switch (f->rdi) {
	case ARCH_SET_FS:
		if (f->rsi >> 47)
			return -EPERM;
		f->fs = self->program_fs = f->rsi;
		if (static_is_lent(self))
			self->odd = STATIC_READS_FS;
		return 0;
	case ARCH_GET_FS:
		return crit_copy((void *)f->rsi, &f->fs, sizeof(f->fs));
	case ARCH_SET_GS:
	case ARCH_GET_GS: /* is ours */
		return -EPERM;
	default:
		return kernel_call4(SYS_arch_prctl, (long)f->rdi, (long)f->rsi, 0, 0);
	}
}

static long make(struct static_self *self, struct static_frame *f)
{
	long a[6] = {(long)f->rdi, (long)f->rsi, (long)f->rdx,
		     (long)f->r10, (long)f->r8,	 (long)f->r9};
	long nr = (long)f->rax, result;

	switch (nr) {
	case SYS_arch_prctl:
		return set_base(self, f);
	case SYS_set_tid_address:
		self->cleared = (void *)a[0];
		return kernel_call4(SYS_gettid, 0, 0, 0, 0);
	case SYS_exit:
		static_exit(self, (int)a[0]);
		return 0;
	case SYS_rt_sigaction:
		return static_sigaction(a[0], a[1], a[2], a[3]);
	case SYS_sigaltstack:
		return static_sigaltstack(self, f->rsp, a[0], a[1]);
	case SYS_brk:
		return static_brk((uint64_t)a[0]);
	/* As below, with less on the way. */
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		result = syscall_wait(nr, a);
		if (result != HOOK_NOT_MINE)
			return hook_answer(result);
		break;
	default:
		break;
	}
	if (static_begins(self, f, &result) || start_own_file(nr, a, &result))
		return result;
	return hook_answer(hook_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}

/* NULL: it is made. Else it is to be made there, where its frame has been copied to. */
struct static_frame *static_call(struct static_frame *f);
__attribute__((used)) struct static_frame *static_call(struct static_frame *f)
{
	struct static_self *self = &static_self;
	uint64_t start = (uint64_t)(f + 1), place = start;
	int saved = errno;

	if (self->cancel_resumes)
		static_cancel_ends(self, f);
	if (self->calls || self->is_disarmed || self->given_up_count ||
	    start != self->top)
		place = place_of(self, f, start);
	if (place != start) {
		struct static_frame *to = (struct static_frame *)place - 1;

		*to = *f;
		errno = saved;
		return to;
	}
	f->place = place;
	f->next_after = place;
	/* What interrupts the handler has nothing of its own to say how deep that is. */
	if (static_is_own(self, f->rsp))
		f->next_after -= KEPT_BYTES;
	f->outer = self->calls;
	fence_compiler();
	self->calls = f;
	f->rax = (uint64_t)make(self, f);
	self->calls = f->outer;
	errno = saved;
	return NULL;
}

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
	"	popq %r9\n"
	"	popq %r8\n"
	"	popq %r10\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	popq %rax\n"
	/* Of the direction and of alignment, as few have them. What compares set has been lost before. */
	"	testl $0x40400, (%rsp)\n"
	"	jnz .Lflags\\@\n"
	"	leaq 8(%rsp), %rsp\n"
	"	jmp .Lback\\@\n"
	".Lflags\\@:\n"
	"	popfq\n"
	".Lback\\@:\n"
	"	popq %rcx\n"
	"	popq %rsp\n"
	"	movq %r11, %gs:0\n"
	"	jmp *%rcx\n"
	".endm\n"

	".macro movaps_out reg, at\n"
	"	movaps %xmm\\reg, \\at(%rsp)\n"
	".endm\n"
	".macro movaps_in reg, at\n"
	"	movaps \\at(%rsp), %xmm\\reg\n"
	".endm\n"
	".macro STATIC_XMM move\n"
	"	\\move 0, 0\n"
	"	\\move 1, 16\n"
	"	\\move 2, 32\n"
	"	\\move 3, 48\n"
	"	\\move 4, 64\n"
	"	\\move 5, 80\n"
	"	\\move 6, 96\n"
	"	\\move 7, 112\n"
	"	\\move 8, 128\n"
	"	\\move 9, 144\n"
	"	\\move 10, 160\n"
	"	\\move 11, 176\n"
	"	\\move 12, 192\n"
	"	\\move 13, 208\n"
	"	\\move 14, 224\n"
	"	\\move 15, 240\n"
	".endm\n"

	".macro STATIC_MORE to\n"
	".irp i, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	move_zmm_\\to \\i\n"
	".endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n"
	"	move_mask_\\to \\i\n"
	".endr\n"
	".endm\n"
	".macro move_zmm_out reg\n"
	"	vmovdqa64 %zmm\\reg, (64 * (\\reg - 16) + 512)(%rsp)\n"
	".endm\n"
	".macro move_zmm_in reg\n"
	"	vmovdqa64 (64 * (\\reg - 16) + 512)(%rsp), %zmm\\reg\n"
	".endm\n"
	".macro move_zmm_zero reg\n"
	"	vpxord %zmm\\reg, %zmm\\reg, %zmm\\reg\n"
	".endm\n"
	".macro move_mask_out reg\n"
	"	kmovq %k\\reg, (8 * \\reg + 1536)(%rsp)\n"
	".endm\n"
	".macro move_mask_in reg\n"
	"	kmovq (8 * \\reg + 1536)(%rsp), %k\\reg\n"
	".endm\n"
	".macro move_mask_zero reg\n"
	"	kxorq %k\\reg, %k\\reg, %k\\reg\n"
	".endm\n"

	"STATIC_BEGIN static_entry\n"
	"	cmpq $0, %gs:80\n"
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
	"	pushfq\n"
	"	testl $0x40400, (%rsp)\n"
	"	jnz 17f\n"
	"18:	pushq %rax\n"
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
	"	movq %gs:24, %rcx\n"
	"	wrfsbase %rcx\n"
	"5:	subq static_vector_bytes(%rip), %rsp\n"
	"	andq $-64, %rsp\n"
	"	cmpb $0, static_use_is_known(%rip)\n"
	"	je 6f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	testl $0x44, %eax\n"
	"	jz 8f\n"
	"6:	xorl %edx, %edx\n"
	"	movq %rdx, 512(%rsp)\n"
	"	movq %rdx, 520(%rsp)\n"
	"	movq %rdx, 528(%rsp)\n"
	"	movq %rdx, 536(%rsp)\n"
	"	movq %rdx, 544(%rsp)\n"
	"	movq %rdx, 552(%rsp)\n"
	"	movq %rdx, 560(%rsp)\n"
	"	movq %rdx, 568(%rsp)\n"
	"	movl $0xe7, %eax\n"
	"	xsavec64 (%rsp)\n"
	"	movq %rbp, %rdi\n"
	"	call static_call\n"
	"	movq %rax, %rbx\n"
	"	movl $0xe7, %eax\n"
	"	xorl %edx, %edx\n"
	"	xrstor64 (%rsp)\n"
	"7:	movq %rbp, %rsp\n"
	"	testq %rbx, %rbx\n"
	"	jnz 16f\n"
	"	STATIC_BACK\n"
	/* It has begun below its place. */
	"16:	movq %rbx, %rsp\n"
	"	movq %rbx, %rbp\n"
	"	subq $131072 - 160, %rbx\n"
	"	movq %rbx, %gs:0\n"
	"	jmp 5b\n"
	/* AC: our code is not aligned everywhere. And the direction. */
	"17:	pushfq\n"
	"	andl $~0x40400, (%rsp)\n"
	"	popfq\n"
	"	jmp 18b\n"
	/* A handler that runs on our stack: below its red zone, or where it has left calls behind, below those. */
	"1:	leaq -128(%rsp), %r11\n"
	"	andq $-64, %r11\n"
	"	cmpq %rsp, %gs:56\n"
	"	jae 2b\n"
	"	cmpq %gs:0, %r11\n"
	"	jbe 2b\n"
	"	jmp 4b\n"
	"8:	STATIC_XMM movaps_out\n"
	"	stmxcsr 256(%rsp)\n"
	"	movl %eax, %r12d\n"
	"	testl $0xa0, %eax\n"
	"	jz 10f\n"
	"	STATIC_MORE out\n"
	"10:\n"
	"	movq %rbp, %rdi\n"
	"	call static_call\n"
	"	movq %rax, %rbx\n"
	"	vzeroupper\n"
	"	testl $0xa0, %r12d\n"
	"	jnz 11f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	testl $0xa0, %eax\n"
	"	jz 9f\n"
	"	STATIC_MORE zero\n"
	"	jmp 9f\n"
	"11:	STATIC_MORE in\n"
	"9:	STATIC_XMM movaps_in\n"
	"	stmxcsr 260(%rsp)\n"
	"	movl 256(%rsp), %eax\n"
	"	cmpl 260(%rsp), %eax\n"
	"	je 7b\n"
	"	ldmxcsr 256(%rsp)\n"
	"	jmp 7b\n"
	"3:	cmpl $1, %gs:80\n"
	"	jne 4f\n"
	"	rdfsbase %r11\n"
	"	movq %r11, %gs:32\n"
	"	jmp 19b\n"
	/* Nobody: the `syscall` before the tail is made as it is. */
	"4:	leaq -2(%rcx), %rcx\n"
	"	jmp *%rcx\n"
	"STATIC_END static_entry\n"

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
