/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and processes of a statically linked program: each thread of its is one of the host's C library. */
#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/start.h"
#include "preload/static.h"
#include "preload/syscall.h"

/* A part of the host's stack of a thread is the thread's own, for its calls. */
#define THREAD_BYTES (1ull << 20)
#define OWN_BYTES    (THREAD_BYTES - (128ull << 10))
#define ALL	     (~0ull)
/* Memory of the program's may have gone: crit_copy is to hear of it. */
#define ALL_BUT_FAULTS (~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)))
#define NEEDED	       (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)
/* What fork() of the host does, or is done here. */
#define FORKS_BY_NAME (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID)

/* clone, as far as it is asked for here. */
struct asked {
	uint64_t flags, stack, ptid, ctid, tls;
	bool is_3;
};

/* On the stack of the thread that asks, which waits for `tid`. */
struct begin {
	struct static_frame frame;
	struct asked asked;
	uint64_t mask;
	_Atomic uint32_t tid;
};

static uint64_t block(uint64_t mask)
{
	uint64_t was = 0;

	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&was,
		     sizeof(mask));
	return was;
}

/* As in the kernel, what cannot be written is not. */
static void write_ids(const struct asked *a, uint32_t tid)
{
	if (!(a->flags & (CLONE_PARENT_SETTID | CLONE_CHILD_SETTID)))
		return;
	block(ALL_BUT_FAULTS);
	if (a->flags & CLONE_PARENT_SETTID)
		(void)crit_copy((void *)a->ptid, &tid, sizeof(tid));
	if (a->flags & CLONE_CHILD_SETTID)
		(void)crit_copy((void *)a->ctid, &tid, sizeof(tid));
}

static void *thread_begin(void *memory)
{
	struct begin *from = memory, b = *from;
	struct static_self *self = &static_self;
	const struct asked *a = &b.asked;
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	uint32_t tid = (uint32_t)kernel_call4(SYS_gettid, 0, 0, 0, 0);

	static_adopt(here - OWN_BYTES, here + sizeof(b));
	self->next = self->top = self->bottom + OWN_BYTES / 2; /* until it enters */
	b.frame.rax = 0;
	b.frame.rsp = a->stack ? a->stack : b.frame.rsp;
	if (a->flags & CLONE_SETTLS)
		b.frame.fs = a->tls;
	self->program_fs = b.frame.fs;
	write_ids(a, tid);
	if (a->flags & CLONE_CHILD_CLEARTID)
		self->cleared = (uint32_t *)a->ctid;
	atomic_store(&from->tid, tid);
	kernel_call4(SYS_futex, (long)&from->tid, FUTEX_WAKE_PRIVATE, 1, 0);
	block(b.mask);
	static_thread_enter(&b.frame, self);
	return NULL;
}

static long begin_thread(const struct static_frame *f, const struct asked *a)
{
	struct begin b = {.frame = *f, .asked = *a};
	int r;

	if ((a->flags & NEEDED) != NEEDED || (a->flags & (CLONE_PIDFD | CLONE_VFORK)))
		return -EINVAL;
	/* Memory of the host is asked for: no handler may fork or begin another thread meanwhile. */
	b.mask = block(ALL);
	r = start_loader.begin_thread(THREAD_BYTES, thread_begin, &b);
	while (r == 0 && !atomic_load(&b.tid))
		kernel_call4(SYS_futex, (long)&b.tid, FUTEX_WAIT_PRIVATE, 0, 0);
	block(b.mask);
	return r ? -EAGAIN : (long)b.tid;
}

/* ---- the end of a thread ---- */

static void own_died(uint32_t *word, uint32_t tid)
{
	uint32_t now;

	if (crit_copy(&now, word, sizeof(now)) != 0)
		return;
	while ((now & FUTEX_TID_MASK) == tid &&
	       !atomic_compare_exchange_weak((_Atomic uint32_t *)word, &now,
					     (now & FUTEX_WAITERS) | FUTEX_OWNER_DIED))
		;
	if ((now & FUTEX_TID_MASK) == tid && (now & FUTEX_WAITERS))
		kernel_call4(SYS_futex, (long)word, FUTEX_WAKE, 1, 0);
}

/* One that it was about to take or to leave: perhaps it has, and nobody has been woken. */
static void leave_pending(uint64_t entry, long offset, uint32_t tid)
{
	uint32_t *word = (void *)((entry & ~1ull) + (uint64_t)offset), now;
	bool inherits = entry & 1;

	if (crit_copy(&now, word, sizeof(now)) != 0)
		return;
	if (now == 0 && !inherits)
		kernel_call4(SYS_futex, (long)word, FUTEX_WAKE, 1, 0);
	else
		own_died(word, tid);
}

/*
 * Locks that the thread holds pass on, as the kernel would have it at the thread's end: which here is
 * later, when the list may no longer be there.
 */
static void leave_robust(void)
{
	static struct robust_list_head none = {{&none.list}, 0, NULL};
	struct robust_list_head head, *at = NULL;
	struct robust_list *entry, *next;
	size_t size = 0;
	uint32_t tid = (uint32_t)kernel_call4(SYS_gettid, 0, 0, 0, 0);

	if (kernel_call4(SYS_get_robust_list, 0, (long)&at, (long)&size, 0) != 0 || !at)
		return;
	kernel_call4(SYS_set_robust_list, (long)&none, sizeof(none), 0, 0);
	if (crit_copy(&head, at, sizeof(head)) != 0)
		return;
	entry = head.list.next;
	for (int i = 0; entry != &at->list && i < ROBUST_LIST_LIMIT; i++, entry = next) {
		uint64_t place = (uint64_t)entry & ~1ull;

		if (crit_copy(&next, (void *)place, sizeof(next)) != 0)
			return;
		if ((void *)place != head.list_op_pending)
			own_died((void *)(place + (uint64_t)head.futex_offset), tid);
	}
	if (head.list_op_pending)
		leave_pending((uint64_t)head.list_op_pending, head.futex_offset, tid);
}

/* Behind a filter of its own this thread may end by one call: the kernel does what is to be done then. */
void static_stand_down(void)
{
	struct static_self *self = &static_self;

	if (!self->home || !self->cleared)
		return;
	kernel_call4(SYS_set_tid_address, (long)self->cleared, 0, 0, 0);
	self->cleared = NULL;
}

/* What the thread has of the host's C library is left behind. Of a child of vfork the word is its parent's. */
static void leave_bare(const struct static_self *self, int status)
{
	uint32_t none = 0;

	if (self->home && self->cleared && !static_is_lent(self) &&
	    crit_copy(self->cleared, &none, sizeof(none)) == 0)
		kernel_call4(SYS_futex, (long)self->cleared, FUTEX_WAKE, 1, 0);
	for (;;)
		kernel_call4(SYS_exit, status, 0, 0, 0);
}

void static_exit(struct static_self *self, int status)
{
	/* Behind a filter of its own it may make this call, and no other one. */
	if (!hook_active) {
		leave_bare(self, status);
		return;
	}
	/* No handler finds what may be gone from here on. */
	block(ALL_BUT_FAULTS);
	/* Of a child of vfork, whose parent's all of this is. */
	if (static_is_lent(self))
		kernel_call4(SYS_exit, status, 0, 0, 0);
	if (hook_is_alone())
		_exit(status);
	leave_robust();
	if (self->cleared) {
		uint32_t none = 0;

		if (crit_copy(self->cleared, &none, sizeof(none)) == 0)
			kernel_call4(SYS_futex, (long)self->cleared, FUTEX_WAKE, 1, 0);
	}
	block(ALL);
	if (self->home)
		static_thread_leave(self->home);
	for (;;)
		kernel_call4(SYS_exit, status, 0, 0, 0);
}

/* ---- processes ---- */

static void child_begins(struct static_self *self, struct static_frame *f,
			 const struct asked *a)
{
	uint32_t tid = (uint32_t)kernel_call4(SYS_gettid, 0, 0, 0, 0);

	self->vforked = 1;
	if (a->stack)
		f->rsp = a->stack;
	if (a->flags & CLONE_SETTLS)
		f->fs = self->program_fs = a->tls;
	if (a->flags & CLONE_CHILD_SETTID)
		(void)crit_copy((void *)a->ctid, &tid, sizeof(tid));
	self->cleared = a->flags & CLONE_CHILD_CLEARTID ? (uint32_t *)a->ctid : NULL;
}

/* As asked for, but for the child's stack and FS: it goes on in our code first. */
static long copy_by_3(const struct static_frame *f)
{
	union {
		struct clone_args args;
		char later[512]; /* what newer kernels know of */
	} c = {0};

	if (f->rsi > sizeof(c))
		return -E2BIG;
	if (crit_copy(&c, (void *)f->rdi, f->rsi) != 0)
		return -EFAULT;
	c.args.flags &= ~(uint64_t)CLONE_SETTLS;
	if (c.args.stack && c.args.stack_size)
		c.args.stack = c.args.stack_size = 0;
	return hook_answer(hook_syscall(SYS_clone3, (long)&c, (long)f->rsi, 0, 0, 0, 0));
}

/* By its name the C library of the host knows of it. */
static long copy_process(struct static_self *self, struct static_frame *f,
			 const struct asked *a)
{
	bool by_name = (a->flags & ~(uint64_t)FORKS_BY_NAME) == SIGCHLD && !a->is_3;
	uint32_t tid;
	long result;

	static_brk_hold();
	if (by_name)
		result = hook_answer(fork());
	else if (a->is_3)
		result = copy_by_3(f);
	else
		result = hook_answer(hook_syscall(
			SYS_clone, (long)(a->flags & ~(uint64_t)CLONE_SETTLS), 0,
			(long)a->ptid, (long)a->ctid, 0, 0));
	static_brk_release();
	if (result == 0)
		child_begins(self, f, a);
	tid = (uint32_t)result;
	if (by_name && result > 0 && (a->flags & CLONE_PARENT_SETTID))
		(void)crit_copy((void *)a->ptid, &tid, sizeof(tid));
	return result;
}

int static_vfork_mark(void)
{
	return !static_self.top ? 0 : static_is_lent(&static_self) ? -1 : -2;
}

/* The call is made where the program makes it, with nothing of ours in use. A child's own child is one of the
 * same thread's, as itself. */
static long lend(struct static_self *self, struct static_frame *f, const struct asked *a)
{
	if (a->flags & CLONE_SETTLS)
		self->odd = STATIC_READS_FS;
	hook_vfork_mark();
	crit_lend();
	f->tail -= static_is_lent(self) ? STATIC_BACK_TO_CALL : STATIC_BACK_TO_VFORK;
	return (long)f->rax;
}

/* The child makes its calls itself, on the same descriptors, perhaps. */
static long stray(const struct static_frame *f, const struct asked *a)
{
	if (!a->stack)
		return -EINVAL;
	hook_parting();
	return static_stray(f);
}

static bool read_asked(const struct static_frame *f, struct asked *a)
{
	struct clone_args c = {0};
	size_t size = f->rsi < sizeof(c) ? f->rsi : sizeof(c);

	if (f->rax != SYS_clone3) {
		*a = (struct asked){f->rdi, f->rsi, f->rdx, f->r10, f->r8, false};
		if (f->rax == SYS_fork)
			*a = (struct asked){.flags = SIGCHLD};
		if (f->rax == SYS_vfork)
			*a = (struct asked){.flags = CLONE_VM | CLONE_VFORK | SIGCHLD};
		return true;
	}
	if (crit_copy(&c, (void *)f->rdi, size) != 0)
		return false;
	*a = (struct asked){c.flags | c.exit_signal,
			    c.stack ? c.stack + c.stack_size : 0,
			    c.parent_tid,
			    c.child_tid,
			    c.tls,
			    true};
	return true;
}

static long begins(struct static_self *self, struct static_frame *f)
{
	struct asked a;

	if (!read_asked(f, &a))
		return -EFAULT;
	if (a.flags & CLONE_THREAD)
		return begin_thread(f, &a);
	if (f->rax == SYS_fork || !hook_syscall_shares((long)f->rax, f->rdi, f->rsi))
		return copy_process(self, f, &a);
	return a.flags & CLONE_VFORK ? lend(self, f, &a) : stray(f, &a);
}

bool static_begins(struct static_self *self, struct static_frame *f, long *result)
{
	if (f->rax != SYS_fork && f->rax != SYS_vfork && f->rax != SYS_clone &&
	    f->rax != SYS_clone3)
		return false;
	*result = begins(self, f);
	return true;
}
