/* SPDX-License-Identifier: Apache-2.0 */
/* Which listening sockets of this process are announced to connectors on this host. */
#include "hook/hook.h"
#include "meet/meet.h"

/* Listeners beyond these are not announced: their connections stay on TCP. */
#define ANNOUNCED_MAX 256

static struct {
	struct sock *s;
	int announced;
} table[ANNOUNCED_MAX];
static _Atomic int table_used; /* entries below it may be in use */
static struct lock table_lock;

void announce_listener(struct sock *s, int fd)
{
	int saved = errno, used, free_entry;

	lock_take(&table_lock);
	used = atomic_load_explicit(&table_used, memory_order_relaxed);
	free_entry = used;
	for (int i = 0; i < used; i++) {
		if (table[i].s == s)
			free_entry = ANNOUNCED_MAX; /* a second listen() */
		else if (!table[i].s && free_entry == used)
			free_entry = i;
	}
	if (free_entry < ANNOUNCED_MAX) {
		int announced = meet_announce(fd);

		if (announced >= 0) {
			table[free_entry].s = s;
			table[free_entry].announced = announced;
			if (free_entry == used)
				/* Relaxed: the closing side looks again under the lock.
				 */
				atomic_store_explicit(&table_used, used + 1,
						      memory_order_relaxed);
		}
	}
	lock_drop(&table_lock);
	errno = saved;
}

void announce_closing(int fd)
{
	struct sock *s;
	int announced = -1;

	if (atomic_load_explicit(&table_used, memory_order_relaxed) == 0)
		return;
	s = fd_sock(fd);
	/* Other descriptors of this process keep the listener alive. */
	if (!s || atomic_load_explicit(&s->fds, memory_order_relaxed) > 1)
		return;
	lock_take(&table_lock);
	for (int i = 0; i < atomic_load_explicit(&table_used, memory_order_relaxed);
	     i++) {
		if (table[i].s != s)
			continue;
		announced = table[i].announced;
		table[i].s = NULL;
	}
	lock_drop(&table_lock);
	if (announced >= 0)
		meet_unannounce(announced);
}
