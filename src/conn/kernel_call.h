/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel call that a gate counts, and that may end by cancellation or longjmp. */
#ifndef VD_CONN_KERNEL_CALL_H
#define VD_CONN_KERNEL_CALL_H

#include "base/cleanup.h"
#include "base/sigsafe.h"
#include "conn/sock.h"

/*
 * Forks that led to this process. A handler may fork amid a call, and the child goes on with it as well. What that had
 * counted before is its parent's to count out, or is counted no more: see forget_threads.
 */
extern uint32_t sock_forks;

struct counted {
	struct sock *s;
	ssize_t result;
	uint32_t forks; /* sock_forks when it was counted */
};

/* Ends of such a call, for that list: arg is a struct counted. They leave errno alone. */
void counted_rx_over(void *arg);
void counted_tx_over(void *arg);

/*
 * The result of `call`, which rx_enter or tx_enter has counted in; `over` counts it out. No handler forks, or jumps
 * away, between the count and the note of it: that critical section begins in rx_enter or tx_enter.
 */
#define COUNTED(over, sock, call)                                                        \
	__extension__({                                                                  \
		struct counted counted_ = {sock, -1, sock_forks};                        \
		struct _pthread_cleanup_buffer buffer_;                                  \
		_pthread_cleanup_push(&buffer_, over, &counted_);                        \
		crit_leave();                                                            \
		counted_.result = (call);                                                \
		crit_enter();                                                            \
		_pthread_cleanup_pop(&buffer_, 1);                                       \
		crit_leave();                                                            \
		counted_.result;                                                         \
	})

#endif
