/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that one call has while it sleeps, so that nobody else closes what it works with. */
#include "base/fds_call.h"

#include <errno.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/low.h"
#include "base/sections.h"

/* Calls at one time. Those beyond have none. */
#define CALLS 64

static struct {
	_Atomic uint32_t owner; /* 0: nobody has it */
	_Atomic int number;	/* and one more; 0: none yet */
} calls[CALLS];

static uint32_t forker; /* under the lock of a fork */

int fds_call_take(int fd)
{
	for (int i = 0; i < CALLS; i++) {
		uint32_t nobody = 0;
		int number;

		if (load_relaxed(&calls[i].owner) ||
		    !atomic_compare_exchange_strong(&calls[i].owner, &nobody,
						    lock_self()))
			continue;
		number = LOW_MADE(fds_adopt, kernel_dup(fd));
		if (number >= 0)
			store_release(&calls[i].number, number + 1);
		else
			store_release(&calls[i].owner, 0);
		return number;
	}
	return -EMFILE;
}

void fds_call_give(int number)
{
	for (int i = 0; number >= 0 && i < CALLS; i++) {
		if (load_relaxed(&calls[i].number) != number + 1)
			continue;
		/* Before the close: a child would close what has the number next. */
		store_relaxed(&calls[i].number, 0);
		store_release(&calls[i].owner, 0);
		break;
	}
	fds_close(number);
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
