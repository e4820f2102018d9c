/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves a copy of what goes through the rings in a buffer, while somebody asks for it. */
#ifndef VD_CONN_TRACE_H
#define VD_CONN_TRACE_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/reason.h"
#include "conn/sock.h"
#include "conn/trace_buffer.h"

/* Alone on its cache line: nothing in the process writes there but at a trace's ends. */
extern struct trace_wish trace_wish __attribute__((visibility("hidden")));

static inline bool trace_is_wished(void)
{
	/* Relaxed: a trace may begin and end an operation late. */
	return __builtin_expect(load_relaxed(&trace_wish.session) != TRACE_OFF, 0);
}

/*
 * All that follow: only where trace_is_wished. They never wait for who reads, and leave errno
 * alone.
 *
 * n bytes that are about to be published (TRACE_OUT, under tx_lock), or given back (TRACE_IN,
 * under rx_lock), at that position of the ring: before the cursor moves, so that an answer is
 * never recorded before what it answers.
 */
void trace_bytes(struct sock *s, enum trace_kind kind, uint64_t position,
		 const void *bytes, size_t n) __attribute__((cold));
/* The same for n bytes that ring_tx_glance has found room for: nothing is to be kept for it. */
void trace_sent(struct sock *s, size_t n) __attribute__((cold));
/* Something that ends a connection, or its time in the ring. fd: a descriptor of it, or -1. */
void trace_event(struct sock *s, int fd, enum trace_kind kind, enum vd_reason reason)
	__attribute__((cold));

/* In a forked child: the trace is the parent's. */
void trace_forked(void);

#endif
