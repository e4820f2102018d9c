/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: switches a connection down at their moment, and tells where it is. */
#include "preload/hook.h"
#include "readiness/pollset.h"

HOOK void viaduct_test_bounce(int fd);
HOOK int viaduct_test_gates(int fd);
HOOK void viaduct_test_one_way(void);
HOOK unsigned viaduct_test_poll_sets(void);
HOOK unsigned viaduct_test_poll_set(void);

/* Both directions go down to TCP and may come up again. No effect on other descriptors. */
void viaduct_test_bounce(int fd)
{
	struct sock *s = fd_sock(fd);

	if (s)
		sock_bounce(s, fd);
}

/* Which way it goes now: 16 * enum gate_state of receiving + that of sending. -1: not ours. */
int viaduct_test_gates(int fd)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return -1;
	return 16 * (int)gate_state(&s->slot->gate_rx) +
	       (int)gate_state(&s->slot->gate_tx);
}

/* From now on only those who have connected send through the ring. */
void viaduct_test_one_way(void)
{
	sock_one_way = true;
}

/* From now on small sets are polled as large ones are. Returns how many calls were since. */
unsigned viaduct_test_poll_sets(void)
{
	return pollset_eagerly();
}

/* How many entries the set has that this thread keeps of its polls. 0: none is kept. */
unsigned viaduct_test_poll_set(void)
{
	return (unsigned)pollset_kept();
}
