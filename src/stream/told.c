/* SPDX-License-Identifier: Apache-2.0 */
/* What an end tells its peer of the thread that uses it: see TOLD_CPU. */
#include <sched.h>
#include <sys/rseq.h>

#include "stream/sock.h"

_Thread_local uint32_t wait_self __attribute__((tls_model("initial-exec")));
uint32_t wait_processors = 1;

void wait_init(void)
{
	cpu_set_t set;

	/* Where there are more than a set has room for, nobody is ever crowded. */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		wait_processors = (uint32_t)CPU_COUNT(&set);
	else
		wait_processors = CPU_SETSIZE;
}

static uint32_t this_cpu(void)
{
	if (__rseq_size > 0) {
		const struct rseq *r = (const void *)((char *)__builtin_thread_pointer() +
						      __rseq_offset);
		return *(const uint32_t __attribute__((may_alias)) *)&r->cpu_id;
	}
	return (uint32_t)sched_getcpu();
}

void wait_tell_cpu(struct sock *s)
{
	uint32_t cpu = ((this_cpu() + 1) & TOLD_CPU) | wait_self;
	if (atomic_load_explicit(&s->cpu, memory_order_relaxed) == cpu)
		return;
	/* Relaxed, all three: a hint. */
	atomic_store_explicit(&s->cpu, cpu, memory_order_relaxed);
	atomic_store_explicit(&s->in->rx_cpu, cpu, memory_order_relaxed);
	atomic_store_explicit(&s->out->tx_cpu, cpu, memory_order_relaxed);
}
