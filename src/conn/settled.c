/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a connection that is TCP's for good. Its calls go to the kernel uncounted: so the kernel's counts
 * are taken at the first of them, and at the end. */
#include "base/atomic.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/report.h"

void settled_begin(struct sock *s, int fd, bool sends)
{
	struct slot *sl = s->slot;
	uint64_t moved[2], none = 0;
	if (load_relaxed(&sl->settled[sends]) || tcp_moved(fd, &moved[1], &moved[0]) < 0)
		return;
	/* Relaxed: of threads that come here at the same time, one is enough. */
	atomic_compare_exchange_strong_explicit(&sl->settled[sends], &none,
						moved[sends] + 1, memory_order_relaxed,
						memory_order_relaxed);
}

/* Others count what they have, too: the last one has the rest. */
void settled_count(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t moved[2];
	if ((!load_relaxed(&sl->settled[0]) && !load_relaxed(&sl->settled[1])) ||
	    !slot_is_alone(sl) || tcp_moved(fd, &moved[1], &moved[0]) < 0)
		return;
	for (int sends = 0; sends < 2; sends++) {
		uint64_t from = load_relaxed(&sl->settled[sends]);
		if (!from || moved[sends] + 1 < from)
			continue;
		store_relaxed(&sl->settled[sends], moved[sends] + 1);
		report_add(sends ? &report_now.tx_tcp_bytes : &report_now.rx_tcp_bytes,
			   moved[sends] + 1 - from);
	}
}
