/* SPDX-License-Identifier: Apache-2.0 */
/* An end tells its peer which processor it runs on: peer_hint.c. Inline, for each send does it. */
#ifndef VD_CONN_PEER_HINT_H
#define VD_CONN_PEER_HINT_H

#include <sched.h>
#include <sys/rseq.h>

#include "base/atomic.h"
#include "conn/sock.h"

/* `cpu` is what TOLD_CPU and its like say, and differs from what was told before. */
void told_anew(struct sock *s, uint32_t cpu);

static inline uint32_t told_this_cpu(void)
{
	if (__rseq_size > 0) {
		const struct rseq *r = (const void *)((char *)__builtin_thread_pointer() +
						      __rseq_offset);
		return *(const uint32_t __attribute__((may_alias)) *)&r->cpu_id;
	}
	return (uint32_t)sched_getcpu();
}

/* The thread uses this connection, on the processor that it is on. */
static inline void wait_tell_cpu(struct sock *s)
{
	uint32_t cpu = ((told_this_cpu() + 1) & TOLD_CPU) | wait_self;
	/* Relaxed: only this process writes it, and a hint told twice is no harm. */
	if (__builtin_expect(load_relaxed(&s->cpu) != cpu, 0))
		told_anew(s, cpu);
}

#endif
