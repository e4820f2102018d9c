/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the waits for a nonblocking end come by here: one that is waited for past us would
 * hear of nothing in memory, and is not upgraded. */
#ifndef VD_CONN_HEED_H
#define VD_CONN_HEED_H

#include <sys/epoll.h>

#include "conn/sock.h"

void heed_wait_slow(struct sock *s);
/* poll, select or epoll_ctl names it, for these events: so will later waits. The wait for
 * connect alone tells nothing. */
static inline void heed_wait(struct sock *s, uint32_t events)
{
	struct slot *sl = s->slot;
	if (!(load_relaxed(&sl->ever) & EVER_WAITED) &&
	    ((events & EPOLLIN) || load_relaxed(&sl->earned)))
		heed_wait_slow(s);
}

/* False: it is nonblocking, and nobody knows how it is waited for. */
static inline bool heed_is_known(struct sock *s)
{
	struct slot *sl = s->slot;
	return !load_relaxed(&sl->nonblock) || (load_relaxed(&sl->ever) & EVER_WAITED) ||
	       s->is_native;
}

/* The kernel has ended a receive, with no bytes, of one that is not known. One that looks again
 * and again waits by that; who has received begins anew (vain). Leaves errno alone. */
void heed_spin(struct sock *s, ssize_t result);

/*
 * An end in its ring, which has slept in its calls and is nonblocking now, finds nothing, or
 * no room. In a program that has never waited by our calls it goes to TCP. True: the call is
 * to look again.
 */
bool heed_leaves_slow(struct sock *s, int fd, uint32_t interest);
static inline bool heed_leaves(struct sock *s, int fd, uint32_t interest)
{
	return __builtin_expect(!heed_is_known(s), 0) &&
	       heed_leaves_slow(s, fd, interest);
}

#endif
