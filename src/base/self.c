/* SPDX-License-Identifier: Apache-2.0 */
/* The process id in a page that the kernel empties in every forked child. */
#include "base/self.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static _Atomic pid_t *known;

void self_init(void)
{
	void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) == 0)
		known = page;
	else
		munmap(page, PAGE_BYTES);
}

pid_t self_pid(void)
{
	pid_t pid;

	if (!known)
		return getpid();
	/* Relaxed: whoever finds nothing asks, and all get the same answer. */
	pid = atomic_load_explicit(known, memory_order_relaxed);
	if (pid == 0) {
		pid = getpid();
		atomic_store_explicit(known, pid, memory_order_relaxed);
	}
	return pid;
}
