/* SPDX-License-Identifier: Apache-2.0 */
/* A splice waits for a pipe: what another thread closes meanwhile is open for it. */
#ifndef VD_CONN_STAY_H
#define VD_CONN_STAY_H

#include "base/cleanup.h"
#include "base/sigsafe.h"
#include "conn/sock.h"

struct stay {
	struct sock *s;
	int fd;
	bool held;
	uint32_t forks;				/* sock_forks when that began */
	struct _pthread_cleanup_buffer leaving; /* while held */
};

/* The call begins. What is not in shared memory is not held. */
void stay_begin(struct stay *y, struct sock *s, int fd);
/* The number of the connection by now; what the call was given, where it is not held. */
int stay_number(struct stay *y);
/* Ends it, as cancellation and a jump out of a handler do. */
void stay_end(struct stay *y);

#endif
