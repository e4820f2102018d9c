/* SPDX-License-Identifier: Apache-2.0 */
/* When a connection has earned its upgrade: upgrade_policy.c. */
#ifndef VD_CONN_UPGRADE_POLICY_H
#define VD_CONN_UPGRADE_POLICY_H

#include "base/atomic.h"
#include "conn/sock.h"

#define EARN_UNIT_SHIFT 14
/*
 * An upgrade costs both ends about as much as 16 turns on TCP: sends after a receive, or
 * receives after a send. They make a peer wait, which the ring saves. What only follows another
 * of its kind saves a sixteenth of that, and so do so many bytes, whose first way through the
 * ring's fresh memory is no faster than TCP.
 */
#define EARN_TURN_UNITS 16u
/* Of slot.earned, the low bit says whether the last was a send. */
#define EARN_UNIT 2u

/* What slot.earn_due begins with: 0 until the first connection has asked. */
NEAR_EXTERN _Atomic uint64_t earn_first_due;

/* What slot.earned is after one operation more. */
static inline uint64_t earn_after(uint64_t before, bool sends)
{
	bool turned = before == 0 || (before & 1) != sends;
	return (before & ~1ull) + (turned ? EARN_TURN_UNITS : 1) * EARN_UNIT + sends;
}

/*
 * One operation that may wait for the kernel. True when it is counted, and that is all: the upgrade
 * is not earned by it. False, and not counted, where earn_enough has to be asked. Each operation on
 * TCP comes by here first, so that most go no further.
 */
static inline bool earn_goes_on(struct slot *sl, bool sends)
{
	uint64_t now;
	if (load_relaxed(&sl->phase) != SLOT_EARNING)
		return false;
	now = earn_after(load_relaxed(&sl->earned), sends);
	if (now > load_relaxed(&sl->earn_due))
		return false;
	/* Relaxed, and not one step: of threads that count at the same time, one is enough. */
	store_relaxed(&sl->earned, now);
	return true;
}

/* The same, counted in any case: whether an upgrade is earned now. */
bool earn_enough(struct sock *s, int fd, bool sends);
/* So many have gone over TCP at once: at least 1 << EARN_UNIT_SHIFT. */
void earn_bytes(struct sock *s, size_t bytes);
/* It is upgraded: what did that cost? */
void earn_attached(struct sock *s);
/* The connection ends: was it worth it? Once for each. */
void earn_judge(struct sock *s);
/* How often this thread has lost its processor to another. For tests to replace. */
extern long (*earn_preempted)(void);

#endif
