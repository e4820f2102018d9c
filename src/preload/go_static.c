/* SPDX-License-Identifier: Apache-2.0 */
/* What a statically linked Go program does by system calls of its own, and the C library has to know:
 * threads, handlers of signals; and its question for its own file, which would be answered by the
 * loader's.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "conn/report.h"
#include "preload/door.h"
#include "preload/go.h"
#include "preload/go_exec.h"
#include "preload/hook.h"
#include "preload/kernel_action.h"
#include "preload/static.h"
#include "preload/syscall.h"
#include "settings/config.h"

/* The C library keeps these two from programs; Go uses the second as that does, in all threads. */
#define KEPT_FIRST 32
#define KEPT_LAST  33

/* What it has given us. */
static struct door_go loader;

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
	r = loader.begin_thread(THREAD_BYTES, thread_begin, b);
	if (r)
		free(b);
	errno = saved;
	return r ? -r : getpid();
}

/* ---- signals ---- */

long go_sigaction(long nr, long sig, long set, long old, long size);
__attribute__((used)) long go_sigaction(long nr, long sig, long set, long old, long size)
{
	if (sig >= KEPT_FIRST && sig <= KEPT_LAST)
		return kernel_call4(nr, sig, set, old, size);
	return kernel_action_change(sig, set, old, size);
}

/* ---- the program's file ---- */

/* Calls by path that follow a link at its end, and where their path is. */
static int path_argument(long nr, const long *a)
{
	switch (nr) {
	case SYS_open:
		return a[1] & O_NOFOLLOW ? -1 : 0;
	case SYS_stat:
	case SYS_access:
	case SYS_execve:
		return 0;
	case SYS_openat:
		return a[2] & O_NOFOLLOW ? -1 : 1;
	case SYS_openat2:
	case SYS_faccessat:
		return 1;
	case SYS_newfstatat:
	case SYS_faccessat2:
		return a[3] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	case SYS_statx:
		return a[2] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	case SYS_execveat:
		return a[4] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	default:
		return -1;
	}
}

static const uint16_t asks[] = {SYS_stat,	SYS_access,	SYS_readlink,
				SYS_readlinkat, SYS_newfstatat, SYS_faccessat,
				SYS_faccessat2, SYS_statx};

/* What comes to go_call: hook_kinds, and `asks`. */
static uint8_t kinds[512];

/* Whether that begins with, or ends in, `text`: *at then is behind it. */
static bool reads(const char **at, const char *text, size_t len)
{
	char c;

	for (size_t i = 0; i < len; i++)
		if (crit_copy(&c, *at + i, 1) != 0 || c != text[i])
			return false;
	*at += len;
	return true;
}
#define READS(at, text)	    reads((at), (text), sizeof(text) - 1)
#define READS_END(at, text) reads((at), (text), sizeof(text))

static bool names_own_file(long path)
{
	const char *at = (const char *)path;
	char pid[16];
	int len;

	if (!READS(&at, "/proc/"))
		return false;
	if (READS(&at, "self/") || READS(&at, "thread-self/"))
		return READS_END(&at, "exe");
	len = snprintf(pid, sizeof(pid), "%d/", (int)self_pid());
	return reads(&at, pid, (size_t)len) && READS_END(&at, "exe");
}

static long read_own_link(long buf, long size)
{
	size_t len = strlen(loader.program);

	if ((int)size <= 0)
		return -EINVAL;
	if (len > (size_t)size)
		len = (size_t)size;
	return crit_copy((void *)buf, loader.program, len) == 0 ? (long)len : -EFAULT;
}

bool go_own_file(long nr, long *a, long *result)
{
	int at;

	if (nr == SYS_readlink || nr == SYS_readlinkat) {
		long *from = nr == SYS_readlink ? a : a + 1;

		if (!names_own_file(from[0]))
			return false;
		*result = read_own_link(from[1], from[2]);
		return true;
	}
	at = path_argument(nr, a);
	if (at >= 0 && names_own_file(a[at]))
		a[at] = (long)loader.program;
	return false;
}

size_t go_asks(uint8_t *to, size_t size)
{
	memcpy(to, hook_kinds, hook_kinds_count);
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
		to[asks[i]] = 1;
	return size;
}

static void begin(const struct go_text *text)
{
	go_asks(kinds, sizeof(kinds));
	go_kinds = kinds;
	go_is_static = true;
	/* Behind a move of seven bytes, or of five, and the call. */
	go_back_settls = text->at[GO_SETTLS] + (*text->was[GO_SETTLS] == 0x48 ? 9 : 7);
	go_back_clone = text->at[GO_CLONE] + 7;
}

static const char *join_go(const struct go_text *text)
{
	uint64_t load;
	const char *lacks;

	if (!config_get()->go_followed)
		return "the setting go = leave holds";
	if ((const char *)loader.slot + sizeof(uint64_t) != (const char *)pthread_self())
		return "its loader has no room for Go's data";
	if (!loader.map(loader.program, &load))
		return "its place in memory is taken";
	begin(text);
	lacks = go_change(text, 0);
	if (lacks)
		loader.unmap();
	return lacks;
}

static const char *join(void)
{
	struct go_text text;

	if (!hook_active)
		return "Viaduct is switched off";
	if (go_text_find(loader.program, &text) == 0 && text.is_static)
		return join_go(&text);
	return static_join(&loader);
}

int go_static_join(const struct door_go *go)
{
	const char *lacks;

	if (go)
		loader = *go;
	lacks = go ? join() : "its loader cannot prepare for it";
	if (!lacks)
		return true;
	go_exec_stops = true;
	log_info("%s (%s): %s", reason_name(VD_REASON_RAW), reason_text(VD_REASON_RAW),
		 lacks);
	report_add(&report_now.reasons[VD_REASON_RAW], 1);
	report_write_now();
	return false;
}
