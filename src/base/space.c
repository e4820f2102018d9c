/* SPDX-License-Identifier: Apache-2.0 */
/* Address space, where the program or the machine has a limit of it. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/low.h"
#include "base/space.h"

/* The whole size of this process, in bytes; 0 when it cannot be read. */
static unsigned long long own_size(void)
{
	char text[64];

	if (!low_read_text("/proc/self/statm", text, sizeof(text)))
		return 0;
	return strtoull(text, NULL, 10) * (unsigned long long)sysconf(_SC_PAGESIZE);
}

bool space_is_left(size_t bytes)
{
	struct rlimit limit;
	unsigned long long size;

	if (kernel_getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return true;
	size = own_size();
	return size != 0 && size + bytes <= limit.rlim_cur / 2;
}

/* vm.overcommit_memory: 2 is the kernel's OVERCOMMIT_NEVER. */
static bool machine_counts(void)
{
	enum { UNKNOWN, NO, YES };
	static _Atomic int known;
	char text[16];

	if (known == UNKNOWN)
		known = low_read_text("/proc/sys/vm/overcommit_memory", text,
				      sizeof(text)) &&
					text[0] == '2'
				? YES
				: NO;
	return known == YES;
}

bool space_is_counted(void)
{
	struct rlimit limit;

	return machine_counts() || (kernel_getrlimit(RLIMIT_DATA, &limit) == 0 &&
				    limit.rlim_cur != RLIM_INFINITY);
}
