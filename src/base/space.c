/* SPDX-License-Identifier: Apache-2.0 */
/* Address space, where the program or the machine has a limit of it. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/pages.h"
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

/* The kernel's own, where it does not say. */
#define MAPS_MOST 65530u
/* What is mapped between two counts is at most this part of all that there was at the first, and so many more. */
#define MAPS_PART 32u
#define MAPS_FEW  16u

static uint32_t maps_most(void)
{
	static _Atomic uint32_t known;
	char text[32];

	if (!load_relaxed(&known))
		store_relaxed(&known, low_read_text("/proc/sys/vm/max_map_count", text,
						    sizeof(text))
					      ? (uint32_t)strtoul(text, NULL, 10)
					      : MAPS_MOST);
	return load_relaxed(&known);
}

/* Mappings of this process; 0 where nobody says. A page at a time, as the kernel tells them. */
static uint32_t count_maps(void)
{
	uint32_t count = 0;
	ssize_t n = 0;
	int fd = LOW_MADE(fds_adopt,
			  kernel_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
	char *text = fd < 0 ? NULL : pages_take(PAGES_LEAST);

	while (text && (n = kernel_read(fd, text, PAGES_LEAST)) > 0)
		for (ssize_t i = 0; i < n; i++)
			count += text[i] == '\n';
	pages_give(text, PAGES_LEAST);
	fds_close(fd);
	return count;
}

bool space_takes_mapping(void)
{
	/* Relaxed, both: threads that come at the same time may count twice. */
	static _Atomic uint32_t counted, since;
	uint32_t before = load_relaxed(&counted);

	if (!before || load_relaxed(&since) > before / MAPS_PART + MAPS_FEW) {
		before = count_maps();
		store_relaxed(&counted, before);
		store_relaxed(&since, 0);
	}
	return before + fetch_add_relaxed(&since, 1) < maps_most() / 2;
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
