/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel call that a gate counts, and that may end by cancellation or longjmp. */
#ifndef VD_CONN_KERNEL_CALL_H
#define VD_CONN_KERNEL_CALL_H

#include "base/cleanup.h"
#include "conn/sock.h"

struct counted {
	struct sock *s;
	ssize_t result;
};

/* Ends of such a call, for that list: arg is a struct counted. They leave errno alone. */
void counted_rx_over(void *arg);
void counted_tx_over(void *arg);

/* The result of `call`, which rx_enter or tx_enter has counted in; `over` counts it out. */
#define COUNTED(over, sock, call)                                                        \
	__extension__({                                                                  \
		struct counted counted_ = {sock, -1};                                    \
		struct _pthread_cleanup_buffer buffer_;                                  \
		_pthread_cleanup_push(&buffer_, over, &counted_);                        \
		counted_.result = (call);                                                \
		_pthread_cleanup_pop(&buffer_, 1);                                       \
		counted_.result;                                                         \
	})

#endif
