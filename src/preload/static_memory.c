/* SPDX-License-Identifier: Apache-2.0 */
/* brk of a statically linked program: memory of its own, since the kernel's is malloc's of the host. */
#include <errno.h>
#include <sys/mman.h>

#include "base/sigsafe.h"
#include "preload/static.h"

/* Address space alone, until it is used. */
#define MOST  (16ull << 30)
#define LEAST (64ull << 20)
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static uint64_t begin, now, end;
static _Atomic int taken;

bool static_brk_init(void)
{
	for (uint64_t bytes = MOST; bytes >= LEAST; bytes /= 2) {
		void *got = mmap(NULL, bytes, PROT_NONE, FLAGS, -1, 0);

		if (got == MAP_FAILED)
			continue;
		begin = now = (uint64_t)got;
		end = begin + bytes;
		return true;
	}
	return false;
}

static uint64_t page_up(uint64_t at)
{
	return (at + CRIT_PAGE_BYTES - 1) & ~(uint64_t)(CRIT_PAGE_BYTES - 1);
}

/* Pages that are given up come back empty. */
static bool move(uint64_t to)
{
	uint64_t was = page_up(now), is = page_up(to);

	if (is > was)
		return mprotect((void *)was, is - was, PROT_READ | PROT_WRITE) == 0;
	return is == was || mmap((void *)is, was - is, PROT_NONE, FLAGS | MAP_FIXED, -1,
				 0) != MAP_FAILED;
}

/* As the kernel: the end as it is afterwards, moved or not. */
long static_brk(uint64_t to)
{
	long result;

	crit_enter();
	while (atomic_exchange(&taken, 1))
		;
	if (to >= begin && to <= end && move(to))
		now = to;
	result = (long)now;
	atomic_store(&taken, 0);
	crit_leave();
	return result;
}
