/* SPDX-License-Identifier: Apache-2.0 */
/* What a statically linked Go program does by system calls of its own, and the C library has to know:
 * threads, and handlers of signals. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/kernel.h"
#include "preload/go.h"
#include "preload/kernel_action.h"
#include "preload/start.h"
#include "settings/config.h"

/* The C library keeps these two from programs; Go uses the second as that does, in all threads. */
#define KEPT_FIRST 32
#define KEPT_LAST  33

/* ---- threads ---- */

/* A part of it is that for calls that come to the library (go_entry.c). */
#define THREAD_BYTES 524288

/* What runtime.newosproc asks for, and runtime.clone adds. */
#define THREAD_FLAGS                                                                     \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM |             \
	 CLONE_THREAD | CLONE_SETTLS)

/* What its registers are to be behind the call in runtime.clone. */
struct begin {
	uint64_t stack, m, fn, g;
};

/* Where a thread of Go's comes back to at its end, in go_thread_enter; or 0. */
GO_TLS uint64_t go_home;

/* Returns when Go has ended the thread. */
void go_thread_enter(uint64_t stack, uint64_t m, uint64_t fn, uint64_t g);

static void *thread_begin(void *memory)
{
	struct begin b = *(struct begin *)memory;

	free(memory);
	go_stack_is_lent();
	go_thread_enter(b.stack, b.m, b.fn, b.g);
	return NULL;
}

/*
 * In the place of clone in runtime.clone. All signals are blocked, and stay so in the new thread, until
 * Go has it ready. Go looks at the result's sign only.
 */
long go_thread(long nr, long flags, long stack, long m, long fn, long tls, long g);
__attribute__((used)) long go_thread(long nr, long flags, long stack, long m, long fn,
				     long tls, long g)
{
	struct begin *b;
	int r, saved = errno;

	(void)nr, (void)tls;
	if (flags != THREAD_FLAGS)
		return -EINVAL;
	b = malloc(sizeof(*b));
	if (!b)
		return -EAGAIN;
	*b = (struct begin){(uint64_t)stack, (uint64_t)m, (uint64_t)fn, (uint64_t)g};
	r = start_loader.begin_thread(THREAD_BYTES, thread_begin, b);
	if (r)
		free(b);
	errno = saved;
	/* A filter of the program may forbid getpid. */
	return r ? -r : 1;
}

/* ---- signals ---- */

long go_sigaction(long nr, long sig, long set, long old, long size);
__attribute__((used)) long go_sigaction(long nr, long sig, long set, long old, long size)
{
	if (sig >= KEPT_FIRST && sig <= KEPT_LAST)
		return kernel_call4(nr, sig, set, old, size);
	return kernel_action_change(sig, set, old, size);
}

/* ---- its begin ---- */

/* What comes to go_call: hook_kinds, and what start_asks adds. */
static uint8_t kinds[512];

static void begin(const struct go_text *text)
{
	start_asks(kinds, sizeof(kinds));
	go_kinds = kinds;
	go_is_static = true;
	/* Behind a move of seven bytes, or of five, and the call. */
	go_back_settls = text->at[GO_SETTLS] + (*text->was[GO_SETTLS] == 0x48 ? 9 : 7);
	go_back_clone = text->at[GO_CLONE] + 7;
}

const char *go_static_join(const struct go_text *text)
{
	uint64_t load;
	const char *lacks;

	if (!config_get()->go_followed)
		return "the setting go = leave holds";
	if ((const char *)start_loader.slot + sizeof(uint64_t) !=
	    (const char *)pthread_self())
		return "its loader has no room for Go's data";
	if (!start_loader.map(start_loader.program, &load))
		return "its place in memory is taken";
	begin(text);
	lacks = go_change(text, 0);
	if (lacks)
		start_loader.unmap();
	return lacks;
}
