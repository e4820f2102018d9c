/* SPDX-License-Identifier: Apache-2.0 */
/* Whether somebody reads a connection that is handed over: how far it was read, and since when. */
#include <stdint.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "conn/conn.h"

/* Who reads in turn may not be reading just now: so many ms, and naps of 1 ms, for one to begin, and to go on. */
#define BEGINS_MOST  20
#define GOES_ON_MOST 200
#define IN_VAIN	     UINT32_MAX /* in place of a number of naps: so many have been made */

/* Of all threads: where there is no time to run in, no reader has it either. */
static _Atomic uint32_t naps_made;

void sock_note_still(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t at = (uint32_t)load_relaxed(&s->in->consumed);
	uint32_t now = (uint32_t)clock_coarse_ms();
	if (load_relaxed(&sl->still_ms) && load_relaxed(&sl->still_at) == at)
		return;
	/* Relaxed, all: two that note it at once wait a little longer, or shorter. */
	store_relaxed(&sl->still_at, at);
	store_relaxed(&sl->still_naps, load_relaxed(&naps_made));
	store_relaxed(&sl->still_ms, now ? now : 1);
}

/*
 * A thread that reads withdraws the request, and so do other holders: the peer keeps back nothing for TCP then.
 * What is left they take from the ring, as they would from TCP. `taken` is how far it was read when
 * the wait began. Who passes a connection on, or starts a program with it, waits for somebody to begin: once for all
 * that are handed over together, and not again where it has not been read since.
 */
bool sock_is_being_read(struct sock *s, enum vd_reason reason, uint64_t taken)
{
	struct slot *sl = s->slot;
	if (__libc_single_threaded && slot_is_alone(sl))
		return false;
	sock_note_still(s);
	bool has_begun = load_relaxed(&s->in->consumed) != taken;
	if (!has_begun && reason != VD_REASON_PASSED && reason != VD_REASON_EXEC)
		return false;
	uint32_t most = has_begun ? GOES_ON_MOST : BEGINS_MOST;
	uint32_t since = load_relaxed(&sl->still_naps);
	if (since != IN_VAIN &&
	    ((uint32_t)clock_coarse_ms() - load_relaxed(&sl->still_ms) < most ||
	     load_relaxed(&naps_made) - since < most))
		return true;
	/* For other processes that have it, too, whose naps are others. */
	store_relaxed(&sl->still_naps, IN_VAIN);
	return false;
}

void sock_nap_beside_reader(void)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
	fetch_add_relaxed(&naps_made, 1);
}
