/* SPDX-License-Identifier: Apache-2.0 */
/* How a socket goes: at once, or when the threads of this process that are inside have left. */
#ifndef VD_CONN_LIMBO_H
#define VD_CONN_LIMBO_H

#include "conn/sock.h"

/* Threads of this process are in a kernel call for it, or hold it to look or to sleep. */
static inline bool sock_is_busy(struct sock *s)
{
	return atomic_load(&s->sleepers) > 0 || atomic_load(&s->inside) > 0;
}

/* Of a closed socket: releases it now, or once nobody is inside. Takes the locks. */
void limbo_release(struct sock *s);
/* What has gone by the ring comes into the report. With both locks, where others may be inside. */
void sock_flush_counts(struct sock *s);
/* Releases those that nobody is inside of any more. */
void limbo_look(void);
/*
 * Before the kernel closes fd, under both locks: what it cannot say for us, since its own queues are
 * empty.
 */
void limbo_last_words(struct sock *s, int fd);

/* Some are there. */
NEAR_EXTERN _Atomic int limbo_used;
/* Around a fork: nobody is on the way out of it. */
void limbo_forking(void);
void limbo_forked_parent(void);
/* In a forked child: what waits for the parent's threads is the parent's. */
void limbo_forked(void);
/* Each socket that is closed, and has its slot still. */
void limbo_each(void (*each)(struct sock *s, void *arg), void *arg);

#endif
