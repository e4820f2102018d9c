/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the table of descriptors, which all of this folder reads, and the lock of a fork. */
#include "base/atomic.h"
#include "base/lock.h"
#include "base/sections.h"
#include "conn/conn.h"

struct sock *_Atomic *fd_table NEAR_DATA;
_Atomic uint32_t fd_taken[FD_TAKEN] FORK_DATA;
int fd_table_size NEAR_DATA, fd_table_end NEAR_DATA;
bool (*sock_may_attach)(struct sock *s);
void (*sock_on_attach)(struct sock *s);
void (*sock_on_final)(struct sock *s);
bool (*sock_on_release)(struct sock *s);

static _Atomic int fd_highest FORK_DATA;
struct lock forking_lock FORK_DATA;

void fork_hold_off(void)
{
	lock_take(&forking_lock);
}

void fork_let_go(void)
{
	lock_drop(&forking_lock);
}

FORK_CODE int fd_limit(void)
{
	return load_relaxed(&fd_highest) + 1;
}

void fd_table_set(int fd, struct sock *s)
{
	int highest = load_relaxed(&fd_highest);
	while (fd > highest && !atomic_compare_exchange_weak_explicit(
				       &fd_highest, &highest, fd, memory_order_relaxed,
				       memory_order_relaxed))
		;
	/* Release pairs with the acquire in fd_sock. */
	store_release(&fd_table[fd], s);
}
