/* SPDX-License-Identifier: Apache-2.0 */
/* What an end tells its peer of the thread that uses it: see TOLD_CPU. */
#include <sched.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "conn/peer_hint.h"

_Thread_local uint32_t wait_self __attribute__((tls_model("initial-exec")));
uint32_t wait_processors = 1;

void wait_init(void)
{
	cpu_set_t set;

	/* Where there are more than a set has room for, nobody is ever crowded. */
	/* The kernel writes no more than it has. */
	CPU_ZERO(&set);
	if (kernel_call4(SYS_sched_getaffinity, 0, sizeof(set), (long)&set, 0) > 0)
		wait_processors = (uint32_t)CPU_COUNT(&set);
	else
		wait_processors = CPU_SETSIZE;
}

void told_anew(struct sock *s, uint32_t cpu)
{
	/* Relaxed, all three: a hint. */
	store_relaxed(&s->cpu, cpu);
	store_relaxed(&s->in->rx_cpu, cpu);
	store_relaxed(&s->out->tx_cpu, cpu);
}
