/* SPDX-License-Identifier: Apache-2.0 */
/* Finds registered memory for which the program has other pages by now than the device. */
/*
 * Nothing that an ordinary user may ask the kernel tells which page is at an address: so some of the pages
 * are lent to a pipe, at the moment when they are registered. The pipe keeps that page, as the device
 * does, wherever its address leads later. At a hit, and after a get, the bytes in the pipe are compared with
 * those at the address. They differ only if these are other pages. Where they are alike nothing is wrong
 * with what the device sends, or has brought.
 *
 * Compared is what the operation itself uses: nobody else writes there meanwhile.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/sigsafe.h"
#include "remote/cache.h"

#define PAGE   4096u
#define SAMPLE 16u /* pages: what a pipe holds */

static uint8_t theirs[PAGE], ours[PAGE]; /* under the folder's lock */

static void close_pipe(const int fds[2])
{
	fds_close(fds[0]);
	fds_close(fds[1]);
}

static bool open_pipe(int fds[2])
{
	bool made;

	low_begin();
	made = kernel_call4(SYS_pipe2, (long)fds, O_CLOEXEC | O_NONBLOCK, 0, 0) == 0;
	for (int i = 0; i < 2 && made; i++)
		fds[i] = fds_adopt(fds[i]);
	low_end();
	if (!made || (fds[0] >= 0 && fds[1] >= 0))
		return made;
	close_pipe(fds);
	return false;
}

/* Of the pages that were to be taken: evenly from the first to the last. */
static uintptr_t page_at(uintptr_t start, uint64_t bytes, uint32_t n, uint32_t of)
{
	uint64_t last = bytes / PAGE - 1;

	return start + (of > 1 ? last * n / (of - 1) : 0) * PAGE;
}

struct cache_proof cache_proof_make(uintptr_t start, uint64_t bytes)
{
	struct cache_proof p = {.fd = -1,
				.of = bytes / PAGE < SAMPLE ? (uint32_t)(bytes / PAGE)
							    : SAMPLE};
	struct iovec iov[SAMPLE];
	int fds[2];
	long n;

	if (!open_pipe(fds))
		return p;
	for (uint32_t i = 0; i < p.of; i++)
		iov[i] = (struct iovec){(void *)page_at(start, bytes, i, p.of), PAGE};
	n = kernel_call4(SYS_vmsplice, fds[1], (long)iov, p.of, SPLICE_F_NONBLOCK);
	fds_close(fds[1]);
	p.pages = n > 0 ? (uint32_t)n / PAGE : 0;
	if (p.pages > 0)
		p.fd = fds[0];
	else
		fds_close(fds[0]);
	return p;
}

static bool is_same(uintptr_t page, uintptr_t at, size_t len)
{
	uintptr_t from = at > page ? at : page,
		  to = at + len < page + PAGE ? at + len : page + PAGE;

	if (from >= to)
		return true;
	return crit_copy(ours, (const void *)from, to - from) == 0 &&
	       memcmp(ours, theirs + (from - page), to - from) == 0;
}

bool cache_proof_holds(const struct cache_proof *p, uintptr_t start, uint64_t bytes,
		       uintptr_t at, size_t len)
{
	bool holds = true;
	int fds[2];

	if (p->fd < 0 || !open_pipe(fds))
		return true;
	/* The pages stay in the first pipe. */
	kernel_call4(SYS_tee, p->fd, fds[1], (long)p->pages * PAGE, SPLICE_F_NONBLOCK);
	for (uint32_t i = 0; i < p->pages && holds; i++)
		holds = kernel_read(fds[0], theirs, PAGE) != PAGE ||
			is_same(page_at(start, bytes, i, p->of), at, len);
	close_pipe(fds);
	return holds;
}

void cache_proof_end(struct cache_proof *p)
{
	fds_close(p->fd);
	p->fd = -1;
}
