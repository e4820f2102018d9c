/* SPDX-License-Identifier: Apache-2.0 */
/* A call of several messages: what another thread closes while it sleeps in one is open for the next. */
#ifndef VD_CONN_STAY_H
#define VD_CONN_STAY_H

#include "base/cleanup.h"
#include "base/sigsafe.h"
#include "conn/sock.h"

struct stay {
	struct sock *s;
	int fd;
	bool held;
	bool some; /* it has moved a message */
	/* crit_handlers() when the first one began, for the last time. */
	uint32_t handlers;
	uint32_t forks;				/* sock_forks when that began */
	struct _pthread_cleanup_buffer leaving; /* while held */
};

/* A call of so many begins. What is not in shared memory is not held. */
void stay_begin(struct stay *y, struct sock *s, int fd, unsigned count);
/* The number of the connection for the next message; what the call was given, where it is not held. */
int stay_number(struct stay *y);
/* Ends it, as cancellation and a jump out of a handler do. */
void stay_end(struct stay *y);

/* The kernel has sent one: the first one it has begun anew behind handlers of before. NULL: it is the call's only one. */
static inline ssize_t stay_sent(struct stay *y, ssize_t n)
{
	if (y && !y->some)
		y->handlers = crit_handlers();
	return n;
}

/* It has had a ring, and so a sleep here is one that hears of all. */
static inline bool stay_may_sleep(struct sock *s)
{
	return load_acquire(&s->slot->phase) >= SLOT_ATTACHED && s->wire && s->in;
}

/* A further message is to be received on TCP. 0: the kernel has what ends a sleep, or the call may not wait. 1: it is
 * there no more; -errno. */
int stay_sleeps(struct stay *y, int flags);

/* As tx_send and rx_recv, of a message of such a call, and of a further one. That does not sleep where a signal has come
 * since the first one began, whichever message was at hand then: the call ends there. A receive of it: 0 also where the
 * next call has an error to be told. */
ssize_t tx_send_of(struct stay *y, struct sock *s, int fd, const struct iovec *iov,
		   int iovcnt, int flags);
ssize_t rx_recv_more(const struct stay *y, struct sock *s, int fd,
		     const struct iovec *iov, int iovcnt, int flags);

#endif
