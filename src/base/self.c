/* SPDX-License-Identifier: Apache-2.0 */
/* The process id in a page that the kernel empties in every forked child; and whether another
 * process still is a fork of this image. */
#include "base/atomic.h"
#include "base/self.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/low.h"
#include "base/put.h"
#include "base/sections.h"

#define PAGE_BYTES 4096
/* Of /proc/PID/stat, counted from the state, which follows the name in brackets. */
#define FIELD_THREADS	  17
#define FIELD_STACK_START 25

static _Atomic pid_t *known NEAR_DATA;

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

FORK_CODE void self_forked(void)
{
	/* A first look would cost a page fault of its own. */
	if (known)
		store_relaxed(known, kernel_getpid());
}

NEAR_CODE pid_t self_pid(void)
{
	pid_t pid;

	if (!known)
		return kernel_getpid();
	/* Relaxed: whoever finds nothing asks, and all get the same answer. */
	pid = load_relaxed(known);
	if (pid == 0) {
		pid = kernel_getpid();
		store_relaxed(known, pid);
	}
	return pid;
}

/* The process is only waited for yet: an address that nothing has. */
#define ENDED UINT64_MAX

static uint64_t field(const char *at, int number)
{
	for (int i = 0; at && i <= number; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Where the stack of a process begins: random in each image, the same in all its forks. 0 when
 * it cannot be read. */
static uint64_t stack_start(pid_t pid)
{
	char path[32], text[1024], *at;

	put_text(put_number(put_text(path, "/proc/"), (int)pid), "/stat");
	if (!low_read_text(path, text, sizeof(text)))
		return 0;
	at = strrchr(text, ')');
	/* The first thread may have ended with others left. */
	if (at && (at[2] == 'Z' || at[2] == 'X') && field(at, FIELD_THREADS) <= 1)
		return ENDED;
	return field(at, FIELD_STACK_START);
}

bool self_has_ended(pid_t pid)
{
	return stack_start(pid) == ENDED;
}

bool self_shares_image(pid_t pid)
{
	uint64_t ours = stack_start(kernel_getpid()), theirs = stack_start(pid);

	return ours == 0 || theirs == 0 || ours == theirs;
}
