/* SPDX-License-Identifier: Apache-2.0 */
/* mlockall for the program's memory alone: which mappings are Viaduct's, and how the others are
 * locked one by one. Core files have none of them, either. */
#include "base/atomic.h"
#include "base/fds.h"
#include "base/low.h"
#include "base/pageable.h"

#include <ctype.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "base/sections.h"

/* A window for each socket that there can be, and the tables. Further ones are locked. */
#define RANGES_MOST (65536 + 64)

struct range {
	_Atomic uintptr_t start; /* 0: free; RANGE_FILLED: somebody fills it in */
	_Atomic size_t bytes;
};
#define RANGE_FILLED UINTPTR_MAX

static struct range ours[RANGES_MOST];
static _Atomic uint32_t ours_used;
static _Atomic uint32_t ours_freed; /* below that, to be used again */
static _Atomic bool expected FORK_DATA;

/* Of this library's own image: its code is locked like the program's, what is never touched of
 * its data is not. */
extern const char image_start[] __asm__("__ehdr_start")
	__attribute__((visibility("hidden")));
extern const char image_end[] __asm__("_end") __attribute__((visibility("hidden")));

/* ---- what is ours ---- */

static uint32_t count_ours(void)
{
	uint32_t used = load_relaxed(&ours_used);

	return used < RANGES_MOST ? used : RANGES_MOST;
}

static bool fill_in(struct range *r, void *at, size_t bytes)
{
	uintptr_t none = 0;

	if (load_relaxed(&r->start) != 0 ||
	    !atomic_compare_exchange_strong(&r->start, &none, RANGE_FILLED))
		return false;
	store_relaxed(&r->bytes, bytes);
	/* Release: who finds the start finds the length. */
	store_release(&r->start, (uintptr_t)at);
	return true;
}

static void note(void *at, size_t bytes)
{
	uint32_t used = load_relaxed(&ours_freed) > 0 ? count_ours() : 0, i;

	for (i = 0; i < used; i++)
		if (fill_in(&ours[i], at, bytes)) {
			fetch_sub_relaxed(&ours_freed, 1);
			return;
		}
	/* Each gets another one, which somebody who looks for a free one may have filled in by then. */
	do
		i = fetch_add_relaxed(&ours_used, 1);
	while (i < RANGES_MOST && !fill_in(&ours[i], at, bytes));
	if (i >= RANGES_MOST)
		store_relaxed(&ours_used, RANGES_MOST);
}

/* The first of ours that lies in [from, to): its part there. Empty, at `to`, when there is none. */
static void next_ours(uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end)
{
	uint32_t used = count_ours();

	*start = *end = to;
	for (uint32_t i = 0; i < used; i++) {
		uintptr_t a = load_acquire(&ours[i].start);
		uintptr_t b = a + load_relaxed(&ours[i].bytes);

		if (!a || a >= *start || b <= from)
			continue;
		/* It may have become another one's meanwhile. */
		atomic_thread_fence(memory_order_acquire);
		if (load_relaxed(&ours[i].start) != a)
			continue;
		*start = a < from ? from : a;
		*end = b < to ? b : to;
	}
}

/* ---- all mappings of this process ---- */

typedef void visit(uintptr_t from, uintptr_t to, void *arg);

static void visit_others(uintptr_t from, uintptr_t to, visit *each, void *arg)
{
	while (from < to) {
		uintptr_t start, end;

		next_ours(from, to, &start, &end);
		if (start > from)
			each(from, start, arg);
		from = end;
	}
}

/* A line of /proc/self/maps begins with two numbers; the rest of it may be long. */
struct reader {
	uintptr_t number[2];
	int at; /* 0, 1: amid a number; 2: behind them */
};

static void take_character(struct reader *r, char c, visit *each, void *arg)
{
	if (c == '\n') {
		*r = (struct reader){0};
	} else if (r->at < 2 && isxdigit((unsigned char)c)) {
		int digit = c <= '9' ? c - '0' : c - 'a' + 10;

		r->number[r->at] = r->number[r->at] << 4 | (uintptr_t)digit;
	} else if (r->at < 2 && ++r->at == 2) {
		visit_others(r->number[0], r->number[1], each, arg);
	}
}

static bool visit_all(visit *each, void *arg)
{
	int fd = LOW_MADE(fds_raise,
			  kernel_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
	struct reader r = {0};
	char text[4096];
	ssize_t n;

	if (fd < 0)
		return false;
	while ((n = kernel_read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < n; i++)
			take_character(&r, text[i], each, arg);
	fds_close(fd);
	return n == 0;
}

/* ---- mlockall ---- */

static bool is_image(uintptr_t from)
{
	return from >= (uintptr_t)image_start && from < (uintptr_t)image_end;
}

static void add(uintptr_t from, uintptr_t to, void *arg)
{
	if (!is_image(from))
		*(uint64_t *)arg += to - from;
}

/* As mlockall, it does not mind what cannot be locked. */
static void lock(uintptr_t from, uintptr_t to, void *arg)
{
	bool on_fault = *(bool *)arg || is_image(from);

	kernel_call4(SYS_mlock2, (long)from, (long)(to - from),
		     on_fault ? MLOCK_ONFAULT : 0, 0);
}

static bool is_free_to_lock(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return kernel_call4(SYS_capget, (long)&head, (long)data, 0, 0) == 0 &&
	       (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK));
}

int pageable_may_lock(bool now)
{
	struct rlimit limit;
	uint64_t total = 0;

	if (kernel_getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY || is_free_to_lock())
		return 0;
	if (limit.rlim_cur == 0)
		return -EPERM;
	return now && visit_all(add, &total) && total > limit.rlim_cur ? -ENOMEM : 0;
}

bool pageable_lock_others(bool on_fault)
{
	return visit_all(lock, &on_fault);
}

void pageable_expect(bool locks)
{
	/* Relaxed: what another thread maps at this moment may be locked or not. */
	store_relaxed(&expected, locks);
}

FORK_CODE bool pageable_expects(void)
{
	return load_relaxed(&expected);
}

/* ---- mapping ---- */

/*
 * The kernel locks, and fills, what is mapped readable: so it is mapped without access first. In the
 * place of something else, which threads may look at, it is moved when it is ready.
 */
static void *map_unlocked(void *at, size_t bytes, int prot, int flags, int fd)
{
	void *p = mmap(NULL, bytes, PROT_NONE, flags & ~MAP_FIXED, fd, 0), *to = p;
	int saved;

	if (p == MAP_FAILED) {
		if (errno == EAGAIN)
			errno = ENOMEM;
		return p;
	}
	if (munlock(p, bytes) == 0 && mprotect(p, bytes, prot) == 0) {
		if (flags & MAP_FIXED)
			to = mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
		if (to != MAP_FAILED)
			return to;
	}
	saved = errno;
	munmap(p, bytes);
	errno = saved;
	return MAP_FAILED;
}

static void *map(void *at, size_t bytes, int prot, int flags, int fd)
{
	void *p = pageable_expects() ? map_unlocked(at, bytes, prot, flags, fd)
				     : mmap(at, bytes, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		return p;
	madvise(p, bytes, MADV_DONTDUMP);
	if (!(flags & MAP_FIXED))
		note(p, bytes);
	return p;
}

void *pageable_map(void *at, size_t bytes, int flags, int fd)
{
	return map(at, bytes, PROT_READ | PROT_WRITE, flags, fd);
}

void *pageable_map_read(size_t bytes, int fd)
{
	return map(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd);
}

static void forget(const void *at)
{
	uint32_t used = count_ours();

	for (uint32_t i = 0; i < used; i++)
		if (load_relaxed(&ours[i].start) == (uintptr_t)at) {
			store_relaxed(&ours[i].start, 0);
			fetch_add_relaxed(&ours_freed, 1);
		}
}

void pageable_unmap(void *at, size_t bytes)
{
	/* First: the addresses may be the program's at once. */
	forget(at);
	munmap(at, bytes);
}

void *pageable_move(void *at, size_t bytes, void *to)
{
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	void *room = to, *p;

	/* Without a place of its own, mremap would leave it where it is. */
	if (!to)
		room = mmap(NULL, bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return room;
	p = mremap(at, bytes, bytes, flags, room);
	if (p == MAP_FAILED) {
		if (!to)
			munmap(room, bytes);
		return p;
	}
	forget(at);
	if (!to)
		note(p, bytes);
	return p;
}

void *pageable_again(void *at, size_t bytes)
{
	void *p = mremap(at, 0, bytes, MREMAP_MAYMOVE);

	if (p != MAP_FAILED)
		note(p, bytes);
	return p;
}

void pageable_unmap_front(void *at, size_t front, size_t bytes)
{
	pageable_unmap(at, front);
	note((char *)at + front, bytes - front);
}
