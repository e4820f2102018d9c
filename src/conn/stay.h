/* SPDX-License-Identifier: Apache-2.0 */
/* A call of several messages: what another thread closes while it sleeps in one is open for the next. */
#ifndef VD_CONN_STAY_H
#define VD_CONN_STAY_H

#include "base/cleanup.h"
#include "conn/sock.h"

struct stay {
	struct sock *s;
	int fd;
	bool held;
	uint32_t forks;				/* sock_forks when that began */
	struct _pthread_cleanup_buffer leaving; /* while held */
};

/* A call of so many begins. What is not in shared memory is not held. */
void stay_begin(struct stay *y, struct sock *s, int fd, unsigned count);
/* The number of the connection for the next message; what the call was given, where it is not held. */
int stay_number(struct stay *y);
/* Ends it, as cancellation and a jump out of a handler do. */
void stay_end(struct stay *y);

/* A further message of such a call: a signal ends it as one that has moved something. Else as tx_send. */
ssize_t tx_send_more(struct sock *s, int fd, const struct iovec *iov, int iovcnt,
		     int flags);

#endif
