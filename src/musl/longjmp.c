/* SPDX-License-Identifier: Apache-2.0 */
/* What glibc's longjmp does and musl's does not: what a frame has to give back is given back. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "preload/hook.h"

/*
 * A signal handler may leave a call of ours by longjmp. The list of glibc's _pthread_cleanup_push is looked
 * at then; musl's is for cancelled threads alone. So there is a list of our own beside it, of which only
 * calls of this library are part, and longjmp is interposed.
 *
 * Only the thread itself reads and writes its list. Handlers that interrupt a step below find the list as
 * it was before or after: each step is one store.
 */
#undef _pthread_cleanup_push
#undef _pthread_cleanup_pop

static _Thread_local struct _pthread_cleanup_buffer *innermost
	__attribute__((tls_model("initial-exec")));

/* musl takes the entry off its own list before it calls. */
static void cancelled(void *arg)
{
	struct _pthread_cleanup_buffer *b = arg;

	innermost = b->outer;
	b->fn(b->arg);
}

void cleanup_begin(struct _pthread_cleanup_buffer *b, void (*fn)(void *), void *arg)
{
	b->fn = fn;
	b->arg = arg;
	b->outer = innermost;
	_pthread_cleanup_push(&b->cancelled, cancelled, b);
	fence_compiler();
	innermost = b;
}

void cleanup_end(struct _pthread_cleanup_buffer *b, int execute)
{
	innermost = b->outer;
	fence_compiler();
	_pthread_cleanup_pop(&b->cancelled, 0);
	if (execute)
		b->fn(b->arg);
}

/* Where the stack of this thread begins: what lies above it is another stack, as of a handler. */
static uintptr_t stack_begin(void)
{
	int saved = errno;
	pthread_attr_t attr;
	void *low = NULL;
	size_t size = 0;

	if (pthread_getattr_np(pthread_self(), &attr) == 0) {
		pthread_attr_getstack(&attr, &low, &size);
		pthread_attr_destroy(&attr);
	}
	errno = saved;
	return (uintptr_t)low + size;
}

/* The word of the stack pointer, which musl keeps as it is. */
#define JUMP_SP 6

static void leave_frames(const struct __jmp_buf_tag *to)
{
	uintptr_t sp = to->__jb[JUMP_SP], begin;

	if (__builtin_expect(!innermost, 1))
		return;
	begin = stack_begin();
	/* A handler's own stack comes out as deeper than the thread's, wherever it lies. */
	while (innermost && (uintptr_t)innermost - begin < sp - begin)
		cleanup_end(innermost, 1);
}

static void (*real_longjmp)(jmp_buf env, int value);

__attribute__((constructor)) static void longjmp_find(void)
{
	*(void **)&real_longjmp = dlsym(RTLD_NEXT, "longjmp");
}

HOOK _Noreturn void longjmp(jmp_buf env, int value)
{
	if (!real_longjmp)
		longjmp_find();
	leave_frames(env);
	real_longjmp(env, value);
	__builtin_unreachable();
}
HOOK_ALIAS(_longjmp, longjmp);
HOOK_ALIAS(siglongjmp, longjmp);
