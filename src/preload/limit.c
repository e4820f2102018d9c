/* SPDX-License-Identifier: Apache-2.0 */
/* RLIMIT_NOFILE, which bounds what a process may poll: it may fall after connections are up. */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/await.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"

/*
 * With none allowed at all the kernel polls nothing, and a select does not tell errors from a
 * hang-up: so everything goes back to TCP before that, where the program asks for no more.
 */
bool limit_changing(pid_t pid, unsigned resource, const struct rlimit *to)
{
	struct rlimit limit;
	int saved = errno;

	if (resource != RLIMIT_NOFILE || !to || hook_is_borrowed() ||
	    (pid != 0 && pid != kernel_getpid()))
		return false;
	if (hook_active && crit_copy(&limit, to, sizeof(limit)) == 0 &&
	    limit.rlim_cur == 0)
		hook_refuse_all(VD_REASON_FD_LIMIT);
	errno = saved;
	return true;
}

void limit_changed(void)
{
	int saved = errno;

	await_learn_limit();
	errno = saved;
}

static int change(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return LIMIT_CHANGE(0, resource, limit, REAL(setrlimit)(resource, limit));
}

/*
 * A sanitizer's runtime calls this while it begins (disable_coredump), when code that it instruments
 * cannot run yet. The library begins later, and then learns the limit.
 */
HOOK __attribute__((no_sanitize("address", "thread", "undefined"))) int
setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	long r;

	if (__atomic_load_n(&real_ready, __ATOMIC_ACQUIRE))
		return change(resource, limit);
	r = kernel_call4(SYS_prlimit64, 0, (long)resource, (long)limit, 0);
	if (r < 0)
		errno = (int)-r;
	return r < 0 ? -1 : 0;
}

HOOK int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	const struct rlimit *same = (const struct rlimit *)limit;

	return LIMIT_CHANGE(0, resource, same, REAL(setrlimit)(resource, same));
}

HOOK int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit,
		 struct rlimit *old)
{
	return LIMIT_CHANGE(pid, resource, limit,
			    REAL(prlimit)(pid, (int)resource, limit, old));
}

HOOK int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *limit,
		   struct rlimit64 *old)
{
	const struct rlimit *same = (const struct rlimit *)limit;

	return LIMIT_CHANGE(
		pid, resource, same,
		REAL(prlimit)(pid, (int)resource, same, (struct rlimit *)old));
}
