/* SPDX-License-Identifier: Apache-2.0 */
/* Each call of a statically linked program but for the quick ones: where it lies, and which function makes it. */
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "conn/quick.h"
#include "preload/hook.h"
#include "preload/start.h"
#include "preload/static.h"
#include "preload/syscall.h"

#include <asm/prctl.h>

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
 * Which of the outermost calls it is; STATIC_UNDER_MOST: a further one. Those of the list stand in front, in order, and
 * each lies elsewhere: what stands behind them was there before, and is not found first.
 */
static unsigned under_at(const struct static_self *self, const struct static_frame *f)
{
	unsigned i = 0;

	while (i < STATIC_UNDER_MOST && self->under[i].frame != f)
		i++;
	return i;
}

/*
 * A call that has been left, by longjmp or with a child of vfork that has ended, lies where something else may have been
 * written since. So nothing is read there, but for one that STATIC_UNDER_MOST others or more are around.
 */
static struct static_under under_of(const struct static_self *self,
				    struct static_frame *f)
{
	unsigned i = under_at(self, f);

	if (i < STATIC_UNDER_MOST)
		return self->under[i];
	return (struct static_under){f, f->outer, f->rsp};
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
	return static_alternate_at(self, under_of(self, self->calls).rsp) >=
	       static_alternate_at(self, rsp);
}

struct static_frame *static_settle(struct static_self *self, uint64_t rsp, uint64_t below)
{
	struct static_frame *last = NULL;

	/* A handler that leaves in the middle would leave half of it. */
	crit_enter();
	while (self->calls && is_left(self, rsp)) {
		last = self->calls;
		self->calls = under_of(self, last).outer;
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

static void put_under(struct static_self *self, unsigned i, struct static_frame *f)
{
	if (i < STATIC_UNDER_MOST)
		self->under[i] = (struct static_under){f, f->outer, f->rsp};
	else if ((i = under_at(self, f)) < STATIC_UNDER_MOST)
		self->under[i].frame = NULL; /* an earlier one's, at the same place */
}

static void begin(struct static_self *self, struct static_frame *f)
{
	unsigned i;

	f->place = f->next_after = (uint64_t)(f + 1);
	/* What interrupts the handler has nothing of its own to say how deep that is. */
	if (static_is_own(self, f->rsp))
		f->next_after -= STATIC_KEPT_BYTES;
	f->outer = self->calls;
	i = f->outer ? under_at(self, f->outer) + 1 : 0;
	put_under(self, i, f);
	fence_compiler();
	self->calls = f;
	fence_compiler();
	/* A handler may have begun its own there, in between. */
	put_under(self, i, f);
}

/* While it is among the calls, its rax is the number: a handler may come back to make it once more (static_cancel.c). */
static void end(struct static_self *self, struct static_frame *f, uint64_t result)
{
	fence_compiler();
	self->calls = f->outer;
	fence_compiler();
	f->rax = result;
}

static void make_begun(struct static_self *self, struct static_frame *f)
{
	end(self, f, (uint64_t)make(self, f));
}

/* Others are under way, or have been left. NULL, or where the call is to be made: see static_call. */
static struct static_frame *call_amid(struct static_self *self, struct static_frame *f)
{
	uint64_t place;

	if (self->cancel_resumes)
		static_cancel_ends(self, f);
	place = place_of(self, f, (uint64_t)(f + 1));
	if (place != (uint64_t)(f + 1)) {
		struct static_frame *to = (struct static_frame *)place - 1;

		*to = *f;
		return to;
	}
	begin(self, f);
	make_begun(self, f);
	return NULL;
}

struct static_frame *static_call_on(struct static_frame *f, bool is_within, size_t moved)
{
	struct static_self *self = &static_self;
	struct static_frame *to = NULL;
	int saved = errno;
	bool amid;

	if (!is_within)
		hook_vfork_end();
	amid = static_is_amid(self, f);
	if (!amid)
		begin(self, f);
	if (is_within)
		quick_end(&self->quick);
	if (moved) {
		end(self, f, moved);
	} else if (!amid) {
		make_begun(self, f);
	} else {
		to = call_amid(self, f);
	}
	errno = saved;
	return to;
}
