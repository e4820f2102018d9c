/* SPDX-License-Identifier: Apache-2.0 */
/* mlockall and munlockall: what they lock is the program's memory. */
#include <sys/mman.h>

#include "base/pageable.h"
#include "preload/hook.h"

#define LOCKALL_FLAGS (MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)

HOOK int mlockall(int flags)
{
	bool now = flags & MCL_CURRENT, later = flags & MCL_FUTURE;
	bool before = pageable_expects();
	int saved = errno, result;

	if (!hook_active || hook_is_borrowed() || (flags & ~LOCKALL_FLAGS) ||
	    !(now || later))
		return REAL(mlockall)(flags);
	result = pageable_may_lock(now);
	if (result < 0)
		return (int)ret_errno(result);
	/* What comes later: as each call says anew. */
	if (later) {
		pageable_expect(true);
		result = REAL(mlockall)(flags & ~MCL_CURRENT);
		if (result != 0)
			pageable_expect(before);
	} else if (before) {
		result = munlockall();
	}
	if (result != 0)
		return result;
	if (now && !pageable_lock_others(flags & MCL_ONFAULT))
		return REAL(mlockall)(flags);
	errno = saved;
	return 0;
}

HOOK int munlockall(void)
{
	int result = REAL(munlockall)();

	if (result == 0 && !hook_is_borrowed())
		pageable_expect(false);
	return result;
}
