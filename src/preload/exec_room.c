/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped memory for an exec. A child of vfork that becomes another image leaves it to its parent. */
#include "preload/exec_room.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "preload/hook.h"

/* Of linux/kcmp.h, which not all C libraries come with: do two processes share their memory? */
#define KCMP_VM 1

struct exec_room {
	struct exec_room *next;
	size_t bytes;
	long child; /* the child of vfork that has made it, or 0 */
	_Alignas(16) char memory[];
};

static _Thread_local struct exec_room *newest __attribute__((tls_model("initial-exec")));

static long self(void)
{
	return kernel_call4(SYS_getpid, 0, 0, 0, 0);
}

/*
 * The child that has made it runs no longer in this memory: it cannot come back to it. While the owner of this
 * memory runs, no child of vfork does. Else those do that wait for this one, which may be amid an exec
 * each: a handler that interrupts an exec may make a child.
 */
static bool is_left(const struct exec_room *r)
{
	long me, differs;

	if (!r->child)
		return false;
	if (!hook_is_borrowed())
		return true;
	me = self();
	if (r->child == me || r->child == kernel_call4(SYS_getppid, 0, 0, 0, 0))
		return false;
	differs = kernel_call6(SYS_kcmp, me, r->child, KCMP_VM, 0, 0, 0);
	/* Where it may not be asked, the parent gives it back. */
	return differs > 0 || differs == -ESRCH;
}

static void give_back_newest(void)
{
	struct exec_room *r = newest;

	/* A handler that comes here finds it in the list, or not at all. */
	newest = r->next;
	fence_compiler();
	kernel_call4(SYS_munmap, (long)r, (long)r->bytes, 0, 0);
}

struct exec_room *exec_room_begin(void)
{
	while (newest && is_left(newest))
		give_back_newest();
	return newest;
}

void *exec_room_take(size_t bytes)
{
	size_t all = sizeof(struct exec_room) + bytes;
	long at = kernel_call6(SYS_mmap, 0, (long)all, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct exec_room *r = (void *)at;

	if (at < 0 && at > -CRIT_PAGE_BYTES)
		return NULL;
	*r = (struct exec_room){newest, all, hook_is_borrowed() ? self() : 0};
	fence_compiler();
	newest = r;
	return r->memory;
}

void exec_room_end(struct exec_room **since)
{
	while (newest && newest != *since)
		give_back_newest();
}
