/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of signals of a statically linked program, and its alternate stacks. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/kernel_action.h"
#include "preload/static.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1 << 31)
#endif

/* glibc's; musl's 33 is glibc's for setuid in all threads. */
#define CANCEL 32

/* A cancelled thread is to leave a call that waits: glibc's signal for that comes from its C library. */
static void note_cancel(const struct kernel_action *act)
{
	if (act->handler == SIG_DFL || act->handler == SIG_IGN)
		return;
	log_info("everything goes back to TCP: the program cancels threads");
	hook_refuse_all(VD_REASON_RAW);
}

long static_sigaction(long sig, long set, long old, long size)
{
	struct kernel_action act;

	if (set && size == sizeof(act.mask) && sig == CANCEL) {
		if (crit_copy(&act, (void *)set, sizeof(act)) != 0)
			return -EFAULT;
		note_cancel(&act);
	}
	return kernel_action_change(sig, set, old, size);
}

/*
 * While a call is on our own stack, a signal would begin the alternate stack anew, though the call
 * may come from a handler there. So the kernel takes it away for as long as a handler is on it.
 */
static long arm(const stack_t *to)
{
	stack_t s = *to;

	if (!(s.ss_flags & SS_DISABLE))
		s.ss_flags |= SS_AUTODISARM;
	return kernel_call4(SYS_sigaltstack, (long)&s, 0, 0, 0);
}

void static_rearm(struct static_self *self)
{
	self->is_disarmed = false;
	if (self->alternate.ss_size)
		arm(&self->alternate);
}

/* The program has asked for that itself: the stack is not the thread's while a handler is on it. */
static bool is_given_up(const stack_t *s)
{
	return s->ss_flags & SS_AUTODISARM;
}

/* A handler that returns has put back what was set when it began. */
static void know_alternate(struct static_self *self, const stack_t *was)
{
	if (!was->ss_size)
		return;
	if (was->ss_sp != self->alternate.ss_sp ||
	    was->ss_size != self->alternate.ss_size)
		self->alternate = (stack_t){.ss_sp = was->ss_sp, .ss_size = was->ss_size};
	self->is_disarmed = false;
}

long static_sigaltstack(struct static_self *self, uint64_t rsp, long set, long old)
{
	stack_t was = {0}, to;
	bool is_on;
	long r = 0;

	kernel_call4(SYS_sigaltstack, 0, (long)&was, 0, 0);
	know_alternate(self, &was);
	was = self->alternate;
	is_on = !is_given_up(&was) && static_is_within(&was, rsp);
	if (set && crit_copy(&to, (void *)set, sizeof(to)) != 0)
		return -EFAULT;
	was.ss_flags &= (int)SS_AUTODISARM;
	was.ss_flags |= is_on ? SS_ONSTACK : was.ss_size ? 0 : SS_DISABLE;
	if (set && is_on)
		return -EPERM;
	if (set)
		r = arm(&to);
	if (set && r == 0) {
		self->alternate = (stack_t){.ss_flags = to.ss_flags & (int)SS_AUTODISARM};
		if (!(to.ss_flags & SS_DISABLE)) {
			self->alternate.ss_sp = to.ss_sp;
			self->alternate.ss_size = to.ss_size;
		}
		self->is_disarmed = false;
	}
	if (r == 0 && old && crit_copy((void *)old, &was, sizeof(was)) != 0)
		return -EFAULT;
	return r;
}

/* ---- a signal ---- */

struct picked {
	void *function; /* or NULL */
	uint64_t next; /* not 0: to be put back behind it. 1: it has a frame of its own */
};
#define BY_CANCEL_FRAME 1

/* A call that has not yet taken our stack begins once more: its place is not settled before. What vfork has
 * returned is noted. */
static void begin_again(struct static_self *self, greg_t *regs)
{
	uint64_t at = (uint64_t)regs[REG_RIP], from = (uint64_t)static_entry;

	if (static_is_unnoted(at))
		self->vforked = (uint64_t)regs[REG_RAX];
	if (at - from > (uint64_t)static_entry_takes - from)
		return;
	if (at == (uint64_t)static_entry_takes)
		self->next = (uint64_t)regs[REG_R11];
	regs[REG_RIP] = (greg_t)from;
}

/* A handler begins elsewhere. The kernel has taken that stack away for this one as well. Behind a filter of system calls it
 * stays so. */
static void keep_alternate(struct static_self *self, uint64_t here)
{
	if (self->alternate.ss_size && !self->is_disarmed &&
	    !is_given_up(&self->alternate) && !static_is_within(&self->alternate, here) &&
	    hook_active)
		arm(&self->alternate);
}

/* A handler begins on the alternate stack, which the kernel has taken away. */
static void begin_alternate(struct static_self *self, struct picked *p)
{
	if (!is_given_up(&self->alternate)) {
		self->is_disarmed = true;
		return;
	}
	if (self->given_up_count < STATIC_GIVEN_UP_MOST)
		self->given_up[self->given_up_count++] = self->alternate;
	self->alternate = (stack_t){0};
	if (!p->next)
		p->next = self->next; /* static_signal_ends is to know */
}

/* `here` is on the stack that the kernel has chosen; FS was the host's, or the program's. */
struct picked static_signal(int sig, siginfo_t *info, void *context, uint64_t here,
			    bool is_host);
__attribute__((used)) struct picked static_signal(int sig, siginfo_t *info, void *context,
						  uint64_t here, bool is_host)
{
	struct static_self *self = &static_self;
	ucontext_t *uc = context;
	uint64_t at = (uint64_t)uc->uc_mcontext.gregs[REG_RSP];
	int saved = errno;
	struct picked p = {NULL, 0};

	begin_again(self, uc->uc_mcontext.gregs);
	know_alternate(self, &uc->uc_stack);
	/* A parent has made no call since, and a child is in none. */
	if (crit_lent && (!static_is_lent(self) || !static_is_own(self, at)))
		crit_returned(static_is_lent(self));
	if (static_is_own(self, at)) {
		p.next = self->next;
		if (self->next > at - 256)
			self->next = (at - 256) & ~63ull;
	} else if (!static_is_alternate(self, at) && crit_depth == 0) {
		if (self->is_disarmed && self->alternate.ss_size) {
			uc->uc_stack = self->alternate;
			uc->uc_stack.ss_flags |= SS_AUTODISARM;
			self->is_disarmed = false;
		}
		self->given_up_count = 0;
		if (self->cancel_resumes && static_cancel_is_left(self, at))
			self->cancel_resumes = STATIC_CANCEL_LEFT;
		static_settle(self, at, self->bottom);
		self->next = self->top;
	}
	p.function = (void *)signal_pick(sig, info, context);
	/* Without a function nothing begins: the kernel puts the stack back. */
	if (p.function && static_is_within(&self->alternate, here) &&
	    !static_is_within(&self->alternate, at))
		begin_alternate(self, &p);
	else if (p.function)
		keep_alternate(self, here);
	if (sig == CANCEL && p.function &&
	    static_cancel(self, context, here, p.next, is_host))
		p.next = BY_CANCEL_FRAME;
	errno = saved;
	return p;
}

/* rt_sigreturn gives an alternate stack back to the kernel, which is known at the next call or signal: before it, another
 * handler may leave. */
void static_signal_ends(uint64_t context, uint64_t here);
__attribute__((used)) void static_signal_ends(uint64_t context, uint64_t here)
{
	struct static_self *self = &static_self;
	const ucontext_t *uc = (void *)context;
	unsigned last = self->given_up_count - 1;

	/* The handler may have been the parent, and the call that it has interrupted goes on. */
	if (crit_lent)
		crit_returned(static_is_lent(self));

	if (self->given_up_count && static_is_within(&self->given_up[last], here) &&
	    !static_is_within(&self->given_up[last],
			      (uint64_t)uc->uc_mcontext.gregs[REG_RSP])) {
		self->alternate = uc->uc_stack;
		self->given_up_count--;
	}
}

_Static_assert(offsetof(ucontext_t, uc_mcontext.gregs[REG_EFL]) == 176, "as below");
void static_signal_entry(int sig, siginfo_t *info, void *context);

void static_signal_init(void)
{
	signal_enter_by(static_signal_entry);
}

/* clang-format off */
__asm__(".pushsection .text\n"
	".globl static_signal_entry\n"
	".hidden static_signal_entry\n"
	".type static_signal_entry, @function\n"
	".balign 16\n"
	/* Where nothing is to be put back behind the handler, it is jumped to: an exception of C++, or what
	 * looks at the stack, finds its way from there as without us.
	 * rbx: FS as it was. r12: `next` to be put back. r13 to r15: the handler's arguments. The kernel
	 * puts all of them back. */
	"static_signal_entry:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	cmpl $2, %gs:80\n"
	"	je 9f\n"
	"	btl $18, 176(%rdx)\n"
	"	jc 5f\n"
	"7:	rdfsbase %rbx\n"
	"	movq %gs:24, %rcx\n"
	"	wrfsbase %rcx\n"
	"	movq %rsp, %rbp\n"
	"	andq $-16, %rsp\n"
	"	movq %rdi, %r13\n"
	"	movq %rsi, %r14\n"
	"	movq %rdx, %r15\n"
	"	xorl %r8d, %r8d\n"
	"	cmpq %rcx, %rbx\n"
	"	sete %r8b\n"
	"	movq %rbp, %rcx\n"
	"	call static_signal\n"
	"	movq %rdx, %r12\n"
	"	testq %rax, %rax\n"
	"	jz 2f\n"
	"	cmpq $1, %r12\n"
	"	je 10f\n"
	"	movq %rbx, %rcx\n"
	"	cmpq %gs:24, %rcx\n"
	"	jne 4f\n"
	"	movq %gs:32, %rcx\n"
	"1:	wrfsbase %rcx\n"
	"	movq %r13, %rdi\n"
	"	movq %r14, %rsi\n"
	"	movq %r15, %rdx\n"
	"	call *%rax\n"
	"	movq %gs:24, %rcx\n"
	"	wrfsbase %rcx\n"
	"	cld\n"
	"	movq %r15, %rdi\n"
	"	movq %rbp, %rsi\n"
	"	call static_signal_ends\n"
	"2:	testq %r12, %r12\n"
	"	jz 3f\n"
	"	movq %r12, %gs:0\n"
	"3:	wrfsbase %rbx\n"
	"	movq %rbp, %rsp\n"
	"	ret\n"
	"4:	testq %r12, %r12\n"
	"	jnz 1b\n"
	"	wrfsbase %rcx\n"
	"	movq %r13, %rdi\n"
	"	movq %r14, %rsi\n"
	"	movq %r15, %rdx\n"
	"	movq %rbp, %rsp\n"
	"	btl $18, 176(%rdx)\n"
	"	jc 6f\n"
	"	jmp *%rax\n"
	/* AC of the program's flags, which our code is without. */
	"5:	pushfq\n"
	"	andl $~0x40000, (%rsp)\n"
	"	popfq\n"
	"	jmp 7b\n"
	"6:	pushfq\n"
	"	orl $0x40000, (%rsp)\n"
	"	popfq\n"
	"	jmp *%rax\n"
	"10:	movq %gs:32, %rcx\n"
	"	wrfsbase %rcx\n"
	"	movq %r13, %rdi\n"
	"	movq %r14, %rsi\n"
	"	movq %gs:64, %rsp\n"
	"	leaq 8(%rsp), %rdx\n"
	"	jmp *%rax\n"
	"9:	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	call signal_pick_stray\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	testq %rax, %rax\n"
	"	jz 8f\n"
	"	jmp *%rax\n"
	"8:	ret\n"
	"	.cfi_endproc\n"
	".size static_signal_entry, . - static_signal_entry\n"
	".popsection\n");
/* clang-format on */
