/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of links, kept from one input to the next: to map one costs more than most inputs. A kept one is as
 * new, and what is mapped otherwise is the kernel's. The linker leads mmap, munmap, madvise and getrandom here. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "fuzz/fuzz.h"
#include "fuzz/windows.h"
#include "remote/parts.h"

#define WINDOWS	     (8 * ACROSS_LINKS)
#define PAGE	     4096u
#define PAGES	     (ACROSS_WINDOW_BYTES / PAGE)
#define TOUCHED_MOST 32

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __real_madvise(void *at, size_t bytes, int advice);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_madvise(void *at, size_t bytes, int advice);
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags);

uint64_t windows_random;

static struct window {
	uint8_t *at;
	size_t bytes;
	bool is_free;
	/* Pages that have memory, when the process had had so many faults. */
	long faults;
	unsigned count;
	uint16_t touched[TOUCHED_MOST + 1];
} windows[WINDOWS];
static unsigned window_count;

static struct window *window_at(const void *at)
{
	for (unsigned i = 0; i < window_count; i++)
		if (windows[i].at == at)
			return &windows[i];
	return NULL;
}

/* No process but this one has it, so it need not be shared; and only then the kernel can say what has been
 * touched. */
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	void *p;

	if (at || flags != (MAP_SHARED | MAP_ANONYMOUS) ||
	    (bytes != ACROSS_WINDOW_BYTES && bytes != PAGE))
		return __real_mmap(at, bytes, prot, flags, fd, offset);
	for (unsigned i = 0; i < window_count; i++)
		if (windows[i].is_free && windows[i].bytes == bytes) {
			windows[i].is_free = false;
			return windows[i].at;
		}
	p = __real_mmap(at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd,
			offset);
	if (p != MAP_FAILED && window_count < WINDOWS)
		windows[window_count++] =
			(struct window){.at = p, .bytes = bytes, .faults = -1};
	return p;
}

/* What one input has touched stays there, and others pay for it: not for too much. */
static void look(struct window *w)
{
	static unsigned char touched[PAGES];

	w->count = 0;
	FUZZ_CHECK(mincore(w->at, w->bytes, touched) == 0);
	for (unsigned i = 0; i < w->bytes / PAGE && w->count <= TOUCHED_MOST; i++)
		if (touched[i] & 1)
			w->touched[w->count++] = (uint16_t)i;
	if (w->count <= TOUCHED_MOST)
		return;
	FUZZ_CHECK(__real_madvise(w->at, w->bytes, MADV_DONTNEED) == 0);
	w->count = 0;
}

/* No page has memory for the first time without a fault. */
static void clear(struct window *w)
{
	struct rusage now;
	long faults;

	FUZZ_CHECK(getrusage(RUSAGE_SELF, &now) == 0);
	faults = now.ru_minflt + now.ru_majflt;
	if (faults != w->faults)
		look(w);
	for (unsigned i = 0; i < w->count; i++)
		memset(w->at + w->touched[i] * PAGE, 0, PAGE);
	w->faults = faults;
}

int __wrap_munmap(void *at, size_t bytes)
{
	struct window *w = window_at(at);

	if (!w || w->bytes != bytes)
		return __real_munmap(at, bytes);
	clear(w);
	w->is_free = true;
	return 0;
}

/* There are no children, and no core. */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
	bool is_idle = advice == MADV_DONTFORK || advice == MADV_DOFORK ||
		       advice == MADV_DONTDUMP;

	return is_idle && window_at(at) ? 0 : __real_madvise(at, bytes, advice);
}

/* The same for the same input. */
ssize_t __wrap_getrandom(void *to, size_t bytes, unsigned flags)
{
	(void)flags;
	for (size_t i = 0; i < bytes; i++) {
		windows_random =
			windows_random * 6364136223846793005u + 1442695040888963407u;
		((uint8_t *)to)[i] = (uint8_t)(windows_random >> 56);
	}
	return (ssize_t)bytes;
}
