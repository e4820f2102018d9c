/* SPDX-License-Identifier: Apache-2.0 */
/* The array of a call that sleeps. */
#include <sys/mman.h>

#include "base/scratch.h"
#include "base/sigsafe.h"
#include "conn/conn.h"

/* Without the heap, whose locks a handler may have interrupted, and which the thread may be cancelled in. */
static struct iovec *memory_take(size_t bytes)
{
	if (bytes <= SCRATCH_BYTES)
		return scratch_take(bytes);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

static void memory_give(struct iovec *memory, size_t bytes)
{
	if (bytes <= SCRATCH_BYTES)
		scratch_give(memory, bytes);
	else
		munmap(memory, bytes);
}

void wait_keep_vector(struct wait *w)
{
	struct iov_cursor *at = w->at;
	if (!at || at->left == 0 || w->kept)
		return;
	size_t bytes = (size_t)at->left * sizeof(*at->iov);
	w->kept_bytes = at->left > 1 ? bytes : 0;
	w->kept = at->left > 1 ? memory_take(bytes) : &w->last;
	if (!w->kept)
		return;
	if (crit_copy(w->kept, at->iov, bytes) < 0) {
		wait_drop_vector(w);
		return;
	}
	at->iov = w->kept;
	/* Somebody has made it shorter than what has been moved. */
	if (at->offset > at->iov->iov_len)
		at->offset = at->iov->iov_len;
	iov_settle(at);
}

void wait_drop_vector(struct wait *w)
{
	if (w->kept_bytes && w->kept)
		memory_give(w->kept, w->kept_bytes);
	w->kept = NULL;
}
