/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of a Go program, on a stack of their own: goroutines have little.
 *
 * The entries stand for the instruction `syscall`: only rax, rcx and r11 change of the general
 * registers. Go keeps nothing in vector registers across a call, and its system calls are in functions
 * that are called; only xmm15 is zero to it everywhere, so it is made so. r14 (the goroutine) and the
 * other saved registers are saved by C as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "conn/brief.h"
#include "conn/kernel_call.h"
#include "conn/slot.h"
#include "preload/go.h"
#include "preload/hook.h"
#include "preload/start.h"
#include "preload/syscall.h"
#include "readiness/ready.h"

_Static_assert(offsetof(struct sock, is_plain) == 55, "as in the assembly below");

#define STACK_BYTES 262144 /* as in the assembly below */

/* Where this thread's own stack begins, or 0: in use, or there is none yet. */
GO_TLS uint64_t go_stack;
/* Its memory, or 0. */
GO_TLS uint64_t go_memory;
/* It is given back at the thread's end. */
static GO_TLS bool is_kept;
static pthread_key_t stack_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool has_key;

static void thread_ends(void *memory)
{
	go_stack = go_memory = 0;
	munmap(memory, STACK_BYTES);
}

static void make_key(void)
{
	has_key = pthread_key_create(&stack_key, thread_ends) == 0;
}

void go_stack_is_lent(void)
{
	is_kept = true;
}

static void keep(void)
{
	pthread_once(&key_once, make_key);
	if (has_key)
		pthread_setspecific(stack_key, (void *)go_memory);
	is_kept = true;
}

/*
 * Go copies from connection to connection by splice, through a pipe, and falls back to a copy where
 * the first call is answered EINVAL. One that has never been direct, and never will be, is spliced.
 */
static bool declines_splice(int from)
{
	struct sock *s = fd_sock(from);

	return s && (s->wire || atomic_load(&s->slot->phase) != SLOT_FINAL);
}

/* A goroutine that is told that nothing is there is parked, and a thread goes to sleep in its place. */
static struct sock *look(int fd, size_t room)
{
	struct sock *s = fd_sock(fd);

	return s && !hook_is_borrowed() && brief_look(s, room) ? s : NULL;
}

/*
 * A read or write that is the kernel's: counted there as by those names, but it is no point of
 * cancellation, as no call of Go's is, and so takes none of its steps. Nor does a handler of Go's leave it by a
 * jump: so nobody else has to count it out. HOOK_NOT_MINE: it is not the kernel's, or one
 * that those functions look at more closely.
 */
static long move_in_kernel(long nr, int fd, void *memory, size_t len)
{
	bool reads = nr == SYS_read;
	struct sock *s = fd_sock(fd);
	enum sock_way way;
	long moved;

	/* What a child of vfork moves before its exec are the runtime's pipe and files, maybe by a number that is a
	 * connection in its parent. */
	if (!s || hook_is_borrowed())
		return kernel_call4(nr, fd, (long)memory, (long)len, 0);
	if (!crit_is_near(memory, len))
		return HOOK_NOT_MINE;
	way = reads ? rx_enter(s, fd) : tx_enter(s, fd);
	if (way == SOCK_DIRECT)
		return HOOK_NOT_MINE;
	if (way == SOCK_COUNTED) /* a handler of Go's does not fork */
		crit_leave();
	moved = kernel_call4(nr, fd, (long)memory, (long)len, 0);
	if (way == SOCK_COUNTED && reads)
		rx_leave(s, moved);
	else if (way == SOCK_COUNTED)
		tx_leave(s, moved);
	if (moved == -ECONNRESET)
		sock_error_told(s);
	return moved;
}

/* The same of a wait of epoll, without a mask, on an instance where no registration is ours. */
static long wait_in_kernel(long nr, int epfd, void *events, long most, long ms,
			   const void *mask)
{
	if ((nr == SYS_epoll_pwait && mask) || left_any())
		return HOOK_NOT_MINE;
	return ready_epoll_wait_alone(epfd, events, (int)most, (int)ms, HOOK_NOT_MINE);
}

static long call(long nr, long *args)
{
	struct sock *looked = NULL;
	long result;

	if (nr == SYS_read)
		looked = look((int)args[0], (size_t)args[2]);
	if (nr == SYS_splice && declines_splice((int)args[0]))
		result = -EINVAL;
	else if (!go_is_static || !start_own_file(nr, args, &result))
		result = hook_answer(hook_syscall(nr, args[0], args[1], args[2], args[3],
						  args[4], args[5]));
	if (looked)
		brief_end(looked);
	return result;
}

static __attribute__((noinline)) void keep_first(void)
{
	int saved = errno;

	keep();
	errno = saved;
}

static __attribute__((noinline)) long call_any(long nr, long a, long b, long c, long d,
					       long e, long f)
{
	long args[6] = {a, b, c, d, e, f}, result;
	int saved = errno;

	result = call(nr, args);
	errno = saved;
	return result;
}

/* What most calls are comes first, and leaves errno alone by itself. */
long go_call(long nr, long a, long b, long c, long d, long e, long f);
NEAR_MOVE __attribute__((used)) long go_call(long nr, long a, long b, long c, long d,
					     long e, long f)
{
	long result = HOOK_NOT_MINE;

	if (__builtin_expect(!is_kept, 0))
		keep_first();
	if (nr == SYS_read || nr == SYS_write)
		result = move_in_kernel(nr, (int)a, (void *)b, (size_t)c);
	else if (nr == SYS_epoll_pwait || nr == SYS_epoll_wait)
		result = wait_in_kernel(nr, (int)a, (void *)b, c, d, (void *)e);
	return result == HOOK_NOT_MINE ? call_any(nr, a, b, c, d, e, f) : result;
}

/* HOOK_NOT_MINE: the call is to be made by the entry, since its child will run in our memory. */
long go_clone(long nr, long a, long b, long c, long d, long e, long f);
__attribute__((used)) long go_clone(long nr, long a, long b, long c, long d, long e,
				    long f)
{
	int saved = errno;
	long result = HOOK_NOT_MINE;

	if (__builtin_expect(!is_kept, 0))
		keep();
	/* In a namespace of its own the child may have our id, and would not be known. */
	if (kernel_getpid() == 1 && (nr != SYS_clone || (a & CLONE_NEWPID)))
		hook_parting();
	if (!hook_syscall_shares(nr, (unsigned long)a, (size_t)b))
		result = hook_answer(hook_syscall(nr, a, b, c, d, e, f));
	crit_came_back(); /* the parent does not come by hook_vfork_end */
	errno = saved;
	return result;
}

/* clang-format off */
__asm__(".pushsection .text\n"
	/* Registers, and the stack, as they were before the call; this thread's own stack is free again. */
	".macro GO_RESTORE\n"
	"	movq 24(%rsp), %r9\n"
	"	movq 32(%rsp), %r8\n"
	"	movq 40(%rsp), %r10\n"
	"	movq 48(%rsp), %rdx\n"
	"	movq 56(%rsp), %rsi\n"
	"	movq 64(%rsp), %rdi\n"
	"	leaq 80(%rsp), %r11\n"
	"	movq 72(%rsp), %rsp\n"
	"	movq go_stack@gottpoff(%rip), %rcx\n"
	"	movq %r11, %fs:(%rcx)\n"
	"	xorps %xmm15, %xmm15\n"
	".endm\n"
	/* Leaves the result in rax. With `raw` 1 the call is made by whoever uses this, when the
	 * function returns HOOK_NOT_MINE, or is not asked: then rax is the number as before. */
	".macro GO_CALL function, raw\n"
	"	cmpq $0, go_main_fs(%rip)\n"
	"	jne 6f\n"
	"11:\n"
	".if \\raw == 0\n"
	"	cmpq hook_kinds_count(%rip), %rax\n"
	"	jae 8f\n"
	"	movq go_kinds(%rip), %rcx\n"
	"	cmpb $0, (%rcx,%rax)\n"
	"	je 8f\n"
	".endif\n"
	"	movq go_stack@gottpoff(%rip), %rcx\n"
	"	movq %fs:(%rcx), %r11\n"
	"	testq %r11, %r11\n"
	"	jz 5f\n"
	"2:	movq $0, %fs:(%rcx)\n"
	"	movq %rsp, -8(%r11)\n"
	"	leaq -80(%r11), %rsp\n"
	"	movq %rdi, 64(%rsp)\n"
	"	movq %rsi, 56(%rsp)\n"
	"	movq %rdx, 48(%rsp)\n"
	"	movq %r10, 40(%rsp)\n"
	"	movq %r8, 32(%rsp)\n"
	"	movq %r9, 24(%rsp)\n"
	"	movq %rax, 16(%rsp)\n"
	"	movq %r9, (%rsp)\n"
	"	movq %r8, %r9\n"
	"	movq %r10, %r8\n"
	"	movq %rdx, %rcx\n"
	"	movq %rsi, %rdx\n"
	"	movq %rdi, %rsi\n"
	"	movq %rax, %rdi\n"
	"	call \\function\n"
	".if \\raw == 1\n"
	"	cmpq $-4096, %rax\n"
	"	jne 3f\n"
	"	movq 16(%rsp), %rax\n"
	"	GO_RESTORE\n"
	"	jmp 8f\n"
	"3:\n"
	".endif\n"
	"	GO_RESTORE\n"
	"	jmp 9f\n"
	/* No stack: in use, as in a signal's handler, or not made yet. There is nowhere to save
	 * registers but in the vector registers. */
	"5:	movq go_memory@gottpoff(%rip), %rcx\n"
	"	cmpq $0, %fs:(%rcx)\n"
	"	jne 8f\n"
	"	movq %rax, %xmm0\n"
	"	movq %rdi, %xmm1\n"
	"	movq %rsi, %xmm2\n"
	"	movq %rdx, %xmm3\n"
	"	movq %r10, %xmm4\n"
	"	movq %r8, %xmm5\n"
	"	movq %r9, %xmm6\n"
	"	movl $9, %eax\n"		/* mmap */
	"	xorl %edi, %edi\n"
	"	movl $262144, %esi\n"
	"	movl $3, %edx\n"		/* PROT_READ | PROT_WRITE */
	"	movl $0x24022, %r10d\n"	/* MAP_PRIVATE | ANONYMOUS | NORESERVE | STACK */
	"	movq $-1, %r8\n"
	"	xorl %r9d, %r9d\n"
	"	syscall\n"
	"	cmpq $-4095, %rax\n"
	"	jae 7f\n"
	"	movq go_memory@gottpoff(%rip), %rcx\n"
	"	movq %rax, %fs:(%rcx)\n"
	"	movq %rax, %rdi\n"		/* its lowest page stays empty */
	"	movl $10, %eax\n"		/* mprotect */
	"	movl $4096, %esi\n"
	"	xorl %edx, %edx\n"
	"	syscall\n"
	"	leaq 262144(%rdi), %r11\n"
	"	movq go_stack@gottpoff(%rip), %rcx\n"
	"	movq %xmm0, %rax\n"
	"	movq %xmm1, %rdi\n"
	"	movq %xmm2, %rsi\n"
	"	movq %xmm3, %rdx\n"
	"	movq %xmm4, %r10\n"
	"	movq %xmm5, %r8\n"
	"	movq %xmm6, %r9\n"
	"	jmp 2b\n"
	"6:	rdfsbase %rcx\n"
	"	cmpq %rcx, go_main_fs(%rip)\n"
	"	jne 8f\n"
	"	movq $0, go_main_fs(%rip)\n"
	"	jmp 11b\n"
	"7:	movq %xmm1, %rdi\n"
	"	movq %xmm2, %rsi\n"
	"	movq %xmm3, %rdx\n"
	"	movq %xmm4, %r10\n"
	"	movq %xmm5, %r8\n"
	"	movq %xmm6, %r9\n"
	"	movq $-12, %rax\n"		/* -ENOMEM */
	"	jmp 9f\n"
	"8:\n"
	".if \\raw == 0\n"
	"	syscall\n"
	"9:\n"
	".endif\n"
	".endm\n"
	".macro GO_BEGIN name\n"
	"	.globl \\name\n"
	"	.hidden \\name\n"
	"	.type \\name, @function\n"
	"	.balign 16\n"
	"\\name:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	".endm\n"
	".macro GO_END name\n"
	"	.cfi_endproc\n"
	"	.size \\name, . - \\name\n"
	".endm\n"

	/*
	 * A read or a write by a number that is no connection's, or that of one which stays with TCP for good, is the
	 * kernel's. Who closes the number just now, and opens another, may have it done on that: as without us.
	 * Where the connection's record becomes another's meanwhile, its mark is gone before that is in the table.
	 */
	"GO_BEGIN go_entry_syscall6\n"
	"	cmpq $1, %rax\n"
	"	ja 1f\n"
	"	movl %edi, %r11d\n"
	"	cmpl fd_table_size(%rip), %r11d\n"
	"	jae 8f\n"
	"	movq fd_table(%rip), %rcx\n"
	"	movq (%rcx,%r11,8), %rcx\n"
	"	testq %rcx, %rcx\n"
	"	jz 8f\n"
	"	cmpb $0, 55(%rcx)\n"
	"	jne 8f\n"
	"1:	GO_CALL go_call, 0\n"
	"	cmpq $-4095, %rax\n"
	"	jmp *go_back_syscall6(%rip)\n"
	"GO_END go_entry_syscall6\n"

	/* The child of a vfork uses this thread's stack, and ends in the middle of it. */
	"GO_BEGIN go_entry_vfork\n"
	"	GO_CALL go_clone, 1\n"
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jz 9f\n"
	"	cmpq $0, go_main_fs(%rip)\n"
	"	jne 9f\n"
	"	movq go_memory@gottpoff(%rip), %rcx\n"
	"	movq %fs:(%rcx), %r11\n"
	"	testq %r11, %r11\n"
	"	jz 9f\n"
	"	leaq 262144(%r11), %r11\n"
	"	movq go_stack@gottpoff(%rip), %rcx\n"
	"	movq %r11, %fs:(%rcx)\n"
	"9:	pushq %r12\n"
	"	cmpq $-4095, %rax\n"
	"	jmp *go_back_vfork(%rip)\n"
	"GO_END go_entry_vfork\n"

	"GO_BEGIN go_entry_exit\n"
	"	movl $231, %eax\n"
	"	GO_CALL go_call, 0\n"
	"	movl $231, %eax\n"
	"	syscall\n"
	"	hlt\n"
	"GO_END go_entry_exit\n"

	"GO_BEGIN go_entry_epoll_create\n"
	"	movl $213, %eax\n"
	"	GO_CALL go_call, 0\n"
	"	movl %eax, 16(%rsp)\n"
	"	ret\n"
	"GO_END go_entry_epoll_create\n"

	"GO_BEGIN go_entry_epoll_create1\n"
	"	movl $291, %eax\n"
	"	GO_CALL go_call, 0\n"
	"	movl %eax, 16(%rsp)\n"
	"	ret\n"
	"GO_END go_entry_epoll_create1\n"

	"GO_BEGIN go_entry_epoll_ctl\n"
	"	movl $233, %eax\n"
	"	GO_CALL go_call, 0\n"
	"	movl %eax, 32(%rsp)\n"
	"	ret\n"
	"GO_END go_entry_epoll_ctl\n"

	"GO_BEGIN go_entry_epoll_wait\n"
	"	movl $281, %eax\n"
	"	GO_CALL go_call, 0\n"
	"	movl %eax, 32(%rsp)\n"
	"	ret\n"
	"GO_END go_entry_epoll_wait\n"

	/* settls: FS stays, and the look of rt0_go finds what it expects. */
	"GO_BEGIN go_entry_settls\n"
	"	movq $0x123, -8(%rsi)\n"
	"	xorl %eax, %eax\n"
	"	jmp *go_back_settls(%rip)\n"
	"GO_END go_entry_settls\n"

	/* m is in r13, the function in r12; rdx and r10 are 0. */
	"GO_BEGIN go_entry_clone\n"
	"	movl $56, %eax\n"
	"	movq %r13, %rdx\n"
	"	movq %r12, %r10\n"
	"	GO_CALL go_thread, 1\n"
	"	movq $-11, %rax\n"		/* -EAGAIN */
	"9:	jmp *go_back_clone(%rip)\n"
	"GO_END go_entry_clone\n"

	/* Go's handlers of signals set others, as to end by a signal: then this thread's stack may be in
	 * use, and the one that they run on has room. */
	"GO_BEGIN go_entry_sigaction\n"
	"	movl $13, %eax\n"
	"	GO_CALL go_sigaction, 1\n"
	"	pushq %rbp\n"
	"	movq %rsp, %rbp\n"
	"	andq $-16, %rsp\n"
	"	movq %r10, %r8\n"
	"	movq %rdx, %rcx\n"
	"	movq %rsi, %rdx\n"
	"	movq %rdi, %rsi\n"
	"	movl $13, %edi\n"
	"	call go_sigaction\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	"	xorps %xmm15, %xmm15\n"
	"9:	movl %eax, 40(%rsp)\n"
	"	ret\n"
	"GO_END go_entry_sigaction\n"

	/* What lies above go_home is of thread_begin; the room below is this thread's for its calls.
	 * In runtime.clone it goes on as the child would. */
	"GO_BEGIN go_thread_enter\n"
	"	pushq %rbx\n"
	"	pushq %rbp\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq go_home@gottpoff(%rip), %rax\n"
	"	movq %rsp, %fs:(%rax)\n"
	"	movq %rsp, %r11\n"
	"	andq $-64, %r11\n"
	"	movq go_stack@gottpoff(%rip), %rax\n"
	"	movq %r11, %fs:(%rax)\n"
	"	subq $262144, %r11\n"
	"	movq go_memory@gottpoff(%rip), %rax\n"
	"	movq %r11, %fs:(%rax)\n"
	"	movq %rsi, %r13\n"
	"	movq %rdx, %r12\n"
	"	movq %rcx, %r9\n"
	"	movq %rdi, %rsi\n"
	"	xorl %eax, %eax\n"
	"	xorl %ebp, %ebp\n"
	"	jmp *go_back_clone(%rip)\n"
	"GO_END go_thread_enter\n"

	/* rax: to be 0 when the thread's stack is no longer used. Its signals are blocked. */
	"GO_BEGIN go_entry_exit_thread\n"
	"	movq go_home@gottpoff(%rip), %rcx\n"
	"	movq %fs:(%rcx), %rcx\n"
	"	testq %rcx, %rcx\n"
	"	jz 1f\n"
	"	movq %rcx, %rsp\n"
	"	movl $0, (%rax)\n"
	"	movq go_stack@gottpoff(%rip), %rcx\n"
	"	movq $0, %fs:(%rcx)\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbp\n"
	"	popq %rbx\n"
	"	cld\n"
	"	ret\n"
	"1:	movl $0, (%rax)\n"
	"	xorl %edi, %edi\n"
	"	movl $60, %eax\n"
	"	syscall\n"
	"	hlt\n"
	"GO_END go_entry_exit_thread\n"
	".popsection\n");
/* clang-format on */
