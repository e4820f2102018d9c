/* SPDX-License-Identifier: Apache-2.0 */
/* Points the system calls of a Go program at this library. */
#include "preload/go.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/machine.h"
#include "preload/hook.h"
#include "preload/jump_room.h"
#include "preload/syscall.h"

#define JUMP_BYTES 16

uint64_t go_back_syscall6, go_back_vfork, go_back_settls, go_back_clone;
const uint8_t *go_kinds = hook_kinds;
bool go_is_static;
_Atomic uint64_t go_main_fs;

static void (*const entries[GO_PLACES])(void) = {
	[GO_SYSCALL6] = go_entry_syscall6,
	[GO_VFORK] = go_entry_vfork,
	[GO_EXIT] = go_entry_exit,
	[GO_EPOLL_CREATE] = go_entry_epoll_create,
	[GO_EPOLL_CREATE1] = go_entry_epoll_create1,
	[GO_EPOLL_CTL] = go_entry_epoll_ctl,
	[GO_EPOLL_WAIT] = go_entry_epoll_wait,
	[GO_SETTLS] = go_entry_settls,
	[GO_CLONE] = go_entry_clone,
	[GO_EXIT_THREAD] = go_entry_exit_thread,
	[GO_SIGACTION] = go_entry_sigaction,
};

/* jmp *0(%rip), and the address. */
static void put_jump(unsigned char *at, void (*entry)(void))
{
	static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};

	memcpy(at, jump, sizeof(jump));
	memcpy(at + sizeof(jump), &entry, sizeof(entry));
}

static bool protect(const struct go_text *t, uint64_t load, int protection)
{
	for (unsigned i = 0; i < GO_PLACES; i++) {
		uint64_t begin = (load + t->at[i]) & ~(uint64_t)(CRIT_PAGE_BYTES - 1);
		uint64_t end = load + t->at[i] + GO_PATCH_BYTES;

		if (t->at[i] && mprotect((void *)begin, end - begin, protection) != 0)
			return false;
	}
	return true;
}

static bool is_as_in_file(const struct go_text *t, uint64_t load)
{
	for (unsigned i = 0; i < GO_PLACES; i++)
		if (t->at[i] &&
		    memcmp((void *)(load + t->at[i]), t->was[i], GO_PATCH_BYTES) != 0)
			return false;
	return true;
}

static void put_jumps(const struct go_text *t, uint64_t load, const unsigned char *page)
{
	for (unsigned i = 0; i < GO_PLACES; i++) {
		unsigned char *at = (void *)(load + t->at[i]);
		int32_t far =
			(int32_t)(page + (size_t)i * JUMP_BYTES - (at + GO_PATCH_BYTES));

		if (!t->at[i])
			continue;
		at[0] = 0xe9;
		memcpy(at + 1, &far, sizeof(far));
	}
}

const char *go_change(const struct go_text *text, uint64_t load)
{
	unsigned char *page;

	if (!is_as_in_file(text, load))
		return "its code is not as in its file";
	page = jump_room(load + text->at[GO_SYSCALL6], CRIT_PAGE_BYTES);
	if (!page)
		return "there is no room near its code";
	for (unsigned i = 0; i < GO_PLACES; i++)
		put_jump(page + (size_t)i * JUMP_BYTES, entries[i]);
	go_back_syscall6 = load + text->at[GO_SYSCALL6] + 8;
	go_back_vfork = load + text->at[GO_VFORK] + 10;
	if (mprotect(page, CRIT_PAGE_BYTES, PROT_READ | PROT_EXEC) != 0 ||
	    !protect(text, load, PROT_READ | PROT_WRITE | PROT_EXEC)) {
		protect(text, load, PROT_READ | PROT_EXEC);
		munmap(page, CRIT_PAGE_BYTES);
		return "its code cannot be changed";
	}
	put_jumps(text, load, page);
	/* No program runs with code that can be written. */
	if (!protect(text, load, PROT_READ | PROT_EXEC))
		__builtin_trap();
	return NULL;
}

const char *go_join(uint64_t load_address)
{
	const char *lacks = machine_lacks(machine_here(), MACHINE_FOR_GO);
	struct go_text text;

	if (lacks)
		return lacks;
	if (go_text_find("/proc/self/exe", &text) != 0)
		return text.lacks;
	go_main_fs = (uint64_t)pthread_self();
	return go_change(&text, load_address);
}
