/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with descriptors of their own, and processes that share descriptors without memory.
 *
 * Our tables say what a number is, once for all who share the memory. Where that does not go for
 * all any more, each connection is the kernel's before, and stays there: then it does not matter
 * what the tables hold of it. Nor does Viaduct open or close anything of its own from then on, since
 * a number of ours may be the program's in another table.
 */
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/log.h"
#include "preload/hook.h"

_Atomic bool hook_is_parted;

bool hook_is_alone(void)
{
	struct stat tasks;
	int saved = errno;
	/* Two links are its own, and one more is there for each thread. */
	bool alone = kernel_stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;

	errno = saved;
	return alone;
}

void hook_parting(void)
{
	int saved = errno;

	if (!hook_active || hook_is_borrowed() || load_relaxed(&hook_is_parted))
		return;
	log_info("everything goes back to TCP: %s (%s)", reason_name(VD_REASON_PARTED),
		 reason_text(VD_REASON_PARTED));
	hook_refuse_all(VD_REASON_PARTED);
	announce_leave();
	atomic_store(&hook_is_parted, true);
	errno = saved;
}

bool hook_clone_parts(unsigned long flags)
{
	bool files = flags & CLONE_FILES, lent;

	if (!(flags & CLONE_VM))
		return files;
	/* The child of a vfork is known by its thread, which waits for it: what that closes is taken for its own. */
	lent = (flags & CLONE_VFORK) && !(flags & CLONE_SETTLS);
	return files == lent;
}

HOOK int unshare(int flags)
{
	if ((flags & CLONE_FILES) && !hook_is_alone())
		hook_parting();
	credentials_namespaces((unsigned)flags);
	return (int)REAL(syscall)(SYS_unshare, flags);
}
