/* SPDX-License-Identifier: Apache-2.0 */
/* SO_RCVTIMEO and SO_SNDTIMEO, which the kernel does not tell in full: they are remembered. */
#ifndef VD_CONN_TIMEOUT_H
#define VD_CONN_TIMEOUT_H

#include <sys/socket.h>

#include "base/atomic.h"
#include "conn/sock.h"

enum timeout_of { TIMEOUT_RX, TIMEOUT_TX };

/*
 * The kernel takes a negative time for "at once", and tells {0, 0} for that as well as for
 * "never". A socket that was accepted inherits what its listener had when the connection came,
 * which may have been either: UNKNOWN.
 */
#define TIMEOUT_UNKNOWN (-1)
#define TIMEOUT_NEVER	0
#define TIMEOUT_AT_ONCE 1

static inline int64_t timeout_ns(struct sock *s, enum timeout_of which)
{
	/* Relaxed: a call goes by what it finds when it begins. */
	return load_relaxed(&s->slot->timeout_ns[which]);
}

/* setsockopt of one of the two, under any of their numbers. 0 or -errno. */
int timeout_set(struct sock *s, int fd, int name, const void *value, socklen_t len);
bool timeout_is_name(int name);
/* s was accepted by a listener of ours. */
void timeout_inherit(struct sock *s, struct sock *listener);
/* What was set past us, or inherited. False: it cannot be known. Takes ctl. */
bool timeout_learn(struct sock *s, int fd);
/* As the kernel has it, where another process may have set it past us; but for "at once", which it does not tell. */
int64_t timeout_ask(struct sock *s, int fd, enum timeout_of which);

#endif
