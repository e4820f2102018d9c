/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that one call has while it sleeps, so that nobody else closes what it works with. */
#include "base/fds_call.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/low.h"
#include "base/sections.h"

/* At one time. Those beyond have none, or are not known. */
#define CALLS 320

/* Of no thread's call: no child goes on with it. */
#define NO_CALL UINT32_MAX

static struct {
	_Atomic uint32_t owner; /* 0: nobody has it */
	_Atomic int number;	/* and one more; 0: none yet */
} calls[CALLS];

static uint32_t forker; /* under the lock of a fork */

/* False: there is no place to note it. The number is noted before a fork can copy it. */
static bool take(uint32_t owner, int fd, int (*adopt)(int fd), int *number)
{
	for (int i = 0; i < CALLS; i++) {
		uint32_t nobody = 0;

		if (load_relaxed(&calls[i].owner) ||
		    !atomic_compare_exchange_strong(&calls[i].owner, &nobody, owner))
			continue;
		low_begin();
		*number = kernel_dup(fd);
		if (*number >= 0)
			*number = adopt(*number);
		if (*number >= 0)
			store_release(&calls[i].number, *number + 1);
		else
			store_release(&calls[i].owner, 0);
		low_end();
		return true;
	}
	return false;
}

int fds_call_take(int fd)
{
	int number;

	return take(lock_self(), fd, fds_adopt, &number) ? number : -EMFILE;
}

int fds_call_take_needed(int fd)
{
	int number;

	if (!take(NO_CALL, fd, fds_adopt_needed, &number))
		number = LOW_MADE(fds_adopt_needed, kernel_dup(fd));
	return number;
}

static void forget(int number)
{
	for (int i = 0; i < CALLS; i++) {
		if (load_relaxed(&calls[i].number) != number + 1)
			continue;
		store_relaxed(&calls[i].number, 0);
		store_release(&calls[i].owner, 0);
		return;
	}
}

void fds_call_give(int number)
{
	fds_close_forgotten(number, forget);
}

void fds_calls_forking(void)
{
	forker = lock_self();
}

FORK_CODE void fds_calls_forked_child(void)
{
	for (int i = 0; i < CALLS; i++) {
		int number = load_relaxed(&calls[i].number) - 1;
		uint32_t owner = load_relaxed(&calls[i].owner);

		if (owner == forker && owner) {
			store_relaxed(&calls[i].owner, lock_self());
		} else if (owner) {
			store_relaxed(&calls[i].number, 0);
			store_relaxed(&calls[i].owner, 0);
			fds_close(number);
		}
	}
}
