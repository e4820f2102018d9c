/* SPDX-License-Identifier: Apache-2.0 */
/* brk of a statically linked program: memory of its own, since the kernel's is malloc's of the host.
 *
 * As the kernel's, it is mapped as it grows, and counts as it does. It begins below all else, with as much room
 * above as there was at the start: what the kernel maps later comes down from the end of that.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/static.h"

#define MOST_ROOM  (16ull << 30)
#define LEAST_ROOM (1ull << 20)
#define PRIVATE	   (MAP_PRIVATE | MAP_ANONYMOUS)

static uint64_t begin, now;
static _Atomic int taken;

bool static_brk_init(void)
{
	for (uint64_t bytes = MOST_ROOM; bytes >= LEAST_ROOM; bytes /= 2) {
		void *got = mmap(NULL, bytes, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);

		if (got == MAP_FAILED)
			continue;
		munmap(got, bytes);
		begin = now = (uint64_t)got;
		return true;
	}
	return false;
}

static uint64_t page_up(uint64_t at)
{
	return (at + CRIT_PAGE_BYTES - 1) & ~(uint64_t)(CRIT_PAGE_BYTES - 1);
}

static bool move(uint64_t to)
{
	uint64_t was = page_up(now), is = page_up(to);

	if (is > was)
		return mmap((void *)was, is - was, PROT_READ | PROT_WRITE,
			    PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED;
	return is == was || munmap((void *)is, was - is) == 0;
}

void static_brk_hold(void)
{
	crit_enter();
	while (atomic_exchange(&taken, 1))
		kernel_call4(SYS_sched_yield, 0, 0, 0, 0);
}

void static_brk_release(void)
{
	atomic_store(&taken, 0);
	crit_leave();
}

/* As the kernel: the end as it is afterwards, moved or not. */
long static_brk(uint64_t to)
{
	long result;

	static_brk_hold();
	if (to >= begin && to <= UINT64_MAX / 2 && move(to))
		now = to;
	result = (long)now;
	static_brk_release();
	return result;
}
