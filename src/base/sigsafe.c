/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that wait for the end of a critical section, and copies that may fault. */
#include "base/sigsafe.h"

#include <errno.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <x86intrin.h>

#include "base/copy.h"
#include "base/kernel.h"

#define TLS _Thread_local __attribute__((tls_model("initial-exec")))

TLS uint32_t crit_depth, crit_deferred;
TLS uint32_t crit_handled, crit_interrupted;
TLS bool crit_lent, crit_has_lent, crit_comes_back;
/* As crit_lend found them. */
static TLS uint32_t depth_before, deferred_before;
/* Of crit_deferred: a signal, a call. */
enum { SIGNALS = 1, CALLS };
static TLS void (*at_end)(void);
/* The mask to come back to. */
static TLS uint64_t saved_mask;
/* The stack pointer of crit_copy_guarded, while it is inside memcpy. */
extern TLS uintptr_t crit_copying;
TLS uintptr_t crit_copying;

#define BIT(sig) (1ull << ((sig)-1))
/* Blocked, a fault would end the process: these stay as the program has them. */
#define FAULTS                                                                           \
	(BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) | BIT(SIGTRAP) |         \
	 BIT(SIGSYS))
/* The kernel takes SIGKILL and SIGSTOP out of every mask. */
#define DEFERRED (~FAULTS & ~(BIT(SIGKILL) | BIT(SIGSTOP)))

/* Past the C library, which refuses to block some signals. */
static void set_mask(uint64_t mask)
{
	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask));
}

bool crit_is_fault(int sig, const siginfo_t *info)
{
	return (FAULTS & BIT(sig)) && info->si_code > 0;
}

void crit_requeue(int sig, siginfo_t *info)
{
	kernel_call4(SYS_rt_tgsigqueueinfo, kernel_call4(SYS_getpid, 0, 0, 0, 0),
		     kernel_call4(SYS_gettid, 0, 0, 0, 0), sig, (long)info);
}

void crit_send_sigpipe(void)
{
	/* raise would say SI_TKILL. */
	siginfo_t info = {.si_signo = SIGPIPE, .si_code = SI_USER};

	info.si_pid = (pid_t)kernel_call4(SYS_getpid, 0, 0, 0, 0);
	info.si_uid = (uid_t)kernel_call4(SYS_getuid, 0, 0, 0, 0);
	crit_requeue(SIGPIPE, &info);
}

void crit_note_handler(bool restarts)
{
	crit_handled++;
	if (!restarts)
		crit_interrupted++;
}

bool crit_defer(int sig, siginfo_t *info, void *context)
{
	/* The kernel's frame ends after the one word of its mask. */
	uint64_t *mask = (uint64_t *)(void *)&((ucontext_t *)context)->uc_sigmask;

	/* Behind the section's last step, too, up to crit_release. */
	if (__builtin_expect(crit_depth == 0 && !crit_deferred, 1) ||
	    crit_is_fault(sig, info))
		return false;
	set_mask(~0ull); /* no second one in between */
	crit_requeue(sig, info);
	/*
	 * A handler of ours that was interrupted by another returns after it: what counts is the mask of the section
	 * itself, which is known by not being ours. What that handler has blocked, as SIGSEGV, is not kept.
	 */
	if (!(crit_deferred & SIGNALS) || (~*mask & DEFERRED))
		saved_mask = *mask;
	*mask |= DEFERRED | BIT(sig);
	crit_deferred |= SIGNALS;
	return true;
}

void crit_release(void)
{
	uint32_t deferred = crit_deferred;
	uint64_t mask = saved_mask;
	void (*call)(void) = at_end;

	/* From here on a handler may have a mask of its own to come back to. */
	fence_compiler();
	crit_deferred = 0;
	fence_compiler();
	if (deferred & SIGNALS)
		set_mask(mask); /* the kernel delivers here */
	if (deferred & CALLS) {
		int saved = errno;

		call();
		errno = saved;
	}
}

void crit_at_end(void (*call)(void))
{
	at_end = call;
	crit_deferred |= CALLS;
}

void crit_lend(void)
{
	/* A child that lends begins as its parent did. */
	if (!crit_comes_back) {
		depth_before = crit_depth;
		deferred_before = crit_deferred;
	}
	crit_has_lent = crit_lent = crit_comes_back = true;
}

void crit_returned(bool is_child)
{
	crit_depth = depth_before;
	crit_deferred = deferred_before;
	crit_copying = 0;
	fence_compiler();
	crit_lent = is_child;
}

void crit_came_back(void)
{
	crit_lent = crit_comes_back = false;
}

/*
 * Up to 128 bytes: all loads before all stores, no stack, so that from every instruction
 * the failure is one return away. Longer ones: the C library's memcpy, whose registers
 * are put back from the frame here.
 */
__asm__(".pushsection .text\n"
	".hidden crit_copy_short, crit_short_end, crit_short_fault\n"
	".globl crit_copy_short, crit_short_end, crit_short_fault\n"
	".type crit_copy_short, @function\n"
	".balign 32\n"
	"crit_copy_short:\n"
	"	.cfi_startproc\n"
	"	cmpq $16, %rdx\n"
	"	jb 3f\n"
	"	movups (%rsi), %xmm0\n"
	"	movups -16(%rsi,%rdx), %xmm1\n"
	"	cmpq $32, %rdx\n"
	"	ja 1f\n"
	"	movups %xmm0, (%rdi)\n"
	"	movups %xmm1, -16(%rdi,%rdx)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"1:	movups 16(%rsi), %xmm2\n"
	"	movups -32(%rsi,%rdx), %xmm3\n"
	"	cmpq $64, %rdx\n"
	"	ja 2f\n"
	"	movups %xmm0, (%rdi)\n"
	"	movups %xmm2, 16(%rdi)\n"
	"	movups %xmm3, -32(%rdi,%rdx)\n"
	"	movups %xmm1, -16(%rdi,%rdx)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"2:	movups 32(%rsi), %xmm4\n"
	"	movups 48(%rsi), %xmm5\n"
	"	movups -64(%rsi,%rdx), %xmm6\n"
	"	movups -48(%rsi,%rdx), %xmm7\n"
	"	movups %xmm0, (%rdi)\n"
	"	movups %xmm2, 16(%rdi)\n"
	"	movups %xmm4, 32(%rdi)\n"
	"	movups %xmm5, 48(%rdi)\n"
	"	movups %xmm6, -64(%rdi,%rdx)\n"
	"	movups %xmm7, -48(%rdi,%rdx)\n"
	"	movups %xmm3, -32(%rdi,%rdx)\n"
	"	movups %xmm1, -16(%rdi,%rdx)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"3:	cmpl $8, %edx\n"
	"	jb 4f\n"
	"	movq (%rsi), %rax\n"
	"	movq -8(%rsi,%rdx), %rcx\n"
	"	movq %rax, (%rdi)\n"
	"	movq %rcx, -8(%rdi,%rdx)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"4:	cmpl $4, %edx\n"
	"	jb 5f\n"
	"	movl (%rsi), %eax\n"
	"	movl -4(%rsi,%rdx), %ecx\n"
	"	movl %eax, (%rdi)\n"
	"	movl %ecx, -4(%rdi,%rdx)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"5:	testl %edx, %edx\n"
	"	jz 6f\n"
	"	movl %edx, %r8d\n"
	"	shrl $1, %r8d\n"
	"	movzbl (%rsi), %eax\n"
	"	movzbl (%rsi,%r8), %ecx\n"
	"	movzbl -1(%rsi,%rdx), %r9d\n"
	"	movb %al, (%rdi)\n"
	"	movb %cl, (%rdi,%r8)\n"
	"	movb %r9b, -1(%rdi,%rdx)\n"
	"6:	xorl %eax, %eax\n"
	"	ret\n"

	".hidden crit_copy_plain\n"
	".globl crit_copy_plain\n"
	".type crit_copy_plain, @function\n"
	".balign 32\n"
	"crit_copy_plain:\n"
	"	cmpq $128, %rdx\n"
	"	jbe crit_copy_short\n"
	"9:	movups (%rsi), %xmm0\n"
	"	movups 16(%rsi), %xmm1\n"
	"	movups 32(%rsi), %xmm2\n"
	"	movups 48(%rsi), %xmm3\n"
	"	movups 64(%rsi), %xmm4\n"
	"	movups 80(%rsi), %xmm5\n"
	"	movups 96(%rsi), %xmm6\n"
	"	movups 112(%rsi), %xmm7\n"
	"	movups %xmm0, (%rdi)\n"
	"	movups %xmm1, 16(%rdi)\n"
	"	movups %xmm2, 32(%rdi)\n"
	"	movups %xmm3, 48(%rdi)\n"
	"	movups %xmm4, 64(%rdi)\n"
	"	movups %xmm5, 80(%rdi)\n"
	"	movups %xmm6, 96(%rdi)\n"
	"	movups %xmm7, 112(%rdi)\n"
	"	subq $-128, %rsi\n"
	"	subq $-128, %rdi\n"
	"	addq $-128, %rdx\n"
	"	cmpq $128, %rdx\n"
	"	ja 9b\n"
	"	jmp crit_copy_short\n"

	".hidden crit_touch\n"
	".globl crit_touch\n"
	".type crit_touch, @function\n"
	"crit_touch:\n"
	"	lock orb $0, (%rdi)\n"
	"	xorl %eax, %eax\n"
	"	ret\n"

	".hidden crit_copy_lines\n"
	".globl crit_copy_lines\n"
	".type crit_copy_lines, @function\n"
	".balign 32\n"
	"crit_copy_lines:\n"
	"	leaq (%rsi,%rdx), %rcx\n"
	"8:	movups (%rsi), %xmm0\n"
	"	movups 16(%rsi), %xmm1\n"
	"	movups 32(%rsi), %xmm2\n"
	"	movups 48(%rsi), %xmm3\n"
	"	movntdq %xmm0, (%rdi)\n"
	"	movntdq %xmm1, 16(%rdi)\n"
	"	movntdq %xmm2, 32(%rdi)\n"
	"	movntdq %xmm3, 48(%rdi)\n"
	"	addq $64, %rsi\n"
	"	addq $64, %rdi\n"
	"	cmpq %rcx, %rsi\n"
	"	jb 8b\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"crit_short_end:\n"
	"crit_short_fault:\n"
	"	movl $-14, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size crit_copy_short, . - crit_copy_short\n"

	".hidden crit_copy_guarded, crit_guarded_fault\n"
	".globl crit_copy_guarded, crit_guarded_fault\n"
	".type crit_copy_guarded, @function\n"
	".balign 16\n"
	"crit_copy_guarded:\n"
	"	.cfi_startproc\n"
	"	pushq %rbp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	"	.cfi_def_cfa_register %rbp\n"
	"	pushq %rbx\n"
	"	.cfi_offset %rbx, -24\n"
	"	pushq %r12\n"
	"	.cfi_offset %r12, -32\n"
	"	pushq %r13\n"
	"	.cfi_offset %r13, -40\n"
	"	pushq %r14\n"
	"	.cfi_offset %r14, -48\n"
	"	pushq %r15\n"
	"	.cfi_offset %r15, -56\n"
	"	subq $8, %rsp\n"
	"	movq crit_copying@gottpoff(%rip), %rbx\n"
	"	movq %rsp, %fs:(%rbx)\n"
	"	call *memcpy@GOTPCREL(%rip)\n"
	"	xorl %eax, %eax\n"
	"7:	movq $0, %fs:(%rbx)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	.cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	"crit_guarded_fault:\n"
	"	.cfi_def_cfa %rbp, 16\n"
	"	cld\n"
	"	leaq 48(%rsp), %rbp\n"
	"	movq crit_copying@gottpoff(%rip), %rbx\n"
	"	movl $-14, %eax\n"
	"	jmp 7b\n"
	"	.cfi_endproc\n"
	".size crit_copy_guarded, . - crit_copy_guarded\n"
	".popsection\n");

_Static_assert(EFAULT == 14, "the number above");

int crit_copy_guarded(void *to, const void *from, size_t len);
/* Whole lines, at least one, to the beginning of one. */
int crit_copy_lines(void *to, const void *from, size_t len);
extern const char crit_short_end[], crit_short_fault[], crit_guarded_fault[];

/* memcpy has no frame worth the name; what lies deeper is a handler past us, or worse. */
#define MEMCPY_FRAME_BYTES 512

int crit_copy_long(void *to, const void *from, size_t len)
{
	char *out = to;
	const char *in = from;
	int r = 0;

	/* No handler may run, and leave by longjmp, while the record stands. */
	crit_enter();
	for (size_t at = 0, n; r == 0 && at < len; at += n) {
		n = copy_piece(out + at, in + at, len - at);
		r = crit_copy_guarded(out + at, in + at, n);
	}
	crit_leave();
	return r;
}

int crit_copy_past(void *to, const void *from, size_t len)
{
	const char *at = from;
	char *out = to;
	size_t head = -(uintptr_t)out % CRIT_LINE_BYTES;

	if (len < head + CRIT_LINE_BYTES)
		return crit_copy(to, from, len);
	size_t lines = (len - head) & -(size_t)CRIT_LINE_BYTES;
	size_t tail = len - head - lines;
	int r = crit_copy_short(out, at, head);
	if (r == 0)
		r = crit_copy_lines(out + head, at + head, lines);
	if (r == 0)
		r = crit_copy_short(out + head + lines, at + head + lines, tail);
	/* Such stores are in no order with those that come after them. */
	_mm_sfence();
	return r;
}

bool crit_recover(int sig, const siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t at = (uintptr_t)regs[REG_RIP];

	if ((sig != SIGSEGV && sig != SIGBUS) || info->si_code <= 0)
		return false;
	if (at >= (uintptr_t)crit_copy_short && at < (uintptr_t)crit_short_end) {
		regs[REG_RIP] = (greg_t)crit_short_fault;
		return true;
	}
	if (crit_copying == 0 ||
	    crit_copying - (uintptr_t)regs[REG_RSP] > MEMCPY_FRAME_BYTES)
		return false;
	regs[REG_RSP] = (greg_t)crit_copying;
	regs[REG_RIP] = (greg_t)crit_guarded_fault;
	return true;
}
