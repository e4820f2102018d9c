/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that begin and end: fork, vfork, clone, daemon and _exit. */
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/low.h"
#include "base/pageable.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "conn/report.h"
#include "conn/table.h"
#include "preload/exec_room.h"
#include "preload/hook.h"
#include "readiness/ready.h"

static FORK_CODE void report(bool ends)
{
	if (hook_active)
		sock_report(ends);
	report_write();
}

FORK_CODE void hook_report(void)
{
	report(false);
}

FORK_CODE void hook_ends_soon(void)
{
	report(true);
}

FORK_CODE void hook_ends(void)
{
	report(true);
	if (hook_active)
		sock_reset_unread();
}

#define TLS _Thread_local __attribute__((tls_model("initial-exec")))

static TLS struct hook_fork forking;

/*
 * The program's handlers run while this thread holds the locks of a fork that is done. Signals are handled meanwhile,
 * unless the fork itself was made in a section: these sections do not count until they are shut. Before a signal's handler
 * runs, the locks are given back (signal_pick): it may wait for a thread that needs one, or never return.
 */
static TLS struct {
	bool may_open;
	uint32_t depth;
} sections;

static void sections_open(void)
{
	if (!sections.may_open)
		return;
	sections.depth = crit_depth;
	fence_compiler();
	crit_depth = 0;
	fence_compiler();
	if (crit_deferred)
		crit_release();
}

static void sections_shut(void)
{
	crit_depth += sections.depth;
	sections.depth = 0;
}

void hook_forking(void)
{
	sections.may_open = crit_depth == 0;
	if (hook_active) {
		sock_leave_links();
		announce_forking();
		sock_forking();
		ready_forking();
		fds_forking(); /* the last: whoever has one of the other locks may take it */
	}
}

static struct table_process *forked_parent(pid_t pid)
{
	struct table_process *untold;

	fds_forked_parent();
	ready_forked_parent();
	untold = sock_forked_parent(pid);
	announce_forked_parent();
	return untold;
}

static void give_back(void)
{
	crit_enter();
	/* A signal's handler that came just before may have done it. */
	if (lock_give_back) {
		lock_give_back = NULL;
		sections_shut();
		forking.is_given_back = true;
		forking.untold = forked_parent(0);
	}
	crit_leave();
}

void hook_forked_unwrapped(void)
{
	if (!hook_active)
		return;
	if (forking.is_wrapped && !forking.is_given_back) {
		lock_give_back = give_back;
		sections_open();
		return;
	}
	/* It cannot be told whether it succeeded: a failure leaves sockets marked as shared. */
	forked_parent(0);
}

FORK_CODE struct hook_fork hook_fork_begin(void)
{
	struct hook_fork outer;

	lock_give_all_back();
	outer = forking;
	forking = (struct hook_fork){.is_wrapped = true};
	return outer;
}

FORK_CODE pid_t hook_fork_end(struct hook_fork outer, pid_t pid)
{
	int saved = errno;

	crit_enter(); /* a signal's handler gives nothing back from here on */
	if (pid != 0 && hook_active) {
		lock_give_back = NULL;
		sections_shut();
		if (forking.is_given_back)
			table_tell(forking.untold, pid > 0 ? pid : 0);
		else
			forked_parent(pid);
	}
	forking = outer;
	crit_leave();
	errno = saved;
	return pid;
}

FORK_CODE void hook_forked_child(void)
{
	int saved = errno;
	bool told = forking.is_wrapped;

	crit_came_back(); /* before this is nobody's child of vfork */
	borrowed_mark = 0;
	forking = (struct hook_fork){0};
	lock_give_back = NULL;
	lock_forked();
	signal_forked_child();
	if (pageable_expects()) /* that is not inherited */
		pageable_expect(false);
	report_forked();
	if (hook_active) {
		self_forked();
		fds_forked_child();
		hook_places_forked();
		announce_forked_child();
		sock_forked_child(told);
		ready_forked_child();
	}
	errno = saved;
}

/* A child of vfork that is killed, or ends, in a fork leaves what that had noted in its parent's thread. */
static TLS struct {
	struct hook_fork forking;
	bool low_is_forking;
} before_vfork;

static void fork_lend(void)
{
	before_vfork.forking = forking;
	before_vfork.low_is_forking = low_is_forking;
}

/* A child whose own child has ended in no fork keeps its notes. */
static void fork_returned(bool is_child)
{
	if (is_child && !lock_give_back && !low_is_forking)
		return;
	forking = before_vfork.forking;
	sections.depth = 0;
	lock_give_back = NULL;
	low_is_forking = before_vfork.low_is_forking;
}

void hook_vfork_returned(bool is_child)
{
	crit_returned(is_child);
	lock_returned(is_child);
	fork_returned(is_child);
}

pid_t hook_vfork_mark(void)
{
	pid_t mark;

	/* The child would wait for what this thread holds. */
	lock_give_all_back();
	/* A child of vfork may call it too: the memory stays the first parent's. */
	if (hook_is_borrowed())
		return borrowed_mark;
	/* Else the child would note its own number, in memory of ours. */
	if (hook_active)
		lock_self();
	fork_lend();
	mark = borrowed_now();
	borrowed_mark = mark;
	return mark;
}

void hook_vfork_born(pid_t mark)
{
	borrowed_mark = mark;
	crit_lend();
	/* Its number is not its parent's: elsewhere than in a pid namespace of its own, and unless that is a child, too. */
	if (kernel_call4(SYS_getppid, 0, 0, 0, 0) == mark)
		lock_lend();
}

void hook_vfork_end(void)
{
	bool is_child;

	if (!crit_comes_back)
		return;
	is_child = hook_is_borrowed();
	hook_vfork_returned(is_child);
	if (!is_child) {
		crit_came_back();
		borrowed_mark = 0;
	}
	if (!is_child && hook_active)
		exec_room_begin();
}

/* The C library's own is a system call, and nothing else: another one may do more. */
static bool vfork_is_plain;

static bool holds(const struct dl_phdr_info *object, const void *at)
{
	for (int i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_LOAD &&
		    (uintptr_t)at - object->dlpi_addr - object->dlpi_phdr[i].p_vaddr <
			    object->dlpi_phdr[i].p_memsz)
			return true;
	return false;
}

static int look_at_object(struct dl_phdr_info *object, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	if (!holds(object, (void *)__errno_location)) /* nobody stands before that */
		return 0;
	vfork_is_plain = holds(object, (void *)REAL(vfork));
	return 1;
}

void vfork_init(void)
{
	dl_iterate_phdr(look_at_object, NULL);
}

struct vfork_call {
	void *function;
	long mark;
};

void vfork_plain(void);
struct vfork_call vfork_begin(void);
__attribute__((used)) struct vfork_call vfork_begin(void)
{
	pid_t mark = hook_vfork_mark();

	if (!vfork_is_plain)
		return (struct vfork_call){(void *)REAL(vfork), mark};
	crit_lend();
	return (struct vfork_call){(void *)vfork_plain, mark};
}

/*
 * vfork returns twice from one frame, so nothing of ours may be on the stack: the stub
 * marks the thread and jumps. What the parent needs behind the call it has in a register, which is
 * its own. The child marks the thread once more, since a handler that came before it may have had one, too.
 * Turning vfork into fork would be wrong as well as slow: programs rely on the shared memory.
 */
_Static_assert(SYS_vfork == 58, "as below");
__asm__(".pushsection .text\n"
	".globl vfork, __vfork\n"
	".type vfork, @function\n"
	".type __vfork, @function\n"
	".balign 16\n"
	"vfork:\n"
	"__vfork:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call vfork_begin\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size vfork, . - vfork\n"
	".size __vfork, . - __vfork\n"
	".hidden vfork_plain\n"
	".type vfork_plain, @function\n"
	"vfork_plain:\n"
	"	.cfi_startproc\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	.cfi_register %rip, %rdi\n"
	"	movl $58, %eax\n"
	"	syscall\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_offset %rip, -8\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	pushq %rax\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call hook_vfork_end\n"
	"	popq %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	cmpq $-4095, %rax\n"
	"	jae 2f\n"
	"	ret\n"
	"1:	pushq %rax\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movl %edx, %edi\n"
	"	call hook_vfork_born\n"
	"	popq %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"2:	negl %eax\n"
	"	movl %eax, %edi\n"
	"	jmp hook_syscall_failed\n"
	"	.cfi_endproc\n"
	".size vfork_plain, . - vfork_plain\n"
	".popsection\n");

/* libc calls our handlers. */
FORK_CODE HOOK pid_t fork(void)
{
	struct hook_fork outer = hook_fork_begin();

	return hook_fork_end(outer, REAL(fork)());
}
HOOK_ALIAS(__fork, fork);

/* fork without the handlers of pthread_atfork: ours are not optional. */
FORK_CODE HOOK pid_t _Fork(void)
{
	struct hook_fork outer = hook_fork_begin();
	pid_t pid;

	hook_forking();
	pid = REAL(_Fork)();
	if (pid == 0)
		hook_forked_child();
	return hook_fork_end(outer, pid);
}

struct clone_start {
	int (*fn)(void *);
	void *arg;
	unsigned flags;
};

static int clone_begin(void *arg)
{
	struct clone_start start = *(struct clone_start *)arg;

	hook_forked_child();
	credentials_namespaces(start.flags);
	return start.fn(start.arg);
}

struct clone_vfork_start {
	int (*fn)(void *);
	void *arg;
	pid_t mark;
};

static int clone_vfork_begin(void *arg)
{
	struct clone_vfork_start start = *(struct clone_vfork_start *)arg;

	hook_vfork_born(start.mark);
	return start.fn(start.arg);
}

/* Without CLONE_VM it is a fork, and the copy of this frame is the child's to read. */
HOOK int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	struct clone_start start = {fn, arg, (unsigned)flags};
	struct clone_vfork_start vfork_start = {fn, arg, 0};
	pid_t *parent_tid, *child_tid, pid;
	void *tls;
	va_list ap;

	va_start(ap, arg);
	parent_tid = va_arg(ap, pid_t *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, pid_t *);
	va_end(ap);
	if (fn && hook_clone_parts((unsigned)flags))
		hook_parting();
	if (fn && !(flags & CLONE_VM)) {
		struct hook_fork outer = hook_fork_begin();

		hook_forking();
		return hook_fork_end(outer, REAL(clone)(clone_begin, stack, flags, &start,
							parent_tid, tls, child_tid));
	}
	if (fn && (flags & CLONE_VFORK) && !(flags & CLONE_SETTLS)) {
		vfork_start.mark = hook_vfork_mark();
		crit_lend();
		/* This frame waits for its end. */
		fn = clone_vfork_begin;
		arg = &vfork_start;
	}
	pid = REAL(clone)(fn, stack, flags, arg, parent_tid, tls, child_tid);
	hook_vfork_end();
	return pid;
}

HOOK_ALIAS(__clone, clone);

/* libc forks, and leaves in the parent, past every symbol of ours. */
HOOK int daemon(int nochdir, int noclose)
{
	int result;

	if (!noclose)
		for (int fd = 0; fd <= 2; fd++)
			hook_closing(fd);
	report_write();
	/* The child has all that is open, and goes on with it. Last: who closes one of them before the child is there
	 * believes to be the last one. */
	if (hook_active)
		sock_daemon(true);
	result = REAL(daemon)(nochdir, noclose);
	if (result != 0) {
		report_reopen();
		if (hook_active)
			sock_daemon(false);
	}
	return result;
}

FORK_CODE HOOK void _exit(int status)
{
	if (!hook_is_borrowed())
		hook_ends();
	REAL(_exit)(status);
	__builtin_unreachable();
}
HOOK_ALIAS(_Exit, _exit);
