/* SPDX-License-Identifier: Apache-2.0 */
/* Address space, where the program has a limit of it. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/space.h"

/* The whole size of this process, in bytes; 0 when it cannot be read. */
static unsigned long long own_size(void)
{
	char text[64];

	if (!kernel_read_text("/proc/self/statm", text, sizeof(text)))
		return 0;
	return strtoull(text, NULL, 10) * (unsigned long long)sysconf(_SC_PAGESIZE);
}

bool space_is_left(size_t bytes)
{
	struct rlimit limit;
	unsigned long long size;

	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return true;
	size = own_size();
	return size != 0 && size + bytes <= limit.rlim_cur / 2;
}

bool space_of_data_is_limited(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}
